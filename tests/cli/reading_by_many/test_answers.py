"""DuQUAD, DualRAG and SPD-RAG over real files and a real server, as a person uses them."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

QUESTION = "Which notices must stay in copies of the software?"
STRATEGIES = pytest.mark.parametrize("strategy", ["duquad", "dualrag", "spd-rag"])
PARTS = {
    "duquad": {"view": 2, "scores": 1, "statements": 1},
    # Two entities of a round, each summarised.
    "dualrag": {"reasoner": 2, "identifier": 1, "statements": 3},
    # Each agent is shown its short document at once.
    "spd-rag": {"coordinator": 1, "agent": 5, "statements": 1},
}
# What each adds to the trace, in the order of its paper.
OWN_EVENTS = {
    "duquad": ["listed", "weighted", "viewed", "gated"],
    "dualrag": ["reasoned", "identified", "gathered", "summarised", "outlined", "stopped"],
    "spd-rag": ["planned", "agentturn", "agentended", "grouped"],
}


def asking(server: Any, strategy: str, *arguments: str | Path) -> list[str | Path]:
    model = f"openai:reader@{server.url}"
    named = ["--strategy", strategy, "--model", model, "--embedder", "static"]
    return ["ask", QUESTION, *named, *arguments]


@STRATEGIES
def test_citations_are_slices_usage_is_told_by_role_and_the_trace_replays_the_run(
    colligate: Any, answers: Any, licences: Path, tmp_path: Path, strategy: str
) -> None:
    worker, trace = f"openai:worker@{answers.server.url}", tmp_path / "trace.jsonl"
    more = ("--json", "--worker-model", worker, "--trace", trace)
    done = colligate.here(*asking(answers.server, strategy, licences, *more))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert answers.counted() == PARTS[strategy]
    cited = {each["document"] for each in said["citations"]}
    assert len(cited) == {"duquad": 3, "dualrag": 5, "spd-rag": 5}[strategy]
    assert said["evidence"]
    assert all(each["reason"] for each in said["evidence"])
    assert (said["question"], said["strategy"], said["found"]) == (QUESTION, strategy, True)
    for citation in said["citations"]:
        text = colligate.here("library", "show", citation["document"], "--text").stdout
        assert text[citation["start"] : citation["end"]] == citation["quote"]
        assert any(notice in " ".join(citation["quote"].split()) for notice in answers.notices)
        for start, end in citation["answer_spans"]:
            assert any(notice in said["answer"][start:end] for notice in answers.notices)
    usage = said["usage"]
    calls = dict.fromkeys(("reader", "worker"), 0)
    for _, request in answers.served:
        calls[request["model"]] += 1
    by_role = {role: used["calls"] for role, used in usage["by_role"].items()}
    assert by_role.pop("scorer", 0) == 0  # the reranker's passes are no calls
    assert by_role == {role: count for role, count in calls.items() if count}
    assert usage["calls"] == sum(calls.values()) == sum(PARTS[strategy].values())
    assert (calls["worker"] > 0) == (strategy == "spd-rag")
    assert usage["retrieval_rounds"] == {"duquad": 0, "dualrag": 4, "spd-rag": 0}[strategy]
    events = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    assert [each["at"] for each in events] == sorted(each["at"] for each in events)
    assert events[-1]["event"] == "answered"
    asked = [each for each in events if each["event"] == "asked"]
    sent = [body for _, body in answers.served]
    assert _prompts(asked) == _prompts(sent)
    assert all(call["reply"] and call["usage"]["input_tokens"] for call in asked)
    names = [each["event"] for each in events]
    places = [names.index(name) for name in OWN_EVENTS[strategy]]
    assert places == sorted(places)


def _prompts(calls: list[dict[str, Any]]) -> list[str]:
    """What was asked; calls side by side may come in any order."""
    return sorted(json.dumps(call["messages"]) for call in calls)


@STRATEGIES
def test_nothing_found_is_status_3_and_what_fails_status_1_in_one_line(
    colligate: Any, answers: Any, licences: Path, strategy: str
) -> None:
    answers.notices = []
    asked = asking(answers.server, strategy, licences)
    done = colligate.here(*asked)
    assert (done.returncode, done.stdout) == (3, "Not in these documents.\n"), done.stderr
    done = colligate.here(*asked, "--max-tokens-total", "60")
    assert (done.returncode, done.stdout) == (1, "")
    assert "raise the token limit (--max-tokens-total)" in done.stderr
    answers.server.key = "right"
    done = colligate.here(*asked)
    assert (done.returncode, done.stdout) == (1, "")
    said = [line for line in done.stderr.splitlines() if line.startswith("colligate: ")]
    assert len(said) == 1, done.stderr
    assert "OPENAI_API_KEY" in said[0]


@STRATEGIES
def test_a_model_that_cannot_be_held_to_a_schema(
    colligate: Any, answers: Any, licences: Path, strategy: str
) -> None:
    """The schema then stands in the prompt, and the answer is the same."""
    server = answers.server
    expected = json.loads(colligate.here(*asking(server, strategy, licences, "--json")).stdout)
    server.refused_forms = {"json_schema", "json_object"}
    done = colligate.here(*asking(server, strategy, licences, "--json"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["answer"] == expected["answer"]
    assert said["citations"] == expected["citations"]


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
