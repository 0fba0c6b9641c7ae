import pytest

from colligate.documents.tokens import token_spans
from colligate.lab.baselines import llmlingua2
from colligate.lab.baselines.llmlingua2 import LLMLingua2, select_words
from colligate.lab.baselines.shared import Shortened
from colligate.lab.bench.outcome import read_events
from support.documents import make_all
from support.prompts import bodies

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


async def test_the_words_worth_keeping_are_read_and_cited_whole(classifier, ask, reply):
    said = reply((1, "Anna Keller signed treaty", "Anna Keller signed."), short="Anna Keller")
    answer, run, model = await ask(
        LLMLingua2(classifier="some/name"), QUESTION, make_all({"a": TEXT}), said
    )
    assert bodies(model.calls[0].prompt) == ["Anna Keller signed treaty"]
    assert classifier == ["some/name"]
    assert answer.citations[0].quote == TEXT
    assert answer.evidence[0].reason.endswith("of its characters were shown")
    assert run.meter.report().scoring_passes == 1
    (event,) = (e for _, e in run.trace.events if isinstance(e, Shortened))
    assert event.to_json()["event"] == "shortened"  # as web/src/pictures/passages.tsx reads it
    assert event.texts == read_events([event])["passages"] == ("Anna Keller signed treaty",)
    assert 0.4 < event.shares[0] < 0.6


async def test_a_target_is_shared_by_all_documents(classifier, ask, monkeypatch):
    """Twenty of 40 tokens are half of each document, not all of the shorter one."""

    class Rising:
        name = "the later the better"

        async def probabilities(self, texts):
            rows = [[(a, b, n / 100) for n, (a, b) in enumerate(token_spans(t))] for t in texts]
            return [[row[at : at + 10] for at in range(0, len(row), 10)] for row in rows]

    monkeypatch.setattr(llmlingua2, "get_token_classifier", lambda name: Rising())
    made = make_all({f"d{n}": " ".join(["word"] * n) for n in (10, 30)})
    _, run, model = await ask(LLMLingua2(classifier="x", target=20), QUESTION, made)
    assert [len(body.split()) for body in bodies(model.calls[0].prompt)] == [5, 15]
    assert run.meter.report().scoring_passes == 1 + 3, "one for each piece"


def test_a_word_has_the_mean_of_its_tokens_and_stays_whole():
    text = "unthinkable odd events"
    tokens = [(0, 2, 0.9), (2, 8, 0.2), (8, 11, 0.7), (12, 15, 0.1)]
    tokens += [(16, 18, 0.0), (18, 20, 0.3), (20, 22, 0.0)]
    assert [text[a:b] for a, b in select_words(text, tokens, 0.5)] == ["unthinkable"]
    assert [text[a:b] for a, b in select_words(text, tokens, 0.0)] == []
    assert select_words(text, [], 0.5) == []
