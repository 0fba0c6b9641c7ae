"""Files that came by HTTP: their names made safe, their bytes kept in the library's folder."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from colligate.library.traces import FILES_FOLDER

_LONGEST = 180  # bytes; file systems take 255
_LONGEST_SUFFIX = 20
_PIECE = 1 << 20
# Windows, too, must be able to store the name.
_FORBIDDEN = frozenset('<>:"|?*')


def safe_name(given: str | None) -> str:
    r"""A name for a file, whatever it was called: no folders, nothing that drives a terminal.

    >>> safe_name("../../etc/passwd"), safe_name("C:\\Reports\\Q3.pdf"), safe_name("..")
    ('passwd', 'Q3.pdf', 'file')
    """
    last = (given or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    plain = "".join(
        "_" if c in _FORBIDDEN else c
        for c in unicodedata.normalize("NFC", last)
        if unicodedata.category(c)[0] != "C"  # control, formatting, surrogates, unassigned
    )
    plain = " ".join(plain.split()).lstrip(". ~").rstrip(". ")
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix.encode()) > _LONGEST_SUFFIX:
        stem, suffix = plain, ""
    stem = stem.encode()[:_LONGEST].decode(errors="ignore").rstrip(". ")
    return (f"{stem or 'file'}.{suffix}" if suffix else stem) or "file"


def store(file: BinaryIO, given: str | None, library: Path) -> Path:
    """Keep a file in a library's folder, under its own name in a folder of its digest's name.

    The same bytes of the same name take one place, however often they come. Blocking.
    """
    folder = library / FILES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    coming = folder / f"{secrets.token_hex(8)}.part"
    digest = hashlib.sha256()
    try:
        with coming.open("xb") as into:
            while piece := file.read(_PIECE):
                digest.update(piece)
                into.write(piece)
        place = folder / digest.hexdigest()[:24]
        place.mkdir(exist_ok=True)
        stored = place / safe_name(given)
        if not stored.exists():  # it may be read at this moment
            coming.replace(stored)
    finally:
        coming.unlink(missing_ok=True)
    return stored


def sweep(library: Path, wanted: Collection[str]) -> None:
    """Delete the files that came by HTTP of which no document is left. Blocking.

    `wanted` are the paths of those that stay.
    """
    folder = library / FILES_FOLDER
    if not folder.is_dir():
        return
    stay = {os.path.realpath(path) for path in wanted}
    for place in folder.iterdir():
        if place.is_dir() and not place.is_symlink():
            for file in place.iterdir():
                if os.path.realpath(file) not in stay:
                    file.unlink()
            if not any(place.iterdir()):
                place.rmdir()
        elif place.suffix != ".part":
            place.unlink()


def space_left(library: Path) -> int:
    """Bytes free on the disk of a library's folder, or of the folder it will be made in."""
    place = library
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
