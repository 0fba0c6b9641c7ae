"""Files of JSON lines survive a kill at any byte, and a folder belongs to one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, UsageError
from colligate.lab.jobs.files import JsonlReader, JsonlWriter, lock_folder

READER: JsonlReader[dict[str, Any]] = JsonlReader(
    lambda line: {"n": int(line["n"]), "text": line["text"]}, "a number", "delete the line"
)
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=5)


def write(file: Path, *lines: dict[str, Any]) -> list[Any]:
    """Append lines; return those that were there."""
    before: list[Any] = []
    with JsonlWriter(file, READER, before.append) as writer:
        for line in lines:
            writer.append(line)
    return before


@given(texts=TEXTS, data=st.data())
def test_whatever_is_torn_off_the_end_whole_lines_stay_and_more_can_follow(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("job") / "lines.jsonl"
    lines = [{"n": n, "text": text} for n, text in enumerate(texts)]
    ends = []
    for line in lines:
        write(file, line)
        ends.append(file.stat().st_size)
    file.touch()
    at = data.draw(st.integers(0, ends[-1] if ends else 0))
    os.truncate(file, at)
    # A line that lacks nothing but its line break is whole.
    whole = [line for line, end in zip(lines, ends, strict=True) if end - 1 <= at]

    assert list(READER.read(file)) == whole
    assert write(file, {"n": 9, "text": "new"}) == whole
    assert list(READER.read(file)) == [*whole, {"n": 9, "text": "new"}]
    assert file.read_bytes().endswith(b"\n")


def test_a_damaged_line_among_others_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    write(file, {"n": 1, "text": ""})
    with file.open("a") as lines:
        lines.write('{"text": ""}\n{"n": 3, "text": ""}\n')
    before = file.read_bytes()

    with pytest.raises(FaultyRecord, match=r"line 2 of .*lines.jsonl is not a number: KeyError"):
        list(READER.read(file))
    with pytest.raises(FaultyRecord, match=r"line 2 .*; delete the line"):
        write(file)
    assert file.read_bytes() == before


def test_a_line_is_on_the_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, synced, real = tmp_path / "lines.jsonl", list[int](), os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        synced.append(file.stat().st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    with JsonlWriter(file, READER, lambda _: None) as writer:
        writer.append({"n": 1, "text": "one"})
        assert synced[-1] == len(file.read_bytes()) > 0


def test_text_that_no_encoding_can_write_does_not_lose_the_line(tmp_path: Path) -> None:
    write(tmp_path / "lines.jsonl", {"n": 1, "text": "half \ud83d of it, and a \u2028 line"})

    [read] = READER.read(tmp_path / "lines.jsonl")
    assert read["text"] == "half ? of it, and a \u2028 line"


def test_a_number_that_is_not_finite_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path / "lines.jsonl", {"n": float("nan"), "text": ""})

    assert (tmp_path / "lines.jsonl").read_bytes() == b""


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    refused = pytest.raises(UsageError, match=r"out is in use: another process works in it")
    with lock_folder(folder), refused, lock_folder(folder):
        pass

    with lock_folder(folder):
        pass  # it was released


def test_a_file_in_the_folders_place_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", "utf-8")

    refused = pytest.raises(UsageError, match="a file is in its place; name another --out")
    with refused, lock_folder(tmp_path / "out"):
        pass
