"""Load questions that need every document, with the fact that they need of each.

Loong's records name documents and an answer, not the part that the answer takes from each document.
Here are those where that part is clear; a fact counts if it is in the document's text.

- `trends`: one company's yearly filings; the answer names a figure for each (Loong's chains of
  financial reports, and a listing). Later filings repeat the figures of the year before.
- `reports`: reports of several companies and one line of each. They are made here from Loong's
  single look-ups: those that ask for the same line of different companies become one question. The
  question is not Loong's; the figures, the reports and the line are.
- `papers`: which of about eleven papers cite one of them, and which it cites: a title is in the
  text of the paper that cites it.
- `extremes`: which of several companies has the highest or lowest figure (Loong's comparisons of
  financial reports). The company is known, and no figure.

Left out: groupings, and figures of fewer than four digits, which a report contains for other things
as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colligate.documents import Document
from evidence_data import (
    Mentions,
    Record,
    contains_words,
    list_figures,
    load,
    load_loong_documents,
    read_records,
    select_some,
    split_words,
)

FEWEST_DIGITS = 4


@dataclass(frozen=True)
class Fact:
    """Name what a question needs of one document: a figure, or a title that it mentions."""

    document: str
    sought: str
    figure: bool = True

    def is_in(self, text: str) -> bool:
        """Return whether a text contains it, the figure as the document writes it."""
        return (
            self.sought in list_figures(text) if self.figure else contains_words(text, self.sought)
        )


@dataclass(frozen=True)
class NeedsAll:
    """Hold a question over documents, and the facts it needs of them, or whose name it asks for."""

    id: str
    text: str
    documents: tuple[str, ...]
    facts: tuple[Fact, ...]
    named: str = ""


def load_questions(
    suite: str, data: Path, limit: int | None = None, offset: int = 0
) -> tuple[dict[str, Document], list[NeedsAll]]:
    """Return the documents of a suite by id, and its questions or a fixed sample of them."""
    questions = select_some(SUITES[suite](data), limit, offset)
    wanted = {id_ for question in questions for id_ in question.documents}
    return load_loong_documents(data, wanted), questions


def _trends(data: Path) -> list[NeedsAll]:
    texts = _texts(data)
    questions = []
    for record in _financial(data, {2, 4}):
        ids = tuple(each["id"] for each in record["documents"])
        facts = tuple(map(Fact, ids, list_figures_in_turn(record["answers"][0], len(ids))))
        if len(facts) == len(ids) and _all_found(facts, texts):
            questions.append(NeedsAll(record["id"], record["question"], ids, facts))
    return questions


def list_figures_in_turn(answer: str, documents: int) -> list[str]:
    """Return the answer's figures in order if there is one for each document, else none."""
    said = re.sub(r"\d[\d.,]*\s*%", " ", answer)
    found = [figure for figure in list_figures(said) if not re.fullmatch(r"(?:19|20)\d\d", figure)]
    return found if len(found) == documents and all(map(_distinct, found)) else []


def _reports(data: Path) -> list[NeedsAll]:
    texts = _texts(data)
    by_line: dict[str, dict[str, tuple[str, Fact]]] = {}
    for record in _financial(data, {1}):
        line, title, fact = parse_single(record)
        if line and _distinct(fact.sought) and _all_found([fact], texts):
            by_line.setdefault(line, {})[fact.document] = (title, fact)
    questions = []
    for line, found in sorted(by_line.items()):
        if len(found) > 1:
            titles, facts = zip(*found.values(), strict=True)
            text = f"State the {line} of each of these companies: {'; '.join(titles)}."
            questions.append(NeedsAll(f"reports: {line}", text, tuple(found), facts))
    return questions


def parse_single(record: Record) -> tuple[str, str, Fact]:
    """Return the line of a report that a look-up asks for, its company, and its figure.

    The line is empty if the form of the question names none.
    """
    asked, answer = record["question"], record["answers"][0]
    by_company = not list_figures(answer)
    figure = list_figures(asked.rpartition("$")[2] if by_company else answer)[0]
    named = answer if by_company else asked
    gold = next(d for d in record["documents"] if d["title"].lower() in named.lower())
    forms = (
        r"name of the company with (?:an? )?(?P<line>[^$]+) of \S*\d",
        r"name of the company with \S+ in (?P<line>[^?]+)",
        rf"wh?at (?:is|are|was|were) the (?P<line>.+) (?:of|for) {re.escape(gold['title'])}",
    )
    matches = (re.search(form, asked, re.IGNORECASE) for form in forms)
    line = next((match["line"] for match in matches if match), "")
    return " ".join(split_words(line)), gold["title"], Fact(gold["id"], figure)


def _extremes(data: Path) -> list[NeedsAll]:
    questions = []
    for record in _financial(data, {2}):
        if re.match(r"which company has the (?:high|low)est", record["question"], re.IGNORECASE):
            ids = tuple(each["id"] for each in record["documents"])
            named = [d["title"] for d in record["documents"] if d["title"] in record["answers"][0]]
            questions.append(NeedsAll(record["id"], record["question"], ids, (), *named))
    return questions


def _papers(data: Path) -> list[NeedsAll]:
    questions = []
    for question in load("loong-papers", data).questions:
        assert isinstance(question.gold, Mentions)
        facts = tuple(Fact(id_, title, figure=False) for id_, title in question.gold.pairs)
        questions.append(NeedsAll(question.id, question.text, question.documents, facts))
    return questions


def _financial(data: Path, levels: set[int]) -> list[Record]:
    return [
        r
        for r in read_records(data / "dev" / "loong_en.jsonl.gz")
        if r["meta"]["type"] == "financial" and r["meta"]["level"] in levels
    ]


def _texts(data: Path) -> dict[str, str]:
    return {r["id"]: r["text"] for r in read_records(data / "dev" / "loong_en.corpus.jsonl.gz")}


def _all_found(facts: Sequence[Fact], texts: Mapping[str, str]) -> bool:
    return all(fact.is_in(texts[fact.document]) for fact in facts)


def _distinct(figure: str) -> bool:
    return sum(map(str.isdigit, figure)) >= FEWEST_DIGITS


SUITES: Mapping[str, Callable[[Path], list[NeedsAll]]] = {
    "trends": _trends,
    "reports": _reports,
    "papers": _papers,
    "extremes": _extremes,
}
