"""A user's own questions, as spreadsheets and editors write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate.errors import FaultyRecord, UsageError
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.question import Question

TABLE = (
    "id,Question,answers,documents,gold,department\n"
    'f1,"What is the fee, in all?",5 % | five per cent,a.pdf|b.pdf,a.pdf,Sales\n'
    "\n"
    ',"Who\nsigned?",,,,\n'
)


def own(path: Path, text: str | bytes, name: str = "mine.csv") -> list[Question]:
    file = path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_questions(file))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table(tmp_path: Path, mark: str, end: str) -> None:
    first, second = own(tmp_path, (mark + TABLE).replace("\n", end))
    assert (first.id, first.text) == ("f1", "What is the fee, in all?")
    assert first.answers == ("5 %", "five per cent")
    assert [document.id for document in first.documents] == ["a.pdf", "b.pdf"]
    assert first.gold == ("a.pdf",)
    assert first.meta == {"department": "Sales"}
    assert second.text.split() == ["Who", "signed?"]
    assert second.id
    assert (second.answers, second.documents, second.gold) == ((), (), ())


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_apart_as_other_spreadsheets_have_them(tmp_path: Path, mark: str) -> None:
    (question,) = own(tmp_path, f"question{mark}answer\nWhat, then?{mark}a, b\n")
    assert (question.text, question.answers) == ("What, then?", ("a, b",))


def test_a_table_without_a_column_of_questions_is_told_with_its_columns(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine\.csv: .* has the fields ask, answer"):
        own(tmp_path, "Ask,answer\nWho?,A\n")


def test_cells_of_a_tsv_file_are_separated_by_tabs_alone(tmp_path: Path) -> None:
    (question,) = own(tmp_path, "question\tname, age, town\nWho, then?\tA, 5, Oslo\n", "mine.tsv")
    assert question.text == "Who, then?"
    assert question.meta == {"name_age_town": "A, 5, Oslo"}


def test_a_question_that_the_documents_do_not_answer(tmp_path: Path) -> None:
    table = own(tmp_path, "question,answerable\nWho?,no\nWhat?,\nWhen?, False \nWhy?,yes\n")
    assert [question.answerable for question in table] == [False, True, False, True]
    (record,) = own(tmp_path, '{"question": "Who?", "answerable": false}\n', "mine.jsonl")
    assert not record.answerable


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("question,answer\nWho?,A\nWhat?\n", "line 3 of .*it has 1 cells and the first line 2"),
        ('question,answer\nWho?,"A\n', "line 2 of .*not a table"),
        ("question,Answer,answer\nWho?,A,B\n", "line 1 of .*two columns are called answer"),
        ("question,id\nWho?,1\nWhat?,1\n", "line 3 of .*the id '1' came before"),
        ("question,answer\n,A\n", "line 2 of .*the question is empty"),
        ("question,documents,gold\nWho?,a.pdf,b.pdf\n", "line 2 of .*gold 'b.pdf'"),
        (b"question\nWho?\n\xff\n", "line 3 of .*not UTF-8"),
        ("question\nWho?\n".encode("utf-16"), "line 1 of .*not UTF-8"),
        ("question,answer,answerable\nWho?,A,no\n", "line 2 of .*not answerable"),
        ("question,answerable\nWho?,perhaps\n", "line 2 of .*field 'answerable'"),
    ],
)
def test_a_wrong_row_is_told_with_its_line(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(FaultyRecord, match=told):
        own(tmp_path, text)
