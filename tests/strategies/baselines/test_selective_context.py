import re

import pytest

from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.documents.tokens import token_spans
from colligate.errors import MissingCapability, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.strategies.baselines.selective_context import SelectiveContext

QUESTION = "Who signed?"
TEXT = "It was noon on a day of rain. Anna Keller signed the treaty in the old hall."
GUESSED = ("It", "was", "on", "a", "of", "the", "in", ".")


def likelihood(prefix, text):
    pieces = [text[start:end] for start, end in token_spans(text)]
    return [-0.1 if piece in GUESSED else -9.0 for piece in pieces]


def document(name, text):
    return Document(name, name, text, markdown_tree(text, name), language="en")


def bodies(prompt):
    return re.findall(r"<passage number.*?>\n(.*?)\n</passage", prompt, re.DOTALL)


async def shown(make_run, reply, texts=(TEXT,), **parameters):
    async with InMemorySources([document(str(n), text) for n, text in enumerate(texts)]) as sources:
        run, model = make_run(sources, [reply()], likelihood=likelihood)
        await SelectiveContext(**parameters).answer(QUESTION, run)
    return bodies(model.calls[0].prompt)


@pytest.mark.parametrize("level", ["token", "word"])
async def test_what_could_be_guessed_is_left_out(level, make_run, reply):
    (body,) = await shown(make_run, reply, level=level, reduce=0.6)
    assert body == "noon day rain Anna Keller signed treaty old hall"


async def test_of_sentences_the_least_informative_goes(make_run, reply):
    (body,) = await shown(make_run, reply, level="sentence", reduce=0.5)
    assert body == "Anna Keller signed the treaty in the old hall."


async def test_each_sentence_is_scored_from_its_own_beginning(make_run, reply):
    pairs = []

    def note(prefix, text):
        pairs.append((prefix, text))
        return likelihood(prefix, text)

    async with InMemorySources([document("a", TEXT)]) as sources:
        run, _ = make_run(sources, [reply()], likelihood=note)
        await SelectiveContext().answer(QUESTION, run)
    assert pairs == [
        ("", "It was noon on a day of rain."),
        ("", "Anna Keller signed the treaty in the old hall."),
    ]


async def test_a_target_that_holds_everything_changes_nothing(make_run, reply):
    assert await shown(make_run, reply, target=10_000) == [TEXT]


async def test_a_sentence_longer_than_the_window_is_cut_not_refused(make_run, reply):
    long = " ".join(f"word{n}" for n in range(200))
    sizes = []

    def note(prefix, text):
        sizes.append(len(token_spans(text)))
        return likelihood(prefix, text)

    async with InMemorySources([document("a", long)]) as sources:
        run, _ = make_run(sources, [reply()], likelihood=note)
        scorer = run.model("scorer")
        run.models["reader"] = type(scorer)([reply()])
        run.models["scorer"] = scorer
        scorer._context_tokens = 58
        await SelectiveContext(reduce=0).answer(QUESTION, run)
        prompt = run.models["reader"].calls[0].prompt
    assert max(sizes) == 50
    assert bodies(prompt) == [long]


async def test_a_quote_of_what_is_left_is_cited_as_it_stands(make_run, reply):
    said = reply((1, "Anna Keller signed treaty old hall", "Anna Keller signed it."))
    async with InMemorySources([document("a", TEXT)]) as sources:
        run, _ = make_run(sources, [said], likelihood=likelihood)
        answer = await SelectiveContext(reduce=0.6).answer(QUESTION, run)
    assert [c.quote for c in answer.citations] == ["Anna Keller signed the treaty in the old hall."]


async def test_it_needs_likelihoods(make_run):
    async with InMemorySources([document("a", TEXT)]) as sources:
        run, model = make_run(sources, [])
        with pytest.raises(MissingCapability, match="likelihoods"):
            await SelectiveContext().answer(QUESTION, run)
    assert model.calls == []


async def test_no_documents_cost_nothing(make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, [], likelihood=likelihood)
        answer = await SelectiveContext().answer(QUESTION, run)
    assert not answer.found
    assert model.calls == []
    assert run.meter.report().scoring_passes == 0


def test_numbers_are_held_to_what_they_can_mean():
    with pytest.raises(UsageError):
        SelectiveContext(reduce=-0.1)
