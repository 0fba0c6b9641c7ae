"""Data sets in their public formats, corpora, and drawing some of the questions.

One module a format; `formats` has them by name.
"""

from colligate.bench.datasets.corpus import Corpus, documents_of
from colligate.bench.datasets.formats import FORMATS, Format, format_of, read_questions
from colligate.bench.datasets.reading import some

__all__ = [
    "FORMATS",
    "Corpus",
    "Format",
    "documents_of",
    "format_of",
    "read_questions",
    "some",
]
