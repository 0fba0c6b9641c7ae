"""Files of records: packed or not, lines or an array; every fault names its place."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.bench.datasets.reading import lines
from colligate.errors import FaultyRecord, MissingPath

RECORDS = [{"n": 1}, {"text": 'two\u2028lines, ünï [] {} " \\'}, {"deep": {"list": [1, {}]}}]


def written(
    records: list[dict[str, Any]], *, array: bool = False, indent: int | None = None
) -> str:
    if array:
        return json.dumps(records, ensure_ascii=False, indent=indent)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_what_a_file_is_does_not_depend_on_its_name(
    tmp_path: Path, packed: bool, array: bool, mark: str
) -> None:
    path = tmp_path / "questions.dat"
    data = (mark + written(RECORDS, array=array)).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert list(lines(path)) == list(enumerate(RECORDS, start=1))


def test_blank_lines_are_passed_over_but_counted(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('\n{"n": 1}\n   \r\n{"n": 2}')
    assert list(lines(path)) == [(2, {"n": 1}), (4, {"n": 2})]


def test_an_array_over_many_lines_and_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    path.write_text(written(RECORDS, array=True, indent=2) + "\n\n")
    assert [record for _, record in lines(path)] == RECORDS
    path.write_text(" [ ] \n")
    assert list(lines(path)) == []


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        (b'{"n": 1}\n{"n": 2\n', "line 2", "not JSON"),
        (b'{"n": 1}\n\n["n"]\n', "line 3", "not a JSON object"),
        (b'{"n": 1}\n{"n": "\xff"}\n', "line 2", "not UTF-8"),
        (b'{"n": 1}\n' + b'{"n":' * 100_000 + b"\n", "line 2", "nested too deeply"),
        (b'[{"n": 1}, 2]', "record 2", "not a JSON object"),
        (b'[{"n": 1} {"n": 2}]', "record 2", "instead of"),
        (b'[{"n": 1}, {"n": nul}, {"n": 3}, {"words": "many of them"}]', "record 2", "not JSON"),
        (b'[{"n": 1}, ', "record 2", "cut off"),
        (b'[{"n": 1}, {"n": "\xff"}]', "record 1", "not UTF-8"),
        (b'[{"n": 1}] [', "record 2", "more stands after"),
    ],
)
def test_a_fault_names_file_place_and_reason(
    tmp_path: Path, data: bytes, place: str, reason: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(data)
    with pytest.raises(FaultyRecord) as raised:
        list(lines(path))
    told = str(raised.value)
    assert f"{place} of {path}" in told
    assert reason in told
    assert "\n" not in told


def test_a_damaged_archive_is_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl.gz"
    packed = bytearray(gzip.compress(written([{"n": n} for n in range(9)]).encode()))
    packed[-6] ^= 0xFF  # its checksum
    path.write_bytes(packed)
    with pytest.raises(FaultyRecord, match=r"line \d+ of .*archive is damaged"):
        list(lines(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPath):
        next(lines(tmp_path / "none.jsonl"))


def test_half_a_surrogate_pair_can_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    for text in ('{"text": "a\\ud800b \\ud83d\\ude00"}', '[{"text": "a\\ud800b \\ud83d\\ude00"}]'):
        path.write_text(text)
        ((_, record),) = lines(path)
        assert record["text"].encode().decode() == "a?b 😀"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.data(), records, st.booleans(), st.booleans())
def test_a_truncated_file_gives_whole_records_or_says_where_it_ends(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    valid: list[dict[str, Any]],
    array: bool,
    packed: bool,
) -> None:
    whole = written(valid, array=array).encode()
    whole = gzip.compress(whole) if packed else whole
    end = data.draw(st.integers(1, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "q.json"
    path.write_bytes(whole[:end])
    found, fault = [], None
    try:
        for _, record in lines(path):
            found.append(record)
    except FaultyRecord as error:
        fault = str(error)
    assert found == valid[: len(found)]
    if fault is None:  # an array without its end, or an archive, is never taken for whole
        assert found == valid or not (array or packed)
    else:
        assert f"{len(found) + 1} of {path}" in fault


@pytest.mark.parametrize("array", [False, True])
def test_a_large_file_is_not_held(tmp_path: Path, array: bool) -> None:
    path = tmp_path / "large.json"
    record = json.dumps({"text": "word " * 2_000})
    count = 3_000  # 30 MB
    between = ",\n" if array else "\n"
    path.write_text(
        ("[" if array else "") + between.join([record] * count) + ("]" if array else "")
    )
    tracemalloc.start()
    try:
        assert sum(1 for _ in lines(path)) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12e6
