"""Question answering over many long documents, every claim cited to its exact place."""

__version__ = "0.1.0"
