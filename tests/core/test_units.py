from dataclasses import replace

import pytest

from colligate.core.units import join_rankings, rank_documents
from colligate.documents import Hit, Passage, Span
from colligate.library import DocumentInfo
from support.documents import make

# The document with the best passage is neither the first by name nor the one with most passages.
FOUND = [("zebra", 0.9), ("ant", 0.8), ("ant", 0.7), ("ant", 0.6), ("mole", 0.85)]


class Ranked:
    """Sources whose search returns these passages, best first."""

    def __init__(self, found, silent=()):
        passages = [make(f"Passage {n}.", name, name) for n, (name, _) in enumerate(found)]
        self.hits = [
            Hit(each.passage(each.span(0, len(each))), score)
            for each, (_, score) in zip(passages, found, strict=True)
        ]
        self.hits.sort(key=lambda hit: -hit.score)
        names = [*sorted({name for name, _ in found}), *silent]
        self.infos = [DocumentInfo(name, name, "", 60, 0, 9, "en") for name in names]
        self.asked = []

    async def documents(self):
        return self.infos

    async def search(self, query, *, k, mode=None, documents=None):
        self.asked.append(k)
        return self.hits[:k]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, ["zebra"]), (2, ["zebra", "mole"]), (3, ["zebra", "mole", "ant"])]
)
async def test_documents_rank_by_their_best_passage(count, expected, make_run):
    run, _ = make_run(Ranked(FOUND))
    assert await rank_documents("Who?", run, count) == expected


async def test_documents_without_a_passage_come_last_and_only_if_all_are_wanted(make_run):
    run, _ = make_run(Ranked(FOUND, silent=["aardvark"]))
    assert await rank_documents("Who?", run, 4) == ["zebra", "mole", "ant", "aardvark"]
    assert await rank_documents("Who?", run, 3) == ["zebra", "mole", "ant"]


async def test_the_search_widens_until_enough_documents_are_found(make_run):
    many = [("ant", 1 - n / 100) for n in range(20)]
    sources = Ranked([*many, ("zebra", 0.1)], silent=["mole"])
    run, _ = make_run(sources)
    assert await rank_documents("Who?", run, 2) == ["ant", "zebra"]
    assert sources.asked == [16, 64]


async def test_repeats_that_are_left_out_do_not_end_the_search(make_run):
    many = [("ant", 1 - n / 100) for n in range(20)]
    sources = Ranked([*many, ("zebra", 0.1)], silent=["mole"])
    same = sources.hits[0].passage.text
    sources.hits[1:3] = [
        replace(h, passage=replace(h.passage, text=same)) for h in sources.hits[1:3]
    ]
    run, _ = make_run(sources)
    assert await rank_documents("Who?", run, 2) == ["ant", "zebra"]


def test_searches_are_joined_by_reciprocal_rank():
    def hits(*names):
        return [Hit(Passage(Span(name, 0, 1), "x", ""), 1.0) for name in names]

    joined = join_rankings([hits("a", "b", "c"), hits("b", "d")])
    assert [hit.passage.document_id for hit in joined] == ["b", "a", "d", "c"]
    assert join_rankings([]) == []
    assert join_rankings([hits("a", "b")]) == hits("a", "b")
