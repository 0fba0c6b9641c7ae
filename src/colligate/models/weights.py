"""Model weights on this machine: fetched once, pinned by SHA-256."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.fetching import OnProgress, digest, fetch
from colligate.models.pinned import PINNED, Pinned, PinnedFile

__all__ = [
    "BUNDLED",
    "PINNED",
    "Listed",
    "OnProgress",
    "find",
    "home",
    "listing",
    "pull",
    "remove",
    "verify",
]

BUNDLED = "qwen2.5-coder-1.5b"
"""The weights behind the model name `bundled`."""


@dataclass(frozen=True)
class Listed:
    """A line of `colligate models list`. `path` is the folder, whether or not it exists yet."""

    name: str
    purpose: str
    megabytes: float
    licence: str
    present: bool
    path: Path
    digest: str


def home() -> Path:
    """Where colligate keeps its data: COLLIGATE_HOME, else the user's data directory."""
    chosen = os.environ.get("COLLIGATE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return platformdirs.user_data_path("colligate", appauthor=False)


def find(name: str) -> dict[str, Path] | None:
    """The files of some weights by role, or None unless all are here at their right size.

    Raises:
        UnknownModel: if no weights have this name.
    """
    weights, folder = _pinned(name), _folder(name)
    found = {role: folder / file.name for role, file in weights.files.items()}
    return found if all(_is_here(file, folder) for file in weights.files.values()) else None


def pull(name: str, on_progress: OnProgress | None = None) -> dict[str, Path]:
    """Fetch what is missing and return the files by role. Blocks; may run in any thread.

    Several processes may pull at once: one downloads, the others wait for it.

    Raises:
        UnknownModel: if no weights have this name.
        WeightsUnavailable: if no source has the right bytes, or they cannot be stored.
    """
    weights, folder = _pinned(name), _folder(name)
    if found := find(name):
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            done = 0
            for file in weights.files.values():
                if not _is_here(file, folder):
                    fetch(weights, file, folder, done, on_progress or _silent)
                done += file.size
    except OSError as error:
        mend = "free some space" if error.errno == errno.ENOSPC else "set COLLIGATE_HOME elsewhere"
        raise WeightsUnavailable(
            f"cannot store the weights of {name} in {folder}",
            error.strerror or str(error),
            f"{mend} ({weights.size / 1e6:.0f} MB are needed) and try again",
        ) from error
    return {role: folder / file.name for role, file in weights.files.items()}


def verify(name: str) -> list[Path]:
    """The files that are here with a wrong digest; reads every byte. Empty when all is well."""
    folder = _folder(name)
    here = [f for f in _pinned(name).files.values() if (folder / f.name).is_file()]
    return [folder / f.name for f in here if digest(folder / f.name) != f.sha256]


def remove(name: str) -> bool:
    """Delete some weights, unfinished downloads too; whether there was anything."""
    _pinned(name)
    if not _folder(name).is_dir():
        return False
    shutil.rmtree(_folder(name))
    return True


def listing() -> list[Listed]:
    """All weights that can be fetched, and which are here."""
    return [
        Listed(
            name=weights.name,
            purpose=weights.purpose,
            megabytes=weights.size / 1e6,
            licence=weights.licence,
            present=find(weights.name) is not None,
            path=_folder(weights.name),
            digest=weights.files["model"].sha256,
        )
        for weights in PINNED.values()
    ]


def _pinned(name: str) -> Pinned:
    if name not in PINNED:
        raise UnknownModel(
            f"no weights are called {name}", f"there are {', '.join(PINNED)}", "take one of them"
        )
    return PINNED[name]


def _folder(name: str) -> Path:
    return home() / "models" / name


def _is_here(file: PinnedFile, folder: Path) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def _silent(done_bytes: int, total_bytes: int, what: str) -> None:
    pass
