"""Files of results survive a kill at any byte, and a folder belongs to one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, UsageError
from colligate.lab.jobs.files import ResultFile, lock_folder

RESULTS: ResultFile[int, str] = ResultFile(
    "results.jsonl",
    lambda line: (int(line["n"]), line["text"]),
    lambda key, text: {"n": key, "text": text},
    "a number",
    "delete the line",
)
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=5)


def write(folder: Path, *results: tuple[int, Any]) -> dict[int, str]:
    """Append results; return those that were there."""
    before: dict[int, str] = {}
    with RESULTS.open(folder, before) as file:
        for key, text in results:
            RESULTS.append(file, key, text)
    return before


@given(texts=TEXTS, data=st.data())
def test_whatever_is_torn_off_the_end_whole_lines_stay_and_more_can_follow(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("job")
    file = folder / RESULTS.name
    ends = []
    for each in enumerate(texts):
        write(folder, each)
        ends.append(file.stat().st_size)
    file.touch()
    at = data.draw(st.integers(0, ends[-1] if ends else 0))
    os.truncate(file, at)
    # A line that lacks nothing but its line break is whole.
    whole = {
        n: text for (n, text), end in zip(enumerate(texts), ends, strict=True) if end - 1 <= at
    }

    assert RESULTS.read(folder) == whole
    assert write(folder, (9, "new")) == whole
    assert RESULTS.read(folder) == {**whole, 9: "new"}
    assert file.read_bytes().endswith(b"\n")


def test_a_damaged_line_among_others_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    write(tmp_path, (1, ""))
    file = tmp_path / RESULTS.name
    with file.open("a") as lines:
        lines.write('{"text": ""}\n{"n": 3, "text": ""}\n')
    before = file.read_bytes()

    with pytest.raises(FaultyRecord, match=r"line 2 of .*results.jsonl is not a number: KeyError"):
        RESULTS.read(tmp_path)
    with pytest.raises(FaultyRecord, match=r"line 2 .*; delete the line"):
        write(tmp_path)
    assert file.read_bytes() == before


def test_a_line_is_on_the_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, synced, real = tmp_path / RESULTS.name, list[int](), os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        synced.append(file.stat().st_size)

    with RESULTS.open(tmp_path, {}) as opened:
        monkeypatch.setattr(os, "fsync", fsync)
        RESULTS.append(opened, 1, "one")
        assert synced[-1] == len(file.read_bytes()) > 0


def test_what_no_encoding_can_write_is_replaced_and_no_number_at_all_is_refused(
    tmp_path: Path,
) -> None:
    write(tmp_path, (1, "half \ud83d of it, and a \u2028 line"))
    assert RESULTS.read(tmp_path) == {1: "half ? of it, and a \u2028 line"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path, (2, float("nan")))
    assert list(RESULTS.read(tmp_path)) == [1]


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    refused = pytest.raises(UsageError, match=r"out is in use: another process works in it")
    with lock_folder(folder), refused, lock_folder(folder):
        pass

    with lock_folder(folder):
        pass  # it was released
    (tmp_path / "file").write_text("", "utf-8")
    refused = pytest.raises(UsageError, match="a file is in its place; name another --out")
    with refused, lock_folder(tmp_path / "file"):
        pass
