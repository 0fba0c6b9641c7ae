"""The strategies that read once: retrieve-read, full-context, direct."""

import re

import pytest

from colligate.core.events import Located, Retrieved, Scored
from colligate.library.in_memory import InMemorySources
from colligate.strategies.direct import Direct
from colligate.strategies.full_context import FullContext
from colligate.strategies.retrieve_read import RetrieveRead
from support.prompts import passages_in

QUESTION = "What is the rent of the flat?"
YARD = (2, "Bicycles stand in the yard", "Bicycles stand in the yard.")


async def test_the_answer_cites_the_passage_that_says_it(documents, minilm, ask, reply):
    def say(call):
        number = next(n for n, text in passages_in(call.prompt).items() if "900 euros" in text)
        said = (number, "pays 900 euros a month", "The rent is 900 euros.")
        return reply(said, short="900 euros")

    answer, _, _ = await ask(RetrieveRead(), QUESTION, InMemorySources(documents, minilm), say)
    assert (answer.found, answer.text) == (True, "The rent is 900 euros. [1]")
    assert answer.short == "900 euros"
    (citation,) = answer.citations
    assert citation.span.document_id == "lease"
    assert citation.quote == "The tenant pays 900 euros a month for the flat in Mill Street."
    assert citation.quote == documents[0].slice(citation.span)
    assert citation.section == ("Lease",)


class Dogs:
    """A reranker for which what speaks of dogs is worth one, and all else nothing."""

    name = "dogs"

    def __init__(self, **says):
        self.__dict__ |= says

    async def score(self, query, texts):
        return [float("Dogs" in text) for text in texts]

    async def aclose(self):
        pass


@pytest.mark.parametrize(
    ("says", "first"),
    [
        ({}, "rules"),
        ({"language": "en"}, "rules"),
        ({"language": "de"}, "lease"),  # it does not know the documents' language
        ({"beside_search": 0.01}, "lease"),
        ({"beside_search": 100.0}, "rules"),
    ],
    ids=str,
)
async def test_a_reranker_decides_or_counts_beside_the_search(documents, minilm, ask, says, first):
    sources = InMemorySources(documents, minilm)
    answer, run, _ = await ask(RetrieveRead(k=1), QUESTION, sources, reranker=Dogs(**says))
    assert [each.span.document_id for each in answer.evidence] == [first]
    assert run.meter.report().scoring_passes == 3 * (says.get("language") != "de")


async def test_what_the_search_located_is_shown_before_it_is_reranked(documents, minilm, ask):
    sources = InMemorySources(documents, minilm)
    _, run, _ = await ask(RetrieveRead(k=1), QUESTION, sources, reranker=Dogs())
    happened = [type(event) for _, event in run.trace.events]
    assert happened[:3] == [Retrieved, Located, Scored]
    assert run.trace.events[1][1].line() == "located: Lease"


async def test_full_context_shows_every_document_whole_in_order(documents, ask, reply):
    question = "Where do bicycles stand?"
    answer, run, model = await ask(FullContext(), question, documents, reply(YARD))
    assert list(passages_in(model.calls[0].prompt).values()) == [d.text.strip() for d in documents]
    assert answer.citations[0].quote == "Bicycles stand in the yard, never in the hall."
    assert run.meter.report().retrieval_rounds == 0


async def test_direct_reads_nothing_and_says_so(ask):
    answer, run, model = await ask(Direct(), "What is the capital of France?", [], "Paris")
    assert (answer.text, answer.found, answer.citations) == ("Paris", True, ())
    assert (answer.short, answer.ground) == (None, "none"), "nothing verifies it"
    assert not re.search("<passage", model.calls[0].prompt)
    assert any("no document was read" in warning for warning in run.warnings)
