"""Data sets in their public formats, one module a format, and files of passages."""

from colligate.bench.datasets.formats import FORMATS, find_format, read_questions
from colligate.bench.datasets.passages import PassageFile, load_documents
from colligate.bench.datasets.records import (
    DatasetFormat,
    RecordModel,
    has_fields,
    load_records,
    make_candidates,
    make_format,
    parse_questions,
)
from colligate.bench.question import draw_sample

__all__ = [
    "FORMATS",
    "DatasetFormat",
    "PassageFile",
    "RecordModel",
    "draw_sample",
    "find_format",
    "has_fields",
    "load_documents",
    "load_records",
    "make_candidates",
    "make_format",
    "parse_questions",
    "read_questions",
]
