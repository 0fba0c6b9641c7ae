"""Everything that can go wrong, and what the person reading it can do.

Each error is one line: what happened, why, and a hint.

    ColligateError
    ├── UsageError               the call itself is wrong (exit status 2)
    │   ├── MissingPath          a path that does not exist
    │   ├── NoDocuments          paths that hold nothing readable
    │   ├── UnknownModel         a model name no backend understands
    │   ├── UnknownStrategy      a strategy name that is not registered
    │   └── UnknownDocument      a document id that is not in the library
    ├── ReadingError             one file cannot be read; the others still can
    │   ├── UnsupportedFormat    no reader for this kind of file
    │   ├── CorruptFile          the reader gave up on it
    │   ├── EncryptedFile        it needs a password
    │   ├── NoText               it holds no text (scanned, or empty)
    │   ├── TooLarge             it is over a limit (size, or what it unpacks to)
    │   ├── FileChanged          it changed while it was read
    │   └── NotPermitted         the operating system refused
    ├── ModelError               a model call failed
    │   ├── EndpointUnreachable  nobody answers there, or not in time
    │   ├── NotAuthorised        the key is missing or refused
    │   ├── RequestRefused       the server refuses this request (other 4xx)
    │   ├── RateLimited          still refused after the bounded retries
    │   ├── ServerFailed         still 5xx after the bounded retries
    │   ├── ContextTooSmall      the prompt does not fit the model's window
    │   ├── MalformedOutput      the model's output could not be understood
    │   ├── MissingCapability    the model cannot do what the strategy needs
    │   ├── MissingExtra         an optional package is not installed
    │   └── WeightsUnavailable   weights cannot be fetched, or fail their digest
    ├── LibraryError             the library on disk
    │   ├── LibraryLocked        another process holds it
    │   ├── LibraryVersion       made by another version of colligate
    │   ├── LibraryDamaged       catalogue or index cannot be opened
    │   └── EmbedderMismatch     its passages were embedded by another model
    ├── FaultyRecord             a record of a data set is wrong or cut off
    ├── SpanError                a span outside its document
    └── BudgetExceeded           the tokens, money or time allowed are spent
"""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import fuzz, process


class ColligateError(Exception):
    """An error a person can act on: what happened, why, and a hint.

    >>> str(ColligateError("cannot read a.pdf", "it is encrypted", "remove its password"))
    'cannot read a.pdf: it is encrypted; remove its password'
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        self.what = _one_line(what)
        self.why = _one_line(why)
        self.hint = _one_line(hint)
        line = self.what + (f": {self.why}" if self.why else "")
        super().__init__(line + (f"; {self.hint}" if self.hint else ""))

    def __reduce__(self) -> tuple[type[ColligateError], tuple[str, str, str]]:
        # Reading runs in other processes, so errors travel between them.
        return (type(self), (self.what, self.why, self.hint))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def cause(error: BaseException) -> BaseException:
    """The error itself where tasks have wrapped it in groups, ours before any other."""
    while isinstance(error, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = error.exceptions
        error = next((e for e in inner if isinstance(e, ColligateError)), inner[0])
    return error


class UsageError(ColligateError):
    """The call itself is wrong."""


class MissingPath(UsageError):
    """A path that does not exist."""


class NoDocuments(UsageError):
    """Paths that hold nothing readable."""


class UnknownModel(UsageError):
    """A model name no backend understands."""


class UnknownStrategy(UsageError):
    """A strategy name that is not registered."""


class UnknownDocument(UsageError):
    """A document id that is not in the library."""


class ReadingError(ColligateError):
    """One file cannot be read; the others still can."""


class UnsupportedFormat(ReadingError):
    """No reader for this kind of file."""


class CorruptFile(ReadingError):
    """The reader gave up on the file."""


class EncryptedFile(ReadingError):
    """The file needs a password."""


class NoText(ReadingError):
    """The file holds no text: scanned, or empty."""


class TooLarge(ReadingError):
    """The file is over a limit: its size, or what it unpacks to."""


class FileChanged(ReadingError):
    """The file changed while it was read."""


class NotPermitted(ReadingError):
    """The operating system refused to open it."""


class ModelError(ColligateError):
    """A model call failed."""


class EndpointUnreachable(ModelError):
    """Nobody answers at the endpoint, or not in time."""


class NotAuthorised(ModelError):
    """The key is missing or refused."""


class RequestRefused(ModelError):
    """The server refuses this request."""


class RateLimited(ModelError):
    """Still refused for rate after the bounded retries."""


class ServerFailed(ModelError):
    """Still failing on the server's side after the bounded retries."""


class ContextTooSmall(ModelError):
    """The prompt does not fit the model's window."""


class MalformedOutput(ModelError):
    """The model's output could not be understood. `reply` is what it wrote last."""

    reply: str = ""


class MissingCapability(ModelError):
    """The model cannot do what the strategy needs."""


class MissingExtra(ModelError):
    """An optional package is not installed."""


class WeightsUnavailable(ModelError):
    """Weights cannot be fetched, or fail their digest."""


class LibraryError(ColligateError):
    """The library on disk."""


class LibraryLocked(LibraryError):
    """Another process holds the library."""


class LibraryVersion(LibraryError):
    """The library was made by another version of colligate."""


class LibraryDamaged(LibraryError):
    """Catalogue or index cannot be opened."""


class EmbedderMismatch(LibraryError):
    """The library's passages were embedded by another model."""


class FaultyRecord(ColligateError):
    """A record of a data set is wrong or cut off; it says the file, the line and the reason."""


class SpanError(ColligateError):
    """A span outside its document."""


class BudgetExceeded(ColligateError):
    """The tokens, money or time allowed are spent."""


# The name a person most likely meant.


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to a mistyped one, or None when none is near.

    >>> closest("bundeld", ["bundled", "gguf:PATH"])
    'bundled'
    >>> closest("zebra", ["bundled"]) is None
    True
    """
    found = process.extractOne(name, list(known), scorer=fuzz.ratio, score_cutoff=60)
    return found[0] if found else None
