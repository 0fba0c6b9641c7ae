"""A small world for DualRAG: the films and a document beside them, and a model that hops."""

from __future__ import annotations

import pytest

from colligate.core.run import Run
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.lab.training.trajectories import GoldDocument, read_trajectory
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, Role
from colligate.models.metering import Meter
from colligate.readers.quoting import QuotingReader
from colligate.strategies.dualrag import DualRAG
from colligate.testing import ScriptedModel
from support.films import QUESTION, World

TEXTS = {
    "film": "Silver Harbour is a film of 1971. Its director was Ada Mercer.\n",
    "mercer": "Ada Mercer was born in Lund. She liked boats.\n",
    "lund": "Lund is a town in Sweden. It has a cathedral.\n",
    "boats": "Boats are ships. A silver harbour is full of boats.\n",
}
TITLES = {
    "film": "Silver Harbour (film)",
    "mercer": "Ada Mercer",
    "lund": "Lund",
    "boats": "Boats",
}


@pytest.fixture
def world() -> type[World]:
    """`world(Summary=...)` is the script of a model, with replies of its own for a kind of call."""
    return World


@pytest.fixture
def golds() -> list[GoldDocument]:
    return [GoldDocument(id_, TITLES[id_]) for id_ in ("film", "mercer", "lund")]


@pytest.fixture
async def sources():
    documents = (
        Document(name, TITLES[name], text, markdown_tree(text, name), language="en")
        for name, text in TEXTS.items()
    )
    async with InMemorySources(list(documents)) as given:
        yield given


@pytest.fixture
def answered(sources):
    """`await answered(script)` is a run of DualRAG: its trajectory and its model."""

    async def answer(script, *, context_tokens=None, **fields):
        capabilities = (Capability.CHAT, Capability.STRUCTURED)
        model = ScriptedModel(script, capabilities=capabilities, context_tokens=context_tokens)
        run = Run(sources, {Role.READER: model}, Meter(), reader=QuotingReader())
        strategy = DualRAG(**{"mode": "sparse", "k": 2, "reader_tokens": 0} | fields)
        await strategy.answer(QUESTION, run)
        return await read_trajectory("q1", QUESTION, run), model

    return answer
