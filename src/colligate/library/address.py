"""Where the server that holds a library answers, said beside its lock.

The file is its owner's alone, since it has the token that the server wants. It may outlive a
server that was killed, so whoever reads it looks whether that process holds the lock, and asks
the address whether it is still that `instance`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "server.json"
NEW = "server.new"


@dataclass(frozen=True)
class Address:
    """A server's URL, which ends in a slash, its token if it wants one, its process and start."""

    url: str
    token: str | None
    instance: str
    pid: int


def publish(library: Path, address: Address) -> None:
    """Say where a library's server answers.

    Raises:
        OSError: the file cannot be written.
    """
    new = library / NEW
    new.unlink(missing_ok=True)
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
    new.replace(library / FILE)


def withdraw(library: Path, address: Address) -> None:
    """Take back what was published, unless another server has published since."""
    if published(library) == address:
        with suppress(OSError):
            (library / FILE).unlink(missing_ok=True)


def published(library: Path) -> Address | None:
    """What is said of a library's server; None where nothing is, or another may not read it."""
    try:
        return Address(**json.loads((library / FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
