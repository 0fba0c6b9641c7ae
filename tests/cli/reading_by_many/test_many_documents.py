"""SPD-RAG where not everything goes well: failures, budgets, interruptions."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from colligate import Engine
from colligate.core import make_strategy
from colligate.models.openai import OpenAIChat

QUESTION = "Which notices must stay in copies of the software?"


@pytest.fixture
def spd_rag(answers: Any, tmp_path: Path, policy: Any) -> Any:
    """`await spd_rag(folder, max_tokens_total=..., **parameters)` asks, never waiting to retry."""

    async def ask(folder: Path, *, max_tokens_total: int | None = None, **parameters: Any) -> Any:
        model = OpenAIChat("reader", answers.server.url, policy=policy)
        library = tmp_path / "library"
        try:
            async with Engine(model=model, embedder="static", library=library) as engine:
                return await engine.ask(
                    QUESTION,
                    [folder],
                    strategy=make_strategy("spd-rag", **parameters),
                    max_tokens_total=max_tokens_total,
                )
        finally:
            await model.aclose()

    return ask


def of(body: dict[str, Any], name: str) -> bool:
    """Whether a request is that of the agent of a document."""
    return name in "\n".join(turn["content"] for turn in body["messages"])


def cited(answer: Any) -> set[str]:
    return {citation.span.document_id.rpartition("-")[0] for citation in answer.citations}


async def test_one_agent_that_fails_does_not_sink_the_others(
    answers: Any, spd_rag: Any, licences: Path
) -> None:
    def agent(body: dict[str, Any]) -> Any:
        return answers.failure if of(body, "Zlib") else answers.agent(body)

    answers.say["agent"] = agent
    answer = await spd_rag(licences)
    assert answer.found
    assert cited(answer) == {"mit", "isc", "bsl-1.0", "bsd-3-clause"}
    [warning] = [each for each in answer.warnings if "Zlib" in each]
    assert "1 " in warning


async def test_when_every_agent_fails_nothing_is_found_and_it_is_said(
    answers: Any, spd_rag: Any, licences: Path
) -> None:
    answers.say["agent"] = lambda body: answers.failure
    answer = await spd_rag(licences)
    assert not answer.found
    [warning] = [each for each in answer.warnings if "could not be read" in each]
    assert re.match(r"5 of 5 documents could not be read: .*500", warning)


async def test_a_spent_budget_gives_a_partial_answer_that_says_so(
    answers: Any, spd_rag: Any, licences: Path
) -> None:
    whole = await spd_rag(licences)
    used = whole.usage.input_tokens + whole.usage.output_tokens
    answers.served.clear()
    limit = used + 1800  # a call may take more than it uses
    answer = await spd_rag(licences, max_tokens_total=limit, concurrency=1, agent_tokens=400)
    assert answer.usage.input_tokens + answer.usage.output_tokens <= limit
    [warning] = [each for each in answer.warnings if "not read: the token budget" in each]
    unread = int(re.search(r"(\d+) of 5 documents", warning)[1])
    assert 0 < unread < 5
    assert answer.found
    assert len(cited(answer)) == 5 - unread


def test_interrupted_it_goes_on_where_it_was(colligate: Any, answers: Any, licences: Path) -> None:
    """No document whose agent was done is asked again, nor the coordinator."""
    server, done = answers.server, threading.Event()
    model = f"openai:reader@{server.url}"
    command = ["ask", QUESTION, licences, "--strategy", "spd-rag", "--model", model,
               "--embedder", "static", "--set", "concurrency=1", "--json"]  # fmt: skip
    go_on = threading.Event()

    def agent(body: dict[str, Any]) -> Any:
        if len(answers.at("agent")) > 2:  # the third document
            done.set()
            go_on.wait(30)
        return answers.agent(body)

    answers.say["agent"] = agent
    process = colligate.start(*command)
    assert done.wait(30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b""), err
    assert b"is kept" in err
    go_on.set()
    answers.say["agent"] = answers.agent
    answers.served.clear()

    finished = colligate.here(*command)
    assert finished.returncode == 0, finished.stderr
    assert answers.counted() == {"agent": 3, "statements": 1}
    assert len({c["document"] for c in json.loads(finished.stdout)["citations"]}) == 5
    # What was kept is for going on alone: who asks again is answered anew.
    answers.served.clear()
    assert colligate.here(*command).returncode == 0
    assert answers.counted() == {"coordinator": 1, "agent": 5, "statements": 1}
