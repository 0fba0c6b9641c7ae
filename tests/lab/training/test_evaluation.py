"""Adapters against their base on held-out samples: asked as inference asks, kept, measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colligate.core.events import Event, Progressed
from colligate.errors import (
    ContextTooSmall,
    EndpointUnreachable,
    MissingCapability,
    UsageError,
)
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.significance import Difference
from colligate.lab.training.evaluation import (
    Evaluation,
    EvaluationReport,
    Measure,
    ScoredReply,
    compare_sides,
    evaluate,
)
from colligate.lab.training.samples import HELD_OUT, Sample, write_samples
from colligate.models import Capability, ChatRequest, Completion, LabelOdds, Message, Role
from colligate.strategies.dualrag.knowledge import NOTHING
from colligate.strategies.dualrag.prompts import (
    identifier_messages,
    reasoner_messages,
    summarizer_messages,
)
from colligate.strategies.longrefiner.method import scope_messages
from colligate.strategies.longrefiner.structuring import structuring_messages
from colligate.strategies.rdr2.router import router_messages
from colligate.testing import ScriptedModel

QUESTIONS = 12
CHAT = (Capability.CHAT, Capability.STRUCTURED, Capability.ADAPTERS)


class Student(ScriptedModel):
    """A base that takes every question for a narrow one, and adapters that know better.

    All of its forms share `log`: who was asked what.
    """

    def __init__(
        self,
        adapter: str = "",
        log: list[tuple[str, ChatRequest]] | None = None,
        **options: Any,
    ) -> None:
        self.log: list[tuple[str, ChatRequest]] = [] if log is None else log
        self.adapter, self.options = adapter, options
        self.trouble: Callable[[int], BaseException | None] = lambda _: None
        self.version = f"1+{adapter}"
        name = f"base+{adapter}" if adapter else "base"
        super().__init__(self._said, name, **{"capabilities": CHAT, **options})

    def _said(self, call: ChatRequest) -> Any:
        self.log.append((self.name, call))
        if trouble := self.trouble(len(self.log)):
            return trouble
        broad = "how" in call.messages[-1].content.casefold()
        return "[Global]" if self.adapter.startswith("good") and broad else "[Local]"

    async def with_adapter(self, adapter: str | Path) -> Student:
        made = Student(str(adapter), self.log, **self.options)
        made.trouble = self.trouble
        return made


def scope(number: int) -> Sample:
    """Every other question is a broad one."""
    question = f"How did policy {number} change?" if number % 2 else f"When was {number} signed?"
    target = Message("assistant", "[Global]" if number % 2 else "[Local]")
    return Sample(f"scope/{number}", "scope", (*scope_messages(question), target))


@pytest.fixture
def evaluated(tmp_path: Path) -> Callable[..., Any]:
    """`await evaluated(model, samples, adapters=...)`; what was noted is in `.events`."""

    async def run(
        model: Any, samples: Sequence[Sample] | None = None, **options: Any
    ) -> tuple[EvaluationReport, list[Event]]:
        made = tmp_path / "curated"
        made.mkdir(exist_ok=True)
        write_samples(made / HELD_OUT, samples or [scope(n) for n in range(QUESTIONS)])
        names = ModelNames(models={Role.READER: model})
        request = Evaluation(data=made, out=tmp_path / "out", names=names, **options)
        events: list[Event] = []
        return await evaluate(request, events.append), events

    return run


def measure(report: EvaluationReport, metric: str, adapter: str = "") -> Measure:
    (found,) = [m for m in report.measures if (m.metric, m.adapter) == (metric, adapter)]
    return found


@pytest.mark.parametrize("key", ["question", "document"])
def test_samples_of_one_question_or_page_count_as_one(key: str) -> None:
    def replies(of: Callable[[int], str]) -> list[ScoredReply]:
        return [
            ScoredReply(
                replace(scope(n), meta={key: of(n)}), side, Completion(""), {"accuracy": right}
            )
            for n in range(24)
            for side, right in (("base", 0.0), ("good", 1.0))
        ]

    def compared(of: Callable[[int], str]) -> Difference:
        (found,) = compare_sides(replies(of))
        assert found.difference is not None
        return found.difference

    assert compared(str).stars == "***"
    assert compared(lambda n: str(n // 6)).p == 2 / 2**4
    assert compared(lambda n: str(n // 6)).stars == ""


async def test_an_adapter_is_measured_beside_its_base_with_the_paired_bootstrap(
    evaluated: Any, tmp_path: Path
) -> None:
    report, events = await evaluated(Student(), adapters=["good", "bad"])
    found = measure(report, "accuracy", "good")
    assert (found.base, found.adapted, found.samples) == (0.5, 1.0, QUESTIONS)
    assert found.difference is not None
    assert found.difference.mean == 0.5
    assert 0 < found.difference.low < 0.5 < found.difference.high < 1
    assert found.difference.stars
    none = measure(report, "accuracy", "bad").difference
    assert none is not None
    assert (none.mean, none.stars) == (0, "")
    # A metric applies to some of the samples alone.
    assert measure(report, "global_accuracy", "good").samples == QUESTIONS // 2
    balanced = measure(report, "balanced_accuracy", "good")
    assert (balanced.adapted, balanced.difference) == (1.0, None)
    assert report.models == {"base": "base", "good": "base+good", "bad": "base+bad"}
    assert report.samples == {"scope": QUESTIONS}
    done = [event for event in events if isinstance(event, Progressed)]
    assert done[-1].done == done[-1].total == 3 * QUESTIONS

    kept = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert kept == json.loads(json.dumps(report.to_json()))
    replies = [
        json.loads(line) for line in (tmp_path / "out" / "replies.jsonl").read_text().splitlines()
    ]
    assert len(replies) == 3 * QUESTIONS
    mine = next(r for r in replies if (r["id"], r["side"]) == ("scope/1", "good"))
    assert (mine["reply"], mine["target"], mine["values"]["accuracy"]) == (
        "[Global]",
        "[Global]",
        1.0,
    )


async def test_what_was_interrupted_goes_on_and_nothing_is_asked_twice(evaluated: Any) -> None:
    model = Student()
    model.trouble = lambda n: EndpointUnreachable("nobody answers") if n == 6 else None
    with pytest.raises(EndpointUnreachable):
        await evaluated(model, adapters=["good"], concurrency=1)
    assert len(model.log) == 6
    report, _ = await evaluated(model, adapters=["good"])
    assert len(model.log) == 2 * QUESTIONS + 1  # the one that failed again
    whole = measure(report, "accuracy", "good")
    again, _ = await evaluated(model, adapters=["good", "good-2"], limit=5)
    assert len(model.log) == 2 * QUESTIONS + 1 + 5
    assert measure(again, "accuracy", "good-2").samples == 5
    assert measure(again, "accuracy", "good-2").adapted == 1
    same, _ = await evaluated(Student(), adapters=["good"])
    assert measure(same, "accuracy", "good") == whole


async def test_a_prompt_that_does_not_fit_counts_as_an_empty_reply(
    evaluated: Any, tmp_path: Path
) -> None:
    model = Student()
    model.trouble = lambda n: ContextTooSmall("the prompt does not fit") if n == 1 else None
    report, _ = await evaluated(model, concurrency=1)
    assert report.failed == {"base": 1}
    assert measure(report, "named").base == pytest.approx(1 - 1 / QUESTIONS)
    lines = (tmp_path / "out" / "replies.jsonl").read_text("utf-8").splitlines()
    (failed,) = [row for row in map(json.loads, lines) if row["error"]]
    assert (failed["reply"], failed["error"]) == ("", "ContextTooSmall: the prompt does not fit")


async def test_odds_decide_the_scope_where_the_model_gives_them(evaluated: Any) -> None:
    def odds(messages: Sequence[Message], labels: Sequence[str], forced: str) -> LabelOdds:
        assert (tuple(labels), forced) == (("Local", "Global"), "[")
        return LabelOdds({"Local": 0.4, "Global": 0.6}, 0.01)

    model = Student(labels=odds)
    report, _ = await evaluated(model)
    assert measure(report, "global_accuracy").base == 1
    assert measure(report, "local_accuracy").base == 0
    assert model.log == []  # asked for odds alone


TREE = "0: =Towers=\n\t1: ==Building==\n\t\t2: The tower was built in 1871."
OUTLINE = "#### Tower\n\nIt was built in 1871."


def asked_at_inference() -> dict[str, tuple[list[Message], str, dict[str, Any]]]:
    """Of each step its messages, a reply, and the meta that its measures need."""
    more = '{"thought": "When?", "need_retrieve": true}'
    entities = '{"entities": [{"entity": "Tower", "keywords": ["Tower height"]}]}'
    shown = {"shown": TREE, "headings": [0, 1]}
    return {
        "router": (router_messages("When?", TREE), "[ANSWER] 2: The tower", shown),
        "reasoner": (reasoner_messages("When?", NOTHING, ()), more, {}),
        "reasoner-2": (reasoner_messages("When?", OUTLINE, ("When?",)), more, {}),
        "identifier": (identifier_messages("When?", OUTLINE, ("When?",), ["Tower"]), entities, {}),
        "summarizer": (
            summarizer_messages("When?", ["When?"], ("Tower", ["Tower height"]), []),
            '{"statements": []}',
            {},
        ),
    }


async def test_each_step_is_asked_as_inference_asks_it(evaluated: Any) -> None:
    samples = [
        Sample(name, name.partition("-")[0], (*messages, Message("assistant", reply)), meta)
        for name, (messages, reply, meta) in asked_at_inference().items()
    ]
    model = Student()
    report, _ = await evaluated(model, samples)
    calls = {call.messages: call for _, call in model.log}
    held = {name: calls[tuple(messages)] for name, (messages, _, _) in asked_at_inference().items()}
    assert {name: call.schema and call.schema["title"] for name, call in held.items()} == {
        "router": None,
        "reasoner": "Reasoning",
        "reasoner-2": "Reasoning",
        "identifier": "Entities",
        "summarizer": "Summary",
    }
    assert [held[name].max_tokens for name in ("router", "reasoner", "identifier")] == [
        2048,
        400,
        1200,
    ]
    assert {call.temperature for call in calls.values()} == {0.0}
    assert list(report.samples) == ["router", "reasoner", "identifier", "summarizer"]


async def test_a_model_that_cannot_be_held_is_told_the_form_and_a_skeleton_may_be_long(
    evaluated: Any,
) -> None:
    messages, reply, meta = asked_at_inference()["identifier"]
    text = "The mill was built in 1788 by two brothers. It burned down. " * 40
    skeleton = "<abstract>The mill was built in 1788 by two ... It burned down.</abstract>"
    prompt = structuring_messages(text)
    model = Student(capabilities=[Capability.CHAT])
    report, _ = await evaluated(
        model,
        [
            Sample("i", "identifier", (*messages, Message("assistant", reply)), meta),
            Sample("s", "structuring", (*prompt, Message("assistant", skeleton))),
        ],
        concurrency=1,
    )
    [(_, structuring), (_, identifier)] = model.log
    assert identifier.messages[0] == messages[0]
    assert "satisfies this JSON schema" in identifier.messages[1].content
    assert structuring.max_tokens == await model.count_prompt(prompt)
    found = measure(report, "entity_f1")
    assert (found.adapted, found.difference) == (None, None)  # there is no adapter


async def test_one_task_of_several_may_be_asked(evaluated: Any) -> None:
    messages, reply, meta = asked_at_inference()["identifier"]
    one = Sample("i", "identifier", (*messages, Message("assistant", reply)), meta)
    alone, _ = await evaluated(Student(), [*map(scope, range(3)), one], tasks=["identifier"])
    assert alone.samples == {"identifier": 1}


async def test_a_model_that_takes_no_adapter_is_reported(evaluated: Any) -> None:
    with pytest.raises(MissingCapability, match="takes no adapter"):
        await evaluated(ScriptedModel(name="plain"), adapters=["router"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tasks": ["scoop"]}, "there is no task 'scoop'"),
        ({"tasks": ["router"]}, "no samples: of router; it has scope"),
        ({"adapters": ["base"]}, "the report calls the model without an adapter base"),
    ],
)
async def test_what_is_not_there_is_said_before_anything_is_asked(
    evaluated: Any, options: dict[str, Any], said: str
) -> None:
    model = Student()
    with pytest.raises(UsageError, match=said):
        await evaluated(model, **options)
    assert model.log == []
