import re

import pytest

from colligate.core.reader import Shortened
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.documents.tokens import token_spans
from colligate.errors import UsageError, WeightsUnavailable
from colligate.library.in_memory import InMemorySources
from colligate.strategies.baselines import llmlingua2
from colligate.strategies.baselines.llmlingua2 import LLMLingua2, select_words

QUESTION = "Who signed?"
TEXT = "It was noon when Anna Keller signed the treaty."
WORTH = ("Anna", "Keller", "signed", "treaty")


def scored(text):
    return [(a, b, 0.9 if text[a:b] in WORTH else 0.1) for a, b in token_spans(text)]


class Classifier:
    name = "a classifier"

    async def probabilities(self, texts):
        return [[scored(text)] if text.strip() else [] for text in texts]


@pytest.fixture
def classifier(monkeypatch):
    """What stands in for trained weights: it knows the words worth keeping."""
    asked = []

    def opened(name):
        asked.append(name)
        return Classifier()

    monkeypatch.setattr(llmlingua2, "get_token_classifier", opened)
    return asked


def document(name, text):
    return Document(name, name, text, markdown_tree(text, name), language="en")


async def test_the_words_worth_keeping_are_read_and_cited_whole(classifier, make_run, reply):
    said = reply((1, "Anna Keller signed treaty", "Anna Keller signed."), short="Anna Keller")
    async with InMemorySources([document("a", TEXT)]) as sources:
        run, model = make_run(sources, [said])
        answer = await LLMLingua2(classifier="some/name").answer(QUESTION, run)
    (body,) = re.findall(r"<passage number.*?>\n(.*?)\n</passage", model.calls[0].prompt)
    assert body == "Anna Keller signed treaty"
    assert classifier == ["some/name"]
    assert answer.citations[0].quote == TEXT
    assert answer.evidence[0].reason.endswith("of its characters were shown")
    assert run.meter.report().scoring_passes == 1
    (event,) = (e for _, e in run.trace.events if isinstance(e, Shortened))
    assert event.texts == ("Anna Keller signed treaty",)
    assert 0.4 < event.shares[0] < 0.6


async def test_a_target_is_shared_by_all_documents(classifier, make_run, reply):
    texts = [TEXT, "Nothing else was done there on that long grey day of rain."]
    documents = [document(str(n), text) for n, text in enumerate(texts)]
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, [reply()])
        await LLMLingua2(classifier="x", target=1000).answer(QUESTION, run)
    bodies = re.findall(r"<passage number.*?>\n(.*?)\n</passage", model.calls[0].prompt)
    assert bodies == texts


def test_a_word_has_the_mean_of_its_tokens_and_stays_whole():
    text = "unthinkable odd events"
    tokens = [(0, 2, 0.9), (2, 8, 0.2), (8, 11, 0.7), (12, 15, 0.1)]
    tokens += [(16, 18, 0.0), (18, 20, 0.3), (20, 22, 0.0)]
    assert [text[a:b] for a, b in select_words(text, tokens, 0.5)] == ["unthinkable"]
    assert [text[a:b] for a, b in select_words(text, tokens, 0.0)] == []
    assert select_words(text, [], 0.5) == []


async def test_without_a_classifier_it_says_which_one_the_paper_has(make_run):
    async with InMemorySources([document("a", TEXT)]) as sources:
        run, model = make_run(sources, [])
        with pytest.raises(WeightsUnavailable, match="microsoft/llmlingua-2-xlm-roberta-large"):
            await LLMLingua2().answer(QUESTION, run)
    assert model.calls == []


async def test_no_documents_cost_no_call(classifier, make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, [])
        answer = await LLMLingua2(classifier="x").answer(QUESTION, run)
    assert not answer.found
    assert model.calls == []


def test_numbers_are_held_to_what_they_can_mean():
    with pytest.raises(UsageError):
        LLMLingua2(rate=-1)
    with pytest.raises(UsageError):
        LLMLingua2(target=0)
