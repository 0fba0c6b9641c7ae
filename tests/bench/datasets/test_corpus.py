"""Corpora: passages in a file, pages of documents, folders of whole documents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colligate.bench.datasets import Corpus, documents_of
from colligate.bench.datasets.corpus import reading
from colligate.bench.question import Candidate, Question
from colligate.errors import ColligateError, FaultyRecord, MissingPath, ReadingError, UsageError

ENGLISH = "The company reported its earnings for the second quarter of the year. " * 3
MARKDOWN = f"# Report\n\n{ENGLISH}\n\n## Cash\n\n{ENGLISH}\n"


def corpus_of(path: Path, *entries: dict[str, Any], packed: bool = True) -> Corpus:
    file = path / ("c.corpus.jsonl.gz" if packed else "c.jsonl")
    data = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    file.write_bytes(gzip.compress(data) if packed else data)
    return Corpus(file)


def question_over(*documents: Candidate) -> Question:
    return Question("q1", "What?", documents=documents)


@pytest.mark.parametrize("packed", [False, True])
def test_passages_and_looking_one_up(tmp_path: Path, packed: bool) -> None:
    entries = [{"id": f"p{n}", "title": f"T{n}", "text": f"{ENGLISH} {n}"} for n in range(30)]
    corpus = corpus_of(tmp_path, *entries, packed=packed)
    found = list(corpus.passages())
    assert [(d.id, d.title, d.text) for d in found] == [
        (e["id"], e["title"], e["text"]) for e in entries
    ]
    assert {document.language for document in found} == {"en"}
    looked_up = corpus.texts(["p29", "nowhere", "p3"])
    assert list(looked_up) == ["p29", "p3"]
    assert looked_up["p3"].text == f"{ENGLISH} 3"


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
    (document,) = corpus_of(tmp_path, entry).passages()
    assert (document.id, document.title, document.text) == ("7", title, text)


def test_an_entry_without_any_text_is_passed_over(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"id": "1", "text": " "}, {"id": "2", "text": ENGLISH})
    assert [document.id for document in corpus.passages()] == ["2"]


def test_a_beir_folder(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "T", "text": "Text."}\n')
    (tmp_path / "queries.jsonl").write_text("")
    corpus = Corpus(tmp_path)
    assert [document.id for document in corpus.passages()] == ["d1"]
    assert corpus.texts(["d1"])["d1"].text == "Text."


def test_pages_are_one_document(tmp_path: Path) -> None:
    pages = [{"id": f"fb:10K#p{n}", "title": f"page {n}", "text": f"Page {n}."} for n in (0, 2)]
    other = {"id": "fb:8K#p0", "title": "", "text": "Another."}
    corpus = corpus_of(tmp_path, *pages, other)
    first, second = corpus.passages()
    assert (first.id, first.title, second.id) == ("fb:10K", "10K", "fb:8K")
    assert [page.number for page in first.pages] == [1, 3]  # counted from 1, page 2 is blank
    assert [first.text[page.start : page.end] for page in first.pages] == ["Page 0.", "Page 2."]
    (document,) = documents_of(question_over(Candidate("fb:10K")), corpus)
    assert document == corpus.texts(["fb:10K"])["fb:10K"]
    assert document.text == first.text


@pytest.mark.parametrize("entry", [{"id": "paper.md"}, {"id": "wiki:P", "file": "pages/P.md"}])
def test_markdown_has_its_headings(tmp_path: Path, entry: dict[str, str]) -> None:
    corpus = corpus_of(tmp_path, {**entry, "title": "P", "text": MARKDOWN})
    (document,) = corpus.texts([entry["id"]]).values()
    assert [s.title for s in document.tree.sections if not s.synthetic] == ["Report", "Cash"]


def test_only_whole_texts_are_looked_at_for_headings(tmp_path: Path) -> None:
    text = f"1. Business\n\n{ENGLISH}\n\n2. Risks\n\n{ENGLISH}\n\n3. Cash\n\n{ENGLISH}\n"
    corpus = corpus_of(tmp_path, {"id": "p1", "text": text}, {"id": "report.txt", "text": text})
    passage, report = corpus.passages()
    assert passage.tree.sections == ()
    assert [section.title for section in report.tree.sections][-1] == "3. Cash"


def test_documents_come_in_the_question_s_order(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path, {"id": "a", "text": f"A. {ENGLISH}"}, {"id": "b", "text": f"B. {ENGLISH}"}
    )
    question = question_over(Candidate("b"), Candidate("own", "Own", ENGLISH), Candidate("a"))
    documents = documents_of(question, corpus)
    assert [document.id for document in documents] == ["b", "own", "a"]
    assert documents[1].title == "Own"
    assert documents[1].slice(documents[1].tree.root.span) == ENGLISH


def test_a_document_that_is_nowhere(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"id": "a", "text": "A."})
    question = question_over(Candidate("a"), Candidate("gone"), Candidate("too"))
    with pytest.raises(
        FaultyRecord, match=r"question q1: its document 'gone' \(and 1 more\) .*c\."
    ):
        documents_of(question, corpus)
    with pytest.raises(FaultyRecord, match="there is no corpus"):
        documents_of(question)


@pytest.mark.parametrize(
    "ids",
    [
        ("a", "a"),
        ("a", "b", "a"),
        ("a#p0", "a#p0"),
        ("a#p0", "b", "a#p1"),
        ("a#p0", "a"),
    ],
)
def test_no_text_is_lost_to_another_of_its_id(tmp_path: Path, ids: Sequence[str]) -> None:
    corpus = corpus_of(tmp_path, *({"id": id_, "text": f"{n}."} for n, id_ in enumerate(ids)))
    for read in (lambda: list(corpus.passages()), lambda: corpus.texts(["a"])):
        with pytest.raises(FaultyRecord, match=r"the document 'a' of .*c\..*in two places"):
            read()


def test_a_wrong_entry_is_told_with_its_line(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"id": "a", "text": "A."}, {"text": "no id"})
    with pytest.raises(FaultyRecord, match=r"line 2 of .*field '_id'|line 2 of .*field 'id'"):
        list(corpus.passages())
    with pytest.raises(MissingPath):
        Corpus(tmp_path / "none.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "leases/a.md": MARKDOWN,
        "leases/b.txt": ENGLISH,
        "old/b.txt": f"Old. {ENGLISH}",
        "notes.md": f"# Notes\n\n{ENGLISH}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["leases/a.md", "a.md", "a", "leases/a"])
def test_a_file_is_found_by_its_path_or_name(folder: Path, name: str) -> None:
    (document,) = documents_of(question_over(Candidate(name)), Corpus(folder))
    assert document.id == document.tree.root.span.document_id == name
    assert document.text == MARKDOWN
    assert document.slice(document.tree.sections[0].span).startswith("# Report")


def test_a_file_that_was_read_once_is_kept(folder: Path) -> None:
    corpus = Corpus(folder)
    before = corpus.texts(["notes"])
    (folder / "notes.md").unlink()
    assert corpus.texts(["notes"]) == before


def test_a_name_of_two_files_needs_its_folder(folder: Path) -> None:
    corpus = Corpus(folder)
    with pytest.raises(UsageError, match=r"leases/b\.txt and old/b\.txt are called so"):
        corpus.texts(["b.txt"])
    assert corpus.texts(["old/b.txt"])["old/b.txt"].text.startswith("Old.")


def test_a_file_of_a_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(MARKDOWN)
    (tmp_path / "b.md").write_text("  ")
    (tmp_path / "c.md").write_text(MARKDOWN)
    told: list[ColligateError] = []
    assert _ids(list(Corpus(tmp_path).passages(told.append))) == ["a.md", "c.md"]
    assert [str(error) for error in told if "b.md" in str(error)]
    with pytest.raises(ReadingError):
        list(Corpus(tmp_path).passages())


def _ids(documents: Sequence[Any]) -> list[str]:
    return [document.id for document in documents]


def test_what_a_library_takes_in(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"id": "a", "text": ENGLISH}, {"id": "b", "text": ENGLISH})
    assert _ids(reading(corpus.path).documents) == ["a", "b"]
    (tmp_path / "lease.md").write_text(MARKDOWN)
    (document,) = reading(tmp_path / "lease.md").documents
    assert (document.id, document.text) == ("lease.md", MARKDOWN)
