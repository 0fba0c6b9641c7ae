"""The pointwise reader finds the passage that answers and reads it alone."""

import dataclasses

import pytest

from colligate.core.answer import NOT_FOUND, Form, Place, Stated
from colligate.core.events import Noted
from colligate.core.run import show_ranked
from colligate.documents import Span
from colligate.errors import BudgetExceeded, ServerFailed
from colligate.library.in_memory import InMemorySources
from colligate.models import Usage
from colligate.readers.finding import Likely
from colligate.readers.pointwise import JudgedAlone, PointwiseReader
from support.runs import NOTHING, document, judge_by_words

BAKERY = "# Bakery\n\nThe bakery opened in 1904. Its owner was Ada Mercer."
MILL = "# Mill\n\nThe mill opened in 1921. Its owner was Otto Lind."
PARK = "# Park\n\nNobody was its owner."
TEXTS = (BAKERY, MILL, PARK)
QUESTION = "Who was the owner?"
MILL_OWNER = "Who was the owner of the mill?"


@pytest.fixture
def ask_small(make_run):
    """`ask_small(question, odds, *replies)`: a small reader, and its odds by words of a passage."""

    async def asked(question, odds, *replies, texts=TEXTS, language="en", paid=False, **task):
        made = [document(text.split()[1].lower(), text) for text in texts]
        async with InMemorySources(made) as sources:
            says = replies[0] if replies and callable(replies[0]) else replies or [NOTHING]
            run, model = make_run(sources, says, labels=judge_by_words(odds))
            run.reader, run.language = PointwiseReader(), language
            if paid:
                run.meter.chat("reader", "scripted", Usage(9, 9), seconds=0.1)
            hits = await run.search(question, k=10, mode="sparse")
            return await run.read(question, show_ranked(hits), **task), run, model

    return asked


def count_passages(call) -> int:
    return call.prompt.count("<passage ")


def list_judged(run) -> list[tuple[float, ...]]:
    return [event.odds for _, event in run.trace.events if isinstance(event, JudgedAlone)]


def list_notes(run) -> list[str]:
    return [event.text for _, event in run.trace.events if isinstance(event, Noted)]


async def test_the_answer_is_the_sentence_of_the_passage_that_answers(ask_small):
    answer, run, model = await ask_small(MILL_OWNER, {"Otto": 0.9}, "Otto Lind")
    assert (answer.text, answer.short) == ("Otto Lind: “Its owner was Otto Lind.” [1]", "Otto Lind")
    assert [c.quote for c in answer.citations] == ["Its owner was Otto Lind."]
    assert [count_passages(call) for call in model.calls] == [1]
    assert answer.evidence[0].span.document_id == "mill"
    assert len(answer.evidence) == 3
    assert 0.5 < answer.probability <= 1
    [likely] = [event for _, event in run.trace.events if isinstance(event, Likely)]
    assert likely.sentence.text == "Its owner was Otto Lind."
    assert "likely: “Its owner was Otto Lind.” (Mill)" in likely.line()


async def test_a_sentence_is_shown_without_its_note_marks_and_quoted_with_them(ask_small):
    text = "# Boats\n\nThe dinghy is Otto's[^1] since May.[^2]\n"
    answer, _, _ = await ask_small("Whose is the dinghy?", {"Otto": 0.9}, "Otto's", texts=[text])
    assert answer.text == "Otto's: “The dinghy is Otto's since May.” [1]"
    assert answer.citations[0].quote == "The dinghy is Otto's[^1] since May.[^2]"


async def test_a_passage_without_the_answer_leaves_it_to_the_next(ask_small):
    answer, _, model = await ask_small(MILL_OWNER, {"Ada": 0.9}, "none", "Ada Mercer")
    assert answer.short == "Ada Mercer"
    assert [count_passages(call) for call in model.calls] == [1, 1]  # none is read twice
    assert len(answer.evidence) == 3


async def test_a_clear_passage_is_read_at_once_and_others_are_judged_first(ask_small):
    _, run, _ = await ask_small(MILL_OWNER, {"Otto": 0.9}, "Otto Lind")
    assert list_judged(run) == []
    unclear = "Which cook was an owner in 1880?"
    _, run, model = await ask_small(unclear, {"Ada": 0.9}, "Ada Mercer")
    assert [len(odds) for odds in list_judged(run)] == [3]
    assert "Ada" in model.calls[0].prompt  # the surest


async def test_an_answer_that_its_passage_hardly_says_is_left_out(ask_small):
    answer, run, model = await ask_small(MILL_OWNER, {"Otto": 0.01}, "1921")
    assert (answer.found, answer.text, len(model.calls)) == (False, NOT_FOUND, 1)
    assert len(answer.evidence) == 3
    assert any("“1921” is left out" in each for each in list_notes(run))


async def test_in_another_language_the_reader_judges_each_passage(ask_small):
    odds = {"Otto": 0.9, "Ada": 0.5}
    answer, run, _ = await ask_small(QUESTION, odds, "Otto Lind", language="de")
    assert answer.short == "Otto Lind"
    assert 0.5 < answer.probability <= 1
    [judged] = list_judged(run)
    assert sorted(judged) == [0.1, 0.5, 0.9]


async def test_an_answer_in_other_words_is_read_again_with_quotes(ask_small, reply):
    quoted = reply((1, "The mill opened in 1921.", "It opened after the war."), short="1921")
    answer, _, model = await ask_small(QUESTION, {"Otto": 0.9}, "after the war", quoted)
    assert answer.text == "It opened after the war. [1]"
    assert [count_passages(call) for call in model.calls] == [1, 1]


async def test_where_no_passage_alone_answers_the_likely_ones_are_read_together(ask_small, reply):
    together = reply((1, "Its owner was Otto Lind.", "Otto Lind owned it."), short="Otto Lind")
    odds = {"<answer>": 0.9, "Otto": 0.9, "Ada": 0.8}
    unclear = "Which cook was an owner in 1880?"
    answer, _, model = await ask_small(unclear, odds, "none", "none", together)
    assert answer.short == "Otto Lind"
    assert [count_passages(call) for call in model.calls] == [1, 1, 2]
    assert answer.probability is not None


async def test_a_judge_that_fails_leaves_it_to_all_together(ask_small, reply):
    together = reply((1, "Its owner was Otto Lind.", "Otto Lind owned it."), short="Otto Lind")
    failing = {"Otto": ServerFailed("down"), "Ada": ServerFailed("down")}
    answer, run, _ = await ask_small(QUESTION, failing, together, language="de")
    assert any("not read one by one" in each for each in run.warnings)
    assert len(answer.evidence) == 3


async def test_a_reader_that_fails_after_it_judged_is_a_refusal_with_a_warning(ask_small):
    down = BudgetExceeded("spent")
    answer, run, _ = await ask_small(QUESTION, {"Otto": 0.9}, down, down, down)
    assert not answer.found
    assert run.warnings


@pytest.mark.parametrize(
    "task", [{"form": Form.LIST}, {"notes": "<log>\nx\n</log>"}, {"instruction": "You judge."}]
)
async def test_lists_notes_and_other_instructions_are_read_together(ask_small, reply, task):
    together = reply((1, "Its owner was Otto Lind.", "Otto Lind owned it."), short="Otto Lind")
    _, run, model = await ask_small(QUESTION, {"Otto": 0.9}, together, **task)
    assert list_judged(run) == []
    assert count_passages(model.calls[0]) == 3


async def test_a_row_of_a_sheet_is_read_alone_under_its_head(make_run):
    rows = [f"| {last} | {first} | {n} |" for n, (last, first) in enumerate(NAMES, 4000)]
    text = "\n".join(["| Surname | First name | Extension |", "| --- | --- | --- |", *rows])
    staff = dataclasses.replace(document("staff", text), media_type="text/csv")
    async with InMemorySources([staff]) as sources:
        run, model = make_run(sources, ["4003"], labels=judge_by_words({"| Milo |": 0.9}))
        run.reader = PointwiseReader()
        hits = await run.search("Which extension has Milo Vey-Tarn?", k=10, mode="sparse")
        answer = await run.read("Which extension has Milo Vey-Tarn?", show_ranked(hits))
    assert answer.short == "4003"
    assert [citation.quote for citation in answer.citations] == ["| Vey-Tarn | Milo | 4003 |"]
    assert "Odo" not in model.calls[0].prompt
    assert "| Surname | First name | Extension |" in model.calls[0].prompt


async def test_prose_beside_a_table_is_read_too(ask_small):
    rows = "| Who | Fee |\n| --- | --- |\n| Adults | 96 |\n| Boats | 42 |"
    text = f"# Fees\n\n{rows}\n\nAdults pay in May.\n"
    answer, _, model = await ask_small("When do they pay?", {"in May": 0.9}, "in May", texts=[text])
    assert answer.short == "in May"
    assert ["in May" in call.prompt for call in model.calls] == [True]


NAMES = [("Vey", "Milo"), ("Tarn", "Milo"), ("Vey-Tarn", "Odo"), ("Vey-Tarn", "Milo")]
NAMES += [("Ash", "Ivo")] * 9


@pytest.mark.parametrize(
    ("odds", "said", "short"),
    [
        ({"cellar; close": 0.9}, "sweep the cellar", "sweep the cellar; close the valves"),
        ({"cellar; close": 0.5}, "sweep the cellar", "sweep the cellar"),
        ({"cellar; close": 0.9}, "the cellar", "the cellar"),  # no whole item
    ],
)
async def test_of_a_whole_item_of_a_list_all_are_given_if_likelier(ask_small, odds, said, short):
    text = "# Keys\n\nBefore leaving:\n\n- sweep the cellar;\n- close the valves.\n"
    odds = {**odds, "valves": 0.8}
    answer, _, _ = await ask_small("What before leaving?", odds, said, texts=[text])
    assert answer.short == short
    assert len(answer.citations) == 1 + (";" in short)


async def test_what_earlier_steps_verified_is_the_answer_of_a_reading_without_one(ask_small):
    at = MILL.index("Its owner")
    known = Stated("Otto Lind.", (Place(Span("mill", at, len(MILL)), "exact"),))
    answer, _, _ = await ask_small(QUESTION, {"Otto": 0.2}, "none", "none", known=[known])
    assert answer.text == "Otto Lind. [1]"
