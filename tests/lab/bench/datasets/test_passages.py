"""Corpora: passages in a file, pages of documents, folders of whole documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from colligate.documents import Document
from colligate.errors import ColligateError, FaultyRecord, MissingPath, ReadingError
from colligate.lab.bench.datasets.passages import (
    Passages,
    iterate_documents,
    load_documents,
    read_corpus_file,
)
from colligate.lab.bench.question import Candidate, Question

ENGLISH = "The company reported its earnings for the second quarter of the year. " * 3
MARKDOWN = f"# Report\n\n{ENGLISH}\n\n## Cash\n\n{ENGLISH}\n"


def passages(path: Path, *entries: dict[str, Any], packed: bool = True) -> Passages:
    file = path / ("c.corpus.jsonl.gz" if packed else "c.jsonl")
    data = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    file.write_bytes(gzip.compress(data) if packed else data)
    return Passages.read(file)


def every(of: Passages) -> list[Document]:
    return list(iterate_documents(of.path))


def question_over(*documents: Candidate) -> Question:
    return Question("q1", "What?", documents=documents)


@pytest.mark.parametrize("packed", [False, True])
def test_all_passages_and_looking_one_up(tmp_path: Path, packed: bool) -> None:
    entries = [{"id": f"p{n}", "title": f"T{n}", "text": f"{ENGLISH} {n}"} for n in range(30)]
    corpus = passages(tmp_path, *entries, packed=packed)
    found = every(corpus)
    assert [(d.id, d.title, d.text) for d in found] == [tuple(e.values()) for e in entries]
    assert {document.language for document in found} == {"en"}
    looked_up = load_documents(question_over(Candidate("p29"), Candidate("p3")), corpus)
    assert [(d.id, d.text) for d in looked_up] == [("p29", f"{ENGLISH} 29"), ("p3", f"{ENGLISH} 3")]
    assert list(read_corpus_file(corpus.path).documents) == found


@pytest.mark.parametrize(
    ("entry", "title", "text"),
    [
        ({"id": 7, "contents": '"Emma"\nA novel.\nOf 1815.'}, "Emma", "A novel.\nOf 1815."),
        ({"id": 7, "contents": "One line alone."}, "7", "One line alone."),
        ({"_id": "7", "title": "Emma", "text": "A novel.", "metadata": {}}, "Emma", "A novel."),
        ({"_id": "7", "title": "Emma", "text": ""}, "Emma", "Emma"),
        ({"id": "7", "title": None, "text": "A novel."}, "7", "A novel."),
    ],
)
def test_the_forms_of_an_entry(
    tmp_path: Path, entry: dict[str, Any], title: str, text: str
) -> None:
    (document,) = every(passages(tmp_path, {"id": "blank", "text": " "}, entry))
    assert (document.id, document.title, document.text) == ("7", title, text)


def test_pages_are_one_document(tmp_path: Path) -> None:
    pages = [{"id": f"fb:10K#p{n}", "title": f"page {n}", "text": f"Page {n}."} for n in (0, 2)]
    other = {"id": "fb:8K#p0", "title": "", "text": "Another."}
    corpus = passages(tmp_path, *pages, other)
    first, second = every(corpus)
    assert (first.id, first.title, second.id) == ("fb:10K", "10K", "fb:8K")
    assert [page.number for page in first.pages] == [1, 3]  # counted from 1, page 2 is blank
    assert [first.text[page.start : page.end] for page in first.pages] == ["Page 0.", "Page 2."]
    (document,) = load_documents(question_over(Candidate("fb:10K")), corpus)
    assert (document.id, document.text) == (first.id, first.text)


def test_a_document_that_is_nowhere(tmp_path: Path) -> None:
    corpus = passages(tmp_path, {"id": "a", "text": "A."})
    question = question_over(Candidate("a"), Candidate("gone"), Candidate("too"))
    with pytest.raises(
        FaultyRecord, match=r"question q1: its document 'gone' \(and 1 more\) .*c\."
    ):
        load_documents(question, corpus)
    with pytest.raises(FaultyRecord, match="there is no corpus"):
        load_documents(question)


def test_a_wrong_entry_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(FaultyRecord, match=r"line 2 of .*field '_id'|line 2 of .*field 'id'"):
        passages(tmp_path, {"id": "a", "text": "A."}, {"text": "no id"})
    with pytest.raises(MissingPath):
        Passages.read(tmp_path / "none.jsonl")


def test_a_file_of_a_folder_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    for name, text in (("a.md", MARKDOWN), ("b.md", "  "), ("c.md", MARKDOWN)):
        (tmp_path / name).write_text(text)
    told: list[ColligateError] = []
    first, second = iterate_documents(tmp_path, told.append)
    assert (first.id, first.text, second.id) == ("a.md", MARKDOWN, "c.md")
    assert first.slice(first.tree.sections[0].span).startswith("# Report")
    assert [str(error) for error in told if "b.md" in str(error)]
    with pytest.raises(ReadingError):
        list(iterate_documents(tmp_path))
