"""Converted questions and corpora are read as what they were."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import FaultyRecord
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.datasets.convert import convert_passages, convert_questions
from colligate.lab.bench.datasets.passages import Passages, iterate_documents, load_documents

CASES = [
    json.loads(line) for line in Path(__file__).with_name("formats.jsonl").read_text().splitlines()
]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["format"])
def test_a_question_of_any_format_is_the_same_in_the_plain_form(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    given, plain = write(tmp_path / "q.jsonl", [case["record"]]), tmp_path / "plain.jsonl.gz"
    assert convert_questions(given, plain) == (1, 0)
    (question,), (read,) = read_questions(given), read_questions(plain, "plain")
    assert dataclasses.replace(read, meta=question.meta) == question
    assert {name: read.meta[name] for name in case["meta"]} == case["meta"]


def test_documents_of_several_questions_are_written_once(tmp_path: Path) -> None:
    record = CASES[0]["record"]
    given = write(tmp_path / "q.jsonl", [record, {**record, "id": "q2"}])
    plain, corpus = tmp_path / "plain.jsonl", tmp_path / "corpus.jsonl"

    assert convert_questions(given, plain, corpus=corpus) == (2, 2)

    assert [document.id for document in iterate_documents(corpus)] == ["d1", "d2"]
    assert "Austen is" not in plain.read_text()
    for question in read_questions(plain):
        texts = [each.text for each in load_documents(question, Passages.read(corpus))]
        assert texts == [document["text"] for document in record["documents"]]


def test_a_wrong_record_leaves_no_file(tmp_path: Path) -> None:
    record = CASES[0]["record"]
    other = [{"id": "d1", "title": "Emma", "text": "Another text."}]
    given = write(tmp_path / "q.jsonl", [record, {**record, "id": "q2", "documents": other}])
    with pytest.raises(FaultyRecord, match="'d1' has several texts"):
        convert_questions(given, tmp_path / "plain.jsonl", corpus=tmp_path / "corpus.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (  # MultiHop-RAG
            {
                **{"title": "Mud", "body": "Port Ellin was dredged.", "category": "business"},
                **{"url": "https://gull.example/mud", "source": "The Gull"},
                "published_at": "2023-10-02",
            },
            ("https://gull.example/mud", "Mud (The Gull, 2023-10-02)", "Port Ellin was dredged."),
        ),
        ({"id": "a_1.txt", "content": "Water\nrises."}, ("a_1.txt", "a_1.txt", "Water\nrises.")),
        (
            {"corpus_name": "Novel-7", "context": "The aunt hid it."},
            ("Novel-7", "Novel-7", "The aunt hid it."),
        ),
    ],
)
def test_a_published_corpus_becomes_a_file_of_passages(
    tmp_path: Path, entry: dict[str, str], expected: tuple[str, str, str]
) -> None:
    given, corpus = tmp_path / "corpus.json", tmp_path / "corpus.jsonl"
    given.write_text(json.dumps([entry]))
    assert convert_passages(given, corpus) == 1
    for path in (given, corpus):
        (document,) = iterate_documents(path)
        assert (document.id, document.title, document.text) == expected
