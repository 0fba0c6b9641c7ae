"""Load questions, their documents, and the measures of evidence for their answers.

`load` reads one of `SUITES` from a data folder: the documents as `Document`s with trees, and for
each question the documents that may be read and a `Gold` that measures evidence. The folder is not
part of this project.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from colligate.documents import Document, Page, Passage, Span
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import read_file
from colligate.documents.reading.text import text_tree
from colligate.lab.bench.metrics.answers import normalise_squad

Record = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Shown:
    """Hold a reader's evidence: the whole text, and the spans of documents in it."""

    text: str
    passages: Sequence[Passage]


class Gold(Protocol):
    """Measure the evidence of a question."""

    def __call__(self, shown: Shown) -> dict[str, float]:
        """Return measures by name, each in [0, 1], without those that do not apply."""
        ...


@dataclass(frozen=True)
class Question:
    """Hold a question, its documents (none: the pages that a search finds), and its gold."""

    id: str
    text: str
    documents: tuple[str, ...]
    gold: Gold


@dataclass(frozen=True)
class Suite:
    """Hold documents by id, and questions over them."""

    name: str
    documents: Mapping[str, Document]
    questions: Sequence[Question]


def load(name: str, data: Path, limit: int | None = None) -> Suite:
    """Return a suite or a fixed sample of `limit` questions, without documents that none reads."""
    documents, questions = SUITES[name](data, limit)
    if all(question.documents for question in questions):
        read_by = {id_ for question in questions for id_ in question.documents}
        documents = {id_: each for id_, each in documents.items() if id_ in read_by}
    return Suite(name, documents, questions)


# Gold


def split_words(text: str) -> list[str]:
    """Return the runs of letters and digits in lower case, without marks and white space."""
    return re.findall(r"[^\W_]+", text.casefold())


def contains_words(text: str, sought: str) -> bool:
    """Return whether a text contains the words of `sought`, in order ("13" is not in "2013")."""
    return f" {' '.join(split_words(sought))} " in f" {' '.join(split_words(text))} "


def list_figures(text: str) -> list[str]:
    """Return the numbers of a text, as written."""
    return re.findall(r"(?<![\d.,])\d+(?:[.,]\d+)*", text)


@dataclass(frozen=True)
class Answers:
    """Measure whether the evidence contains a string of the answer, and the gold passage."""

    answers: Sequence[str]
    passages: frozenset[str] = frozenset()  # ids of the gold passages, which are documents

    def __call__(self, shown: Shown) -> dict[str, float]:
        plain = normalise_squad(shown.text)
        normalised = [answer for answer in map(normalise_squad, self.answers) if answer]
        measures = {
            "answer": float(any(answer in plain for answer in normalised)),
            "answer in whole words": float(
                any(contains_words(shown.text, a) for a in self.answers)
            ),
        }
        if self.passages:
            measures["gold passage"] = float(
                any(p.document_id in self.passages for p in shown.passages)
            )
        return measures


@dataclass(frozen=True)
class Pages:
    """Measure whether passages are from the evidence's pages, and the share of its words."""

    pages: Sequence[Span]
    evidence: str

    def __call__(self, shown: Shown) -> dict[str, float]:
        there = [
            passage.text[part.start - passage.span.start : part.end - passage.span.start]
            for passage in shown.passages
            for page in self.pages
            if (part := passage.span.intersection(page)) is not None
        ]
        touched = [any(p.span.overlaps(page) for p in shown.passages) for page in self.pages]
        measures = {
            "evidence page": float(any(touched)),
            "all evidence pages": float(all(touched)),
            "evidence words": _share(split_words(self.evidence), split_words("\n".join(there))),
        }
        if sought := list_figures(self.evidence):
            measures["evidence figures"] = _share(sought, list_figures("\n".join(there)))
        return measures


@dataclass(frozen=True)
class Figure:
    """Measure whether a passage of one document contains a figure."""

    figure: str
    document: str

    def __call__(self, shown: Shown) -> dict[str, float]:
        here = [p for p in shown.passages if p.document_id == self.document]
        found = any(self.figure in list_figures(passage.text) for passage in here)
        return {"figure": float(found), "right document": float(bool(here))}


@dataclass(frozen=True)
class Mentions:
    """Measure the share of titles that are in passages of the documents that mention them."""

    pairs: Sequence[tuple[str, str]]  # (document, title of another)

    def __call__(self, shown: Shown) -> dict[str, float]:
        found = [
            any(p.document_id == document and contains_words(p.text, title) for p in shown.passages)
            for document, title in self.pairs
        ]
        return {"mentions": sum(found) / len(found)}


def _share(sought: Iterable[str], found: Iterable[str]) -> float:
    """Return the share of a bag of words that is in another."""
    wanted = Counter(sought)
    return (wanted & Counter(found)).total() / max(1, wanted.total())


# Suites


def _wiki(data: Path, limit: int | None, *, gold_page: bool = False) -> _Loaded:
    """Load Wikipedia pages with headings; the gold is the answer's string."""
    folder = data / "wiki_structured"
    documents = _documents(read_records(folder / "pages.jsonl.gz"), markdown=True)
    questions = [
        Question(
            r["id"],
            r["question"],
            tuple(r["gold_document_ids"]) if gold_page else (),
            Answers(r["answers"]),
        )
        for r in select_some(read_records(folder / "questions_dev.jsonl.gz"), limit)
    ]
    return documents, questions


def _nq20(data: Path, limit: int | None) -> _Loaded:
    """Load 20 passages of 100 words a question, the gold one in the middle."""
    records = select_some(read_records(data / "dev" / "nq20_gold_at_9.jsonl.gz"), limit)
    documents = {
        d["id"]: Document(
            d["id"],
            d["title"],
            d["text"],
            text_tree(d["text"], d["id"], prose=False),
            language="en",
        )
        for record in records
        for d in record["documents"]
    }
    questions = [
        Question(
            r["id"],
            r["question"],
            tuple(d["id"] for d in r["documents"]),
            Answers(r["answers"], frozenset(r["gold_document_ids"])),
        )
        for r in records
    ]
    return documents, questions


def _financebench(data: Path, limit: int | None) -> _Loaded:
    """Load filings as plain text; the gold is the pages and words that support the answer."""
    records = select_some(read_records(data / "dev" / "financebench.jsonl.gz"), limit)
    wanted = {r["meta"]["doc_name"] for r in records}
    by_filing: dict[str, list[tuple[int, str]]] = {}
    for page in read_records(data / "dev" / "financebench.corpus.jsonl.gz"):
        name, number = page["id"].removeprefix("financebench:").rsplit("#p", 1)
        if name in wanted:
            by_filing.setdefault(name, []).append((int(number), page["text"]))
    documents = {name: _filing(name, sorted(pages)) for name, pages in by_filing.items()}
    return documents, [_of_filing(r, documents[r["meta"]["doc_name"]]) for r in records]


def _financebench_pdf(data: Path, limit: int | None) -> _Loaded:
    """Load the same over the filings available as PDF, read as for a user."""
    paths = {path.stem: path for path in (data / "pdf").glob("*.pdf")}
    records = [
        r
        for r in read_records(data / "dev" / "financebench.jsonl.gz")
        if r["meta"]["doc_name"] in paths
    ]
    records = select_some(records, limit)
    names = dict.fromkeys(r["meta"]["doc_name"] for r in records)
    read_ones = {name: read_file(paths[name]).documents[0] for name in names}
    questions = [_of_filing(r, read_ones[r["meta"]["doc_name"]]) for r in records]
    return {document.id: document for document in read_ones.values()}, questions


def _filing(name: str, pages: Sequence[tuple[int, str]]) -> Document:
    ranges, parts, start = [], [], 0
    for number, text in pages:
        ranges.append(Page(number + 1, start, start + len(text)))
        parts.append(text)
        start += len(text) + 2
    whole = "\n\n".join(parts)
    return Document(name, name, whole, text_tree(whole, name), tuple(ranges), language="en")


def _of_filing(record: Record, document: Document) -> Question:
    numbers = {number + 1 for number in record["meta"]["evidence_pages"]}
    pages = [document.span(p.start, p.end) for p in document.pages if p.number in numbers]
    evidence = "\n".join(record["meta"]["evidence_text"])
    return Question(record["id"], record["question"], (document.id,), Pages(pages, evidence))


def _loong(data: Path, limit: int | None) -> _Loaded:
    """Load several long financial reports a question; the gold is the answer's figure.

    Only level 1 of the financial records has an answer that is in one place. If the question asks
    for the company, a passage of that company's report must contain the question's figure.
    """
    records = [
        r
        for r in read_records(data / "dev" / "loong_en.jsonl.gz")
        if (r["meta"]["type"], r["meta"]["level"]) == ("financial", 1)
    ]
    records = select_some(records, limit)
    questions = []
    for record in records:
        asked, answer = record["question"], record["answers"][0]
        by_company = not list_figures(answer)
        figure = list_figures(asked.rpartition("$")[2] if by_company else answer)[0]
        named = answer if by_company else asked
        gold = next(d for d in record["documents"] if d["title"].lower() in named.lower())
        ids = tuple(d["id"] for d in record["documents"])
        questions.append(Question(record["id"], asked, ids, Figure(figure, gold["id"])))
    return load_loong_documents(data, _read_by(questions)), questions


def _loong_papers(data: Path, limit: int | None) -> _Loaded:
    """Load about eleven papers a question: which cites which, by titles in their texts."""
    records = [
        r
        for r in read_records(data / "dev" / "loong_en.jsonl.gz")
        if (r["meta"]["type"], r["meta"]["level"]) == ("paper", 3)
    ]
    texts = {r["id"]: r for r in read_records(data / "dev" / "loong_en.corpus.jsonl.gz")}
    questions = []
    for record in records:
        asked = record["question"].lstrip("# ").strip()
        titles = {d["id"]: d["title"] for d in record["documents"]}
        own = [id_ for id_, title in titles.items() if split_words(title) == split_words(asked)]
        if not own:
            continue
        others = {id_: title for id_, title in titles.items() if id_ != own[0]}
        pairs = [(own[0], title) for title in others.values()]
        pairs += [(id_, asked) for id_ in others]
        pairs = [pair for pair in pairs if contains_words(texts[pair[0]]["text"], pair[1])]
        if pairs:
            text = f'Which of these papers does "{asked}" cite, and which of them cite it?'
            questions.append(Question(record["id"], text, tuple(titles), Mentions(pairs)))
        if len(questions) == limit:
            break
    return load_loong_documents(data, _read_by(questions)), questions


def _read_by(questions: Sequence[Question]) -> set[str]:
    return {id_ for question in questions for id_ in question.documents}


def load_loong_documents(data: Path, wanted: Collection[str]) -> dict[str, Document]:
    """Return papers and reports of Loong by their ids."""
    records = read_records(data / "dev" / "loong_en.corpus.jsonl.gz")
    papers = [r for r in records if r["id"] in wanted and r["id"].endswith(".md")]
    reports = [r for r in records if r["id"] in wanted and not r["id"].endswith(".md")]
    return {**_documents(papers, markdown=True), **_documents(reports, markdown=False)}


def _documents(records: Sequence[Record], *, markdown: bool) -> dict[str, Document]:
    grow = markdown_tree if markdown else text_tree
    return {
        r["id"]: Document(r["id"], r["title"], r["text"], grow(r["text"], r["id"]), language="en")
        for r in records
    }


def select_some(records: list[T], limit: int | None, offset: int = 0) -> list[T]:
    """Return all records or a fixed random sample: neighbours are often about one document."""
    if limit is None and not offset:
        return records
    return random.Random(1).sample(records, len(records))[offset:][:limit]


def read_records(path: Path) -> list[Record]:
    """Return the records of a compressed file, one a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


_Loaded = tuple[dict[str, Document], list[Question]]

SUITES: Mapping[str, Callable[[Path, int | None], _Loaded]] = {
    "wiki": _wiki,
    "wiki-page": lambda data, limit: _wiki(data, limit, gold_page=True),
    "nq20": _nq20,
    "financebench": _financebench,
    "financebench-pdf": _financebench_pdf,
    "loong": _loong,
    "loong-papers": _loong_papers,
}
