"""Data sets in their public formats, corpora, and drawing some of the questions.

One module a format; `formats` has them by name.
"""

from colligate.evaluation.datasets.corpus import Corpus, documents_of
from colligate.evaluation.datasets.formats import FORMATS, Format, format_of, read_questions
from colligate.evaluation.datasets.sampling import some

__all__ = [
    "FORMATS",
    "Corpus",
    "Format",
    "documents_of",
    "format_of",
    "read_questions",
    "some",
]
