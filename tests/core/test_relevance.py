import math

import pytest

from colligate.core.relevance import score_bm25, score_relevance
from colligate.library.in_memory import InMemorySources
from support.documents import make


def test_the_formula_by_hand():
    texts = [["cat", "cat", "dog"], ["dog"], ["cow", "cow"]]
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    first = idf * 2 * 2.5 / (2 + 1.5 * (1 - 0.75 + 0.75 * 3 / 2))
    assert score_bm25(["cat"], texts) == pytest.approx([first, 0, 0])


@pytest.mark.parametrize("texts", [[], [[], []]])
def test_nothing_scores_nothing(texts):
    assert score_bm25(["cat"], texts) == [0.0] * len(texts)


class Backwards:
    """A reranker for one language that likes the last passage best."""

    name = "backwards"

    def __init__(self, language):
        self.language = language

    async def score(self, query, texts):
        return [float(place) for place in range(len(texts))]


@pytest.mark.parametrize(("language", "best"), [("de", 1), ("en", 0)])
async def test_a_reranker_of_another_language_scores_nothing(make_run, language, best):
    texts = ("Die Brücke ist alt.", "Der See ist tief.")
    made = [make(text, f"T{n}", f"d{n}", language="de") for n, text in enumerate(texts)]
    passages = [each.passage(each.span(0, len(each))) for each in made]
    async with InMemorySources(made) as sources:
        run, _ = make_run(sources, reranker=Backwards(language))
        scores = await score_relevance("Wie alt ist die Brücke?", passages, run)
    assert scores.index(max(scores)) == best
