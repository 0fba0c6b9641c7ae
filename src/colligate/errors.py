"""The exceptions of colligate. Each is one line: what happened, why, and a hint.

`UsageError` is a wrong call (exit status 2). `ReadingError` is one file that cannot be read,
`ModelError` a model call that failed, `LibraryError` a problem of the library on disk.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


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
    """Return the error inside the groups that tasks have wrapped it in, colligate's own first."""
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
    """A model name that no backend understands."""


class UnknownStrategy(UsageError):
    """A strategy name that is not registered."""


class UnknownDocument(UsageError):
    """A document id that is not in the library."""


class ReadingError(ColligateError):
    """One file cannot be read; the others still can."""


class UnsupportedFormat(ReadingError):
    """No reader for this kind of file."""


class CorruptFile(ReadingError):
    """The file cannot be parsed."""


class EncryptedFile(ReadingError):
    """The file needs a password."""


class NoText(ReadingError):
    """The file holds no text: scanned, or empty."""


class TooLarge(ReadingError):
    """The file is over a limit: its size, or what it unpacks to."""


class ModelError(ColligateError):
    """A model call failed."""


class EndpointUnreachable(ModelError):
    """The endpoint does not answer, or not in time."""


class NotAuthorised(ModelError):
    """The key is missing or refused."""


class RequestRefused(ModelError):
    """The server refuses this request."""


class RateLimited(ModelError):
    """The server still refuses for its rate limit after all retries."""


class ServerFailed(ModelError):
    """The server still fails after all retries."""


class ContextTooSmall(ModelError):
    """The prompt does not fit the model's window."""


class MalformedOutput(ModelError):
    """The model's output could not be understood. `reply` is what it wrote last."""

    reply: str = ""


class MissingCapability(ModelError):
    """The model cannot do what the strategy needs."""


class MissingExtra(ModelError):
    """An optional package is not installed. A hint of pip's becomes one that fits where we run."""

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        fitting = hint.replace("pip install 'colligate", f"{find_installer()} 'colligate")
        super().__init__(what, why, fitting)

    @classmethod
    def of(cls, error: ImportError, what: str, extra: str) -> MissingExtra:
        """Return the error for a package of an extra that cannot be imported."""
        why = f"{error.name} is not installed" if error.name else str(error) or "it is missing"
        return cls(what, why, f"pip install 'colligate[{extra}]'")


def find_installer() -> str:
    """Return the command that installs into this environment, which pipx or uv may have made."""
    made = Path(sys.prefix)
    if (made / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(made.name)} install"
    if (made / "uv-receipt.toml").exists():
        return f"uv pip install --python {shlex.quote(str(made))}"
    return "pip install"


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
    """A record of a data set is wrong or cut off; the text has file, line and reason."""


class SpanError(ColligateError):
    """A span is outside its document."""


class BudgetExceeded(ColligateError):
    """The tokens, money or time allowed are spent."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to a mistyped one, or None if none is near.

    >>> closest("bundeld", ["bundled", "gguf:PATH"])
    'bundled'
    >>> closest("zebra", ["bundled"]) is None
    True
    """
    from rapidfuzz import fuzz, process

    found = process.extractOne(name, list(known), scorer=fuzz.ratio, score_cutoff=60)
    return found[0] if found else None
