"""With the real embedders: meaning is found where no word is shared."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import EmbedderMismatch
from colligate.library import AsyncLibrary, SearchMode
from colligate.models.weights import pull

WEIGHTS = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}

FACTS = {
    "bridge": "The crossing over the strait was closed to lorries after the storm.",
    "bread": "Let the dough rest overnight before you bake the loaf.",
    "court": "The judge dismissed the claim because the contract was void.",
    "whale": "Humpbacks migrate thousands of miles to warm waters to give birth.",
}


@pytest.fixture(params=list(WEIGHTS))
def name(request: pytest.FixtureRequest) -> str:
    pull(WEIGHTS[request.param])  # `make setup` has done it
    return str(request.param)


@pytest.fixture
async def library(name: str, tmp_path: Path) -> AsyncIterator[AsyncLibrary]:
    async with AsyncLibrary(tmp_path / "library", embedder=name) as opened:
        yield opened


async def test_meaning_is_found(library: AsyncLibrary, write: Any) -> None:
    for name, fact in FACTS.items():
        folder = write(f"{name}.txt", fact).parent
    await library.add(folder)
    (hit,) = await library.search("trucks on the bridge", k=1, mode=SearchMode.DENSE)
    assert hit.passage.text == FACTS["bridge"]
    hits = await library.search("when do whales have their babies", k=2)
    assert FACTS["whale"] in [hit.passage.text for hit in hits]


async def test_an_interrupted_library_equals_a_whole_one(
    library: AsyncLibrary, name: str, tmp_path: Path, write: Any
) -> None:
    """Whatever was embedded together, a text has the same vector and the same place."""
    paths = [write(f"{name}.txt", fact) for name, fact in FACTS.items()]
    for path in paths:
        await library.add(path)
    async with AsyncLibrary(tmp_path / "whole", embedder=name) as whole:
        await whole.add(paths)
        for query in ("trucks", "law", "birth", "oven"):
            assert await whole.search(query, k=4) == await library.search(query, k=4)


async def test_an_embedder_is_refused_by_the_name_that_opens_it(
    library: AsyncLibrary, name: str, write: Any
) -> None:
    path = write("bridge.txt", FACTS["bridge"])
    await library.add(path)
    await library.close()
    other = next(each for each in WEIGHTS if each != name)
    async with AsyncLibrary(library.path, embedder=other) as mistaken:
        with pytest.raises(EmbedderMismatch) as told:
            await mistaken.search("bridge", k=1)
    match = re.search(r"use --embedder (\S+),", str(told.value))
    assert match is not None
    async with AsyncLibrary(library.path, embedder=match[1]) as mended:
        assert await mended.search("bridge", k=1)
