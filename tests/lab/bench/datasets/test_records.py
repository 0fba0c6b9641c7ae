"""Files of records: packed or not, lines or an array; every fault names its place."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, MissingPath
from colligate.lab.bench.datasets.records import load_records

RECORDS = [{"n": 1}, {"text": 'two\u2028lines, ünï [] {} " \\'}, {"deep": {"list": [1, {}]}}]


def encode(records: list[dict[str, Any]], *, array: bool = False, packed: bool = False) -> bytes:
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    text = json.dumps(records, ensure_ascii=False, indent=2) if array else lines
    return gzip.compress(text.encode()) if packed else text.encode()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_a_file_is_does_not_depend_on_its_name(
    tmp_path: Path, packed: bool, array: bool, mark: bytes
) -> None:
    path = tmp_path / "questions.dat"
    data = mark + encode(RECORDS, array=array)
    path.write_bytes(gzip.compress(data) if packed else data)
    kind = "record" if array else "line"
    assert list(load_records(path)) == [(f"{kind} {n}", r) for n, r in enumerate(RECORDS, 1)]


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        (b'{"n": 1}\n{"n": 2\n', "line 2", "not JSON"),
        (b'{"n": 1}\n\n["n"]\n', "line 3", "not a JSON object"),
        (b'{"n": 1}\n{"n": "\xff"}\n', "line 2", "not JSON"),
        (b'{"n": 1}\n' + b'{"n":' * 100_000 + b"\n", "line 2", "nested too deeply"),
        (b'[{"n": 1}, 2]', "record 2", "not a JSON object"),
        (b'[{"n": 1}\n {"n": 2}]', "the array", "not JSON"),
        (b'[{"n": 1}, ', "the array", "not JSON"),
        (b'[{"n": 1}, {"n": "\xff"}]', "the array", "not JSON"),
        (b'[{"n": 1}] [', "the array", "not JSON"),
    ],
)
def test_a_fault_names_file_place_and_reason(
    tmp_path: Path, data: bytes, place: str, reason: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(data)
    with pytest.raises(FaultyRecord, match=f"cannot read {place} of {path}: .*{reason}") as raised:
        list(load_records(path))
    assert "\n" not in str(raised.value)


def test_a_damaged_archive_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl.gz"
    packed = bytearray(encode([{"n": n} for n in range(9)], packed=True))
    packed[-6] ^= 0xFF  # its checksum
    path.write_bytes(packed)
    with pytest.raises(FaultyRecord, match=r"line \d+ of .*archive is damaged"):
        list(load_records(path))
    with pytest.raises(MissingPath):
        next(load_records(tmp_path / "none.jsonl"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.text(max_size=4), values, max_size=3), min_size=1, max_size=4)


@settings(max_examples=150)
@given(st.data(), records, st.booleans(), st.booleans())
def test_a_truncated_file_gives_whole_records_or_an_error(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    valid: list[dict[str, Any]],
    array: bool,
    packed: bool,
) -> None:
    whole = encode(valid, array=array, packed=packed)
    path = tmp_path_factory.mktemp("cut") / "q.json"
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))])
    found, fault = [], None
    try:
        for _, record in load_records(path):
            found.append(record)
    except FaultyRecord as error:
        fault = str(error)
    assert found == valid[: len(found)]
    if fault is None:  # an array without its end, or an archive, is never taken for whole
        assert found == valid or not (array or packed)
    else:
        place = "(the array|line 1)" if array else f"line {len(found) + 1}"
        assert re.search(f"{place} of {re.escape(str(path))}", fault)
