"""Files in a library's folder that may repeat a document: a server's runs, and uploads.

A run is a file of events and a file with its result; both name, as JSON strings, every document
whose text they hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

RUNS_FOLDER = "runs"
FILES_FOLDER = "files"


def erase_traces(library: Path, documents: Collection[str], sources: Collection[str]) -> None:
    """Delete the runs that name one of `documents`, and those of `sources` that were uploaded.

    `sources` are the files of removed documents from which no other document was read.
    """
    runs = library / RUNS_FOLDER
    if runs.is_dir():
        found = (file for file in runs.iterdir() if mentions(file, documents))
        for run in {file.with_suffix("") for file in found}:
            for suffix in (".jsonl", ".json", ".new"):
                run.with_name(run.name + suffix).unlink(missing_ok=True)
    own = Path(os.path.realpath(library / FILES_FOLDER))
    for source in sources:
        file = Path(os.path.realpath(source))
        if own in file.parents:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # other files are in its folder
                file.parent.rmdir()


def mentions(file: Path, documents: Collection[str]) -> bool:
    """Return whether a file of JSON lines has one of these document ids as a string."""
    ids = {json.dumps(document)[1:-1].encode() for document in documents}
    try:
        with file.open("rb") as lines:
            return any(not ids.isdisjoint(line.split(b'"')) for line in lines)
    except FileNotFoundError:
        return False
