"""Running a suite: what an answer becomes, what is asked again, what is spent."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from colligate.core.answer import Answer
from colligate.core.events import Event, Noted
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.documents import Document
from colligate.documents.reading.text import text_tree
from colligate.errors import (
    BudgetExceeded,
    MissingCapability,
    ServerFailed,
    UsageError,
)
from colligate.lab.bench.metrics import MetricGroup
from colligate.lab.bench.metrics.catalogue import all_groups
from colligate.lab.bench.outcome import (
    Answerer,
    read_rows,
)
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.plan import SuiteEntry, configure_entries, plan
from colligate.lab.bench.provenance import RUN
from colligate.lab.bench.question import Question
from colligate.lab.bench.run import BenchRequest, SuiteRun, run_suite
from colligate.lab.bench.suites import Dataset, Method, Suite, parse_suite
from colligate.lab.bench.tables import RunResults, load_totals
from colligate.lab.jobs.spending import Spending
from colligate.library.in_memory import InMemorySources
from colligate.models import ChatRequest, Message, Role
from colligate.settings import Named, Settings
from colligate.strategies.full_context import FullContext
from colligate.testing import ScriptedModel
from support.embedders import SameEmbedder

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


def with_metrics(*names: str) -> str:
    return SUITE.replace('["short", "judge_dual", "cost"]', json.dumps(names))


UNJUDGED = with_metrics("short", "cost")


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
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return tmp_path


def suite(text: str = SUITE) -> Suite:
    return parse_suite(text, "small", "small.toml")


def finder() -> ScriptedModel:
    return ScriptedModel(lambda _: FOUND)


def start(
    data: Path,
    model: ScriptedModel | None = None,
    judge: ScriptedModel | None = None,
    said: list[str] | None = None,
    text: str = SUITE,
    out: str = "out",
    **more: Any,
) -> Coroutine[Any, Any, SuiteRun]:
    models = {Role.READER: model or finder(), **({Role.JUDGE: judge} if judge else {})}
    notes = [] if said is None else said

    def see(event: Event) -> None:
        if isinstance(event, Noted):
            notes.append(event.text)

    names = ModelNames(Settings(), models)
    return run_suite(BenchRequest(suite(text), data, data / out, names, **more), see)


def totals_of(out: Path) -> Any:
    return {key: cell.metrics for key, cell in load_totals(out, read_rows(out)).items()}


Ask = Callable[..., SuiteRun]


@pytest.fixture
def asked(data: Path) -> Ask:
    """`asked(reader, judge)` runs the suite into the folder `out`."""
    return lambda *models, **more: asyncio.run(start(data, *models, **more))


def document(id_: str, text: str = QUOTE) -> Document:
    return Document(id_, id_, text, text_tree(text, id_), language="en")


# What an answer becomes


@dataclass(frozen=True)
class Then:
    """A strategy that asks its model once and then does something else."""

    act: Callable[[str, Run], Answer]
    max_tokens: int = 5

    name: ClassVar[str] = "then"
    needs: ClassVar[Needs] = Needs(searches=False)

    async def answer(self, question: str, run: Run) -> Answer:
        try:
            await run.chat([Message("user", question)], max_tokens=self.max_tokens)
        except BudgetExceeded:
            assert run.tokens.left is None  # the run cannot see the budget of all
        return self.act(question, run)


def raising(error: BaseException) -> Then:
    def act(question: str, run: Run) -> Answer:
        raise error

    return Then(act)


def guess(question: str, run: Run) -> Answer:
    return Answer(question, "then", "a guess", True)


async def outcome_of(
    strategy: Any, model: ScriptedModel, spending: Spending | None = None, reader: str = "quoting"
) -> Any:
    answering = Answerer(spending or Spending(), models={Role.READER: model})
    async with InMemorySources([document("a")]) as sources:
        outcome, _ = await answering.answer(strategy, "How high?", sources, reader)
    return outcome


async def test_what_the_reader_said_is_kept_whatever_the_checks_make_of_it() -> None:
    invented = FOUND.replace(QUOTE, "It is 55 metres high.").replace("41", "55")
    outcome = await outcome_of(FullContext(), ScriptedModel([invented, invented]))
    assert (outcome.found, outcome.text) == (False, "")
    assert (outcome.said, outcome.said_short) == ("It is 55 metres high.", "55 metres")

    cited = await outcome_of(FullContext(), ScriptedModel([FOUND]))
    assert (cited.said, cited.said_short) == (QUOTE, cited.short)
    refusal = json.dumps({"statements": [], "short_answer": "none", "found": False})
    refused = await outcome_of(FullContext(), ScriptedModel([refusal]))
    assert (refused.said, refused.said_short) == ("", "")
    unread = await outcome_of(Then(guess), ScriptedModel(["hm"]))
    assert unread.said == unread.text == "a guess", "a strategy without a reader said its answer"


def test_a_question_of_a_conversation_is_completed_before_it_is_asked(
    data: Path, asked: Ask
) -> None:
    file = data / "d.jsonl"
    record = json.loads(file.read_text().splitlines()[0])
    meta = {"history": [["How high is mast 0?", "41 metres."]]}
    file.write_text(json.dumps({**record, "question": "And in feet?", "meta": meta}))
    whole = "How high is mast 0 in feet?"
    model = ScriptedModel(lambda call: FOUND if call.schema else whole)

    (row,) = asked(model, text=UNJUDGED).rows.values()

    completing, reading = (call.messages[-1].content for call in model.calls)
    assert "41 metres." in completing
    assert whole in reading
    assert (row.outcome.short, row.question_text) == ("41 metres", "And in feet?")


# The reader


def test_a_suite_a_row_or_the_command_chooses_the_reader(data: Path, asked: Ask) -> None:
    text = UNJUDGED.replace(
        '{ name = "full-context" }',
        '{ name = "free", strategy = "full-context" }, '
        '{ name = "checked", strategy = "full-context", reader = "quoting" }',
    )
    text = f'reader = "plain"\n{text}'

    def reply(call: ChatRequest) -> str:
        return FOUND if call.schema else "So the final answer is: 40 metres"

    run = asked(ScriptedModel(reply), text=text, limit=1)
    short = {key.strategy: row.outcome.short for key, row in run.rows.items()}
    assert short == {"free": "40 metres", "checked": "41 metres"}
    record = RUN.read(data / "out")
    assert "readers/plain.py" in record.prompts
    assert {"check of plain", "check of quoting"} <= set(record.models)

    with pytest.raises(UsageError, match="checked is the row of the reader quoting"):
        asked(ScriptedModel(reply), text=text, reader="pointwise", out="other")
    free = {"text": text, "strategies": ["free"], "limit": 1, "reader": "quoting"}
    again = asked(ScriptedModel(reply), out="other", **free)
    assert [row.outcome.short for row in again.rows.values()] == ["41 metres"]
    assert RUN.read(data / "other").settings["reader"] == "quoting"
    with pytest.raises(UsageError, match="there is no reader 'quotes'; did you mean quoting"):
        asked(out="third", **{**free, "reader": "quotes"})
    with pytest.raises(UsageError, match=r"small.toml: reader"):
        suite(f'reader = "free"\n{SUITE}')


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ServerFailed("it is down", "500"), "ServerFailed: it is down: 500"),
        (KeyError("x"), "internal error: KeyError: 'x' (act, line "),
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
    outcome = await outcome_of(raising(error), ScriptedModel(["hm"]))

    assert outcome.error.startswith(said)
    assert (outcome.found, outcome.usage["calls"]) == (False, 1)


# Who is asked, and how


def test_questions_without_documents_are_for_strategies_that_read_none(data: Path) -> None:
    bare = {"id": "q", "question": "?", "answers": ["x"], "documents": []}
    record = json.dumps({**bare, "gold_document_ids": []})
    (data / "d.jsonl").write_text(record, "utf-8")

    with pytest.raises(UsageError, match="full-context reads documents"):
        plan(suite(), data, entries=configure_entries(suite()))
    assert plan(suite(), data, entries=configure_entries(suite(), ["direct"])).answers == 1


# Metrics that ask a model


def test_a_metric_needs_its_model_unless_it_is_optional(asked: Ask, data: Path) -> None:
    reader, said = finder(), list[str]()
    with pytest.raises(UsageError, match="give one with --judge"):
        asked(reader)
    assert reader.calls == []
    assert not (data / "out" / "rows.jsonl").exists()

    optional = SUITE.replace('"judge_dual", "cost"]', '"cost"], optional = ["judge_dual"]')
    assert len(asked(said=said, text=optional, limit=1).rows) == 1
    assert any(line.startswith("without judge_dual: ") for line in said)


# Which strategies can run


def test_of_the_default_strategies_those_that_cannot_run_are_left_out(
    asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Greedy(FullContext):
        needs: ClassVar[Needs] = Needs(
            required=frozenset({"chat", "attention"}),  # type: ignore[arg-type]
            searches=False,
        )

    kinds = {"full-context": FullContext, "greedy": Greedy}
    monkeypatch.setattr("colligate.lab.bench.plan.load_strategy", kinds.__getitem__)
    text = UNJUDGED.replace('"full-context" }', '"full-context" }, { name = "greedy" }')
    said: list[str] = []

    done = asked(said=said, text=text, limit=1)

    assert {row.strategy for row in done.rows.values()} == {"full-context"}
    assert any("left out: greedy needs attention" in line for line in said)
    with pytest.raises(MissingCapability, match="greedy needs attention"):
        asked(text=text, limit=1, strategies=["greedy"])


def test_metrics_of_the_whole_run_are_never_those_of_fewer_rows(
    asked: Ask, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def share(pairs: Sequence[Any]) -> dict[str, float]:
        counted.append(len(pairs))
        if len(counted) == 2:
            raise KeyboardInterrupt  # all is asked, and then it is stopped
        return {"answers": float(len(pairs))}

    monkeypatch.setitem(all_groups(), "share", MetricGroup("share", of_run=share))
    text = with_metrics("short", "share")
    asked(text=text, limit=2)
    assert totals_of(data / "out") == {("d", "full-context"): {"answers": 2.0}}
    with pytest.raises(KeyboardInterrupt):
        asked(text=text)
    assert len(read_rows(data / "out")) == 3
    assert totals_of(data / "out") == {}

    done = [asked(ScriptedModel([]), text=text) for _ in range(2)]

    assert [each.asked for each in done] == [0, 0]
    assert totals_of(data / "out") == {("d", "full-context"): {"answers": 3.0}}
    assert counted == [2, 3, 3]
    assert RunResults(data / "out").means("d", "full-context")["answers"] == 3.0
    # Rows that were deleted and asked again are others, though they are as many.
    first, *others = read_rows(data / "out")
    assert load_totals(data / "out", [replace(first, began="later"), *others]) == {}


def test_a_suite_names_its_chunker_and_the_command_line_another(data: Path) -> None:
    text = f'chunker = "words:3"\n{UNJUDGED.replace("full-context", "retrieve-read")}'
    named = {
        "none": Settings(),
        "environment": Settings(chunker=Named("words:5", "COLLIGATE_CHUNKER")),
        "flag": Settings().override(chunker="words:2"),
    }
    found = {}
    for where, names in named.items():
        models = {Role.READER: finder()}
        given = ModelNames(names, models, SameEmbedder())
        request = BenchRequest(suite(text), data, data / where, given, limit=1)
        done = asyncio.run(run_suite(request, lambda _: None))
        [row] = done.rows.values()
        found[where] = len(row.outcome.retrieved)
        kept = RUN.read(data / where).settings["chunker"]
        assert kept == {"flag": "words:2"}.get(where, "words:3")
    assert found == {"none": 2, "environment": 2, "flag": 3}  # of six words


def test_runs_that_share_replies_ask_the_same_once_and_pay_for_it_once(
    asked: Ask, data: Path
) -> None:
    shared: dict[str, Any] = {"text": UNJUDGED, "replies": data / "replies.db"}
    once = asked(ScriptedModel([FOUND]), limit=1, **shared)
    shutil.move(data / "out", data / "first")
    model = ScriptedModel([FOUND] * 2)

    done = asked(model, max_tokens_total=100 * once.tokens, **shared)

    assert len(model.calls) == 2
    assert done.tokens == 2 * once.tokens > 0
    [(key, first)] = once.rows.items()
    again = done.rows[key]
    assert again.outcome.text == first.outcome.text
    # Its tokens are those of an answer alone; its seconds are not.
    assert again.metrics["tokens"] == first.metrics["tokens"] > 0
    assert (again.metrics["calls"], "seconds" in first.metrics) == (1, True)
    assert "seconds" not in again.metrics


def test_the_oracle_alone_is_told_the_gold() -> None:
    @dataclass(frozen=True)
    class Oracle:
        gold: tuple[str, ...] = ()
        sentences: tuple[tuple[str, str], ...] = ()
        name: ClassVar[str] = "oracle"
        needs: ClassVar[Needs] = Needs()

    question = Question("q", "?", gold=("a",), gold_texts=(("a", "It is so."),))
    of = Dataset("d", "d.jsonl")
    told: Any = SuiteEntry(Method("oracle"), Oracle()).for_question(question, of)  # type: ignore[arg-type]

    assert (told.gold, told.sentences) == (("a",), (("a", "It is so."),))


async def test_an_interrupted_measurement_keeps_the_answer(data: Path) -> None:
    judging = asyncio.Event()

    class Slow(ScriptedModel):
        async def chat(self, *args: Any, **options: Any) -> Any:
            judging.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(start(data, judge=Slow([]), limit=1))
    await judging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    [row] = read_rows(data / "out")
    assert row.unmeasured == {"judge_dual": "interrupted"}
    assert row.metrics["containment"] == 1.0
    done = await start(data, ScriptedModel([]), ScriptedModel(lambda _: "Yes"), limit=1)
    assert [row.unmeasured for row in done.rows.values()] == [{}]
