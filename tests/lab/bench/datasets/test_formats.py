"""Every public format, in small: what its publishers write becomes one kind of question."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, MissingPath, UsageError
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.datasets.formats import FORMATS, find_format
from colligate.lab.bench.question import Question, QuestionReading, QuestionTask

Record = dict[str, Any]

PLAIN: Record = {
    "id": "q1",
    "question": "Who wrote Emma?",
    "answers": ["Jane Austen", "Austen"],
    "documents": [
        {"id": "d1", "title": "Emma", "text": "Emma is by Jane Austen."},
        {"id": "d2", "title": "Ulysses", "text": "Ulysses is by James Joyce."},
    ],
    "gold_document_ids": ["d1"],
    "meta": {"dataset": "nq", "gold_position": 0},
}
LOST: Record = {
    "question": "who got the first nobel prize in physics",
    "answers": ["Wilhelm Conrad Röntgen"],
    "ctxs": [
        {"id": "71445", "title": "Nobel", "text": "A prize.", "score": "1.05", "isgold": False},
        {"id": None, "title": "Physics", "text": "Röntgen got it.", "score": None, "isgold": True},
    ],
    "nq_annotated_gold": {"title": "Physics"},
}
HOTPOT: Record = {
    "_id": "5a8e",
    "question": "Bordan Tkachuk led a company that sells what?",
    "answer": "IT products",
    "supporting_facts": [["Bordan Tkachuk", 0], ["Viglen", 1], ["Viglen", 9]],
    "context": [
        ["Cardinal Health", ["A company.", " It is large."]],
        ["Viglen", ["Viglen Ltd is British.", " It sells IT products."]],
        ["Bordan Tkachuk", ["He led Viglen."]],
    ],
    "type": "bridge",
    "level": "hard",
}
TWO_WIKI: Record = {
    **HOTPOT,
    "_id": "acd6",
    "context": [["Viglen", ["Viglen Ltd is British.", "It sells IT products."]]],
    "supporting_facts": [["Viglen", 1]],
    "evidences": [["Viglen", "product", "IT products"]],
    "answer_id": "Q1",
}
MUSIQUE: Record = {
    "id": "2hop__1_2",
    "question": "Who leads the country of Ceelmakoile?",
    "paragraphs": [
        {"idx": 0, "title": "Congo", "paragraph_text": "A river.", "is_supporting": False},
        {"idx": 1, "title": "Somalia", "paragraph_text": "Led by H.", "is_supporting": True},
    ],
    "question_decomposition": [{"id": 1, "question": "x", "answer": "y"}],
    "answer": "H",
    "answer_aliases": ["Hassan", "H"],
    "answerable": True,
}
FLASHRAG: Record = {
    "id": "test_0",
    "question": "when was the last time anyone was on the moon",
    "golden_answers": ["14 December 1972 UTC", "December 1972"],
    "metadata": {"source": "nq"},
}
ASQA: Record = {
    "sample_id": "-31",
    "question": "When did the US enter the war?",
    "qa_pairs": [
        {"question": "In Europe?", "short_answers": ["1941", "11 December 1941"], "context": "-"},
        {"question": "In Asia?", "short_answers": ["1941"], "wikipage": None},
    ],
    "annotations": [{"long_answer": "It did.", "knowledge": []}, {"long_answer": "It did so."}],
    "answer": "It did.",
    "docs": [{"id": "7", "title": "War", "text": "1941 it was.", "score": 0.7}],
}
QAMPARI: Record = {
    "id": "651__simple__dev",
    "question": "Who wrote in Garifuna?",
    "answer": "Marie Sharp, Mirtha Colón",
    "answers": [["Marie Sharp"], ["Mirtha Colón", "M. Colón"]],
    "docs": [{"id": "8", "title": "Garifuna", "text": "A language.", "score": 0.6}],
}
ELI5: Record = {
    "question": "why does a stapler have two sides",
    "question_ctx": "We all flipped it.",
    "answer": "To undo them later.",
    "claims": ["It is for undoing.", "It is old.", "It pins."],
    "docs": [{"title": "Stapler", "text": "It staples.", "url": "-"}, {"title": "", "text": "X"}],
}
LOONG: Record = {
    "id": "e567",
    "set": 1,
    "type": "paper",
    "level": 3,
    "question": "On Voyages",
    "instruction": "Find what the paper cites.",
    "prompt_template": "#Papers:\n{docs}\n\n{instruction}\n\n#The paper to analyze:\n{question}",
    "doc": ["1604.05377.md", "2303.1.md"],
    "answer": {"Reference": ["# A "], "Citation": []},
    "shuffle_doc": True,
}
FINANCEBENCH: Record = {
    "financebench_id": "financebench_id_00499",
    "company": "3M",
    "doc_name": "3M_2022_10K",
    "question": "Is 3M capital-intensive?",
    "answer": "No.",
    "justification": None,
    "evidence": [
        {"evidence_text": "PP&E 9,178", "doc_name": "3M_2022_10K", "evidence_page_num": 47},
        {"evidence_text": "Sales 34,229", "doc_name": "3M_2022_10K", "evidence_page_num": 49},
    ],
}
OWN: Record = {"question": "What is the fee?", "answer": "5 %", "documents": ["lease.pdf"]}

FIRST_RECORDS: Mapping[str, Record] = {
    "plain": PLAIN,
    "lost-in-the-middle": LOST,
    "hotpotqa": HOTPOT,
    "2wikimultihopqa": TWO_WIKI,
    "musique": MUSIQUE,
    "flashrag": FLASHRAG,
    "asqa": ASQA,
    "qampari": QAMPARI,
    "eli5": ELI5,
    "loong": LOONG,
    "financebench": FINANCEBENCH,
    "own": OWN,
}


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
    field = next(key for key in whole if "question" in key)
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
        (question,) = read_questions(path, name)
    except FaultyRecord as error:
        told = str(error)
    else:
        told = "line 1 of"
        assert question.text.strip()
        assert question.id
        assert {type(answer) for answer in question.answers} <= {str}
    assert "line 1 of" in told


READ: Mapping[str, Record] = {
    "plain": {
        "id": "q1",
        "text": "Who wrote Emma?",
        "answers": ("Jane Austen", "Austen"),
        "gold": ("d1",),
        "gold_at": 0,
        "answerable": True,
        "task": QuestionTask.SHORT,
    },
    "musique": {"answers": ("H", "Hassan")},
    "flashrag": {"answers": ("14 December 1972 UTC", "December 1972"), "documents": ()},
    "asqa": {
        "id": "-31",
        "task": QuestionTask.READINGS,
        "readings": (
            QuestionReading("In Europe?", ("1941", "11 December 1941")),
            QuestionReading("In Asia?", ("1941",)),
        ),
        "answers": ("1941", "11 December 1941"),
        "long_answers": ("It did.", "It did so."),
    },
    "qampari": {
        "task": QuestionTask.SET,
        "members": (("Marie Sharp",), ("Mirtha Colón", "M. Colón")),
        "answers": ("Marie Sharp", "Mirtha Colón", "M. Colón"),
    },
    "eli5": {
        "task": QuestionTask.LONG,
        "claims": ("It is for undoing.", "It is old.", "It pins."),
        "long_answers": ("To undo them later.",),
    },
    "loong": {
        "text": "Find what the paper cites.\n\n#The paper to analyze:\nOn Voyages",
        "task": QuestionTask.JUDGED,
    },
    "financebench": {
        "task": QuestionTask.JUDGED,
        "gold": ("3M_2022_10K",),
        "gold_texts": (("3M_2022_10K", "PP&E 9,178"), ("3M_2022_10K", "Sales 34,229")),
    },
}
META: Mapping[str, Record] = {
    "plain": {"dataset": "nq"},
    "lost-in-the-middle": {"nq_annotated_gold": {"title": "Physics"}},
    "hotpotqa": {"level": "hard"},
    "musique": {"question_decomposition": MUSIQUE["question_decomposition"]},
    "flashrag": {"source": "nq"},
    "eli5": {"question_ctx": "We all flipped it."},
    "loong": {
        **{name: LOONG[name] for name in ("answer", "set", "type", "level", "prompt_template")},
        "question_field": "On Voyages",
    },
    "financebench": {"evidence_pages": [47, 49]},
}
DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "plain": ("d1", "d2"),
    "asqa": ("7",),
    "qampari": ("8",),
    "financebench": ("3M_2022_10K",),
}


@pytest.mark.parametrize("name", {**READ, **META})
def test_a_record_becomes_a_question(tmp_path: Path, name: str) -> None:
    question = one(tmp_path, FIRST_RECORDS[name])
    fields = READ.get(name, {})
    assert {field: getattr(question, field) for field in fields} == fields
    meta = META.get(name, {})
    assert {field: question.meta[field] for field in meta} == meta
    if name in DOCUMENTS:
        assert tuple(document.id for document in question.documents) == DOCUMENTS[name]


@pytest.mark.parametrize(
    ("meta", "task"),
    [
        (
            {"qa_pairs": [{"question": "In Asia?", "short_answers": ["1941"]}]},
            QuestionTask.READINGS,
        ),
        ({"answer_list": [["a", "A"], ["b"]]}, QuestionTask.SET),
        ({"claims": ["It pins."]}, QuestionTask.LONG),
        ({"evidence_text": ["PP&E 9,178"]}, QuestionTask.JUDGED),
        ({"prompt_template": "{docs}\n\n{instruction}\n\n{question}"}, QuestionTask.JUDGED),
        ({}, QuestionTask.SHORT),
    ],
)
def test_the_plain_form_tells_the_task_from_its_gold(
    tmp_path: Path, meta: Record, task: QuestionTask
) -> None:
    meta = {"instruction": "Read.", "question_field": "What?"} | meta
    question = one(tmp_path, PLAIN, meta=meta)
    assert question.task is task
    assert question.readings == (
        (QuestionReading("In Asia?", ("1941",)),) if "qa_pairs" in meta else ()
    )
    assert question.members == ((("a", "A"), ("b",)) if "answer_list" in meta else ())
    assert question.claims == (("It pins.",) if "claims" in meta else ())
    assert question.long_answers == (PLAIN_ANSWERS if task is QuestionTask.LONG else ())
    assert question.gold_texts == ((("d1", "PP&E 9,178"),) if "evidence_text" in meta else ())
    if "prompt_template" in meta:
        assert question.text == "Read.\n\nWhat?"


PLAIN_ANSWERS = ("Jane Austen", "Austen")


def test_plain_unanswerable(tmp_path: Path) -> None:
    question = one(tmp_path, PLAIN, answers=[], meta={"answerable": False})
    assert not question.answerable
    assert question.answers == ()


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


def test_two_questions_with_one_id(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(PLAIN)}\n{json.dumps(PLAIN)}\n")
    with pytest.raises(FaultyRecord, match=r"line 2 of .* the id 'q1' came before"):
        list(read_questions(path))


def test_lost_in_the_middle(tmp_path: Path) -> None:
    question = one(tmp_path, LOST)
    assert question.documents[0].id == "71445"
    assert question.documents[1].text == "Röntgen got it."
    assert question.gold == (question.documents[1].id,)
    assert question.gold_at == 1


def test_hotpotqa(tmp_path: Path) -> None:
    question = one(tmp_path, HOTPOT)
    by_title = {document.title: document for document in question.documents}
    assert question.id == "5a8e"
    assert by_title["Viglen"].text == "Viglen Ltd is British. It sells IT products."
    # In the order of the facts; the one that names no sentence is left out.
    viglen, led = by_title["Viglen"].id, by_title["Bordan Tkachuk"].id
    assert question.gold == (led, viglen)
    assert question.gold_texts == ((led, "He led Viglen."), (viglen, "It sells IT products."))


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
    question = one(tmp_path, TWO_WIKI)
    assert question.answers == ("IT products",)
    assert question.documents[0].text == "Viglen Ltd is British. It sells IT products."
    (tmp_path / "id_aliases.json").write_text(
        '{"Q_id": "Q1", "aliases": ["computers"], "demonyms": ["ITs"]}\n'
        '{"Q_id": "Q2", "aliases": ["other"], "demonyms": []}\n'
    )
    assert one(tmp_path, TWO_WIKI).answers == ("IT products", "computers", "ITs")


def test_a_paragraph_has_one_id_in_all_questions_and_is_there_once(tmp_path: Path) -> None:
    twice = one(tmp_path, HOTPOT, context=[*HOTPOT["context"], HOTPOT["context"][1]])
    assert twice.documents == one(tmp_path, HOTPOT).documents


def test_musique_asks_unanswerable_questions_under_the_same_id(tmp_path: Path) -> None:
    question = one(tmp_path, MUSIQUE)
    assert question.gold == (question.documents[1].id,)
    path = tmp_path / "q.jsonl"
    without = {**MUSIQUE, "answerable": False}
    path.write_text(f"{json.dumps(MUSIQUE)}\n{json.dumps(without)}\n")
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
    ids = [document.id for document in one(tmp_path, LOONG, **financial).documents]
    assert ids == ["financial/2024-A [x] CO-j.txt", "financial/None of them"]
    chain = one(tmp_path, LOONG, type="financial", level=4, doc=["2019-f10k"])
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


def test_gold_of_a_format_that_is_not_known_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Who?", "golden_spans": [[1, 2]]}\n')
    with pytest.raises(UsageError, match="cannot tell the format"):
        read_questions(path)
    (question,) = read_questions(path, "own")
    assert question.meta["golden_spans"] == [[1, 2]]
