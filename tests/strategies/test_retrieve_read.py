import re

import pytest

from colligate.core.citing import NOT_FOUND
from colligate.core.events import (
    Answered,
    Asked,
    Asking,
    Located,
    Parsed,
    Pruned,
    Retrieved,
    Scored,
)
from colligate.errors import BudgetExceeded
from colligate.library import InMemorySources
from colligate.models.rerankers import EmbeddingReranker
from colligate.strategies.baselines.retrieve_read import RetrieveRead
from support.runs import document

QUESTION = "What is the rent of the flat?"


def number_of(prompt: str, words: str) -> int:
    """The number of the passage that holds these words."""
    for number, body in re.findall(r'<passage number="(\d+)".*?>(.*?)</passage', prompt, re.DOTALL):
        if words in body:
            return int(number)
    raise AssertionError(f"no passage holds {words!r}")


async def test_the_answer_cites_the_passage_that_says_it(documents, minilm, ask, reply):
    def say(call):
        number = number_of(call.prompt, "900 euros")
        return reply(
            (number, "pays 900 euros a month", "The rent is 900 euros."), short="900 euros"
        )

    answer, _, _ = await ask(RetrieveRead(), QUESTION, InMemorySources(documents, minilm), say)
    assert answer.found
    assert answer.text == "The rent is 900 euros. [1]"
    assert answer.short == "900 euros"
    (citation,) = answer.citations
    assert citation.span.document_id == "lease"
    assert citation.quote == "The tenant pays 900 euros a month for the flat in Mill Street."
    assert citation.quote == documents[0].slice(citation.span)
    assert citation.section == ("Lease",)


async def test_evidence_is_what_was_shown_with_score_and_reason(documents, minilm, ask):
    answer, _, model = await ask(RetrieveRead(k=2), QUESTION, InMemorySources(documents, minilm))
    assert len(answer.evidence) == 2
    assert [e.reason for e in answer.evidence] == ["rank 1 of the search", "rank 2 of the search"]
    assert answer.evidence[0].score >= answer.evidence[1].score
    assert model.calls[0].prompt.count("<passage ") == 2


async def test_an_answer_from_memory_is_not_passed_on(documents, minilm, ask, reply):
    invented = reply((1, "The landlord is Ms Novak.", "The landlord is Ms Novak."))
    answer, run, _ = await ask(
        RetrieveRead(), "Who is the landlord?", InMemorySources(documents, minilm), invented
    )
    assert (answer.found, answer.text, answer.citations) == (False, NOT_FOUND, ())
    assert any("Novak" in warning for warning in run.warnings)


async def test_nothing_said_is_not_found(documents, minilm, ask, reply):
    answer, _, _ = await ask(
        RetrieveRead(),
        "What is the capital of France?",
        InMemorySources(documents, minilm),
        *[reply(short="Paris", found=True)] * 4,
    )
    assert not answer.found
    assert answer.short is None


async def test_passages_that_do_not_fit_are_left_out_and_said(documents, minilm, ask):
    _, run, model = await ask(
        RetrieveRead(), QUESTION, InMemorySources(documents, minilm), context_tokens=1070
    )
    assert model.calls[0].prompt.count("<passage ") < 3
    assert any("do not fit the window of" in warning for warning in run.warnings)
    assert any(isinstance(event, Pruned) for _, event in run.trace.events)


async def test_a_reranker_decides_the_order(documents, minilm, ask):
    class Backwards:
        name = "backwards"

        async def score(self, query, texts):
            return [1.0 if "Dogs" in text else 0.0 for text in texts]

        async def aclose(self):
            pass

    answer, run, model = await ask(
        RetrieveRead(k=1), QUESTION, InMemorySources(documents, minilm), reranker=Backwards()
    )
    assert "Dogs are kept on a lead." in model.calls[0].prompt
    assert answer.evidence[0].span.document_id == "rules"
    assert run.meter.report().scoring_passes == 3


@pytest.mark.parametrize(("language", "first"), [("en", "rules"), ("de", "lease")])
async def test_a_reranker_of_another_language_is_left_out(documents, minilm, ask, language, first):
    class Dogs:
        name = "dogs"

        async def score(self, query, texts):
            return [1.0 if "Dogs" in text else 0.0 for text in texts]

        async def aclose(self):
            pass

    only = Dogs()
    only.language = language
    sources = InMemorySources(documents, minilm)
    answer, _, _ = await ask(RetrieveRead(k=1), QUESTION, sources, reranker=only)
    assert answer.evidence[0].span.document_id == first


async def test_a_reranker_may_count_beside_the_search(documents, minilm, ask):
    class Slight:
        name = "slight"
        beside_search = 0.01

        async def score(self, query, texts):
            return [1.0 if "Dogs" in text else 0.0 for text in texts]

        async def aclose(self):
            pass

    class Strong(Slight):
        beside_search = 100.0

    first = {}
    for reranker in (None, Slight(), Strong()):
        sources = InMemorySources(documents, minilm)
        answer, _, _ = await ask(RetrieveRead(k=1), QUESTION, sources, reranker=reranker)
        first[reranker and type(reranker)] = answer.evidence[0].span.document_id
    assert first == {None: "lease", Slight: "lease", Strong: "rules"}


@pytest.mark.parametrize(
    ("model", "reranked", "shown"),
    [("a-1.5b", True, 6), ("a-70b", True, 10), ("a-1.5b", False, 10)],
)
async def test_a_small_reader_is_shown_fewer_passages_if_they_are_reranked(
    minilm, ask, model, reranked, shown
):
    made = [document(f"dog{n}", f"# Dog {n}\n\nDog {n} sleeps.") for n in range(12)]
    reranker = EmbeddingReranker(minilm) if reranked else None
    sources = InMemorySources(made, minilm)
    _, _, asked = await ask(RetrieveRead(), "Who sleeps?", sources, name=model, reranker=reranker)
    assert asked.calls[0].prompt.count("<passage ") == shown


async def test_the_trace_replays_the_run(documents, minilm, ask):
    _, run, _ = await ask(RetrieveRead(), QUESTION, InMemorySources(documents, minilm))
    happened = [type(e) for _, e in run.trace.events]
    assert happened == [Retrieved, Located, Asking, Asked, Parsed, Answered]
    asked = run.trace.to_json()[3]
    assert asked["event"] == "asked"
    assert asked["messages"][1]["content"].endswith(f"Question: {QUESTION}")


async def test_what_the_search_located_is_shown_before_it_is_reranked(documents, minilm, ask):
    sources, reranker = InMemorySources(documents, minilm), EmbeddingReranker(minilm)
    _, run, _ = await ask(RetrieveRead(k=1), QUESTION, sources, reranker=reranker)
    happened = [type(event) for _, event in run.trace.events]
    assert happened[:3] == [Retrieved, Located, Scored]
    located = run.trace.events[1][1]
    assert located.line() == "located: Lease"


async def test_the_token_budget_is_kept_before_the_call(documents, minilm, make_run, reply):
    async with InMemorySources(documents, minilm) as sources:
        run, model = make_run(sources, [reply()], max_tokens=100)
        with pytest.raises(BudgetExceeded, match="the limit is 100"):
            await RetrieveRead().answer(QUESTION, run)
    assert model.calls == []


async def test_a_model_that_never_says_json_finds_nothing_and_a_warning_says_why(
    documents, minilm, make_run
):
    async with InMemorySources(documents, minilm) as sources:
        run, model = make_run(sources, lambda call: "no idea")
        answer = await RetrieveRead().answer(QUESTION, run)
    assert not answer.found
    assert any("no valid ReaderReply" in warning for warning in run.warnings)
    assert len(model.calls) == 2
