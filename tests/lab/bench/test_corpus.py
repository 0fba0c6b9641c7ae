"""The documents that questions are asked over."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate.lab.bench.corpus import CorpusResolver
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.question import Candidate, Question
from colligate.lab.bench.suites import Dataset
from colligate.settings import Settings


@pytest.mark.parametrize(
    ("chunker", "passages"), [("structural", 1), ("words:2", 5), ("tokens:3/1", 4)]
)
async def test_documents_are_cut_as_the_settings_say(
    tmp_path: Path, chunker: str, passages: int
) -> None:
    names = ModelNames(Settings().override(chunker=chunker))
    text = "a mast that is as high as ten men"
    question = Question("q", "How high?", documents=(Candidate("d", "Mast", text),))
    corpora = CorpusResolver(tmp_path, tmp_path, chunker=names.chunker)
    async with corpora, corpora.open_sources(Dataset("d", ""), question) as sources:
        assert [info.passages for info in await sources.documents()] == [passages]
