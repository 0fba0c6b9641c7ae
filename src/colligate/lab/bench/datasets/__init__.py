"""Data sets in their published forms: colligate's own formats and those that packages register."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from colligate.errors import FaultyRecord, MissingPath, UsageError
from colligate.lab.bench.datasets import own
from colligate.lab.bench.datasets.published import BEIR, PUBLISHED, QUERIES_FILE
from colligate.lab.bench.datasets.recent import RECENT
from colligate.lab.bench.datasets.records import (
    TABLES,
    DatasetFormat,
    RecordModel,
    has_fields,
    load_records,
    make_format,
)
from colligate.lab.bench.question import Question
from colligate.plugins import load_plugin, plugins

__all__ = ["DatasetFormat", "RecordModel", "has_fields", "make_format", "read_questions"]

AUTO = "auto"

FORMATS: Mapping[str, DatasetFormat] = {each.name: each for each in (*PUBLISHED, *RECENT, own.OWN)}


def read_questions(path: Path, format: str = AUTO) -> Iterator[Question]:
    """Return the questions of a file or a folder, each with an id; FaultyRecord for a wrong one."""
    return find_format(path, format).read(path)


def find_format(path: Path, format: str = AUTO) -> DatasetFormat:
    """Return the format of that name; with "auto" the first that fits the file's first record."""
    formats = all_formats()
    if format != AUTO:
        if format in formats:
            return formats[format]
        raise UsageError(f"unknown format {format!r}", "", _choices())
    if path.is_dir():
        if (path / QUERIES_FILE).is_file():
            return BEIR
        raise MissingPath(f"cannot read {path}", f"it has no {QUERIES_FILE}", "name a file")
    first = next(load_records(path), None)
    if first is None:
        raise FaultyRecord(f"cannot read {path}", "it holds no records", "check the path")
    _, record = first
    if path.suffix.lower() in TABLES and "question" in record:
        return own.OWN
    for each in formats.values():
        if each.fits(record):
            return each
    fields = ", ".join(list(record)[:8])
    why = f"its first record has the fields {fields}"
    raise UsageError(f"cannot tell the format of {path}", why, _choices())


@cache
def all_formats() -> Mapping[str, DatasetFormat]:
    """Return every format by name; a registered one never replaces one of colligate's own."""
    added = {name: load_plugin("datasets", name, DatasetFormat) for name in plugins("datasets")}
    return {**FORMATS, **added, **FORMATS}


def _choices() -> str:
    return f"name one of {', '.join(all_formats())}"
