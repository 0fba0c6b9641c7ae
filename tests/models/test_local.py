"""What the extra `local` brings needs torch; without it, it says so."""

from __future__ import annotations

import sys

import pytest

from colligate.errors import MissingExtra
from colligate.models.embedders import CrossEncoderReranker, SentenceTransformerEmbedder


@pytest.mark.parametrize("backend", [SentenceTransformerEmbedder, CrossEncoderReranker])
def test_without_the_extra_it_says_what_to_install(
    backend: type[SentenceTransformerEmbedder] | type[CrossEncoderReranker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'colligate\[local\]'"):
        backend("some/model")
