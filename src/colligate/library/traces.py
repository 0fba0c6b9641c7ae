"""What a server keeps in a library's folder that may repeat a document: runs, and files sent.

A run is one file of events and one that says how it ended; both name every document whose text
stands in them, as JSON strings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

RUNS = "runs"
FILES = "files"


def erase(library: Path, documents: Collection[str], sources: Collection[str]) -> None:
    """Delete the runs that name one of these documents, and which of `sources` were sent here.

    `sources` are the files of documents that no other document is left of.
    """
    runs = library / RUNS
    if runs.is_dir():
        found = (file for file in runs.iterdir() if mentions(file, documents))
        for run in {file.with_suffix("") for file in found}:
            for suffix in (".jsonl", ".json", ".new"):
                run.with_name(run.name + suffix).unlink(missing_ok=True)
    own = Path(os.path.realpath(library / FILES))
    for source in sources:
        file = Path(os.path.realpath(source))
        if own in file.parents:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # another file lies beside it
                file.parent.rmdir()


def mentions(file: Path, documents: Collection[str]) -> bool:
    """Whether a file of JSON lines has the id of one of these documents as a string."""
    ids = {json.dumps(document)[1:-1].encode() for document in documents}
    try:
        with file.open("rb") as lines:
            return any(not ids.isdisjoint(line.split(b'"')) for line in lines)
    except FileNotFoundError:
        return False
