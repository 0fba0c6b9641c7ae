import re

import pytest

from colligate.core.events import Scored
from colligate.lab.baselines import recomp
from colligate.lab.baselines.recomp import Recomp
from support.documents import make_all
from support.prompts import bodies

QUESTION = "Who signed the treaty?"
TEXTS = {
    "talks": "Talks were long. The treaty was signed at noon. It rained. Ok.",
    "keller": "Anna Keller signed the treaty for the city. She was born in 1901. She lived alone.",
    "cattle": "Cows were led across the square.",
}


class Encoder:
    name = "an encoder"

    async def scores(self, query, texts):
        wanted = set(re.findall(r"\w+", query.lower()))
        return [float(len(wanted & set(re.findall(r"\w+", text.lower())))) for text in texts]


@pytest.fixture(autouse=True)
def encoder(monkeypatch):
    """What stands in for trained weights: it counts the question's words."""
    monkeypatch.setattr(recomp, "get_dual_encoder", lambda name: Encoder())


async def test_the_best_sentences_are_read_in_the_order_of_the_documents(ask, reply):
    said = reply((2, "Anna Keller signed the treaty", "Anna Keller signed it."))
    strategy, made = Recomp(encoder="x", sentences=2), make_all(TEXTS)
    answer, run, model = await ask(strategy, QUESTION, made, said)
    best = ["The treaty was signed at noon.", "Anna Keller signed the treaty for the city."]
    assert bodies(model.calls[0].prompt) == best
    assert answer.citations[0].quote == best[1]
    by_id = {document.id: document for document in made}
    assert [by_id[e.span.document_id].slice(e.span) for e in answer.evidence] == best
    (event,) = (e for _, e in run.trace.events if isinstance(e, Scored))
    assert len(event.spans) == 7  # “Ok.” is too short to be one
    assert run.meter.report().scoring_passes == 7


async def test_chunks_of_whole_documents_within_a_budget(ask):
    strategy = Recomp(encoder="x", level="chunks", budget=40)
    answer, _, model = await ask(strategy, QUESTION, make_all(TEXTS))
    assert bodies(model.calls[0].prompt) == [TEXTS["talks"], TEXTS["keller"]]
    assert answer.evidence[0].reason == "rank 1 by x"
