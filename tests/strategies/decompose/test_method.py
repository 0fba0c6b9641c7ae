"""A question is split into simple ones, which are answered one after the other."""

import json
import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.answer import NOT_FOUND
from colligate.core.events import Retrieved
from colligate.core.run import Run
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, Role
from colligate.models.base import LabelOdds
from colligate.models.metering import Meter
from colligate.readers.pointwise import PointwiseReader
from colligate.readers.quoting import QuotingReader
from colligate.strategies.decompose import Decompose, QuestionSplit, StepAnswered
from colligate.strategies.decompose.method import Chain, compare, read_value, split_question
from colligate.strategies.decompose.prompts import check_plan, list_references, read_lines
from colligate.testing import ScriptedModel
from support.runs import document, events

TEXTS = {
    "harbour": "# Silver Harbour\n\nSilver Harbour is a film of 1971 by Ada Mercer.\n",
    "mercer": "# Ada Mercer\n\nAda Mercer, born on 3 May 1921 in Lund, liked boats.\n",
    "clay": "# Red Clay\n\nRed Clay is a film of 1980 by Otto Lind.\n",
    "lind": "# Otto Lind\n\nOtto Lind, born in 1934, never left Oslo.\n",
}
CHAIN = ["Who directed Silver Harbour?", "When was #1 born?"]
CHAINS = [*CHAIN, "Who directed Red Clay?", "When was #3 born?"]
ANSWERS = {
    "Who directed Silver Harbour?": (
        "Silver Harbour is a film of 1971 by Ada Mercer.",
        "Ada Mercer",
    ),
    "When was Ada Mercer born?": (TEXTS["mercer"].splitlines()[2], "3 May 1921"),
    "Who directed Red Clay?": ("Red Clay is a film of 1980 by Otto Lind.", "Otto Lind"),
    "When was Otto Lind born?": (TEXTS["lind"].splitlines()[2], "1934"),
}
BORN = "When was the director of Silver Harbour born?"
LATER = "Which film has the director who was born later, Silver Harbour or Red Clay?"


@pytest.fixture(params=["small", "large"])
def ask(request):
    """`ask(question, plan, answers)` asks a small reader with odds, and a large one without."""

    async def ask(question, plan, answers=ANSWERS, yes_or_no=True, **options):
        def asked_in(prompt):
            return re.findall(r"Question: (.*)", prompt)[-1]

        def judge(messages, labels, forced):
            if labels == ["earlier", "later"]:
                return LabelOdds({"earlier": 0.2, "later": 0.8}, 1.0)
            if "<facts>" in messages[1].content:
                if isinstance(yes_or_no, Exception):
                    raise yes_or_no
                return LabelOdds({"Yes": 0.6, "No": 0.4}, 0.9 if yes_or_no else 0.02)
            quote, _ = answers.get(asked_in(messages[-1].content), ("-", ""))
            yes = 0.9 if quote in messages[-1].content else 0.05
            return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

        def say(call):
            if call.messages[0].content.startswith("You split"):
                numbered = "\n".join(f"{n}. {step}" for n, step in enumerate(plan, 1))
                return json.dumps({"steps": plan}) if call.schema else numbered
            quote, short = answers.get(asked_in(call.prompt), ("", ""))
            if isinstance(short, Exception):
                raise short
            if not call.schema:
                return short or "none"
            quoted = {"passage": 0, "quote": quote, "quotes": [{"passage": 0, "quote": quote}]}
            rows = [{**quoted, "sentence": quote}] if quote else []
            return json.dumps({"statements": rows, "short_answer": short, "found": bool(rows)})

        small = request.param == "small"
        odds = {"labels": judge} if small else {}
        abilities = [Capability.CHAT, Capability.STRUCTURED, *[Capability.LABELS] * small]
        model = ScriptedModel(say, capabilities=abilities, **odds)
        reader = PointwiseReader() if small else QuotingReader()
        async with InMemorySources([document(*each) for each in TEXTS.items()]) as sources:
            run = Run(sources, {Role.READER: model}, Meter(), reader=reader)
            answer = await Decompose(mode="sparse", **options).answer(question, run)
        return answer, run, model

    return ask


async def test_the_last_step_of_a_chain_is_the_answer_and_each_step_is_cited(ask):
    answer, run, _ = await ask(BORN, CHAIN)
    assert (answer.question, answer.found, answer.short) == (BORN, True, "3 May 1921")
    assert [citation.span.document_id for citation in answer.citations] == ["harbour", "mercer"]
    assert [piece.span.document_id for piece in answer.evidence] == ["harbour", "mercer"]
    assert events(run, QuestionSplit)[0].questions == tuple(CHAIN)
    assert [(e.question, e.answer) for e in events(run, StepAnswered)] == [
        ("Who directed Silver Harbour?", "Ada Mercer"),
        ("When was Ada Mercer born?", "3 May 1921"),
    ]


async def test_where_several_chains_end_the_question_is_read_with_what_they_found(ask):
    quote, _ = ANSWERS["When was Otto Lind born?"]
    answer, _, model = await ask(LATER, CHAINS, {**ANSWERS, LATER: (quote, "Red Clay")})
    assert answer.short == "Red Clay"
    assert [citation.span.document_id for citation in answer.citations] == ["lind"]
    last = model.calls[-1].prompt
    assert "2. When was Ada Mercer born? 3 May 1921\n" in last
    assert len({piece.span for piece in answer.evidence}) == 4


async def test_where_a_step_has_no_answer_the_question_itself_is_looked_up(ask):
    left = {question: ANSWERS[question] for question in CHAIN[:1]}
    quote, short = ANSWERS["When was Ada Mercer born?"]
    answer, run, model = await ask(BORN, CHAIN, {**left, BORN: (quote, short)})
    assert [event.answer for event in events(run, StepAnswered)] == ["Ada Mercer", ""]
    assert events(run, Retrieved)[-1].query == BORN
    assert (answer.found, answer.short) == (True, "3 May 1921")
    assert not any("#1" in call.prompt for call in model.calls[1:])
    answer, _, _ = await ask(BORN, CHAIN, left)
    assert (answer.found, answer.text) == (False, NOT_FOUND)


async def test_a_question_that_is_not_split_is_looked_up_itself(ask):
    answer, run, _ = await ask("Who directed Silver Harbour?", [])
    assert answer.short == "Ada Mercer"
    assert events(run, QuestionSplit)[0].questions == ("Who directed Silver Harbour?",)
    assert len(events(run, Retrieved)) == 1


@pytest.mark.parametrize("ask", ["small"], indirect=True)
async def test_the_dates_of_two_chains_are_compared_by_value(ask):
    answer, _, model = await ask(LATER, CHAINS, yes_or_no=False)
    assert (answer.found, answer.short) == (True, "Red Clay")
    assert answer.text.endswith("Red Clay. [2][4]")
    assert answer.ground == "computed"
    assert [it.span.document_id for it in answer.citations] == ["harbour", "mercer", "clay", "lind"]
    assert not any(LATER in call.prompt for call in model.calls[1:])  # it is not read again


@pytest.mark.parametrize("ask", ["small"], indirect=True)
@pytest.mark.parametrize(
    ("question", "steps", "short"),
    [
        (
            "Are Silver Harbour and Red Clay the same kind of thing?",
            {"What is Silver Harbour?": ("harbour", "film"), "What is Red Clay?": ("clay", "film")},
            "Yes",
        ),
        (
            "Did Ada Mercer and Otto Lind live in the same town?",
            {
                "Where did Ada Mercer live?": ("mercer", "Lund"),
                "Where did Otto Lind live?": ("lind", "Oslo"),
            },
            "No",
        ),
    ],
)
async def test_whether_two_chains_found_the_same_is_told_by_identity(ask, question, steps, short):
    answers = {step: (TEXTS[name].splitlines()[2], said) for step, (name, said) in steps.items()}
    answer, _, _ = await ask(question, list(steps), answers)
    assert (answer.found, answer.short) == (True, short)
    assert len(answer.citations) == 2


@pytest.mark.parametrize(("said", "told"), [("film", "Yes"), ("no", "")])
async def test_two_answers_of_no_make_no_yes(make_run, said, told):
    def judge(messages, labels, forced):
        return LabelOdds({"Yes": 0.9, "No": 0.1}, 0.95)

    run, _ = make_run([], [], labels=judge)
    ends = [Chain(step, step, said) for step in ("What is Red Clay?", "What is Silver Harbour?")]
    assert await compare("Are both the same?", *ends, run) == told


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 May 1921", ("1921-05-03", "1921-05-03")),
        ("May 1921", ("1921-05-01", "1921-05-31")),
        ("1921", ("1921-01-01", "1921-12-31")),
        ("01.03.2024", ("2024-01-03", "2024-03-01")),
        ("between 1921 and 1934", None),
        ("Lund", None),
    ],
)
def test_a_date_is_all_the_days_that_it_may_mean(text, value):
    found = read_value(text)
    days = found and tuple(str(date.fromordinal(int(day))) for day in (found.low, found.high))
    assert days == value


async def test_a_small_model_is_shown_the_examples_that_are_likest_last(make_run, minilm):
    question = "Who is older, Ann Hall or Ben Cole?"
    reply = "1. When was Ann Hall born?\n2. When was Ben Cole born?"
    abilities = [Capability.CHAT, Capability.LABELS]
    run, model = make_run([], [reply], embedder=minilm, capabilities=abilities)
    steps = ["When was Ann Hall born?", "When was Ben Cole born?"]
    assert await split_question(question, run, 5) == steps
    asked = [message.content for message in model.calls[0].messages if message.role == "user"]
    assert asked[-2:] == ["Who is younger, Hans Berg or Lea Stone?", question]
    assert len(asked) == 6


async def test_a_large_model_that_gives_no_plan_is_asked_again_and_then_warned_of(make_run):
    made = f"```json\n{json.dumps({'steps': CHAIN})}\n```"
    run, model = make_run([], ["I cannot.", made, "I cannot.", "No."])
    assert await split_question(BORN, run, 5) == CHAIN
    assert len(model.calls) == 2
    assert not run.warnings
    assert await split_question(BORN, run, 5) == [BORN]
    assert "the question is not split into steps" in run.warnings[0]


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        ("1. Who directed Silver Harbour?\n2. When was #1 born?", CHAIN),
        ("1. Who directed Silver Harbour?\n2. When was #2 born?", [BORN]),
        ("1. Who directed Silver Harbour?\n2. When was #1", [BORN]),
        ("1. Who directed Silver Harbour?\nIt was Ada.", CHAIN[:1]),
        (f"1. {BORN}\n2. Who is #1?", [BORN]),
        ("", [BORN]),
    ],
)
def test_a_plan_is_kept_up_to_the_first_step_that_cannot_be_asked(reply, steps):
    assert check_plan(read_lines(reply), BORN, 5) == steps


@given(st.text(), st.text(min_size=1))
def test_any_reply_gives_steps_that_refer_to_earlier_ones(reply, question):
    for number, step in enumerate(check_plan(read_lines(reply), question, 5), 1):
        assert step == question or all(0 < each < number for each in list_references(step))
