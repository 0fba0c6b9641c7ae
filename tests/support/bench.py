"""Folders of bench runs as the bench leaves them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from colligate.lab.bench.outcome import ROWS, Row
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.jobs.identity import ModelRecord


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    with ROWS.open(folder, {}) as file:
        for row in rows:
            ROWS.append(file, row.key, row)


def write_run(folder: Path, suite: str, rows: Iterable[Row]) -> Path:
    """A run of the strategies "a" and "b" with seed 7."""
    folder.mkdir(exist_ok=True)
    models = {"reader": ModelRecord("m")}
    RUN.write(folder, Provenance("s", suite, 7, models, ("d",), ("a", "b")))
    write_rows(folder, rows)
    return folder
