"""Where the server that holds a library answers.

The file is readable by its owner alone, since it has the server's token. It may outlive a server
that was killed, so its reader checks that the process holds the lock (`lock.find_holder`), and asks
the address whether it is still the same `instance`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_FILE = "server.json"
_NEW = "server.new"
ADDRESS_FILES = (_FILE, _NEW)


@dataclass(frozen=True)
class Address:
    """A server's URL (with a slash at its end), token if it wants one, instance and process."""

    url: str
    token: str | None
    instance: str
    pid: int


def publish_address(library: Path, address: Address) -> None:
    """Write a server's address into its library; raise OSError if that is not possible."""
    new = library / _NEW
    new.unlink(missing_ok=True)
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
    new.replace(library / _FILE)


def withdraw_address(library: Path, address: Address) -> None:
    """Delete the address, unless another server has published its own since."""
    if read_address(library) == address:
        with suppress(OSError):
            (library / _FILE).unlink(missing_ok=True)


def read_address(library: Path) -> Address | None:
    """Return the address of a library's server, or None if it is absent or unreadable."""
    try:
        return Address(**json.loads((library / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
