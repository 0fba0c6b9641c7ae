import numpy as np

from colligate.core.events import Pruned, Scored
from colligate.lab.baselines.reorder import ReorderBM25, ReorderDense
from support.documents import make
from support.prompts import bodies, titles

QUESTION = "Which planet has rings?"


def documents():
    texts = {
        "mars": "Mars is red and dusty.",
        "venus": "Venus is a hot planet.",
        "saturn": "Saturn is the planet that has rings.",
    }
    return [make(text, name.title(), name) for name, text in texts.items()]


class ByRings:
    """Texts point up as far as they speak of rings."""

    async def embed(self, texts, kind="passage"):
        shares = np.array([0.3 * ("planet" in text) + 0.6 * ("rings" in text) for text in texts])
        if kind == "query":
            shares[:] = 1.0
        return np.stack([shares, np.sqrt(1 - shares**2)], axis=1).astype(np.float32)


async def test_bm25_puts_the_best_first_and_leaves_none_out(ask, reply):
    said = reply((1, "Saturn is the planet that has rings.", "It is Saturn."), short="Saturn")
    answer, run, model = await ask(ReorderBM25(mode="sparse"), QUESTION, documents(), said)
    assert titles(model.calls[0].prompt) == ["Saturn", "Venus", "Mars"]
    assert len(model.calls) == 1
    assert answer.text == "It is Saturn. [1]"
    assert [e.span.document_id for e in answer.evidence] == ["saturn", "venus", "mars"]
    assert answer.evidence[0].score > answer.evidence[1].score > answer.evidence[2].score == 0
    (event,) = (e for _, e in run.trace.events if isinstance(e, Scored))
    assert event.signal == "bm25"


async def test_dense_puts_the_most_similar_first(ask):
    answer, _, model = await ask(ReorderDense(), QUESTION, documents(), embedder=ByRings())
    assert titles(model.calls[0].prompt) == ["Saturn", "Venus", "Mars"]
    assert answer.evidence[0].reason == "rank 1 by the embedder"


async def test_a_budget_keeps_the_best_that_fit(ask):
    answer, run, model = await ask(ReorderBM25(mode="sparse", budget=20), QUESTION, documents())
    assert titles(model.calls[0].prompt) == ["Saturn", "Venus"]
    assert len(answer.evidence) == 2
    assert any(isinstance(e, Pruned) and "budget of 20" in e.reason for _, e in run.trace.events)


async def test_chunks_are_six_sentences_of_whole_documents(ask):
    text = " ".join(f"Sentence {n} says nothing new." for n in range(7)) + " Rings, at last."
    long = make(text, "Long", "long")
    _, _, model = await ask(ReorderBM25(units="chunks", budget=2048), "Rings?", [long])
    first, second = bodies(model.calls[0].prompt)
    assert first == "Sentence 6 says nothing new. Rings, at last."
    assert second.startswith("Sentence 0")
    assert second.endswith("Sentence 5 says nothing new.")
