"""Named tokens: who may do what, in a file of digests that `colligate token` writes."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from colligate.errors import UsageError
from colligate.server.config import LIBRARY_NAME


class Right(StrEnum):
    """What a token allows; `admin` allows everything."""

    READ = "read"
    ASK = "ask"
    WRITE = "write"
    ADMIN = "admin"


class NamedToken(BaseModel, extra="forbid", frozen=True):
    """A token as its file holds it: a digest, rights, and the libraries that exist for it.

    Each of `libraries` is a name, or NAME:FOLDER for the documents of the files in a folder alone;
    None stands for all libraries.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    rights: Annotated[tuple[Right, ...], Field(min_length=1)]
    made: date
    libraries: tuple[Annotated[str, Field(pattern=rf"^{LIBRARY_NAME}(:.+)?$")], ...] | None = None
    per_minute: Annotated[None, Field(exclude=True)] = None  # earlier versions wrote it

    @property
    def short_digest(self) -> str:
        """What tells it from another token of its name."""
        return self.sha256[:16]

    def may(self, rights: Collection[Right]) -> bool:
        """Return whether it has one of these rights."""
        return Right.ADMIN in self.rights or not {*rights}.isdisjoint(self.rights)

    def folders(self, library: str) -> frozenset[str]:
        """Return the folders of a library that it sees: "" is all of it, none that it sees none."""
        if self.libraries is None:
            return frozenset({""})
        bound = (each.partition(":") for each in self.libraries)
        return frozenset(folder for name, _, folder in bound if name == library)

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.libraries is not None and Right.ADMIN in self.rights:
            raise ValueError("the right admin cannot be bound to libraries")
        if Right.WRITE in self.rights and any(":" in each for each in self.libraries or ()):
            raise ValueError("the right write cannot be bound to a folder")
        return self


CALLER: ContextVar[NamedToken | None] = ContextVar("caller", default=None)
"""The named token of the request that is being answered; None means that everything is allowed."""

_LIST = TypeAdapter(list[NamedToken])
_MOST_BYTES = 1 << 20
_PATIENCE = 10.0  # seconds that a command waits for another


class TokenFile:
    """The named tokens of a file; it is read again when it changes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._seen: tuple[int, ...] = ()
        self._tokens: list[NamedToken] = []

    def read(self) -> list[NamedToken]:
        """Return the tokens, in the order they were made.

        UsageError if the file cannot be read, is not valid, or others can read or change it.
        """
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                seen = (found.st_ino, found.st_mtime_ns, found.st_size)
                if seen != self._seen:
                    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
                        why, hint = "other users can read or change it", f"chmod 600 {self.path}"
                        raise UsageError(f"{self.path} is not private", why, hint)
                    self._tokens = _LIST.validate_json(file.read(_MOST_BYTES))
                    self._seen = seen
        except OSError as error:
            hint = f"`colligate token make NAME --tokens {self.path}` makes it"
            raise UsageError(f"cannot read {self.path}", error.strerror or "", hint) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            why = ": ".join([".".join(map(str, first["loc"])), first["msg"]])
            raise UsageError(f"{self.path} is not a list of tokens", why) from None
        return self._tokens

    def find(self, given: str) -> NamedToken | None:
        """Return the token that was sent, compared in constant time."""
        digest = _digest(given)
        found = [each for each in self.read() if secrets.compare_digest(each.sha256, digest)]
        return found[0] if found else None

    def named(self, name: str) -> NamedToken | None:
        return next((each for each in self.read() if each.name == name), None)

    def make(
        self, name: str, rights: Collection[Right], libraries: Sequence[str] | None = None
    ) -> str:
        """Add a token and return it: only its digest is kept."""
        token = secrets.token_urlsafe(32)
        try:
            made = NamedToken(
                name=name,
                sha256=_digest(token),
                rights=tuple(right for right in Right if right in rights),
                made=datetime.now(UTC).date(),
                libraries=None if libraries is None else tuple(libraries),
            )
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            why = str(fault["msg"]).removeprefix("Value error, ")
            if fault["loc"] == ("name",):
                why = "expected at most 128 letters, digits and . _ - @ +, a letter or digit first"
            elif fault["loc"]:
                why = f"{fault['input']!r} is neither the NAME of a library nor NAME:FOLDER"
            raise UsageError(f"cannot make the token {name!r}", why) from None
        with self._locked():
            tokens = self.read() if self.path.exists() else []
            if any(each.name == name for each in tokens):
                why = f"{self.path} has one of this name"
                raise UsageError(f"cannot make the token {name}", why, "revoke it first")
            self._write([*tokens, made])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token; a running server refuses it from the next request on."""
        with self._locked():
            tokens = self.read()
            left = [each for each in tokens if each.name != name]
            if len(left) == len(tokens):
                why = f"{self.path} has {', '.join(each.name for each in tokens) or 'none'}"
                raise UsageError(f"there is no token {name!r}", why)
            self._write(left)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other commands from changing the file at the same time."""
        try:
            with FileLock(f"{self.path}.lock", timeout=_PATIENCE, mode=0o600):
                yield
        except (Timeout, OSError) as error:
            why = getattr(error, "strerror", None) or "another command holds it"
            raise UsageError(f"cannot write {self.path}", why) from error

    def _write(self, tokens: list[NamedToken]) -> None:
        """Replace the file, completely or not at all; only its owner may read it."""
        new = self.path.with_name(f"{self.path.name}.new")
        made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(made, "wb") as file:
            file.write(_LIST.dump_json(tokens, indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def _digest(token: str) -> str:
    # Tokens are 32 random bytes: nobody finds one by trying, however fast the digest is.
    return hashlib.sha256(token.encode()).hexdigest()
