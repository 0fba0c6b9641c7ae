"""The report on a run: one page to look at, and the same as Markdown.

The page is one file that opens from a disk and fetches nothing: style, script, figures and answers
are in it.
"""

from __future__ import annotations

import json
import math
import os
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined

from colligate import __version__
from colligate.core.events import pluralize
from colligate.errors import ColligateError
from colligate.lab.bench.figures import (
    ReportFigure,
    can_draw,
    make_difference_figure,
    make_figures,
)
from colligate.lab.bench.outcome import Piece, Row
from colligate.lab.bench.tables import (
    RunResults,
    TextTable,
    Verdict,
    classify,
    format_interval,
    format_number,
    make_measure_tables,
)


def write_report(directory: Path, out: Path | None = None) -> tuple[Path, Path]:
    """Write the report on the run in a folder as HTML and as Markdown, and return their paths.

    They are `report.html` and `report.md` in the run's folder, or in the folder `out`, or have the
    name `out` with these endings.

    Raises:
        MissingPath: there is no run there.
        ColligateError: a file of the run cannot be read, or the report cannot be written.
    """
    out = directory if out is None else out
    named = out / "report.html" if out.is_dir() else out
    stem = named.stem if named.suffix in (".html", ".md") else named.name
    html, md = named.with_name(f"{stem}.html"), named.with_name(f"{stem}.md")
    results = RunResults(directory)
    parts = make_parts(results)
    for file, content in (
        (html, render_page(results, parts, html)),
        (md, render_markdown(results, parts)),
    ):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Half a surrogate pair, which a model can write, has no bytes; other programs do not
            # take a file with a NUL for text.
            text = content.replace("\0", "\N{REPLACEMENT CHARACTER}")
            file.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            why = error.strerror or str(error)
            raise ColligateError(f"cannot write {file}", why, "name another --out") from error
    return html, md


def make_parts(results: RunResults) -> Mapping[str, Any]:
    """Return the parts of a report, made once for the page and the Markdown."""
    return {
        "facts": _make_facts(results),
        "remarks": tuple(_make_remarks(results)),
        "measures": make_measure_tables(results),
        "differences": make_difference_figure(results),
        "figures": make_figures(results),
        "verdicts": _make_verdicts(results),
        "failures": _make_failures(results),
        "made_with": _make_provenance(results),
    }


# What was run, and with what


def _make_facts(results: RunResults) -> Sequence[tuple[str, str, str]]:
    """Return the name of each number, the number, and a remark below it."""
    rows, made = results.rows, results.provenance
    failed = sum(bool(row.error) for row in rows)
    usage = [row.outcome.usage for row in rows]
    into, out, calls = (
        sum(int(each.get(name) or 0) for each in usage)
        for name in ("input_tokens", "output_tokens", "calls")
    )
    prices = [each.get("cost_usd") for each in usage]
    dollars = format_number(sum(float(price) for price in prices if price is not None))
    reader = made.models["reader"].name if "reader" in made.models else "none"
    questions = f"of {pluralize(len(results.datasets), 'data set')}, seed {made.seed}"
    share = format_number(100 * failed / max(1, len(rows)), 1)
    return (
        ("Questions", f"{len({row.key[:2] for row in rows}):,}", questions),
        ("Strategies", str(len(results.methods)), pluralize(len(rows), "answer")),
        ("Failed", f"{failed:,}", f"{share} % of the answers"),
        ("Reader", reader, ""),
        ("Tokens", f"{into + out:,}", f"{into:,} in, {out:,} out"),
        ("Calls", f"{calls:,}", f"{dollars} USD{' and more' if None in prices else ''}"),
    )


_FEW = 30  # below it the percentiles of a bootstrap are too narrow


def _make_remarks(results: RunResults) -> Iterator[str]:
    """Yield what a reader of the numbers must know first."""
    asked = Counter(dataset for dataset, _ in {row.key[:2] for row in results.rows})
    wanted = {**asked, **results.provenance.questions}
    due = sum(wanted.values()) * len(results.methods)
    if not results.rows:
        yield "No question has been answered yet."
    elif len(results.rows) < due:
        missing = due - len(results.rows)
        yield (
            f"The run is not complete: {missing:,} of {due:,} answers are missing, so some means "
            "are over fewer questions than others."
        )
    if unmeasured := sum(bool(row.unmeasured) for row in results.rows):
        yield (
            f"{unmeasured:,} answers could not be measured in every way; they are left out of the "
            "means that need it, and tell why below."
        )
    if (few := min(asked.values(), default=_FEW)) < _FEW:
        yield (
            f"Some data sets have as few as {pluralize(few, 'question')}. Intervals and stars "
            "of so few tell little about questions that were not asked."
        )
    if not can_draw():
        yield "Without figures: matplotlib is not installed (pip install 'colligate[bench]')."


VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.RIGHT: ("#a5d8c6", "the right answer, or a refusal where the documents hold no answer"),
    Verdict.PARTLY: ("#d5e7bf", "some of what was asked for"),
    Verdict.ANSWERED: ("#dedbd3", "answered; no metric of this run decides how well"),
    Verdict.WRONG: ("#f3b9a3", "another answer than the right one"),
    Verdict.REFUSED: ("#f0dc9f", "no answer, although the documents hold it"),
    Verdict.FAILED: ("#d2bddd", "an error; counts as wrong everywhere"),
}
"""The colour and the meaning of each verdict."""


def _make_verdicts(results: RunResults) -> ReportFigure:
    """Return how many answers of each verdict a strategy has; the page draws them itself."""
    counted = results.verdicts
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    rows = [(each.label, [counted[each.name][kind] for kind in kinds]) for each in results.methods]
    body = [(label, *(f"{count:,}" for count in row), f"{sum(row):,}") for label, row in rows]
    head = ("strategy", *kinds, "answers")
    return ReportFigure("What became of the answers", numbers=(head, *body))


def _make_failures(results: RunResults) -> TextTable:
    """Return why answers failed, the most frequent first, each with one whole error."""
    found: dict[tuple[str, str], list[str]] = {}
    labels = {each.name: each.label for each in results.methods}
    for row in results.rows:
        if row.error:
            # What happened, without why: an error's line is "what: why; hint".
            what = re.split(": |; ", row.error, maxsplit=1)[0].strip()
            found.setdefault((what[:80], labels[row.strategy]), []).append(row.error)
    most = sorted(found.items(), key=lambda each: -len(each[1]))
    body = [(*key, f"{len(errors):,}", errors[0]) for key, errors in most]
    return (("what", "strategy", "times", "an example"), *body) if body else ()


def _make_provenance(results: RunResults) -> Mapping[str, TextTable]:
    """Return all that the numbers can be reproduced with, as tables of names and values."""
    made = results.provenance
    run = {"suite": made.suite, "seed": made.seed, "questions": made.questions, **made.settings}
    parts: dict[str, Mapping[str, Any]] = {
        "The run": run,
        "Models": {role: vars(record) for role, record in made.models.items()},
        "Strategies": {
            each.label: {"strategy": each.strategy, "set": each.set or "its defaults"}
            for each in results.methods
        },
        "Sessions": {f"{at}": vars(each) for at, each in enumerate(made.sessions, 1)},
        "Versions": made.versions,
        "Prompts, SHA-256 of the source that writes them": made.prompts,
        "Data, SHA-256": made.data,
    }
    return {
        title: [(name, _format_value(value)) for name, value in part.items()]
        for title, part in parts.items()
        if part
    }


def _format_value(value: Any) -> str:
    """Return a setting as a person reads it, without what is empty."""
    if isinstance(value, Mapping):
        kept = {name: each for name, each in value.items() if each not in (None, "", [], {}, ())}
        return ", ".join(f"{name}: {_format_value(each)}" for name, each in kept.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value))
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# The page


def render_page(results: RunResults, parts: Mapping[str, Any], beside: Path) -> str:
    """Return the whole page; links to traces are those of a page at the path `beside`.

    The template escapes every text of a document, a model or a person, or the script inserts it as
    text.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["data_uri"] = lambda svg: (
        f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
    )
    return environment.from_string(_read_own("page.html.j2")).render(
        report=parts,
        suite=results.suite,
        table=results.table,
        questions=collect_answers(results, beside),
        format_number=format_number,
        format_interval=format_interval,
        kinds=VERDICTS,
        css=_read_own("page.css"),
        js=_read_own("page.js"),
        version=__version__,
    )


def _read_own(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


# The answers to read in the page

MOST_CHARACTERS = 6_000_000
"""How much of questions and answers goes into a page that a browser still opens at once."""

_PIECES, _PIECE, _ANSWER = 12, 900, 6_000


def collect_answers(results: RunResults, beside: Path) -> Mapping[str, Any]:
    """Return how many of all questions are shown, and `data`: JSON that a script element can hold.

    Of more than a page can hold a sample is taken: failed ones first, then the same ones each time,
    from all data sets alike.
    """
    by_question: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        by_question.setdefault(row.key[:2], []).append(row)
    place = {method.name: number for number, method in enumerate(results.methods)}
    deciding = {dataset: results.deciding_metric(dataset) for dataset in results.datasets}

    def order(key: tuple[str, str]) -> tuple[bool, str]:
        chance = sha256("\0".join(key).encode(errors="replace")).hexdigest()
        return not any(row.error for row in by_question[key]), chance

    taken: dict[tuple[str, str], dict[str, Any]] = {}
    size = 0
    for key in sorted(by_question, key=order):
        rows = sorted(by_question[key], key=lambda row: place[row.strategy])
        entry = _make_entry(rows, place, deciding[key[0]], results.directory, beside)
        size += len(json.dumps(entry, ensure_ascii=False))
        if size > MOST_CHARACTERS:
            break
        taken[key] = entry
    whole = {
        "methods": [each.label for each in results.methods],
        "verdicts": [each.value for each in Verdict],
        "questions": [taken[key] for key in by_question if key in taken],
    }
    # No text in the JSON can end the script element, or begin a comment in it.
    data = json.dumps(whole, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return {"data": data, "shown": len(taken), "total": len(by_question)}


def _make_entry(
    rows: Sequence[Row], place: Mapping[str, int], metric: str, directory: Path, beside: Path
) -> dict[str, Any]:
    first = rows[0]
    pieces: dict[Piece, int] = {}

    def number(piece: Piece) -> int:
        """Return the place of a piece among those of the question: strategies share many."""
        return pieces.setdefault(replace(piece, answer_spans=()), len(pieces))

    answers = [
        {
            "m": place[row.strategy],
            "v": list(Verdict).index(classify(row, metric)),
            "trace": _link(directory, row.trace, beside) if row.trace else "",
            **_make_answer(row, number),
        }
        for row in rows
    ]
    return {
        "dataset": first.dataset,
        "id": first.question,
        "text": _cut(first.question_text, (), _ANSWER),
        "gold": list(first.answers[:20]),
        "answerable": first.answerable,
        "pieces": [
            {"title": p.title or p.document, "text": _cut(p.text, first.answers, _PIECE)}
            for p in pieces
        ],
        "answers": answers,
    }


def _make_answer(row: Row, number: Callable[[Piece], int]) -> dict[str, Any]:
    outcome = row.outcome
    return {
        "text": _cut(outcome.text, row.answers, _ANSWER),
        "short": outcome.short,
        "citations": [number(piece) for piece in outcome.citations],
        "evidence": [number(piece) for piece in outcome.evidence[:_PIECES]],
        "unshown": max(0, len(outcome.evidence) - _PIECES),
        "metrics": {n: format_number(v) for n, v in row.metrics.items() if math.isfinite(v)},
        "unmeasured": dict(row.unmeasured),
        "warnings": list(outcome.warnings[:20]),
        "error": outcome.error,
    }


def _cut(text: str, answers: Sequence[str], length: int) -> str:
    """Return a text; of a long one the part that has an answer, or its beginning."""
    if len(text) <= length:
        return text
    folded = text.casefold()
    at = min((p for a in answers if a and (p := folded.find(a.casefold())) >= 0), default=0)
    start = max(0, min(at - length // 3, len(text) - length))
    end = start + length
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _link(directory: Path, trace: str, beside: Path) -> str:
    """Return the address of a trace from the page; "" for a path that leads out of the run."""
    file = (directory / trace).resolve()
    if not file.is_relative_to(directory.resolve()):
        return ""
    try:
        return quote(Path(os.path.relpath(file, beside.parent.resolve())).as_posix())
    except ValueError:
        return file.as_uri()  # there is no relative path to another drive


# The same as Markdown, for a repository: without drawings, and without the answers to read


def render_markdown(results: RunResults, parts: Mapping[str, Any]) -> str:
    """Return the report as Markdown; what documents, models and people wrote is escaped."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)
    environment.filters["md"] = escape_markdown
    figures = (parts["differences"], *parts["figures"], parts["verdicts"])
    text = environment.from_string(_read_own("page.md.j2")).render(
        report=parts,
        suite=results.suite,
        table=results.table,
        figures=[each for each in figures if each],
        format_number=format_number,
        format_interval=format_interval,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def escape_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))
