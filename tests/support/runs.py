"""Runs of strategies over small documents, with a scripted reader."""

import json

import pytest

from colligate.core.run import Run
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, LabelOdds, Role
from colligate.models.embedders import MiniLM
from colligate.models.metering import Meter
from colligate.models.weights import pull
from colligate.readers.quoting import QuotingReader
from colligate.testing import ScriptedModel

LEASE = """# Lease

The tenant pays 900 euros a month for the flat in Mill Street.

## Notice

Either side may give notice of three months, in writing.
"""
RULES = """# House rules

Dogs are kept on a lead. Bicycles stand in the yard, never in the hall.
"""


def document(name: str, text: str) -> Document:
    title = text.splitlines()[0].lstrip("# ")
    return Document(name, title, text, markdown_tree(text, name), language="en")


def events(run: Run, kind: type) -> list:
    """Return the events of this kind in a run's trace, in order."""
    return [event for _, event in run.trace.events if isinstance(event, kind)]


@pytest.fixture
def documents() -> list[Document]:
    return [document("lease", LEASE), document("rules", RULES)]


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    pull("minilm-l6-v2-int8")
    return MiniLM()


@pytest.fixture
def make_run():
    """`make_run(sources, replies)` is a run whose reader says the replies.

    What is not named below is for the model, e.g. `likelihood=` or `context_tokens=`.
    """

    def make(sources, replies=(), *, max_tokens=None, reranker=None, embedder=None, **options):
        options.setdefault("capabilities", (Capability.CHAT, Capability.STRUCTURED))
        given = {name: value for name, value in options.items() if value is not None}
        model = ScriptedModel(replies, **given)
        by = {"reranker": reranker, "embedder": embedder, "reader": QuotingReader()}
        return Run(sources, {Role.READER: model}, Meter(), max_tokens=max_tokens, **by), model

    return make


@pytest.fixture
def ask(make_run):
    """`answer, run, model = await ask(strategy, question, documents, *replies)` asks once.

    `documents` may be sources. One function, or many texts, are the replies; without any the
    reader finds nothing. Options are those of `make_run`.
    """

    async def ask(strategy, question, documents, *replies, **options):
        given = isinstance(documents, InMemorySources)
        says = replies[0] if len(replies) == 1 and callable(replies[0]) else replies or [NOTHING]
        async with documents if given else InMemorySources(documents) as sources:
            run, model = make_run(sources, says, **options)
            return await strategy.answer(question, run), run, model

    return ask


def judge_by_words(odds):
    """`labels=judge_by_words({words: p})` is a model that says Yes with p to a prompt with words.

    An exception in place of p is raised; without the words p is 0.1.
    """

    def judge(messages, labels, forced):
        yes = next((p for words, p in odds.items() if words in messages[-1].content), 0.1)
        if isinstance(yes, Exception):
            raise yes
        return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

    return judge


NOTHING = json.dumps({"statements": [], "short_answer": "", "found": False})


@pytest.fixture
def reply():
    """`reply((passage, quote, sentence), ...)` is what a reader returns.

    It says that it found the answer where it states something, or as it is told.
    """

    def made(*statements, short="", found=None) -> str:
        rows = [dict(zip(("passage", "quote", "sentence"), row, strict=True)) for row in statements]
        found = bool(rows) if found is None else found
        return json.dumps({"statements": rows, "short_answer": short, "found": found})

    return made
