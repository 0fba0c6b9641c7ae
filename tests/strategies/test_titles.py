"""The title of a document in the prompts of the methods: with what its file's name adds."""

import json

import pytest

from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.strategies.dualrag import DualRAG
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.spd_rag import SPDRAG

TEXT = "Revenue was 6,780 million dollars. It grew by a fifth."


@pytest.mark.parametrize(
    "strategy",
    [DuQUAD(mode="sparse"), SPDRAG(mode="sparse"), DualRAG(mode="sparse")],
    ids=lambda strategy: strategy.name,
)
async def test_prompts_show_the_full_title(ask, strategy):
    name = "netflix-2015-10k-e3b0c44298"
    filing = Document(name, "Netflix, Inc.", TEXT, markdown_tree(TEXT, name), language="en")
    reply = json.dumps({"thought": "How did revenue grow?", "sentences": [1], "statements": []})
    _, _, model = await ask(strategy, "What was the revenue?", [filing], lambda _: reply)
    titles = [call.prompt.count("Netflix, Inc.") for call in model.calls]
    assert any(titles)
    assert titles == [call.prompt.count("Netflix, Inc. (2015 10k)") for call in model.calls]
