"""The formats of data sets by name, and telling one from its first record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from colligate.bench.datasets import (
    alce,
    beir,
    financebench,
    flashrag,
    loong,
    lost_in_the_middle,
    musique,
    own,
    plain,
    two_wiki,
)
from colligate.bench.datasets.hotpotqa import questions
from colligate.bench.datasets.reading import Record, lines
from colligate.bench.question import Question
from colligate.errors import FaultyRecord, MissingPath, UsageError

AUTO = "auto"


@dataclass(frozen=True)
class Format:
    """How a data set is published: what reads it, and by what its records are known."""

    name: str
    about: str
    questions: Callable[[Path], Iterator[Question]]
    fits: Callable[[Record], bool]


def _with(*fields: str) -> Callable[[Record], bool]:
    """Whether a record has these fields."""
    return lambda record: all(field in record for field in fields)


def _is_qampari(record: Record) -> bool:
    answers = record.get("answers")
    return isinstance(answers, list) and bool(answers) and isinstance(answers[0], list)


def _is_own(record: Record) -> bool:
    # Other fields may well be gold that would be passed over; `--format own` takes them.
    return "question" in record and record.keys() <= own.COLUMNS


# In the order in which they are tried.
FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "plain",
            "one uniform form: id, question, answers, documents, gold_document_ids, meta",
            plain.questions,
            _with("question", "answers", "documents", "gold_document_ids"),
        ),
        Format(
            "lost-in-the-middle",
            "NQ with the gold passage at a known place (ctxs)",
            lost_in_the_middle.questions,
            _with("question", "answers", "ctxs"),
        ),
        Format("musique", "MuSiQue-Ans, -Full", musique.questions, _with("question", "paragraphs")),
        Format(
            "2wikimultihopqa",
            "2WikiMultihopQA",
            two_wiki.questions,
            _with("context", "supporting_facts", "evidences"),
        ),
        Format("hotpotqa", "HotpotQA", questions, _with("context", "supporting_facts")),
        Format("asqa", "ASQA in ALCE's form", alce.asqa, _with("question", "qa_pairs")),
        Format("eli5", "ELI5 in ALCE's form", alce.eli5, _with("question", "claims")),
        Format("qampari", "QAMPARI in ALCE's form", alce.qampari, _is_qampari),
        Format("loong", "Loong", loong.questions, _with("prompt_template", "doc")),
        Format("financebench", "FinanceBench", financebench.questions, _with("financebench_id")),
        Format(
            "flashrag",
            "FlashRAG's form (NQ, TriviaQA, PopQA and others)",
            flashrag.questions,
            _with("question", "golden_answers"),
        ),
        Format("beir", "a BEIR folder", beir.questions, lambda record: False),
        Format("own", "your own questions: CSV or JSON Lines", own.questions, _is_own),
    )
}


def read_questions(path: Path, format: str = AUTO) -> Iterator[Question]:
    """The questions of a file or a folder, each with an id of its own.

    Raises:
        UsageError: if there is no such format, or none fits the first record.
        MissingPath: if there is no such file.
        FaultyRecord: if a record is wrong or cut off; it says which.
    """
    return format_of(path, format).questions(path)


def format_of(path: Path, format: str = AUTO) -> Format:
    """The format of that name; with "auto" the one that the first record is of.

    Raises:
        UsageError: if there is no such format, or none fits.
        MissingPath: if there is no such file.
        FaultyRecord: if the first record cannot be read, or there is none.
    """
    if format != AUTO:
        if format not in FORMATS:
            raise UsageError(f"there is no format {format!r}", "", _choice())
        return FORMATS[format]
    if path.is_dir():
        if (path / beir.QUERIES).is_file():
            return FORMATS["beir"]
        raise MissingPath(f"cannot read {path}", f"it has no {beir.QUERIES}", "name a file")
    if path.suffix.lower() in own.TABLES:
        return FORMATS["own"]
    first = next(lines(path), None)
    if first is None:
        raise FaultyRecord(f"cannot read {path}", "it holds no records", "check the path")
    _, record = first
    for each in FORMATS.values():
        if each.fits(record):
            return each
    fields = ", ".join(list(record)[:8])
    raise UsageError(
        f"cannot tell the format of {path}", f"its first record has the fields {fields}", _choice()
    )


def _choice() -> str:
    return f"name one of {', '.join(FORMATS)}"
