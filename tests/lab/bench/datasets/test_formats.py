"""Every public format, in small: what its publishers write becomes one kind of question."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, MissingPath, UsageError
from colligate.lab.bench.datasets import FORMATS, find_format, read_questions
from colligate.lab.bench.question import Question

Record = dict[str, Any]

CASES = {
    case["format"]: case
    for case in map(json.loads, Path(__file__).with_name("formats.jsonl").read_text().splitlines())
}
FIRST_RECORDS: Mapping[str, Record] = {name: case["record"] for name, case in CASES.items()}
PLAIN, HOTPOT = FIRST_RECORDS["plain"], FIRST_RECORDS["hotpotqa"]


def one(path: Path, record: Record, **changes: Any) -> Question:
    """The question of a file that holds this record alone."""
    file = path / "questions.jsonl"
    file.write_text(json.dumps({**record, **changes}) + "\n")
    (question,) = read_questions(file)
    return question


@pytest.mark.parametrize("name", FIRST_RECORDS)
def test_the_format_is_told_from_the_first_record(tmp_path: Path, name: str) -> None:
    lines, array = tmp_path / "q.jsonl.gz", tmp_path / "q.json"
    lines.write_bytes(gzip.compress(json.dumps(FIRST_RECORDS[name]).encode()))
    array.write_text(json.dumps([FIRST_RECORDS[name]]))
    assert find_format(lines).name == find_format(array).name == name
    assert list(read_questions(lines)) == list(read_questions(array, name))


def test_every_format_has_a_record_here() -> None:
    assert set(FORMATS) == {*FIRST_RECORDS, "beir"}


@pytest.mark.parametrize("name", FIRST_RECORDS)
def test_a_record_without_one_of_its_fields_is_told_with_its_line(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "q.jsonl"
    whole = FIRST_RECORDS[name]
    field = next(key for key in whole if re.search("question|query|Prompt|input", key))
    without = {key: value for key, value in whole.items() if key != field}
    path.write_text(f"{json.dumps(whole)}\n\n{json.dumps(without)}\n")
    with pytest.raises(FaultyRecord, match=rf"line 3 of .*q\.jsonl: field '{field}'"):
        list(read_questions(path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(sorted(FIRST_RECORDS)), json_values)
def test_a_field_of_any_value_is_understood_or_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, value: Any
) -> None:
    record = json.loads(json.dumps(FIRST_RECORDS[name]))
    inside = record
    while True:  # any field, however deep
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = data.draw(st.sampled_from(keys))
        if not inside[key] or not isinstance(inside[key], dict | list) or data.draw(st.booleans()):
            break
        inside = inside[key]
    inside[key] = value
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(record) + "\n")
    try:
        found = list(read_questions(path, name))
    except FaultyRecord as error:
        told = str(error)
    else:
        told = "line 1 of"
        if not found:  # some of its records are published without a question
            assert name == "t2-ragbench"
            assert not (record["question"] or "").strip()
            return
        (question,) = found
        assert question.text.strip()
        assert question.id
        assert {type(answer) for answer in question.answers} <= {str}
    assert "line 1 of" in told


@pytest.mark.parametrize("name", CASES)
def test_a_record_becomes_a_question(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    question = one(tmp_path, case["record"])
    read = json.loads(json.dumps(asdict(question)))
    read["documents"] = [document["id"] for document in read["documents"]]
    assert {field: read[field] for field in case["question"]} == case["question"]
    assert {field: question.meta[field] for field in case["meta"]} == case["meta"]


def test_the_gold_pages_of_a_whole_document_are_that_document(tmp_path: Path) -> None:
    document = {"id": "fb:3M_2022_10K", "title": "3M", "text": ""}
    pages = ["fb:3M_2022_10K#p47", "fb:3M_2022_10K#p49"]
    question = one(tmp_path, PLAIN, documents=[document], gold_document_ids=pages, meta={})
    assert question.gold == ("fb:3M_2022_10K",)
    assert question.meta["gold_pages"] == pages


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"documents": PLAIN["documents"][:1] * 2}, "two of its documents have the id 'd1'"),
        ({"meta": {"gold_position": 2}}, "meta.gold_position 2"),
        ({"meta": {"qa_pairs": [{"question": "Which?"}]}}, "qa_pairs.0.short_answers"),
        ({"answers": "Austen"}, "field 'answers'"),
        ({"question": " "}, "the question is empty"),
    ],
)
def test_what_is_wrong_with_a_plain_record(tmp_path: Path, changes: Record, reason: str) -> None:
    with pytest.raises(FaultyRecord, match=reason):
        one(tmp_path, PLAIN, **changes)


def test_hotpotqa_in_columns(tmp_path: Path) -> None:
    titles, sentences = zip(*HOTPOT["context"], strict=True)
    facts, numbers = zip(*HOTPOT["supporting_facts"], strict=True)
    changes = {
        "context": {"title": titles, "sentences": sentences},
        "supporting_facts": {"title": facts, "sent_id": numbers},
    }
    assert one(tmp_path, HOTPOT, **changes) == one(tmp_path, HOTPOT)
    turned = {name: dict(reversed(columns.items())) for name, columns in changes.items()}
    assert one(tmp_path, HOTPOT, **turned) == one(tmp_path, HOTPOT)


def test_2wikimultihopqa_and_its_aliases(tmp_path: Path) -> None:
    question = one(tmp_path, FIRST_RECORDS["2wikimultihopqa"])
    assert question.answers == ("IT products",)
    assert question.documents[0].text == "Viglen Ltd is British. It sells IT products."
    (tmp_path / "id_aliases.json").write_text(
        '{"Q_id": "Q1", "aliases": ["computers"], "demonyms": ["ITs"]}\n'
        '{"Q_id": "Q2", "aliases": ["other"], "demonyms": []}\n'
    )
    assert one(tmp_path, FIRST_RECORDS["2wikimultihopqa"]).answers == (
        "IT products",
        "computers",
        "ITs",
    )


def test_musique_asks_unanswerable_questions_under_the_same_id(tmp_path: Path) -> None:
    question = one(tmp_path, FIRST_RECORDS["musique"])
    assert question.gold == (question.documents[1].id,)
    path = tmp_path / "q.jsonl"
    without = {**FIRST_RECORDS["musique"], "answerable": False}
    path.write_text(f"{json.dumps(FIRST_RECORDS['musique'])}\n{json.dumps(without)}\n")
    answerable, unanswerable = read_questions(path)
    assert answerable.id == "2hop__1_2"
    assert unanswerable.id == "2hop__1_2-unanswerable"
    assert not unanswerable.answerable
    assert unanswerable.answers == ()
    assert unanswerable.meta["withheld_answers"] == ["H", "Hassan"]


def test_loong_finds_its_documents_below_the_folder_beside_it(tmp_path: Path) -> None:
    reports = tmp_path / "doc" / "financial"
    reports.mkdir(parents=True)
    names = ["2024-A [x] CO-n.txt", "2024-A [x] CO-j.txt", "2023-A [x] CO-j.txt", "2019-f10k.txt"]
    for name in names:
        (reports / name).write_text("Cash.")
    financial = {"type": "financial", "doc": ["A [x] CO", "None of them"]}
    ids = [document.id for document in one(tmp_path, FIRST_RECORDS["loong"], **financial).documents]
    assert ids == ["financial/2024-A [x] CO-j.txt", "financial/None of them"]
    chain = one(tmp_path, FIRST_RECORDS["loong"], type="financial", level=4, doc=["2019-f10k"])
    assert [document.id for document in chain.documents] == ["financial/2019-f10k.txt"]


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    (tmp_path / "queries.jsonl").write_text(
        '{"_id": "1", "text": "What is it?", "metadata": {}}\n{"_id": "2", "text": "Not judged?"}\n'
    )
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\td2\t2\n1\td1\t0\n1\td3\t1\n"
    )
    return tmp_path


def test_beir(beir: Path) -> None:
    assert find_format(beir).name == "beir"
    (question,) = read_questions(beir)
    assert (question.id, question.text) == ("1", "What is it?")
    assert question.gold == ("d2", "d3")
    assert question.meta["qrels"] == {"d2": 2, "d1": 0, "d3": 1}


def test_a_wrong_judgement_of_beir(beir: Path) -> None:
    path = beir / "qrels" / "test.tsv"
    path.write_text("query-id\tcorpus-id\tscore\n1\td2\n")
    with pytest.raises(FaultyRecord, match=r"line 2 of .*test\.tsv"):
        list(read_questions(beir))
    path.unlink()
    with pytest.raises(MissingPath, match="qrels"):
        list(read_questions(beir))


def test_an_unknown_format_names_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "Say hello", "completion": "Hello"}\n')
    with pytest.raises(UsageError, match=r"prompt, completion; name one of plain, .*own"):
        read_questions(path)
    with pytest.raises(UsageError, match=r"unknown format 'squad'; name one of plain"):
        read_questions(path, "squad")
    path.write_text("\n")
    with pytest.raises(FaultyRecord, match="holds no records"):
        read_questions(path)


def test_a_null_query_of_multihop_rag_has_no_answer(tmp_path: Path) -> None:
    changes = {"question_type": "null_query", "answer": "Insufficient.", "evidence_list": []}
    question = one(tmp_path, FIRST_RECORDS["multihop-rag"], **changes)
    assert (question.answerable, question.answers, question.gold) == (False, (), ())


def test_frames_is_read_from_its_table(tmp_path: Path) -> None:
    record = FIRST_RECORDS["frames"]
    table = tmp_path / "test.tsv"
    with table.open("w", newline="") as stream:
        rows = csv.writer(stream, delimiter="\t")
        rows.writerows([["", *list(record)[1:]], [0, *list(record.values())[1:]], [1, "Why?"]])
    questions = read_questions(table)
    (question, expected) = next(questions), one(tmp_path, record)
    assert (question.text, question.gold) == (expected.text, expected.gold)
    with pytest.raises(FaultyRecord, match=r"line 3 of .*test\.tsv: it has 2 cells"):
        next(questions)


def test_a_table_of_own_questions_is_not_frames(tmp_path: Path) -> None:
    table = tmp_path / "own.tsv"
    table.write_text("question\tanswer\nWhy?\tSo\n")
    assert find_format(table).name == "own"


def test_what_mtrag_cannot_answer_is_to_be_refused(tmp_path: Path) -> None:
    first_turn = FIRST_RECORDS["mtrag"]["input"][:1]
    changes = {"answerability": ["UNANSWERABLE"], "contexts": [], "input": first_turn}
    question = one(tmp_path, FIRST_RECORDS["mtrag"], **changes)
    assert (question.answerable, question.answers, question.documents) == (False, (), ())
    assert question.history == ()


def test_t2_ragbench_leaves_out_records_without_a_question(tmp_path: Path) -> None:
    path, record = tmp_path / "q.jsonl", FIRST_RECORDS["t2-ragbench"]
    empty = {**record, "id": "2", "question": None}
    path.write_text(f"{json.dumps(empty)}\n{json.dumps(record)}\n")
    assert [question.id for question in read_questions(path)] == ["tatdqa_1"]


def test_ragbench_marks_the_relevant_sentences_and_judges_the_response(tmp_path: Path) -> None:
    question = one(tmp_path, FIRST_RECORDS["ragbench"])
    first = question.documents[0].id
    assert question.gold == (first,)
    assert question.gold_texts == ((first, "The pumps use port two."),)
    assert one(tmp_path, FIRST_RECORDS["ragbench"], adherence_score=False).answers == ()
    with pytest.raises(FaultyRecord, match="line 1"):
        one(tmp_path, FIRST_RECORDS["ragbench"], documents_sentences=[])


def test_refusalbench_says_what_is_to_be_refused(tmp_path: Path) -> None:
    changes = {"expected_rag_behavior": "REFUSE_INFO_MISSING_IN_CONTEXT"}
    question = one(tmp_path, FIRST_RECORDS["refusalbench"], **changes)
    assert (question.answerable, question.answers, question.gold) == (False, (), ())


def test_novels_of_graphrag_bench_may_have_questions_of_one_id(tmp_path: Path) -> None:
    path, record = tmp_path / "q.json", FIRST_RECORDS["graphrag-bench"]
    path.write_text(json.dumps([record, {**record, "source": "Novel-8"}]))
    assert len({question.id for question in read_questions(path)}) == 2
