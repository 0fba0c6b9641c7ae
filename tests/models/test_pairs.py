"""The reranker and the verifier that come in the package."""

from __future__ import annotations

import pytest

from colligate.errors import WeightsUnavailable
from colligate.models.names import open_head, open_reranker
from colligate.models.pairs import MiniLMReranker

QUESTION = "When did the lighthouse on Skerry Rock begin to shine?"
RIGHT = "Skerry Rock\nThe lighthouse was lit for the first time in March 1851."
OTHERS = (
    "Skerry Rock\nThe lighthouse on the rock is 42 metres high and made of granite.",
    "Lighthouse\nA lighthouse is a tower that shines a light to guide ships.",
    "Rock music\nRock began in the United States and shone in the sixties.",
    "Herring\nHerring is a fish that is eaten smoked or salted.",
)


@pytest.fixture
async def reranker():
    opened = open_reranker("minilm")
    yield opened
    await opened.aclose()


async def test_the_passage_that_answers_is_first(reranker):
    scores = await reranker.score(QUESTION, [*OTHERS, RIGHT])
    assert max(scores) == scores[-1]
    assert scores[-2] < scores[0]  # of another subject altogether


async def test_a_score_is_the_same_in_any_company(reranker):
    together = await reranker.score(QUESTION, [*OTHERS, RIGHT] * 3)
    [alone] = await reranker.score(QUESTION, [RIGHT])
    assert together[len(OTHERS)] == together[-1] == alone


async def test_long_texts_are_cut_not_refused(reranker):
    scores = await reranker.score("what " * 2000, [f"{RIGHT} {'word ' * 5000}", ""])
    assert len(scores) == 2


async def test_a_damaged_file_is_reported(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    reranker = MiniLMReranker(tmp_path)
    with pytest.raises(WeightsUnavailable, match=str(tmp_path)):
        await reranker.score("what", ["this"])
    await reranker.aclose()


LIT = "The lighthouse was lit for the first time in March 1851, after the harbour had been closed."


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("The lighthouse was first lit in March 1851.", "supports"),
        ("The lighthouse was not lit in March 1851.", "contradicts"),
        ("The lighthouse was lit for the last time in March 1851.", "contradicts"),
        (LIT.replace("after", "before"), "contradicts"),
        ("Herring is a fish that is eaten smoked or salted.", "neither"),
    ],
)
async def test_the_verifier_tells_what_a_sentence_does_with_a_claim(claim, verdict):
    verifier = open_head("head")
    assert verifier.name == "head"
    found = verifier.score(claim, "Skerry Rock", LIT)
    await verifier.aclose()
    likely = dict(zip(("supports", "contradicts", "neither"), found, strict=True))
    assert max(likely, key=likely.__getitem__) == verdict
    assert (likely["contradicts"] >= verifier.limit) == (verdict == "contradicts")
