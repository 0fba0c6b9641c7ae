"""A small reader splits the question, and answers the simple questions one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.citing import NOT_FOUND, Place, Stated
from colligate.core.events import Retrieved
from colligate.errors import ServerFailed
from colligate.library import InMemorySources
from colligate.models.base import LabelOdds
from colligate.strategies.dualrag import DualRAG
from colligate.strategies.dualrag.events import QuestionSplit, Stopped
from colligate.strategies.dualrag.knowledge import Stop
from colligate.strategies.dualrag.plan import (
    QuestionPlan,
    answer_plan,
    compare,
    parse_plan,
    split_question,
)
from support.documents import make
from support.runs import NOTHING, document

TEXTS = {
    "harbour": "# Silver Harbour\n\nSilver Harbour is a film of 1971 by Ada Mercer.\n",
    "mercer": "# Ada Mercer\n\nAda Mercer, born on 3 May 1921 in Lund, liked boats.\n",
    "clay": "# Red Clay\n\nRed Clay is a film of 1980 by Otto Lind.\n",
    "lind": "# Otto Lind\n\nOtto Lind, born in 1934, never left Oslo.\n",
}
CHAIN = "1. Who directed Silver Harbour?\n2. When was #1 born?"
CHAINS = f"{CHAIN}\n3. Who directed Red Clay?\n4. When was #3 born?"
ANSWERS = {
    "Who directed Silver Harbour?": ("a film of 1971", "Ada Mercer"),
    "When was Ada Mercer born?": ("born on 3 May 1921", "3 May 1921"),
    "Who directed Red Clay?": ("a film of 1980", "Otto Lind"),
    "When was Otto Lind born?": ("born in 1934", "1934"),
}
BORN = "When was the director of Silver Harbour born?"
LATER = "Which film has the director who was born later, Silver Harbour or Red Clay?"


@pytest.fixture
def ask_small(ask):
    """`ask_small(question, steps, answers)`: a small reader that splits a question like this."""

    async def asked(question, steps, answers=ANSWERS, texts=TEXTS, **options):
        def judge(messages, labels, forced):
            prompt = messages[-1].content
            held = (words for asked, (words, _) in answers.items() if asked in prompt)
            yes = 0.9 if any(words in prompt for words in held) else 0.05
            return LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0)

        def say(call):
            if call.messages[0].content.startswith("You split"):
                return steps
            return next(
                (short for asked, (_, short) in answers.items() if asked in call.prompt), ""
            )

        made = [document(*each) for each in texts.items()]
        strategy = DualRAG(mode="sparse", **options)
        return await ask(strategy, question, made, say, name="a-1.5b", labels=judge)

    return asked


def list_events(run, kind):
    return [event for _, event in run.trace.events if isinstance(event, kind)]


async def test_the_last_step_of_a_chain_is_the_answer_and_each_step_is_cited(ask_small):
    answer, run, _ = await ask_small(BORN, CHAIN)
    assert (answer.found, answer.short) == (True, "3 May 1921")
    assert [citation.span.document_id for citation in answer.citations] == ["harbour", "mercer"]
    assert answer.text.startswith(
        "Ada Mercer: “Silver Harbour is a film of 1971 by Ada Mercer.” [1]"
    )
    assert [piece.span.document_id for piece in answer.evidence] == ["harbour", "mercer"]
    [split] = list_events(run, QuestionSplit)
    assert split.questions == ("Who directed Silver Harbour?", "When was #1 born?")
    [stopped] = list_events(run, Stopped)
    assert (stopped.rounds, stopped.reason) == (2, Stop.ENOUGH)


async def test_answers_of_several_questions_in_one_are_joined(ask_small):
    asked = "Who directed Silver Harbour and who directed Red Clay?"
    steps = "1. Who directed Silver Harbour?\n2. Who directed Red Clay?"
    answer, _, _ = await ask_small(asked, steps)
    assert (answer.short, answer.ground) == ("Ada Mercer; Otto Lind", "documents")
    assert [citation.span.document_id for citation in answer.citations] == ["harbour", "clay"]


async def test_two_chains_are_compared_and_the_answer_says_so(ask_small):
    answer, _, _ = await ask_small(LATER, CHAINS)
    assert (answer.short, answer.ground) == ("Red Clay", "computed")
    assert answer.text.endswith("Red Clay: 1934 is after 3 May 1921. [2][4]")
    assert len(answer.citations) == 4


async def test_a_step_that_refers_to_a_date_means_the_step_before_it(ask_small):
    answer, _, _ = await ask_small(LATER, CHAINS.replace("#3", "#2"))
    assert answer.short == "Red Clay"


async def test_a_name_with_a_number_is_no_date(ask_small):
    asked = "Who directed the film with the ship, and when was it shown?"
    steps = "1. Which film has the ship?\n2. Who directed #1?\n3. When was #1 shown?"
    answers = {
        "Which film has the ship?": ("with a ship", "Harbour 11"),
        "Who directed Harbour 11?": ("by Ada Mercer", "Ada Mercer"),
        "When was Harbour 11 shown?": ("shown in 1971", "1971"),
    }
    told = "Harbour 11 is a film with a ship.", "It is by Ada Mercer.", "It was shown in 1971."
    texts = {f"d{n}": f"# Harbour 11, {n}\n\n{each}\n" for n, each in enumerate(told)}
    answer, _, _ = await ask_small(asked, steps, answers, texts)
    assert answer.short == "Ada Mercer; 1971"


async def test_without_an_answer_to_a_step_the_best_passages_are_read(ask_small):
    left = dict(list(ANSWERS.items())[:1])
    answer, run, model = await ask_small(BORN, CHAIN, left)
    assert (answer.found, answer.text) == (False, NOT_FOUND)
    assert [stopped.reason for stopped in list_events(run, Stopped)] == [Stop.NOTHING_NEW]
    assert {piece.span.document_id for piece in answer.evidence} >= {"harbour", "mercer"}
    assert not any("#1" in call.prompt for call in model.calls[1:])


async def test_a_question_that_is_not_split_is_looked_up_itself(ask_small):
    question = "Who directed Silver Harbour?"
    answer, run, _ = await ask_small(question, "It is about a film.")
    assert answer.short == "Ada Mercer"
    assert list_events(run, QuestionSplit)[0].questions == (question,)


async def test_an_answer_with_the_words_of_its_question_leads_nowhere(ask_small):
    answers = {"Who directed Silver Harbour?": ("a film of 1971", "Silver Harbour")}
    answer, run, _ = await ask_small(BORN, CHAIN, answers)
    assert not answer.found
    assert list_events(run, Stopped)[0].rounds == 1


async def test_a_long_answer_is_not_filled_into_the_next_question(ask_small):
    said = "Ada Mercer" + ", whom every critic of the world must praise" * 3
    texts = {**TEXTS, "harbour": f"# Silver Harbour\n\nIts director is {said}.\n"}
    answers = {**ANSWERS, "Who directed Silver Harbour?": ("Its director", said)}
    _, run, model = await ask_small(BORN, CHAIN, answers, texts=texts)
    assert list_events(run, Stopped)[0].rounds == 1
    assert not any("When was Ada Mercer" in call.prompt for call in model.calls)


async def test_what_was_found_before_a_failure_is_read(ask_small):
    failing = {**ANSWERS, "When was Ada Mercer born?": ("born on 3 May 1921", ServerFailed("down"))}
    answer, run, _ = await ask_small(BORN, CHAIN, failing)
    assert not answer.found
    assert answer.evidence
    assert any("down" in warning for warning in run.warnings)


@pytest.mark.parametrize("failing", ["reader", "search"])
async def test_a_step_that_was_answered_is_the_answer_if_nothing_more_can_be_read(
    ask_small, monkeypatch, failing
):
    search = InMemorySources.search

    async def search_steps(self, query, **options):
        if query == BORN and failing == "search":
            raise ServerFailed("the embedder is down")
        return await search(self, query, **options)

    monkeypatch.setattr(InMemorySources, "search", search_steps)
    down = ("a film of 1971", ServerFailed("the reader is down"))
    answers = {**ANSWERS, "When was Ada Mercer born?": down, BORN: down}
    answer, run, _ = await ask_small(BORN, CHAIN, answers)
    assert (answer.found, len(answer.citations)) == (True, 1)
    assert answer.citations[0].span.document_id == "harbour"
    assert any(
        f"the {'embedder' if failing == 'search' else failing} is down" in warning
        for warning in run.warnings
    )


async def test_at_most_six_passages_are_read_in_the_end(ask_small):
    noise = "The director of Silver Harbour was born."
    texts = {**TEXTS, **{f"noise{n}": f"# Silver Harbour {n}\n\n{noise}\n" for n in range(7)}}
    left = {"Who directed Silver Harbour?": ("a film of 1971", "Ada Mercer")}
    answer, run, _ = await ask_small(BORN, CHAIN, left, texts=texts)
    [*_, last] = list_events(run, Retrieved)
    assert last.query == BORN
    assert len(answer.evidence) == 6


async def test_a_large_reader_reasons_in_rounds(ask):
    made = [document(*each) for each in TEXTS.items()]
    _, run, model = await ask(
        DualRAG(mode="sparse", linking="name"), BORN, made, lambda call: NOTHING, name="a-70b"
    )
    assert not list_events(run, QuestionSplit)
    assert model.calls


async def test_examples_alike_are_shown_last(make_run, minilm):
    question = "Who is older, Ann Hall or Ben Cole?"
    run, model = make_run([], [CHAIN], embedder=minilm)
    assert await split_question(question, run) == CHAIN.replace("1. ", "").replace("2. ", "").split(
        "\n"
    )
    asked = [message.content for message in model.calls[0].messages if message.role == "user"]
    assert asked[-2:] == ["Who is younger, Hans Berg or Lea Stone?", question]


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        (CHAIN, ["Who directed Silver Harbour?", "When was #1 born?"]),
        ("1. Who directed Silver Harbour?\n2. When was #2 born?", [BORN]),
        ("1. Who directed Silver Harbour?\n2. When was #1", [BORN]),
        ("1. Who directed Silver Harbour?\nIt was Ada.", ["Who directed Silver Harbour?"]),
        (f"1. {BORN}\n2. Who is #1?", [BORN]),
        ("", [BORN]),
        ("\n".join(f"{n}. Who is the {n}th director?" for n in range(1, 9)), None),
    ],
)
def test_a_plan_is_kept_up_to_the_first_step_that_cannot_be_asked(reply, steps):
    found = parse_plan(reply, BORN)
    assert found == steps if steps else len(found) == 5


@given(st.text(), st.text(min_size=1))
def test_any_reply_gives_steps_that_refer_to_earlier_ones(reply, question):
    for number, step in enumerate(parse_plan(reply, question), 1):
        if step != question:
            references = step.split("#")[1:]
            assert all(not each[:1].isdigit() or int(each[0]) < number for each in references)


@pytest.mark.parametrize(
    ("question", "first", "second", "short"),
    [
        ("Who was born first, Ann Hall or Ben Cole?", "3 May 1921", "1934", "Ann Hall"),
        ("Who is younger, Ann Hall or Ben Cole?", "3 May 1921", "1934", "Ben Cole"),
        ("Who was born first, Ben Cole or Ann Hall?", "3 May 1921", "1934", "Ann Hall"),
        ("Who was born first, Ann Hall or Ben Cole?", "3 May 1934", "1934", None),
        ("Who was born first, Ann Hall or Ben Cole?", "in Lund", "1934", None),
        ("Who has more employees, Ann Hall or Ben Cole?", "1,200", "900", "Ann Hall"),
        ("Who has fewer employees, Ann Hall or Ben Cole?", "1,200", "900", "Ben Cole"),
        ("Which is cheaper, Ann Hall or Ben Cole?", "$1,200", "$900", "Ben Cole"),
        ("Who has more, Ann Hall or Ben Cole?", "$1.2 million", "900", None),
        ("Who met Ann Hall or Ben Cole?", "1921", "1934", None),
        ("Who was born first, ann or ben?", "1921", "1934", None),
        ("Was Ben Cole or Ann Hall born first?", "1921", "1934", "Ann Hall"),
        ("Are Ann Hall and Ben Cole of the same nationality?", "Italian", "an Italian", "yes"),
        ("Are Ann Hall and Ben Cole of the same nationality?", "Italian painter", "Italian", "yes"),
        ("Are Ann Hall and Ben Cole from the same state?", "Virginia", "West Virginia", None),
        ("Are Ann Hall and Ben Cole from the same country?", "Equatorial Guinea", "Guinea", None),
        ("Are Ann Hall and Ben Cole of the same class?", "Class 5", "a class", None),
        ("Were Ann Hall and Ben Cole born in the same year?", "1975", "6 January 1975", "yes"),
        ("Were Ann Hall and Ben Cole born on the same day?", "1975", "6 January 1975", None),
        ("Were Ann Hall and Ben Cole born on the same day?", "January 6, 1975", "January 6", None),
        ("Were Ann Hall and Ben Cole born in the same year?", "Born in 1975", "1975", "yes"),
        ("Were Ann Hall and Ben Cole born in the same year?", "1975 (Lund)", "1975", "yes"),
        ("Were Ann Hall and Ben Cole born in the same year?", "1975 or 1976", "1975", None),
        ("Are Ann Hall and Ben Cole from the same town?", "Paris", "Paris, France", "yes"),
        ("Are Ann Hall and Ben Cole from the same town?", "Lund, in Sweden", "Lund", "yes"),
        ("Are Ann Hall and Ben Cole from the same town?", "Paris, Texas", "Paris, France", None),
        ("Are Ann Hall and Ben Cole from the same town?", "University of Oslo", "Oslo", None),
        ("Do Ann Hall and Ben Cole have the same job?", "Film director", "director", "yes"),
        ("Are Ann Hall and Ben Cole from the same country?", "South Sudan", "Sudan", None),
        ("Are Ann Hall and Ben Cole from the same town?", "Rome", "Oslo", "no"),
        ("Are Ann Hall and Ben Cole from the same town?", "Austria", "Australia", None),
        ("Are Ann Hall and Ben Cole from the same country?", "Rome", "Oslo", None),
        ("Are both Ann Hall and Ben Cole from Italy?", "Rome", "Oslo", None),
        ("Are both Ann Hall and Ben Cole from Lund?", "Oslo", "Oslo", None),
        ("Are both Ann Hall and Ben Cole from Oslo?", "Oslo", "Oslo", "yes"),
        ("Are both Ann Hall and Ben Cole from the same town?", "Rome", "Oslo", "no"),
    ],
)
def test_two_answers_are_compared_as_the_question_asks(question, first, second, short):
    steps = ["In which town was Ann Hall born?", "In which town was Ben Cole born?"]
    compared = compare(QuestionPlan(question, steps, {1: first, 2: second}))
    assert compared is None if short is None else compared[0] == short


@pytest.mark.parametrize(
    ("referred", "before", "meant"),
    [
        ("1905", "Ada Mercer", "Ada Mercer"),
        ("released in 1971", "Ada Mercer", "Ada Mercer"),
        ("Released in May 1971", "Ada Mercer", "Ada Mercer"),
        ("Summer 1971", "Ada Mercer", "Ada Mercer"),
        ("USD 5 million", "Ada Mercer", "Ada Mercer"),
        ("Around 120 km", "Ada Mercer", "Ada Mercer"),
        ("1905", "USD 5 million", "1905"),
        ("1905", "5 Euro", "1905"),
        ("1905", "around 120 km", "1905"),
        ("1905", "Apollo 11", "1905"),
        ("Apollo 11", "Ada Mercer", "Apollo 11"),
        ("Apollo 11 mission", "Ada Mercer", "Apollo 11 mission"),
        ("12 Monkeys", "Ada Mercer", "12 Monkeys"),
        ("Norway", "Ada Mercer", "Norway"),
    ],
)
def test_a_value_is_not_looked_up_where_a_name_is_before_it(referred, before, meant):
    steps = ["What is the first?", "What is the second?", "Who knew #1?"]
    plan = QuestionPlan("Who?", steps, {1: referred, 2: before})
    assert plan.fill(3) == f"Who knew {meant}?"


@pytest.mark.parametrize(
    ("question", "short"),
    [
        ("How long is the first term of the mill, and how long is that of the park?", "30; 60"),
        ("What is the first term of the mill, and which of them is longer than 40 days?", None),
    ],
)
async def test_two_questions_joined_by_and_have_two_answers(make_run, question, short):
    leases = make(
        "The first term of the mill is 30 days. That of the park is 60 days.", "Leases", "d"
    )
    steps = ["How long is the first term of the mill?", "How long is the first term of the park?"]
    stated = {
        1: Stated("The first term of the mill is 30 days.", (Place(leases.span(0, 38), "exact"),)),
        2: Stated("That of the park is 60 days.", (Place(leases.span(39, 67), "exact"),)),
    }
    async with InMemorySources([leases]) as sources:
        run, _ = make_run(sources)
        plan = QuestionPlan(question, steps, {1: "30", 2: "60"}, stated)
        answer = await answer_plan(plan, run, strategy="dualrag", evidence=())
    assert (answer and answer.short) == short


async def test_a_short_answer_that_says_the_opposite_of_what_is_cited_is_left_out(make_run):
    deal = make("Dorne acquired Norvik in 2004.", "Deal", "d")
    place = Place(deal.span(0, len(deal)), "exact")
    stated = {1: Stated("Dorne acquired Norvik in 2004.", (place,))}
    async with InMemorySources([deal]) as sources:
        for short, kept in (("Norvik acquired Dorne", None), ("Dorne", "Dorne")):
            run, _ = make_run(sources)
            plan = QuestionPlan("What happened?", ["What happened?"], {1: short}, stated)
            answer = await answer_plan(plan, run, strategy="dualrag", evidence=())
            assert answer
            assert (answer.short, bool(run.warnings)) == (kept, kept is None)
