"""The bench from within: what becomes of an answer, what is asked again, what is spent."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from colligate.bench.metrics.catalogue import all_groups
from colligate.bench.metrics.groups import MetricGroup
from colligate.bench.outcome import Answerer, collect_stages
from colligate.bench.participants import Named
from colligate.bench.plan import SuiteEntry, contenders, plan
from colligate.bench.question import Question, QuestionTask
from colligate.bench.rows import Row, read_rows
from colligate.bench.run import Done, Request, run_suite
from colligate.bench.suites import Method, Suite, parse_suite
from colligate.bench.totals import read_totals
from colligate.cli.bench_results import collect_means
from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.events import Event, Noted
from colligate.core.reader import Form
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.documents import Document, Span
from colligate.documents.reading.text import text_tree
from colligate.errors import (
    BudgetExceeded,
    MissingCapability,
    MissingExtra,
    MissingPath,
    ServerFailed,
    UsageError,
)
from colligate.jobs.spending import Paid, Spending
from colligate.library.in_memory import InMemorySources
from colligate.models import Message, Role
from colligate.settings import Settings
from colligate.strategies.baselines.full_context import FullContext
from colligate.strategies.duquad.events import DocumentScore, Gated, Listed, Viewed
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.router import Action, Tag
from colligate.strategies.spd_rag.events import AgentEnded, AgentTurn, FoundThere
from colligate.testing import ScriptedCall, ScriptedModel

SUITE = """
title = "Small"
datasets = [{ name = "d", file = "d.jsonl", metrics = ["short", "judge_dual", "cost"] }]
strategies = [{ name = "full-context" }]
"""
QUOTE = "The mast is 41 metres high."
FOUND = json.dumps(
    {
        "statements": [{"passage": 1, "quote": QUOTE, "sentence": QUOTE}],
        "short_answer": "41 metres",
        "found": True,
    }
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = (
        {
            "id": f"q{n}",
            "question": f"How high is mast {n}?",
            "answers": ["41 metres"],
            "documents": [{"id": f"d{n}", "title": "Mast", "text": QUOTE}],
            "gold_document_ids": [f"d{n}"],
        }
        for n in range(3)
    )
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "d.jsonl").write_text(text, "utf-8")
    return tmp_path


def suite(text: str = SUITE) -> Suite:
    return parse_suite(text, "small", "small.toml")


@pytest.fixture
def asked(data: Path) -> Callable[..., Done]:
    """`asked(reader, judge)` runs the suite into a folder."""

    def run(
        reader: ScriptedModel,
        judge: ScriptedModel | None = None,
        said: list[str] | None = None,
        text: str = SUITE,
        **more: Any,
    ) -> Done:
        models = {Role.READER: reader, **({Role.JUDGE: judge} if judge else {})}
        named = Named(Settings(), models)
        notes = [] if said is None else said

        def see(event: Event) -> None:
            if isinstance(event, Noted):
                notes.append(event.text)

        request = Request(suite(text), data, data / "out", named, **more)
        return asyncio.run(run_suite(request, see))

    return run


def document(id_: str, text: str = QUOTE) -> Document:
    return Document(id_, id_, text, text_tree(text, id_), language="en")


# What becomes of an answer


@dataclass(frozen=True)
class Broken:
    """A strategy that raises what it is made with, once it has searched."""

    error: BaseException

    name: ClassVar[str] = "broken"
    needs: ClassVar[Needs] = Needs(searches=False)

    async def answer(self, question: str, run: Run) -> Answer:
        await run.chat([Message("user", question)], max_tokens=5)
        raise self.error


async def outcome_of(strategy: Any, model: ScriptedModel, **more: Any) -> Any:
    answering = Answerer({Role.READER: model}, more.pop("spending", Spending()), **more)
    async with InMemorySources([document("a")]) as sources:
        outcome, _ = await answering.answer(strategy, "How high?", sources)
    return outcome


async def test_an_answer_keeps_its_citations_evidence_and_cost() -> None:
    outcome = await outcome_of(FullContext(), ScriptedModel([FOUND]))

    assert (outcome.found, outcome.short, outcome.error) == (True, "41 metres", "")
    [cited] = outcome.citations
    assert (cited.document, cited.text, cited.title) == ("a", QUOTE, "a")
    assert outcome.text[slice(*cited.answer_spans[0])] == QUOTE
    assert [piece.text for piece in outcome.evidence] == [QUOTE]
    assert outcome.usage["calls"] == 1


async def test_a_refusal_has_no_text_and_no_citation_but_what_was_read() -> None:
    refusal = json.dumps({"statements": [], "short_answer": "", "found": False})
    outcome = await outcome_of(FullContext(), ScriptedModel([refusal]))

    assert (outcome.found, outcome.text, outcome.short) == (False, "", "")
    assert outcome.citations == ()
    assert len(outcome.evidence) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ServerFailed("it is down", "500"), "ServerFailed: it is down: 500"),
        (KeyError("x"), "internal error: KeyError: 'x' (answer, line "),
        (
            ExceptionGroup("several", [ValueError("v"), ServerFailed("it is down")]),
            "ServerFailed: it is down",
        ),
        (TimeoutError("its own"), "internal error: TimeoutError: its own"),
    ],
)
async def test_whatever_a_strategy_raises_is_the_outcomes_error_with_what_it_cost(
    error: Exception, said: str
) -> None:
    outcome = await outcome_of(Broken(error), ScriptedModel(["hm"]))

    assert outcome.error.startswith(said)
    assert outcome.found is False
    assert outcome.usage["calls"] == 1


async def test_an_answer_that_cites_what_there_is_not_has_failed() -> None:
    @dataclass(frozen=True)
    class Inventive:
        name: ClassVar[str] = "inventive"
        needs: ClassVar[Needs] = Needs(searches=False)

        async def answer(self, question: str, run: Run) -> Answer:
            await run.chat([Message("user", question)], max_tokens=5)
            evidence = (Evidence(Span("nowhere", 0, 5), 1.0, "so"),)
            return Answer(question, self.name, "a guess", True, evidence=evidence)

    outcome = await outcome_of(Inventive(), ScriptedModel(["hm"]))

    assert "nowhere" in outcome.error
    assert (outcome.found, outcome.text, outcome.usage["calls"]) == (False, "", 1)


async def test_what_stops_the_process_is_no_outcome() -> None:
    with pytest.raises(KeyboardInterrupt):
        await outcome_of(Broken(KeyboardInterrupt()), ScriptedModel(["hm"]))


async def test_what_the_budget_of_all_refuses_is_no_outcome_even_if_the_strategy_goes_on() -> None:
    @dataclass(frozen=True)
    class Undaunted:
        name: ClassVar[str] = "undaunted"
        needs: ClassVar[Needs] = Needs(searches=False)

        async def answer(self, question: str, run: Run) -> Answer:
            assert run.tokens.left is None  # it does not feel the budget
            try:
                await run.chat([Message("user", question)], max_tokens=100)
            except BudgetExceeded:
                return Answer(question, self.name, "a guess", True)
            raise AssertionError("the budget did not hold")

    with pytest.raises(BudgetExceeded, match="the limit is 50"):
        await outcome_of(Undaunted(), ScriptedModel(["hm"]), spending=Spending(50))


async def test_a_judge_spends_from_the_same_budget() -> None:
    spending = Spending(200)
    judge = Paid(ScriptedModel(["Yes", "No"]), spending)

    await judge.chat([Message("user", "Is it?")], max_tokens=10)

    assert 0 < spending.tokens < 20
    with pytest.raises(BudgetExceeded):
        await judge.chat([Message("user", "Is it?")], max_tokens=200)


# Stages


def of(*documents: str) -> tuple[Span, ...]:
    return tuple(Span(id_, 0, 5) for id_ in documents)


def test_the_stages_of_duquad_are_documents_by_what_its_events_number() -> None:
    scores = (
        DocumentScore(3, 0.9, "x", True, document="c"),
        DocumentScore(1, 0.1, "", False, document="a"),
    )
    events = [
        Listed("documents", of("a", "b", "c"), ("A", "B", "C")),
        Viewed("global", (1, 2, 3), "", (1,), True, ("a", "b", "c")),
        Viewed("local", (3, 2), "", (3,), True, ("c", "b")),
        Gated(0.4, scores),
    ]

    assert collect_stages(events) == {
        "global": ("a", "b", "c"),
        "named": ("a", "c"),
        "local": ("c", "b"),
        "kept": ("c",),
    }


def test_a_stage_that_left_nothing_is_there_and_empty() -> None:
    nothing = Routed("a", 0, None, (), "", (), "refused", (), (), ())
    routed = replace(nothing, document="b", actions=(Action(Tag.ANSWER, 3),), verdict="routed")
    turn = AgentTurn("a", "A", 1, (), "finalize", "", ())
    ended = AgentEnded("a", "A", "done", (), 0.0, 1, 1, 0)

    assert collect_stages([nothing]) == {"routed": ()}
    assert collect_stages([nothing, routed]) == {"routed": ("b",)}
    assert collect_stages([turn, ended]) == {"read": (), "found": ()}
    found = replace(ended, document="b", findings=(FoundThere("x", of("b")),))
    assert collect_stages([replace(turn, shown=of("a")), ended, found]) == {
        "read": ("a",),
        "found": ("b",),
    }


# Who is asked, and how


def test_the_oracle_alone_is_told_the_gold() -> None:
    @dataclass(frozen=True)
    class Oracle:
        gold: tuple[str, ...] = ()
        sentences: tuple[tuple[str, str], ...] = ()
        name: ClassVar[str] = "oracle"
        needs: ClassVar[Needs] = Needs()

    question = Question("q", "?", gold=("a",), gold_texts=(("a", "It is so."),))
    told: Any = SuiteEntry(Method("oracle"), Oracle()).asked(question)  # type: ignore[arg-type]

    assert (told.gold, told.sentences) == (("a",), (("a", "It is so."),))
    other = SuiteEntry(Method("full-context"), FullContext())
    assert other.asked(question) is other.strategy


@pytest.mark.parametrize(
    ("task", "form"),
    [
        (QuestionTask.SHORT, Form.SHORT),
        (QuestionTask.SET, Form.LIST),
        (QuestionTask.LONG, Form.LONG),
    ],
)
def test_a_strategy_answers_in_the_form_of_the_task_unless_the_suite_sets_one(
    task: QuestionTask, form: Form
) -> None:
    text = SUITE.replace(
        '{ name = "full-context" }',
        '{ name = "duquad" }, { name = "short", strategy = "duquad", set = ["form=short"] }',
    )
    free, held = contenders(suite(text))
    question = Question("q", "?", task=task)

    assert free.asked(question).form == form  # type: ignore[attr-defined]
    assert held.asked(question).form == Form.SHORT  # type: ignore[attr-defined]


def test_questions_without_documents_are_for_strategies_that_read_none(data: Path) -> None:
    bare = {"id": "q", "question": "?", "answers": ["x"], "documents": []}
    record = json.dumps({**bare, "gold_document_ids": []})
    (data / "d.jsonl").write_text(record, "utf-8")

    with pytest.raises(UsageError, match="full-context reads documents"):
        plan(suite(), data, taking_part=contenders(suite()))
    assert plan(suite(), data, taking_part=contenders(suite(), ["direct"])).answers == 1


def test_only_who_reads_documents_needs_the_corpus(asked: Callable[..., Done], data: Path) -> None:
    text = SUITE.replace('"judge_dual", ', "")
    text = text.replace('name = "d",', 'name = "d", over = "corpus", corpus = "none.jsonl",')
    told = json.dumps({"answer": "It is 41 metres high.", "short_answer": "41 metres"})

    with pytest.raises(MissingPath, match=r"no .*none\.jsonl"):
        asked(ScriptedModel([]), text=text)
    done = asked(ScriptedModel([told] * 3), text=text, strategies=["direct"])

    assert [row.outcome.error for row in done.rows.values()] == ["", "", ""]


# Metrics that ask a model


def test_a_metric_that_could_not_be_taken_is_taken_later_and_nothing_else_is_asked_again(
    asked: Callable[..., Done], data: Path
) -> None:
    reader = ScriptedModel(lambda _: FOUND)
    failing = ScriptedModel(lambda _: ServerFailed("the judge is down"))
    first = asked(reader, failing, limit=2)

    for row in first.rows.values():
        assert row.unmeasured == {"judge_dual": "ServerFailed: the judge is down"}
        assert row.metrics["containment"] == 1.0
        assert "judge_dual" not in str(row.metrics)
    calls = len(reader.calls)

    second = asked(reader, ScriptedModel(lambda _: "Yes"), limit=2)

    assert len(reader.calls) == calls
    assert second.asked == 2
    for row in second.rows.values():
        assert row.unmeasured == {}
        assert (row.metrics["judge_dual_max"], row.metrics["containment"]) == (1.0, 1.0)
        assert row.attempt == 1


def test_what_a_suite_wants_measured_needs_its_model_and_what_it_may_leaves_it_out(
    asked: Callable[..., Done], data: Path
) -> None:
    reader = ScriptedModel(lambda _: FOUND)
    with pytest.raises(UsageError, match="give one with --judge"):
        asked(reader)
    assert reader.calls == []
    assert read_rows_if_any(data / "out") == []

    optional = SUITE.replace('"judge_dual", "cost"]', '"cost"], optional = ["judge_dual"]')
    said: list[str] = []
    done = asked(reader, said=said, text=optional, limit=1)
    assert len(done.rows) == 1
    assert any(line.startswith("without judge_dual: ") for line in said)


def read_rows_if_any(folder: Path) -> Sequence[Row]:
    return read_rows(folder) if (folder / "rows.jsonl").exists() else []


# Which strategies can run


def test_of_the_default_strategies_those_that_cannot_run_are_left_out_and_said(
    asked: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Greedy(FullContext):
        needs: ClassVar[Needs] = Needs(
            required=frozenset({"chat", "attention"}),  # type: ignore[arg-type]
            searches=False,
        )

    kinds = {"full-context": FullContext, "greedy": Greedy}
    monkeypatch.setattr("colligate.bench.plan.load_strategy", kinds.__getitem__)
    text = SUITE.replace('["short", "judge_dual", "cost"]', '["short"]').replace(
        '{ name = "full-context" }', '{ name = "full-context" }, { name = "greedy" }'
    )
    said: list[str] = []

    done = asked(ScriptedModel(lambda _: FOUND), said=said, text=text, limit=1)

    assert {row.strategy for row in done.rows.values()} == {"full-context"}
    assert any("left out: greedy needs attention" in line for line in said)
    with pytest.raises(MissingCapability, match="greedy needs attention"):
        asked(ScriptedModel(lambda _: FOUND), text=text, limit=1, strategies=["greedy"])


def test_a_strategy_that_breaks_does_not_keep_the_others_from_their_rows(
    asked: Callable[..., Done],
) -> None:
    def reply(call: ScriptedCall) -> Any:
        return ServerFailed("it is down") if "mast 1" in call.prompt else FOUND

    text = SUITE.replace('["short", "judge_dual", "cost"]', '["short"]')
    done = asked(ScriptedModel(reply), text=text)

    errors = {row.question: row.outcome.error for row in done.rows.values()}
    assert errors == {"q0": "", "q1": "ServerFailed: it is down", "q2": ""}
    assert {row.metrics["containment"] for row in done.rows.values()} == {0.0, 1.0}


def test_who_measures_takes_no_part_in_the_answers(asked: Callable[..., Done]) -> None:
    @dataclass(frozen=True)
    class AsksTheJudge(FullContext):
        async def answer(self, question: str, run: Run) -> Answer:
            await run.chat([Message("user", "Settle it.")], role=Role.JUDGE, max_tokens=5)
            return await super().answer(question, run)

    reader = ScriptedModel(lambda _: FOUND)
    judge = ScriptedModel(lambda _: "Yes")
    with pytest.MonkeyPatch.context() as patch:
        kind = {"full-context": AsksTheJudge}.__getitem__
        patch.setattr("colligate.bench.plan.load_strategy", kind)
        asked(reader, judge, limit=1)

    assert [call.prompt == "Settle it." for call in reader.calls] == [True, False]
    assert not any(call.prompt == "Settle it." for call in judge.calls)
    assert judge.calls


def test_a_metric_of_the_whole_run_that_cannot_be_taken_is_said_and_costs_no_row(
    asked: Callable[..., Done], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share(pairs: Sequence[Any]) -> dict[str, float]:
        return {"share_found": sum(outcome.found for _, outcome in pairs) / len(pairs)}

    def heavy(pairs: Sequence[Any]) -> dict[str, float]:
        raise MissingExtra("heavy needs torch", "it is not installed")

    monkeypatch.setitem(all_groups(), "share", MetricGroup("share", "", of_run=share))
    monkeypatch.setitem(all_groups(), "heavy", MetricGroup("heavy", "", of_run=heavy))
    text = SUITE.replace('["short", "judge_dual", "cost"]', '["short", "share", "heavy"]')
    said: list[str] = []

    done = asked(ScriptedModel(lambda _: FOUND), said=said, text=text)

    assert len(done.rows) == 3
    assert "without heavy: heavy needs torch: it is not installed" in said
    assert read_totals(data / "out") == {("d", "full-context"): {"share_found": 1.0}}


def test_metrics_of_the_whole_run_are_never_those_of_fewer_rows(
    asked: Callable[..., Done], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def share(pairs: Sequence[Any]) -> dict[str, float]:
        counted.append(len(pairs))
        if len(counted) == 2:
            raise KeyboardInterrupt  # all is asked, and then it is stopped
        return {"answers": float(len(pairs))}

    monkeypatch.setitem(all_groups(), "share", MetricGroup("share", "", of_run=share))
    text = SUITE.replace('["short", "judge_dual", "cost"]', '["short", "share"]')
    asked(ScriptedModel(lambda _: FOUND), text=text, limit=2)
    assert read_totals(data / "out") == {("d", "full-context"): {"answers": 2.0}}
    with pytest.raises(KeyboardInterrupt):
        asked(ScriptedModel(lambda _: FOUND), text=text)
    assert len(read_rows(data / "out")) == 3
    assert read_totals(data / "out") == {}

    done = [asked(ScriptedModel([]), text=text) for _ in range(2)]

    assert [each.asked for each in done] == [0, 0]
    assert read_totals(data / "out") == {("d", "full-context"): {"answers": 3.0}}
    assert counted == [2, 3, 3]
    assert collect_means(done[0])["cells"][0]["metrics"]["answers"] == 3.0


def test_a_metric_of_the_whole_run_is_taken_once_it_can_be(
    asked: Callable[..., Done], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heavy(pairs: Sequence[Any]) -> dict[str, float]:
        if not installed:
            raise MissingExtra("heavy needs torch", "it is not installed")
        return {"heavy": 0.5}

    installed: list[str] = []
    monkeypatch.setitem(all_groups(), "heavy", MetricGroup("heavy", "", of_run=heavy))
    text = SUITE.replace('["short", "judge_dual", "cost"]', '["short", "heavy"]')
    asked(ScriptedModel(lambda _: FOUND), text=text)
    installed.append("torch")
    asked(ScriptedModel([]), text=text)

    assert read_totals(data / "out") == {("d", "full-context"): {"heavy": 0.5}}


def test_runs_that_share_replies_ask_the_same_once_and_count_its_tokens_but_not_its_seconds(
    asked: Callable[..., Done], data: Path
) -> None:
    text = SUITE.replace('"judge_dual", ', "")
    replies = data / "replies.db"
    first, second = ScriptedModel([FOUND] * 3), ScriptedModel([])

    once = asked(first, text=text, replies=replies)
    shutil.move(data / "out", data / "first")
    again = asked(second, text=text, replies=replies)

    assert not second.calls
    assert once.tokens > 0
    assert again.tokens == 0
    for key, row in again.rows.items():
        before = once.rows[key]
        assert row.outcome.text == before.outcome.text
        assert row.metrics["tokens"] == before.metrics["tokens"] > 0
        assert row.metrics["calls"] == 1
        assert "seconds" in before.metrics
        assert "seconds" not in row.metrics


def test_what_was_remembered_takes_nothing_from_a_budget(
    asked: Callable[..., Done], data: Path
) -> None:
    text = SUITE.replace('"judge_dual", ', "")
    replies = data / "replies.db"
    spent = asked(ScriptedModel([FOUND]), text=text, replies=replies, limit=1).tokens
    shutil.move(data / "out", data / "first")

    model = ScriptedModel([FOUND] * 2)
    done = asked(model, text=text, replies=replies, max_tokens_total=100 * spent)

    assert len(model.calls) == 2
    assert done.tokens == 2 * spent


def test_strategies_whose_names_look_alike_in_a_path_keep_their_own_traces(
    asked: Callable[..., Done], data: Path
) -> None:
    text = SUITE.replace("judge_dual", "cost").replace(
        '{ name = "full-context" }',
        '{ name = "a b", strategy = "full-context" }, { name = "a-b", strategy = "full-context" }',
    )
    done = asked(ScriptedModel(lambda _: FOUND), text=text, limit=1)

    traces = {row.trace for row in done.rows.values()}
    assert len(traces) == 2
    assert all((data / "out" / str(trace)).is_file() for trace in traces)
