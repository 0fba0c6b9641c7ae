"""Folders and files that only their owner can read: they repeat documents, questions and answers.

What exists already keeps its permissions, so that a library can be shared on purpose.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, unless it exists."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_private_file(file: Path, *, fresh: bool = False) -> None:
    """Make an empty file that only its owner can read, unless it exists.

    With `fresh`, FileExistsError if it exists.
    """
    try:
        # An existing file is not even opened: closing it would end SQLite's locks on it.
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if fresh:
            raise
