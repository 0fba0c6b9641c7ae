"""Questions and corpora of any format, written in the forms that suites read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from colligate.documents.document import digest
from colligate.errors import FaultyRecord
from colligate.lab.bench.datasets import AUTO, read_questions
from colligate.lab.bench.datasets.passages import find_passages, group_entries
from colligate.lab.bench.datasets.records import JsonObject
from colligate.lab.bench.question import Question, QuestionTask

Write = Callable[[Mapping[str, Any]], object]


def convert_questions(
    path: Path, out: Path, *, format: str = AUTO, corpus: Path | None = None
) -> tuple[int, int]:
    """Write questions in the plain form; return their number, and that of documents written.

    With `corpus` the documents that questions bring are written there, each once. Nothing is
    written if a record is wrong: the errors are those of `read_questions`.
    """
    texts: dict[str, str] = {}  # the digest of each document's text
    count = 0
    with ExitStack() as stack:
        write = stack.enter_context(_write_lines(out))
        write_document = stack.enter_context(_write_lines(corpus)) if corpus else None
        for question in read_questions(path, format):
            record = to_plain(question)
            if write_document:
                _move_texts(record, texts, write_document)
            write(record)
            count += 1
    return count, len(texts)


def convert_passages(path: Path, out: Path) -> int:
    """Write the entries of a corpus as id, title and text; return their number."""
    groups, count = group_entries(find_passages(path)), 0
    with _write_lines(out) as write:
        for entry in (entry for _, group in groups for entry in group):
            named = {"file": entry.file} if entry.file else {}
            write({"id": entry.id, "title": entry.title, "text": entry.text, **named})
            count += 1
    return count


def to_plain(question: Question) -> JsonObject:
    """Return the record of the plain form that is read as this question."""
    pairs = [{"question": r.question, "short_answers": r.answers} for r in question.readings]
    gold = {
        "qa_pairs": pairs,
        "answer_list": question.members,
        "claims": question.claims,
        "long_answers": question.long_answers,
        "gold_texts": question.gold_texts,
        "history": question.history,
        "judged": question.task is QuestionTask.JUDGED,
    }
    meta = {**question.meta, **{name: value for name, value in gold.items() if value}}
    if question.gold_at is not None:
        meta["gold_position"] = question.gold_at
    if not question.answerable:
        meta["answerable"] = False
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "documents": [vars(document).copy() for document in question.documents],
        "gold_document_ids": question.gold,
        "meta": meta,
    }


def _move_texts(record: JsonObject, texts: dict[str, str], write: Write) -> None:
    for document in record["documents"]:
        if not document["text"]:
            continue
        found, known = digest(document["text"]), texts.get(document["id"])
        if known is None:
            write(document)
            texts[document["id"]] = found
        elif known != found:
            what = f"cannot write one corpus: {document['id']!r} has several texts"
            raise FaultyRecord(what, f"another one in question {record['id']}", "leave it out")
        document["text"] = ""


@contextmanager
def _write_lines(path: Path) -> Iterator[Write]:
    """Write JSON Lines, packed if the name ends in .gz; the file appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    packed = path.suffix == ".gz"
    try:
        with gzip.open(part, "wt") if packed else part.open("w", encoding="utf-8") as stream:
            yield lambda record: stream.write(json.dumps(record) + "\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
