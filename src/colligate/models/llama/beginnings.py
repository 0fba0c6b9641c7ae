"""Keep on disk what was computed of the beginnings that prompts have in every run.

A command that answers one question would compute the examples of its prompts anew each time. Only
beginnings that `keep_beginning` declares are kept: never a text of a document or a user.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colligate.models.local import Tokens, count_shared

_MOST = 24  # files: 28 KB for each token of `bundled`, 15 to 20 MB for a beginning
_DIGEST = 32  # bytes at the start of a file: the SHA-256 of the rest


class Beginnings:
    """The keys and values of beginnings, a file each. `version` changes with whatever made them."""

    def __init__(self, folder: Path, version: str, beginnings: Sequence[Sequence[int]]) -> None:
        self._folder, self._version = folder, version
        self._beginnings = [np.asarray(ids, np.int32) for ids in beginnings]

    def match(self, ids: Tokens) -> int:
        """Return how many tokens of a prompt are such a beginning; 0 if there is no such one."""
        sizes = [len(each) for each in self._beginnings if count_shared(each, ids) == len(each)]
        return max(sizes, default=0)

    def load(self, ids: NDArray[np.int32]) -> NDArray[np.uint8] | None:
        """Return what was saved for a beginning, None if nothing was or the file is damaged."""
        file = self._file(ids)
        try:
            data = file.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            return None
        with suppress(OSError):
            os.utime(file)  # it is of use: others go first
        return np.frombuffer(data, np.uint8, offset=_DIGEST).copy()

    def save(self, ids: NDArray[np.int32], data: NDArray[np.uint8]) -> None:
        """Save what was computed of a beginning. An answer does not fail because that fails."""
        file = self._file(ids)
        new = file.with_suffix(f".{os.getpid()}.new")
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                raw = data.tobytes()
                new.write_bytes(hashlib.sha256(raw).digest() + raw)
                new.replace(file)
            finally:
                new.unlink(missing_ok=True)
            files = sorted(self._folder.iterdir(), key=lambda each: each.stat().st_mtime)
            for old in files[:-_MOST]:
                old.unlink(missing_ok=True)

    def _file(self, ids: NDArray[np.int32]) -> Path:
        key = self._version.encode() + ids.astype("<i4").tobytes()
        return self._folder / hashlib.sha256(key).hexdigest()
