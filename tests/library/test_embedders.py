"""With the real embedders: meaning is found where no word is shared."""

import pytest

from colligate.errors import WeightsUnavailable
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from colligate.models.weights import pull

WEIGHTS = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}

FACTS = {
    "bridge": "The crossing over the strait was closed to lorries after the storm.",
    "bread": "Let the dough rest overnight before you bake the loaf.",
    "court": "The judge dismissed the claim because the contract was void.",
    "whale": "Humpbacks migrate thousands of miles to warm waters to give birth.",
}


@pytest.fixture(params=list(WEIGHTS))
def name(request):
    pull(WEIGHTS[request.param])  # `make setup` has done it
    return str(request.param)


@pytest.fixture
async def library(name, open_library):
    async with open_library(embedder=name) as opened:
        yield opened


async def test_meaning_is_found(library, write):
    for name, fact in FACTS.items():
        folder = write(f"{name}.txt", fact).parent
    await library.add(folder)
    (hit,) = await library.search("trucks on the bridge", k=1, mode=SearchMode.DENSE)
    assert hit.passage.text == FACTS["bridge"]
    hits = await library.search("when do whales have their babies", k=2)
    assert FACTS["whale"] in [hit.passage.text for hit in hits]


async def test_an_interrupted_library_equals_a_whole_one(library, name, tmp_path, write):
    """Whatever was embedded together, a text has the same vector and the same place."""
    paths = [write(f"{name}.txt", fact) for name, fact in FACTS.items()]
    for path in paths:
        await library.add(path)
    async with AsyncLibrary(tmp_path / "whole", embedder=name) as whole:
        await whole.add(paths)
        for query in ("trucks", "law", "birth", "oven"):
            assert await whole.search(query, k=4) == await library.search(query, k=4)


async def test_a_new_library_takes_the_embedder_of_its_languages_and_keeps_it(open_library, write):
    english = write("rules.md", "Bicycles stand in the yard, and never in the hall of the house.")
    german = write("regeln.md", "Fahrräder stehen im Hof und niemals im Flur des Hauses.")
    async with open_library(embedder=None) as library:
        assert await library.embedder_name() is None
        await library.add([english, german])
        assert await library.embedder_name() == "e5"
    async with open_library(embedder=None) as again:
        await again.add(write("tea.md", "Tea is served at four in the garden behind the house."))
        (hit,) = await again.search("wo stelle ich mein Rad ab", k=1, mode=SearchMode.DENSE)
    assert hit.passage.title == "regeln"


async def test_a_new_library_without_e5_or_network_takes_minilm(open_library, write, monkeypatch):
    def unavailable(self):
        raise WeightsUnavailable("the weights of e5 are not on this machine")

    monkeypatch.setattr("colligate.models.embedders.MultilingualE5.__init__", unavailable)
    german = write("regeln.md", "Fahrräder stehen im Hof und niemals im Flur des Hauses.")
    async with open_library(embedder=None) as library:
        await library.add(german)
        assert await library.embedder_name() == "minilm"
        assert "not on this machine" in str(library.refused_embedder)


async def test_a_library_of_english_documents_takes_minilm(open_library, write):
    async with open_library(embedder=None) as library:
        await library.add(write("rules.md", "Bicycles stand in the yard, and never in the hall."))
        assert await library.embedder_name() == "minilm"
