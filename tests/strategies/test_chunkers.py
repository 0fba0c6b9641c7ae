"""Passages that overlap, and those of a fixed number of words, are cited as any others."""

from __future__ import annotations

import json

import pytest

from colligate.library.in_memory import InMemorySources
from colligate.strategies.retrieve_read import RetrieveRead
from support.prompts import passages_in
from support.runs import document

FACT = "The mill was built in 1788 by the Harper brothers."
TEXT = f"# Mill\n\n{'It stands by the river. ' * 4}{FACT} {'Its wheel turns slowly. ' * 4}\n"


@pytest.mark.parametrize(
    ("chunker", "shown"), [("structural", 1), ("words:20", 1), ("tokens:30/20", 2)]
)
async def test_what_several_passages_say_is_cited_once_where_it_stands(make_run, chunker, shown):
    def say(call):
        there = [n for n, text in passages_in(call.prompt).items() if FACT in text]
        assert len(there) >= shown
        rows = [{"passage": n, "quote": FACT, "sentence": "In 1788."} for n in there]
        return json.dumps({"statements": rows, "short_answer": "1788", "found": True})

    async with InMemorySources([document("mill", TEXT)], chunker=chunker) as sources:
        run, _ = make_run(sources, say)
        answer = await RetrieveRead(mode="sparse").answer("Who built the mill in 1788?", run)
    (citation,) = answer.citations
    assert TEXT[citation.span.start : citation.span.end] == citation.quote == FACT
    assert answer.text == "In 1788. [1]"
    assert answer.short == "1788"
