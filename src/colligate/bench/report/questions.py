"""The answers to read in the page: what was asked, right, answered, cited, shown, and its cost."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from colligate.bench.outcome import Piece
from colligate.bench.report.contents import Contents
from colligate.bench.report.numbers import said
from colligate.bench.report.verdicts import Verdict, verdict
from colligate.bench.rows import Row

MOST_CHARACTERS = 6_000_000
"""How much of questions and answers goes into a page; a browser opens it at once."""

_PIECES, _PIECE, _ANSWER = 12, 900, 6_000


@dataclass(frozen=True)
class Readable:
    """What the page reads: `data` as JSON that a script element can hold, `shown` of `total`
    questions.
    """

    data: str
    shown: int
    total: int


def readable(contents: Contents, beside: Path) -> Readable:
    """The questions with all their answers, for a page that will stand at `beside`.

    Where there are more than a page can hold, a sample of them: the same each time, the data sets
    alike, those that failed first up to a third.
    """
    by_question: dict[tuple[str, str], list[Row]] = {}
    for row in contents.rows:
        by_question.setdefault((row.dataset, row.question), []).append(row)
    place = {name: number for number, name in enumerate(each.name for each in contents.methods)}
    deciding = {dataset: contents.deciding(dataset) for dataset in contents.datasets}
    taken: dict[tuple[str, str], dict[str, Any]] = {}
    size, failed_size = 0, 0
    for key, failed in _in_turn(by_question):
        rows = sorted(by_question[key], key=lambda row: place[row.strategy])
        entry = _entry(rows, place, deciding[key[0]], contents.directory, beside)
        length = len(json.dumps(entry, ensure_ascii=False))
        if size + length > MOST_CHARACTERS:
            break
        if failed and failed_size + length > MOST_CHARACTERS / 3:
            continue
        taken[key] = entry
        size += length
        failed_size += length if failed else 0
    whole = {
        "methods": [each.label or each.name for each in contents.methods],
        "verdicts": [each.value for each in Verdict],
        "questions": [taken[key] for key in by_question if key in taken],
    }
    return Readable(_for_script(whole), len(taken), len(by_question))


def _in_turn(
    by_question: dict[tuple[str, str], list[Row]],
) -> Iterator[tuple[tuple[str, str], bool]]:
    """The keys in the order in which they are taken, and whether one of its answers failed."""

    def chance(key: tuple[str, str]) -> str:
        return sha256("\0".join(key).encode(errors="replace")).hexdigest()

    broken = {key for key, rows in by_question.items() if any(row.outcome.error for row in rows)}
    yield from ((key, True) for key in sorted(broken, key=chance))
    yield from ((key, False) for key in sorted(by_question, key=chance) if key not in broken)


def _entry(
    rows: Sequence[Row], place: dict[str, int], metric: str, directory: Path, beside: Path
) -> dict[str, Any]:
    first = rows[0]
    pieces: list[dict[str, str]] = []
    known: dict[tuple[str, int, int, str], int] = {}

    def number(piece: Piece) -> int:
        """The place of a piece among those of the question: strategies share many."""
        key = (piece.document, piece.start, piece.end, piece.text)
        if key not in known:
            known[key] = len(pieces)
            text = _around(piece.text, first.answers, _PIECE)
            pieces.append({"title": piece.title or piece.document, "text": text})
        return known[key]

    answers = [_answer(row, place, metric, number, directory, beside) for row in rows]
    return {
        "dataset": first.dataset,
        "id": first.question,
        "text": _around(first.question_text, (), _ANSWER),
        "gold": list(first.answers[:20]),
        "answerable": first.answerable,
        "pieces": pieces,
        "answers": answers,
    }


def _answer(
    row: Row, place: dict[str, int], metric: str, number: Any, directory: Path, beside: Path
) -> dict[str, Any]:
    outcome, usage = row.outcome, row.outcome.usage
    dollars = usage.get("cost_usd")
    cost = {
        "calls": said(float(usage.get("calls") or 0), 0),
        "tokens in": said(float(usage.get("input_tokens") or 0), 0),
        "tokens out": said(float(usage.get("output_tokens") or 0), 0),
        "seconds": "" if usage.get("remembered") else said(outcome.seconds),
        "USD": said(dollars) if isinstance(dollars, int | float) else "",
    }
    return {
        "m": place[row.strategy],
        "v": list(Verdict).index(verdict(row, metric)),
        "text": _around(outcome.text, row.answers, _ANSWER),
        "short": outcome.short,
        "citations": [number(piece) for piece in outcome.citations],
        "evidence": [number(piece) for piece in outcome.evidence[:_PIECES]],
        "unshown": max(0, len(outcome.evidence) - _PIECES),
        "metrics": {n: said(v) for n, v in row.metrics.items() if math.isfinite(v)},
        "unmeasured": dict(row.unmeasured),
        "cost": {name: value for name, value in cost.items() if value},
        "warnings": list(outcome.warnings[:20]),
        "error": outcome.error,
        "trace": _link(directory, row.trace, beside) if row.trace else "",
    }


def _around(text: str, answers: Sequence[str], length: int) -> str:
    """A text, or where it is long the part of it that has an answer, else its beginning."""
    if len(text) <= length:
        return text
    folded = text.casefold()
    at = min((p for a in answers if a and (p := folded.find(a.casefold())) >= 0), default=0)
    start = max(0, min(at - length // 3, len(text) - length))
    end = start + length
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _link(directory: Path, trace: str, beside: Path) -> str:
    """The trace from where the page stands; none for a path that leads out of the run."""
    file = (directory / trace).resolve()
    if not file.is_relative_to(directory.resolve()):
        return ""
    try:
        return quote(Path(os.path.relpath(file, beside.parent.resolve())).as_posix())
    except ValueError:
        return file.as_uri()  # another drive has no path from here


def _for_script(value: Any) -> str:
    """JSON that ends no script element and begins no comment in it, whatever its texts say."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
