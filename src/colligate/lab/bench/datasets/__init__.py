"""Data sets in their public formats, one module a format, and files of passages."""

from colligate.lab.bench.datasets.formats import read_questions
from colligate.lab.bench.datasets.passages import PassageFile, load_documents
from colligate.lab.bench.datasets.records import DatasetFormat, RecordModel, has_fields, make_format
from colligate.lab.bench.question import draw_sample

__all__ = [
    "DatasetFormat",
    "PassageFile",
    "RecordModel",
    "draw_sample",
    "has_fields",
    "load_documents",
    "make_format",
    "read_questions",
]
