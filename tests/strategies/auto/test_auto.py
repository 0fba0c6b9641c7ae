"""`auto` reads once where that is enough, and asks another method where something is missing."""

import json
import re
from dataclasses import replace

import pytest

from colligate.core.apart import JudgedAlone
from colligate.core.events import Located, Measured, Trace
from colligate.errors import BudgetExceeded, ServerFailed
from colligate.library import InMemorySources
from colligate.models.base import LabelOdds
from colligate.strategies.auto import Auto
from colligate.strategies.auto.events import Classified, Escalated
from colligate.strategies.auto.method import choose_kind, find_needed, spread
from colligate.strategies.duquad.events import Viewed
from support.documents import make
from support.runs import NOTHING, document

TEXTS = {
    "harbour": "# Silver Harbour\n\nSilver Harbour is a film of 1971 by Ada Mercer.\n",
    "mercer": "# Ada Mercer\n\nAda Mercer, born on 3 May 1921 in Lund, liked boats.\n",
    "clay": "# Red Clay\n\nRed Clay is a film of 1980 by Otto Lind.\n",
}
DIRECTOR = "Who directed Silver Harbour?"
BORN = "When was the director of Silver Harbour born?"
ANSWERS = {
    DIRECTOR: ("a film of 1971", "Ada Mercer"),
    "When was Ada Mercer born?": ("born on 3 May 1921", "3 May 1921"),
}
KINDS = ("fact", "steps", "each", "overview")


def judge_kind(kind):
    """Label odds that sort every question as this kind, and find no passage likely."""

    def judge(messages, labels, forced):
        if tuple(labels) == KINDS:
            return LabelOdds({each: 0.7 if each == kind else 0.1 for each in KINDS}, 1.0)
        return LabelOdds({"Yes": 0.05, "No": 0.95}, 1.0)

    return judge


@pytest.fixture
def ask_small(ask):
    """`ask_small(question, kind, **parameters)`: a small reader that sorts a question so."""

    async def asked(question, kind="fact", *, answers=ANSWERS, steps="", fails=None, **options):
        def judge(messages, labels, forced):
            if fails is not None:
                raise fails
            if tuple(labels) == KINDS:
                return LabelOdds({each: 0.7 if each == kind else 0.1 for each in KINDS}, 1.0)
            prompt = messages[-1].content
            held = (words for asked, (words, _) in answers.items() if asked in prompt)
            yes = 0.9 if any(words in prompt for words in held) else 0.05
            return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

        def say(call):
            if call.messages[0].content.startswith("You split"):
                return steps
            return next(
                (short for asked, (_, short) in answers.items() if asked in call.prompt), "none"
            )

        made = [document(*each) for each in TEXTS.items()]
        strategy = Auto(mode="sparse", **options)
        return await ask(strategy, question, made, say, name="a-1.5b", labels=judge)

    return asked


def list_events(run, kind):
    return [event for _, event in run.trace.events if isinstance(event, kind)]


async def test_one_fact_takes_one_call_and_the_answer_says_what_was_done(ask_small):
    answer, run, model = await ask_small(DIRECTOR)
    assert (answer.strategy, answer.short, len(model.calls)) == ("auto", "Ada Mercer", 1)
    assert [citation.span.document_id for citation in answer.citations] == ["harbour"]
    assert answer.how == "read 1 passage, which states the answer by itself"
    assert answer.to_json()["how"] == answer.how
    [located] = list_events(run, Located)
    assert located.line().startswith("located: Silver Harbour")
    assert [type(event) for _, event in run.trace.events].index(Located) == 1  # after the search
    assert not list_events(run, Classified)
    assert not list_events(run, Escalated)


async def test_a_question_that_does_not_name_what_it_asks_for_is_classified_first(ask_small):
    asked = "What year is Silver Harbour from?"
    answer, run, _ = await ask_small(asked, answers={asked: ("a film of 1971", "1971")})
    assert answer.how == "read 1 passage of 1 document"
    first, *_ = list_events(run, Measured)
    assert first.labels == KINDS
    assert list_events(run, Classified)


async def test_no_passage_is_judged_twice(ask_small):
    _, run, _ = await ask_small("Who was the cook of Red Clay?", answers={}, effort="high")
    events = [event for _, event in run.trace.events]
    first = events[: next(n for n, each in enumerate(events) if isinstance(each, Escalated))]
    [judged] = [each for each in first if isinstance(each, JudgedAlone)]
    asked = [each.labels for each in first if isinstance(each, Measured)]
    assert asked.count(KINDS) == 1
    assert asked.count(("Yes", "No")) == len(judged.spans)


async def test_a_chain_is_followed_at_once(ask_small):
    answer, run, _ = await ask_small(BORN, "steps", steps=f"1. {DIRECTOR}\n2. When was #1 born?")
    assert (answer.strategy, answer.short) == ("auto", "3 May 1921")
    assert answer.how == "looked up one step after the other: several steps"
    [escalated] = list_events(run, Escalated)
    assert escalated.why == "several steps"


async def test_a_question_that_sounds_like_steps_is_read_at_once_where_one_passage_answers(
    ask_small,
):
    answer, run, model = await ask_small(DIRECTOR, "steps")
    assert (answer.short, len(model.calls)) == ("Ada Mercer", 1)
    assert answer.how == "read 1 passage, which states the answer by itself"
    assert not list_events(run, Escalated)


async def test_what_one_reading_does_not_find_is_looked_up_in_steps(ask_small):
    steps = f"1. {DIRECTOR}\n2. When was #1 born?"
    answer, _, _ = await ask_small(BORN, "fact", steps=steps, effort="high")
    assert (answer.found, answer.short) == (True, "3 May 1921")
    assert answer.how.startswith("read ")
    done = "looked up one step after the other: nothing found so far is the answer"
    assert answer.how.endswith(done)


async def test_low_effort_classifies_nothing_and_reads_once(ask_small):
    answer, run, model = await ask_small(BORN, "steps", effort="low")
    assert not answer.found
    assert len(model.calls) <= 1
    assert not list_events(run, Classified)
    assert not list_events(run, Escalated)


@pytest.mark.parametrize(("effort", "most"), [("low", 0), ("normal", 0), ("high", 2)])
async def test_where_a_small_reader_finds_nothing_high_effort_asks_more(ask_small, effort, most):
    answer, run, _ = await ask_small("Who was the cook of Red Clay?", answers={}, effort=effort)
    assert not answer.found
    assert len(list_events(run, Escalated)) == most
    assert answer.evidence


async def test_each_document_is_read_where_the_question_is_about_each(ask_small):
    films = {"Which year is the film from?": ("film of", "1971")}
    answer, run, _ = await ask_small("Which year is each film from?", "each", answers=films)
    assert "read 3 documents one by one" in answer.how
    assert list_events(run, Escalated)[0].why == "one fact from each of many documents"


async def test_which_of_the_documents_is_answered_from_the_best_passage_of_each(ask_small):
    which = "Which of these films are from the eighties?"
    answer, run, _ = await ask_small(which, "each", answers={which: ("a film of 1980", "1980")})
    assert answer.how.startswith("read ")
    assert [citation.title for citation in answer.citations] == ["Red Clay"]
    assert not list_events(run, Escalated)
    documents = [each.span.document_id for each in answer.evidence]
    assert len(documents) == len(set(documents)) > 1


async def test_documents_with_a_date_within_a_limit_are_found_by_comparing(ask_small):
    which, year = "Which of these films are from before 1975?", "What is the year of the film?"
    answers = {which: ("", year), year: ("a film of 1971", "1971")}
    answer, _, _ = await ask_small(which, "each", answers=answers)
    assert answer.how == "read 3 documents one by one: one fact from each of many documents"
    lead = "On or before 31 December 1974: Silver Harbour (of what was found in 1 of 3"
    assert answer.text.startswith(lead)
    assert [citation.title for citation in answer.citations] == ["Silver Harbour"]


async def test_an_agent_reads_each_document_where_no_passage_says_which(ask_small):
    which = "Which of these films are from the nineties?"
    answer, _, _ = await ask_small(which, "each", answers={})
    assert not answer.found
    assert "read 3 documents one by one: nothing found so far" in answer.how


async def test_many_documents_are_read_only_with_consent(ask_small):
    options = {"answers": {}, "most_documents": 2}
    answer, run, _ = await ask_small("Which year is each film from?", "each", **options)
    assert "read 2 documents one by one" in answer.how
    assert any("of 3: --yes reads all" in warning for warning in run.warnings)


async def test_with_consent_every_document_is_read(make_run):
    asked = []

    async def consent(estimate):
        asked.append(estimate)
        return True

    made = [document(*each) for each in TEXTS.items()]
    each = judge_kind("each")
    async with InMemorySources(made) as sources:
        run, _ = make_run(sources, lambda call: "none", name="a-1.5b", labels=each)
        run.consent = consent
        strategy = Auto(mode="sparse", most_documents=2)
        answer = await strategy.answer("Which year is each film from?", run)
    takes = "an agent for each of 3 documents takes about 6 model calls (the best 2 alone: about 4)"
    assert asked == [takes]
    assert "read 3 documents one by one" in answer.how
    assert not any("--yes" in warning for warning in run.warnings)


async def test_a_scorer_that_fails_costs_the_classification_alone(ask_small):
    failed = ServerFailed("scorer", "it is down")
    answer, run, _ = await ask_small(DIRECTOR, fails=failed)
    assert any("the question is not classified" in warning for warning in run.warnings)
    assert answer.strategy == "auto"


FAILURES = [ServerFailed("it is down"), BudgetExceeded("the token budget is spent")]


async def test_a_budget_that_ends_keeps_what_was_found(ask, reply):
    made = [document(*each) for each in TEXTS.items()]
    said = reply((1, "a film of 1971 by Ada Mercer", "Silver Harbour is by Ada Mercer."))
    question = "Who directed Silver Harbour, and who Red Clay?"
    answer, run, _ = await ask(
        Auto(mode="sparse", k=2), question, made, lambda call: said, max_tokens=3200
    )
    assert (answer.found, len(answer.citations)) == (True, 1)
    assert [event.to for event in list_events(run, Escalated)] == ["dualrag"]
    assert run.meter.tokens <= 3200


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_first_method_that_fails_leaves_the_question_to_what_was_found(ask, reply, failure):
    def judge(messages, labels, forced):
        if tuple(labels) == KINDS:
            return judge_kind("steps")(messages, labels, forced)
        yes = 0.9 if "1921" in messages[-1].content else 0.05
        return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

    def say(call):
        if call.messages[0].content.startswith("You split"):
            return failure
        if not call.schema:
            return "none"
        passage = 1 if call.prompt.index("1921") < call.prompt.index("1971") else 2
        return reply((passage, "born on 3 May 1921", "Ada Mercer was born on 3 May 1921."))

    made = [document(*each) for each in TEXTS.items()]
    answer, run, _ = await ask(Auto(mode="sparse"), BORN, made, say, name="a-1.5b", labels=judge)
    assert answer.found
    assert answer.how == "read 2 passages: several steps"
    assert any("dualrag is left out" in warning for warning in run.warnings)


async def test_a_budget_that_is_spent_ends_the_methods(ask_small):
    asked = {}
    for failure in FAILURES:
        options = {"answers": {}, "steps": failure, "effort": "high"}
        _, run, _ = await ask_small("Who was the cook of Red Clay?", **options)
        asked[type(failure)] = [event.to for event in list_events(run, Escalated)]
    assert asked == {ServerFailed: ["dualrag", "duquad"], BudgetExceeded: ["dualrag"]}


async def test_a_chain_begins_with_what_the_reading_verified(ask, reply):
    made = [document(*each) for each in TEXTS.items()]
    told = "Silver Harbour is a film of 1971 by Ada Mercer."
    loop = []

    def say(call):
        if "statements" in (call.schema or {}).get("properties", {}):
            number = 1 if call.prompt.index(told) < call.prompt.index("1980") else 2
            return reply((number, told, told))
        loop.append(call.prompt)
        return NOTHING

    question = "Who directed Silver Harbour, and who Red Clay?"
    _, run, _ = await ask(Auto(mode="sparse", k=2), question, made, say)
    assert [event.to for event in list_events(run, Escalated)] == ["dualrag"]
    chosen_from = next(prompt for prompt in loop if "<outline>" not in prompt)
    assert "Otto Lind" in chosen_from
    assert told not in chosen_from  # it is known, and its passage is not read again
    reasoned = next(prompt for prompt in loop if "<outline>" in prompt)
    assert told in reasoned.split("<outline>")[1]
    assert any("leaves out Red, Clay" in each for each in run.warnings)  # nothing new was cited


async def test_a_title_that_spells_an_abbreviation_out_leaves_nothing_out(ask, reply):
    told = "The term of notice is 30 days."
    made = [
        document("licence", f"# Norwegian Mill Licence\n\n{told}\n"),
        document("notes", "# Notes\n\nMax Pike likes the NML.\n"),
    ]

    def say(call):
        return reply(
            (1 if call.prompt.index(told) < call.prompt.index("Max Pike") else 2, told, told)
        )

    question = "What is the term of notice of the NML?"
    answer, run, model = await ask(Auto(mode="sparse", k=2), question, made, say)
    assert (answer.found, run.warnings, len(model.calls)) == (True, (), 1)


@pytest.mark.parametrize(
    ("also", "left"),
    [
        ("Red Clay is a film of 1980 by Otto Lind.", ""),
        ("Ada Mercer, born on 3 May 1921 in Lund, liked boats.", "Red, Clay"),
    ],
)
async def test_what_a_method_finds_is_checked_for_what_was_missing(ask, reply, also, left):
    made = [document(*each) for each in TEXTS.items()]
    read = []

    def say(call):
        if "statements" not in (call.schema or {}).get("properties", {}):
            return NOTHING
        read.append(call)
        said = "Silver Harbour is a film of 1971 by Ada Mercer." if len(read) == 1 else also
        return reply(*((number, said, said) for number in (1, 2)))

    question = "Who directed Silver Harbour, and who Red Clay?"
    _, run, _ = await ask(Auto(mode="sparse", k=2), question, made, say)
    warned = [each for each in run.warnings if "may be incomplete" in each]
    assert warned == ([f"the answer may be incomplete: it leaves out {left}"] if left else [])


HARBOUR, CLAY, MERCER = (
    text.split("\n\n")[1].strip() for text in (TEXTS["harbour"], TEXTS["clay"], TEXTS["mercer"])
)


@pytest.mark.parametrize(
    ("first", "then", "text", "left"),
    [
        ((HARBOUR,), (CLAY,), f"{HARBOUR} [1] {CLAY} [2]", ""),
        ((HARBOUR,), (HARBOUR, CLAY), f"{HARBOUR} [1] {CLAY} [2]", ""),
        ((HARBOUR,), (MERCER,), f"{HARBOUR} [1]", "Red, Clay"),
        # A statement that cites nothing is not joined to another answer.
        (
            (HARBOUR, "The harbour is blue."),
            (CLAY,),
            f"{HARBOUR} [1] The harbour is blue. [uncited]",
            "Red, Clay",
        ),
    ],
)
async def test_a_second_answer_adds_what_was_missing_and_takes_nothing_away(
    ask, reply, first, then, text, left
):
    made = [document(*each) for each in TEXTS.items()]
    read = []

    def say(call):
        if "statements" not in (call.schema or {}).get("properties", {}):
            return NOTHING
        read.append(call)
        said = first if len(read) == 1 else then
        return reply(*((number, each, each) for each in said for number in (1, 2)))

    question = "Who directed Silver Harbour, and who Red Clay?"
    answer, run, _ = await ask(Auto(mode="sparse", k=2), question, made, say)
    assert answer.text == text
    warned = [each for each in run.warnings if "may be incomplete" in each]
    assert warned == ([f"the answer may be incomplete: it leaves out {left}"] if left else [])


@pytest.mark.parametrize(
    ("question", "text", "left"),
    [
        ("Who made the film Silver Harbour in 1980?", HARBOUR, "1980"),  # the later one lacks more
        ("Who made a film at the Harbour in 1980?", CLAY, "Harbour"),
    ],
)
async def test_two_answers_for_one_thing_are_not_joined(ask, reply, question, text, left):
    made = [document(*each) for each in TEXTS.items()]
    read = []

    def say(call):
        if "statements" not in (call.schema or {}).get("properties", {}):
            return NOTHING
        read.append(call)
        said = HARBOUR if len(read) == 1 else CLAY
        return reply(*((number, said, said) for number in (1, 2)))

    answer, run, _ = await ask(Auto(mode="sparse", k=2), question, made, say)
    assert answer.text == f"{text} [1]"
    assert f"the answer may be incomplete: it leaves out {left}" in run.warnings


async def test_what_was_read_whole_is_not_read_again(ask):
    made = [document(*each) for each in TEXTS.items()]
    answer, run, model = await ask(Auto(mode="sparse", effort="high"), "Who?", made)
    assert (answer.found, len(model.calls)) == (False, 1)
    assert not list_events(run, Escalated)


async def test_high_effort_may_ask_every_method_for_a_question_about_each_document(ask):
    parts = "".join(
        f"## Part {n}\n\nThe film was cut in part {n}. " * 6 + "\n\n" for n in range(90)
    )
    made = [document(*each) for each in TEXTS.items()]
    made.append(document("long", f"# Long film\n\n{parts}"))
    each = judge_kind("each")
    asked = "Which year is each film from?"
    strategy = Auto(mode="sparse", effort="high")
    _, run, _ = await ask(strategy, asked, made, lambda call: "none", name="a-1.5b", labels=each)
    methods = [event.to for event in list_events(run, Escalated)]
    assert methods == ["spd-rag", "dualrag", "longrefiner", "search", "duquad"]


async def test_a_method_that_finds_only_what_was_read_is_not_asked(ask):
    made = [document(*each) for each in TEXTS.items()]
    parts = "".join(f"## Part {n}\n\n{'Boats lie here. ' * 20}\n\n" for n in range(90))
    made.append(document("boats", f"# Boats\n\n{parts}"))
    made += [document(f"mill-{n}", f"# Mill {n}\n\nMill {n} grinds.\n") for n in range(20)]
    question = "What colour had the film of Otto Lind?"
    fact = judge_kind("fact")
    options = {"name": "a-1.5b", "labels": fact}
    strategy = Auto(mode="sparse", effort="high")
    _, run, _ = await ask(strategy, question, made, lambda call: "none", **options)
    assert [event.to for event in list_events(run, Escalated)] == ["dualrag"]


async def test_what_was_verified_is_read_by_the_methods_that_follow(ask, reply):
    told = "Silver Harbour is by Ada Mercer; so say those who know of it, in Lund and elsewhere."
    # LongRefiner takes eight documents, and each of the others has more words of the question.
    question = "Who directed Silver Harbour, and who Red Clay?"
    halls = "".join(f"Red Clay was shown in hall {n}. " * 9 + "\n\n" for n in range(90))
    made = [document("harbour", f"# Films\n\n{told}\n")]
    made.append(make(f"{question * 6}\n\n{halls}", "Red Clay", "halls", flat=True))
    made += [document(f"{n}", f"# Red Clay {n}\n\n{question}\n") for n in range(9)]
    read = []

    def say(call):
        if "statements" not in (call.schema or {}).get("properties", {}):
            return NOTHING
        read.append(call.prompt)
        return reply(*((n, told, told) for n in range(1, 13))) if len(read) == 1 else NOTHING

    strategy = Auto(mode="sparse", effort="high", k=12)
    _, run, _ = await ask(strategy, question, made, say)
    assert [event.to for event in list_events(run, Escalated)][:2] == ["dualrag", "longrefiner"]
    assert told in read[2]


@pytest.mark.parametrize(
    ("name", "headings", "methods"),
    [("a-70b", True, ["rdr2"]), ("a-70b", False, ["longrefiner"]), ("a-1.5b", True, [])],
)
async def test_a_large_reader_follows_headings_that_are_sure(ask, name, headings, methods):
    mark = "## " if headings else ""
    parts = [f"{mark}Part {n}\n\nThe harbour was dredged in part {n}. " * 6 for n in range(90)]
    long = (
        document("long", "# Harbour\n\n" + "\n\n".join(parts))
        if headings
        else make("\n\n".join(parts), "Harbour", "long", flat=True)
    )
    strategy = Auto(mode="sparse", form="list", k=4)
    _, run, model = await ask(
        strategy, "Who was the cook of the harbour?", [long], lambda call: NOTHING, name=name
    )
    assert [event.to for event in list_events(run, Escalated)] == methods
    read = [
        call for call in model.calls if "statements" in (call.schema or {}).get("properties", {})
    ]
    assert {call.schema["properties"]["statements"]["maxItems"] for call in read} == {12}
    # The router accepts nothing, so after it nothing is read.
    assert len(read) == (2 if methods == ["longrefiner"] else 1)


async def test_the_first_reading_may_take_parts_that_fit_a_budget_of_several_documents(ask, reply):
    parts = [f"## Part {n}\n\nThe harbour was dredged in the spring of {n}.\n" for n in range(90)]
    made = [
        document("long", "# Harbour\n\n" + "\n".join(parts)),
        document("short", "# Cook\n\nThe cook of the harbour was Ines Roth, who came late.\n"),
    ]

    def say(call):
        told = re.search(r'number="(\d+)" title="Cook"', call.prompt)
        return reply((int(told[1]), "The cook of the harbour was Ines Roth", "It was Ines Roth."))

    strategy = Auto(mode="sparse", refined=120)
    question = "In which spring was the harbour dredged, and by whom?"
    answer, _, model = await ask(strategy, question, made, say)
    assert len(model.calls) == 1
    assert {piece.span.document_id for piece in answer.evidence} == {"long", "short"}
    assert 0 < model.calls[0].prompt.count("The harbour was dredged") < 20


async def test_a_reader_without_odds_is_asked_once_if_it_finds_the_answer(ask, reply):
    made = [document(*each) for each in TEXTS.items()]

    def say(call):
        return reply((1, "Silver Harbour is a film of 1971 by Ada Mercer", "Ada Mercer did."))

    answer, _, model = await ask(Auto(mode="sparse", k=1), DIRECTOR, made, say)
    assert (answer.found, len(model.calls)) == (True, 1)


RULE = "The tenant may appeal within {} days of the notice."
RULES = {
    "old": f"# Rules\n\n{RULE.format(180)}\n",
    "new": f"# Amended rules\n\n{RULE.format(270)}\n",
    # The best of the search, so that the others are judged too.
    "talk": "# Talk\n\nHow many days may the tenant take to appeal? The tenant may appeal.\n",
}
DAYS = "In how many days may the tenant appeal?"


@pytest.fixture
def ask_rules(make_run, reply):
    """`ask_rules(odds of the second, judge's short answer)`: a small reader of two rules.

    With `keep=False` the run keeps no events, as one whose trace nobody reads.
    """

    async def asked(odds=0.8, judged="270 days", keep=True, **options):
        def judge(messages, labels, forced):
            if tuple(labels) == KINDS:
                return judge_kind("fact")(messages, labels, forced)
            prompt = messages[-1].content
            yes = 0.9 if "180" in prompt else odds if "270" in prompt else 0.1
            return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

        def say(call):
            if not call.schema:
                return "180 days" if "180" in call.prompt else "within 270 days"
            if "important_docs" in call.schema["properties"] or judged is None:
                return NOTHING
            said = RULE.format(judged.split()[0]) if judged else "The tenant may appeal."
            return reply((0, said, said), short=judged)

        made = [replace(document(*each), metadata={"date": "2024-05-01"}) for each in RULES.items()]
        async with InMemorySources(made) as sources:
            run, model = make_run(sources, say, name="a-1.5b", labels=judge)
            run.trace = Trace(keep=keep)
            return await Auto(mode="sparse", **options).answer(DAYS, run), run, model

    return asked


DIFFER = "two passages say different things: “180 days” (Rules), “within 270 days” (Amended rules)"


async def test_two_sure_passages_that_contradict_each_other_are_put_before_a_judge(ask_rules):
    answer, run, _ = await ask_rules()
    [escalated] = list_events(run, Escalated)
    assert (escalated.to, escalated.why) == ("duquad", DIFFER)
    assert [view.agent for view in list_events(run, Viewed)] == ["global", "local"]
    assert (answer.short, answer.text) == ("270 days", f"{RULE.format(270)} [1]")
    assert answer.how.endswith(f"; let a judge compare two views: {DIFFER}")
    assert not any("both are shown" in warning for warning in run.warnings)


@pytest.mark.parametrize("judged", [None, ""])
async def test_what_the_judge_leaves_open_is_shown_from_both_sides(ask_rules, judged):
    answer, run, _ = await ask_rules(judged=judged, keep=False)
    assert answer.text == (
        f"180 days: “{RULE.format(180)}” [1] "
        f"Another document says otherwise, Amended rules (2024-05-01): “{RULE.format(270)}” [2]"
    )
    assert [each.quote for each in answer.citations] == [RULE.format(180), RULE.format(270)]
    assert DIFFER in answer.how
    assert "two passages say different things: both are shown" in run.warnings


MANY_PARTS = "".join(
    f"## Part {number}\n\nThe tenant may appeal on some days, and not on others. Part {number}.\n\n"
    for number in range(9)
)
LONG_RULES = {
    "old": f"# Rules\n\n## Question\n\n{DAYS} How many days may the tenant take to appeal?\n\n"
    f"## Term\n\n{RULE.format(180)}\n\n{MANY_PARTS}",
    "new": "# Amended rules\n\nBy the act on letting of homes, passed after long talks in the "
    "assembly and in force since spring, with effect for all leases of flats and houses, of land "
    "and of shops, of boats and mills, and of all that is let for a rent to be paid each month or "
    f"each year, whoever the owner is and wherever it may be: {RULE.format(270)}\n",
}


@pytest.mark.parametrize("fails", [False, True])
async def test_a_contradiction_is_decided_only_by_who_read_both_sides(ask, reply, fails):
    def judge(messages, labels, forced):
        if tuple(labels) == KINDS:
            return judge_kind("fact")(messages, labels, forced)
        prompt = messages[-1].content
        yes = 0.9 if "180" in prompt else 0.8 if "270" in prompt else 0.1
        return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

    agents = []

    def say(call):
        number = "270" if "270 days" in call.prompt else "180"
        if not call.schema:
            return "180 days" if "180" in call.prompt else "within 270 days"
        if "quotes" not in call.schema["properties"]:
            return reply((0, RULE.format(number), RULE.format(number)), short=f"{number} days")
        agents.append(number)
        if fails and len(agents) == 1:  # the one that reads all
            raise ServerFailed("it is down")
        quotes = [{"quote": RULE.format(number), "document": 0}]
        answer = {"answer": RULE.format(number), "short_answer": f"{number} days"}
        return json.dumps({"quotes": quotes, **answer})

    made = [document(*each) for each in LONG_RULES.items()]
    answer, run, _ = await ask(Auto(mode="sparse"), DAYS, made, say, name="a-1.5b", labels=judge)
    assert agents == ["270", "180"]
    both = "two passages say different things: both are shown" in run.warnings
    if fails:
        assert both
        assert RULE.format(180) in answer.text
        assert RULE.format(270) in answer.text
    else:
        assert (answer.short, both) == ("270 days", False)


async def test_one_sure_passage_or_low_effort_takes_no_second_reading(ask_rules):
    for options in ({"odds": 0.59}, {"effort": "low"}):
        answer, run, model = await ask_rules(**options)
        assert (answer.short, len(model.calls)) == ("180 days", 1)
        assert not list_events(run, Escalated)


async def test_without_documents_nothing_is_asked(ask):
    answer, _, model = await ask(Auto(), DIRECTOR, [])
    assert (answer.found, model.calls) == (False, [])


@pytest.mark.parametrize(
    ("question", "odds", "kind"),
    [
        ("Who wrote it?", (0.7, 0.2, 0.1, 0.0), "fact"),
        ("Who wrote it?", (0.3, 0.5, 0.2, 0.0), "fact"),
        ("Who wrote it?", (0.2, 0.63, 0.17, 0.0), "fact"),
        ("Who wrote it?", (0.2, 0.66, 0.14, 0.0), "steps"),
        ("How many here, and how many there?", (0.1, 0.45, 0.45, 0.0), "steps"),
        ("What does each of them say?", (0.2, 0.3, 0.5, 0.0), "each"),
        ("Which copies need no notice?", (0.2, 0.2, 0.6, 0.0), "fact"),
        ("Which copies need no notice?", (0.05, 0.2, 0.75, 0.0), "fact"),
        ("When are the first and the second dated?", (0.05, 0.35, 0.6, 0.0), "steps"),
        ("What is it about?", (0.2, 0.2, 0.0, 0.6), "overview"),
        ("Which firm has the highest rent?", (0.2, 0.2, 0.6, 0.0), "each"),
        ("Which leases end this year?", (0.2, 0.2, 0.6, 0.0), "each"),
        ("Which firm has a high rent?", (0.2, 0.2, 0.6, 0.0), "fact"),
        ("Which club won in 2019?", (0.2, 0.2, 0.6, 0.0), "fact"),
    ],
)
def test_a_kind_counts_if_it_is_likely_enough(question, odds, kind):
    assert choose_kind(question, dict(zip(KINDS, odds, strict=True))) == kind


def test_one_document_does_not_take_all_places(hits):
    made = hits("a", "a", "a", "a", "a", "b", "c")
    chosen = [hit.passage.document_id for hit in spread(made, 6)]
    assert (chosen.count("a"), chosen.count("b"), chosen.count("c")) == (4, 1, 1)
    assert [hit.passage.document_id for hit in spread(made[:5], 6)] == ["a"] * 5


@pytest.fixture
def hits():
    def made(*names):
        from colligate.documents import Hit

        texts = {name: document(name, "# T\n\n" + "word. " * 40) for name in names}
        spans = [texts[name].span(3 + place, 9 + place) for place, name in enumerate(names)]
        passages = [texts[span.document_id].passage(span) for span in spans]
        return [Hit(passage, 1.0 - place / 10) for place, passage in enumerate(passages)]

    return made


def test_names_and_numbers_of_a_question_are_needed():
    assert find_needed("What did Ada Mercer earn in 2019 and 2020?") == [
        *("Ada", "Mercer", "2019", "2020")
    ]
    assert find_needed("who wrote it") == []
