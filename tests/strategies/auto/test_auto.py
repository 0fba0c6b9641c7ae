"""`auto` reads once where that is enough, and asks the strategy of the kind where it is not."""

import dataclasses
import json

import pytest

from colligate.core.events import Located
from colligate.documents import Hit, Passage, Span
from colligate.errors import BudgetExceeded, ServerFailed
from colligate.library.in_memory import InMemorySources
from colligate.models import LabelOdds
from colligate.readers.pointwise import PointwiseReader
from colligate.strategies.auto import Auto
from colligate.strategies.auto.method import Classified, Escalated, spread
from support.runs import NOTHING, document, events

LONG = "Boats lay in the harbour all summer, and nobody counted them. " * 120
TEXTS = {
    "harbour": f"# Silver Harbour\n\nSilver Harbour is a film of 1971 by Ada Mercer.\n\n{LONG}",
    "mercer": f"# Ada Mercer\n\nAda Mercer, born on 3 May 1921 in Lund, liked boats.\n\n{LONG}",
    "clay": f"# Red Clay\n\nRed Clay is a film of 1980 by Otto Lind.\n\n{LONG}",
}
DIRECTOR = "Who directed Silver Harbour?"
QUOTES = [{"passage": 0, "quote": "a film of 1971 by Ada Mercer"}]
STATED = {"quotes": QUOTES, "sentence": "Ada Mercer directed it."}
CITED = json.dumps({"statements": [STATED], "short_answer": "Ada Mercer", "found": True})


def asks_kind(call) -> bool:
    return list((call.schema or {}).get("properties", {})) == ["kind"]


@pytest.fixture
def ask_auto(make_run):
    """`ask_auto(question, kind, reply, ...)`: the answer, the run and the model of a question.

    The reader is asked for the kind; everything else gets `reply`.
    """

    async def asked(question, kind, reply=NOTHING, *, pointwise=False, consent=None, **fields):
        def judge(messages, labels, forced):
            return LabelOdds({"Yes": 0.05, "No": 0.95}, 1.0)

        def say(call):
            if asks_kind(call):
                return kind if isinstance(kind, Exception) else json.dumps({"kind": kind})
            return reply(call) if callable(reply) else reply

        options = {"labels": judge} if pointwise else {}
        async with InMemorySources([document(*each) for each in TEXTS.items()]) as sources:
            run, model = make_run(sources, say, **options)
            if pointwise:
                run.reader = PointwiseReader()
            if consent is not None:
                run.consent = consent
            answer = await Auto(mode="sparse", kind="model", **fields).answer(question, run)
        return answer, run, model

    return asked


def list_steps(run) -> list[str]:
    return [event.to for event in events(run, Escalated)]


async def test_one_fact_takes_a_kind_and_one_reading_and_says_what_was_done(ask_auto):
    answer, run, model = await ask_auto(DIRECTOR, "fact", CITED)
    assert (answer.short, len(model.calls)) == ("Ada Mercer", 2)
    assert [citation.span.document_id for citation in answer.citations] == ["harbour"]
    assert answer.how.startswith("read ")
    assert answer.to_json()["how"] == answer.how
    assert [type(event) for _, event in run.trace.events].index(Located) == 1  # after the search
    assert events(run, Classified)[0].odds == {"fact": 1.0}
    assert list_steps(run) == []


@pytest.mark.parametrize(
    ("kind", "pointwise", "steps"),
    [
        ("fact", False, ["read inside"]),
        ("fact", True, []),
        ("steps", False, ["read inside", "dualrag"]),
        ("steps", True, ["decompose", "read"]),
        ("each", False, ["read each"]),
        ("each", True, ["per-document", "read"]),
        ("overview", False, ["longrefiner"]),
        ("list", False, ["list-all", "read"]),
        ("list", True, ["list-all", "read"]),
    ],
)
async def test_the_kind_of_a_question_chooses_the_steps(ask_auto, kind, pointwise, steps):
    reply = json.dumps({**json.loads(NOTHING), "items": []})
    question = "Who was the cook of the film?"
    answer, run, _ = await ask_auto(question, kind, reply, pointwise=pointwise)
    assert not answer.found
    assert list_steps(run) == steps
    assert answer.evidence


async def test_the_documents_themselves_are_looked_up_without_a_model(ask_auto):
    answer, run, model = await ask_auto("How many files are there?", "collection")
    assert (answer.short, len(model.calls)) == ("3 documents", 1)
    lines = answer.text.splitlines()
    assert lines[0] == "3 documents: [1][2][3]"
    assert lines[2].endswith("“Ada Mercer, born on 3 May 1921 in Lund, liked boats.” [2]")
    assert [citation.span.document_id for citation in answer.citations] == list(TEXTS)
    assert list_steps(run) == ["collection"]


@pytest.mark.parametrize(
    ("kind", "question", "read"),
    [
        ("fact", "What does boats-2.md say of Lund?", {"boats-2"}),
        ("overview", "Summarise boats-2.md.", {"boats-2"}),
        ("collection", "Is boats-3.md or boats-2.md older?", {"boats-2", "boats-3"}),
        ("fact", "What do boats-1 and boats-3 say of Lund?", {"boats-1", "boats-3"}),
        ("steps", "Who wrote boats-2.md?", None),
        ("fact", "What do the boats say of Lund?", None),
    ],
)
async def test_a_question_that_names_a_file_is_answered_from_it(make_run, kind, question, read):
    made = [document(f"boats-{at}", text + 2 * LONG) for at, text in enumerate(TEXTS.values(), 1)]
    made = [dataclasses.replace(each, source=f"/d/{each.id}.md") for each in made]
    kinds = json.dumps({"kind": kind})
    async with InMemorySources(made) as sources:
        run, _ = make_run(sources, lambda call: kinds if asks_kind(call) else NOTHING)
        answer = await Auto(mode="sparse", kind="model", k=6).answer(question, run)
    names = {each.span.document_id for each in answer.evidence}
    assert names == read if read else len(names) > 1
    assert ("which the question names" in answer.how) is (read is not None)


async def test_an_overview_of_one_document_reads_the_beginnings_of_its_sections(make_run):
    sections = [f"## Part {at}\n\nPart {at} begins. {LONG}" for at in range(6)]
    book = document("book", "\n\n".join(["# Book", *sections]))
    kinds = json.dumps({"kind": "overview"})
    async with InMemorySources([book]) as sources:
        run, model = make_run(sources, lambda call: kinds if asks_kind(call) else NOTHING)
        await Auto(mode="sparse", kind="model", k=8).answer("Summarise this book.", run)
    prompt = next(call.prompt for call in model.calls if "<passages>" in call.prompt)
    assert [f"Part {at} begins" in prompt for at in range(6)] == [True] * 6
    assert prompt.count("</passage ") == 8


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When does the lease of the mill end?", "fact"),
        ("Is the lease of the mill older than that of the forge?", "steps"),
        ("What is the yearly rent in each of the leases?", "each"),
        ("Explain how disputes about repairs are settled.", "overview"),
        ("Name all guarantors that the leases mention.", "list"),
        ("Which files are in this folder, and what is each about?", "collection"),
    ],
)
async def test_the_kind_of_an_english_question_takes_no_model_call(make_run, question, kind):
    async with InMemorySources([document(*each) for each in TEXTS.items()]) as sources:
        run, model = make_run(sources, NOTHING)
        await Auto(mode="sparse").answer(question, run)
    odds = events(run, Classified)[0].odds
    assert max(odds, key=odds.get) == kind
    assert sum(odds.values()) == pytest.approx(1)
    assert not any(map(asks_kind, model.calls))


async def test_of_a_question_in_another_language_the_reader_tells_the_kind(make_run):
    async with InMemorySources([document(*each) for each in TEXTS.items()]) as sources:
        run, _ = make_run(sources, lambda call: '{"kind": "each"}' if asks_kind(call) else NOTHING)
        run.language = "de"
        await Auto(mode="sparse").answer("Wer hat Regie geführt?", run)
    assert events(run, Classified)[0].odds == {"each": 1.0}


async def test_low_effort_asks_no_model_where_the_answer_is_surely_found(make_run):
    said = "The lighthouse on Skerry Rock was lit for the first time in March 1851."
    made = [document("skerry", f"# Skerry Rock\n\n{said}"), document("clay", TEXTS["clay"])]
    async with InMemorySources(made) as sources:
        run, model = make_run(sources, [NOTHING])
        question = "When was the lighthouse on Skerry Rock first lit?"
        answer = await Auto(mode="sparse", effort="low").answer(question, run)
        listed = await Auto(mode="sparse", effort="low", form="list").answer(question, run)
    assert ("1851" in answer.short, answer.citations[0].quote) == (True, said)
    assert (len(model.calls), listed.found) == (1, False)  # a list is read


async def test_high_effort_takes_every_step_and_low_effort_reads_once(ask_auto):
    _, run, _ = await ask_auto("Who was the cook of the film?", "fact", effort="high")
    assert list_steps(run) == ["read inside", "read on", "dualrag", "rdr2", "longrefiner", "duquad"]
    _, run, model = await ask_auto("Who was the cook of the film?", "fact", effort="low")
    assert (list_steps(run), len(model.calls)) == ([], 1)
    assert not events(run, Classified)


async def test_few_short_documents_are_read_whole_without_a_kind(make_run):
    async with InMemorySources([document("harbour", TEXTS["harbour"][:200])]) as sources:
        run, model = make_run(sources, [CITED])
        answer = await Auto(mode="sparse").answer(DIRECTOR, run)
    assert (answer.found, len(model.calls)) == (True, 1)


async def test_many_documents_are_read_only_with_consent(ask_auto):
    options = {"pointwise": True, "most_documents": 2}
    _, run, _ = await ask_auto("Which year is each film from?", "each", **options)
    assert any("of 3: --yes reads all" in warning for warning in run.warnings)

    asked = []

    async def consent(estimate):
        asked.append(estimate)
        return True

    _, run, _ = await ask_auto("Which year?", "each", consent=consent, **options)
    assert asked[0].startswith("reading 3 documents one by one takes about 5 model calls")
    assert not any("--yes" in warning for warning in run.warnings)


FAILURES = [ServerFailed("it is down"), BudgetExceeded("the token budget is spent")]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("pointwise", [True, False])
async def test_a_question_that_cannot_be_classified_is_one_fact(ask_auto, failure, pointwise):
    _, run, _ = await ask_auto(DIRECTOR, failure, CITED, pointwise=pointwise)
    assert any("the question is not classified" in warning for warning in run.warnings)
    assert list_steps(run) in ([], ["read inside"])


async def test_a_large_reader_reads_every_document_or_more_of_the_best_in_one_call(make_run):
    """A clause seldom names its contract; what does is found before it."""
    made, boat = [], "Of the boat of the lease of Boris. " * 9
    for name in ("Anna", "Boris", "Carla"):
        clause = f"## Term\n\nIt runs until 1 May {2030 + len(made)}."
        rest = "".join(f"\n\n## Part {at}\n\n{boat}" for at in range(20))
        made.append(document(name.lower(), f"# Lease of {name}\n\n{clause}{rest}"))

    async def ask(kind, *search):
        kinds = json.dumps({"kind": kind})
        nothing = json.dumps({**json.loads(NOTHING), "search": search})
        async with InMemorySources(made) as sources:
            run, model = make_run(sources, lambda call: kinds if asks_kind(call) else nothing)
            strategy = Auto(mode="sparse", kind="model", k=2, tokens=2000)
            await strategy.answer("Until when does the lease of Boris run?", run)
        return [call.prompt for call in model.calls if "<passages>" in call.prompt]

    assert "1 May 2031" in (await ask("fact"))[1]
    assert "1 May 2032" in (await ask("fact", "May Carla term"))[1]  # as the reader asked
    each, again = await ask("each", "May Carla term")
    for prompt in (each, again):
        assert all(f"1 May {year}" in prompt for year in (2030, 2031, 2032))
    assert again.index("1 May 2032") < again.index("1 May 2031")


async def test_what_each_document_says_is_a_table_beside_the_answer(make_run):
    """A value that is neither in its sentence nor in its quote is not shown."""
    fees, rest = {"anna": "40 euros", "boris": "60 euros", "carla": "80 euros"}, "It rains. " * 999
    made = [
        document(name, f"# {name}\n\nThe fee is {fee}.\n\n{rest}") for name, fee in fees.items()
    ]

    def say(call):
        if asks_kind(call):
            return json.dumps({"kind": "each"})
        stated = [
            {
                "quotes": [{"passage": 0, "quote": f"The fee is {fee}."}],
                "sentence": f"{name} asks {fee}.",
                "column": "fee",
                "value": fee if name != "carla" else "90 euros",
            }
            for name, fee in fees.items()
        ]
        return json.dumps({"statements": stated, "short_answer": "", "found": True, "search": []})

    async with InMemorySources(made) as sources:
        run, _ = make_run(sources, say)
        answer = await Auto(mode="sparse", kind="model").answer("Compare the fees.", run)
    assert [(each.document, each.column, each.text) for each in answer.table] == [
        ("anna", "fee", "40 euros"),
        ("boris", "fee", "60 euros"),
    ]
    assert [each.citation for each in answer.table] == [*answer.citations[:2]]


@pytest.mark.parametrize("window", [None, 200_000, 8_000])
async def test_a_first_reading_leaves_room_in_the_window(make_run, window):
    parts = [f"## Part {at}\n\nOf the boat. {LONG[:1000]}" for at in range(20)]
    made = document("boats", "\n\n".join(["# Boats", *parts]))
    async with InMemorySources([made]) as sources:
        reply = ['{"kind": "fact"}', NOTHING, NOTHING]
        run, model = make_run(sources, reply, context_tokens=window)
        await Auto(mode="sparse", kind="model", k=3).answer("Who saw the boat?", run)
    first = next(call.prompt for call in model.calls if "<passages>" in call.prompt)
    assert (first.count("</passage ") >= 20) is (window != 8_000)


def test_a_first_reading_is_spread_over_documents():
    hits = [
        Hit(Passage(Span(name, n, n + 1), "x", name, (), None), 10 - n)
        for n, name in enumerate("aaaaaabc")
    ]
    chosen = spread(hits, 5)
    assert [hit.passage.document_id for hit in chosen] == ["a", "a", "a", "b", "c"]
    assert spread(hits[:6], 5) == hits[:5]
