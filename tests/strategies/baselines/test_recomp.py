import re
from itertools import pairwise

import pytest

from colligate.core.events import Scored
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.documents.sentences import sentence_spans
from colligate.library import InMemorySources
from colligate.strategies.baselines import recomp
from colligate.strategies.baselines.recomp import Recomp

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


@pytest.fixture
def encoder(monkeypatch):
    """What stands in for trained weights: it counts the question's words."""
    monkeypatch.setattr(recomp, "get_dual_encoder", lambda name: Encoder())


def documents(texts=TEXTS):
    return [
        Document(name, name, text, markdown_tree(text, name), language="en")
        for name, text in texts.items()
    ]


def bodies(prompt):
    return re.findall(r"<passage number.*?>\n(.*?)\n</passage", prompt, re.DOTALL)


async def test_the_best_sentences_are_read_in_the_order_of_the_documents(encoder, ask, reply):
    said = reply((2, "Anna Keller signed the treaty", "Anna Keller signed it."))
    answer, run, model = await ask(Recomp(encoder="x", sentences=2), QUESTION, documents(), said)
    assert bodies(model.calls[0].prompt) == [
        "The treaty was signed at noon.",
        "Anna Keller signed the treaty for the city.",
    ]
    assert answer.citations[0].quote == "Anna Keller signed the treaty for the city."
    by_id = {document.id: document for document in documents()}
    shown = [by_id[e.span.document_id].slice(e.span) for e in answer.evidence]
    assert sorted(shown) == sorted(bodies(model.calls[0].prompt))
    (event,) = (e for _, e in run.trace.events if isinstance(e, Scored))
    assert len(event.spans) == 7  # “Ok.” is too short to be one
    assert run.meter.report().scoring_passes == 7


async def test_a_sentence_of_two_overlapping_passages_counts_once(encoder, make_run, reply):
    text = "It rained all day. Anna Keller signed the treaty. Cows were led home. Bells rang."

    def cut(document):
        found = sentence_spans(document, document.span(0, len(document)))
        return [document.span(a.start, b.end) for a, b in pairwise(found)]

    async with InMemorySources(documents({"talks": text}), chunker=cut) as sources:
        run, model = make_run(sources, [reply()])
        recomp = Recomp(
            encoder="x", sentences=2, units="passages", mode="sparse", on_nothing="nothing"
        )
        await recomp.answer(QUESTION, run)
    (event,) = (e for _, e in run.trace.events if isinstance(e, Scored))
    assert len(set(event.spans)) == len(event.spans)
    shown = "\n".join(bodies(model.calls[0].prompt))
    assert shown.count("Anna Keller signed the treaty.") == 1


async def test_chunks_of_whole_documents_within_a_budget(encoder, ask):
    answer, _, model = await ask(
        Recomp(encoder="x", level="chunks", budget=40), QUESTION, documents()
    )
    assert bodies(model.calls[0].prompt) == [TEXTS["talks"], TEXTS["keller"]]
    assert answer.evidence[0].reason == "rank 1 by x"
