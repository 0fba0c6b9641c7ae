"""The report on a run: Markdown for people and repositories, and its figures as SVG files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from colligate.core.events import pluralize
from colligate.errors import ColligateError
from colligate.lab.bench import tables
from colligate.lab.bench.figures import ReportFigure, can_draw, make_figures
from colligate.lab.bench.outcome import Row
from colligate.lab.bench.tables import RunResults, TextTable, Verdict


def write_report(directory: Path, out: Path | None = None) -> Path:
    """Write the report on the run in a folder, and return its path.

    It is `report.md` in the run's folder, or in the folder `out`, or the file `out`. Its figures
    are beside it, and their names begin with its own. MissingPath if there is no run.
    """
    out = directory if out is None else out
    file = out / "report.md" if out.is_dir() else out
    results = RunResults(directory)
    figures = make_figures(results)
    texts = {f"{file.stem}-{each.key}.svg": each.svg for each in figures if each.svg}
    texts[file.name] = render_markdown(results, figures, file.stem)
    for name, text in texts.items():
        place = file.with_name(name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Half a surrogate pair, which a model can write, has no bytes; other programs do not
            # take a file with a NUL for text.
            text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
            place.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            why = error.strerror or str(error)
            raise ColligateError(f"cannot write {place}", why, "name another --out") from error
    return file


def render_markdown(results: RunResults, figures: Sequence[ReportFigure], stem: str) -> str:
    """Return the report, with what others wrote escaped; figures' files begin with `stem`."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)
    environment.filters["md"] = escape_markdown
    template = resources.files(__package__).joinpath("templates", "report.md.j2")
    text = environment.from_string(template.read_text("utf-8")).render(
        suite=results.suite,
        table=results.table,
        remarks=tuple(_make_remarks(results)),
        measures=tables.make_measure_tables(results),
        figures=figures,
        stem=stem,
        verdicts=_make_verdicts(results),
        wrong=tuple(_list_wrong(results)),
        made_with=_make_provenance(results),
        format_number=tables.format_number,
        format_interval=tables.format_interval,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def escape_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


# What was run, and with what

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
    if (few := min(asked.values(), default=_FEW)) < _FEW:
        yield (
            f"Some data sets have as few as {pluralize(few, 'question')}. Intervals and stars "
            "of so few tell little about questions that were not asked."
        )
    if not can_draw():
        yield "Without figures: matplotlib is not installed; the extra bench has it."


def _make_verdicts(results: RunResults) -> TextTable:
    """Return how many answers of each verdict a strategy has."""
    counted = results.verdicts
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    rows = [(each.label, [counted[each.name][kind] for kind in kinds]) for each in results.methods]
    body = [(label, *(f"{count:,}" for count in row), f"{sum(row):,}") for label, row in rows]
    return (("strategy", *kinds, "answers"), *body)


_NOT_WRONG = (Verdict.RIGHT, Verdict.ANSWERED)
_TO_READ = 10  # answers of a strategy
_LONGEST = 300  # characters of a text of them


def _list_wrong(results: RunResults) -> Iterator[tuple[str, TextTable]]:
    """Yield strategies with their answers that are not right, failures first; of many a sample."""

    def order(row: Row) -> tuple[bool, str]:
        return not row.error, sha256("\0".join(row.key[:2]).encode(errors="replace")).hexdigest()

    for method in results.methods:
        rows = sorted(results.rows_of("", method.name), key=order)
        wrong = [row for row in rows if results.classify(row) not in _NOT_WRONG]
        body = [
            (
                f"{row.dataset} {row.question}",
                _cut(row.question_text),
                _cut(" / ".join(row.answers)),
                results.classify(row),
                _cut(row.error or row.outcome.text or row.outcome.said),
            )
            for row in wrong[:_TO_READ]
        ]
        if body:
            yield method.label, (("id", "question", "right answer", "verdict", "answer"), *body)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _make_provenance(results: RunResults) -> TextTable:
    """Return what the numbers were made with, as names and values; `run.json` has the rest."""
    made = results.provenance
    parts = {
        **{"suite": made.suite, "seed": made.seed, "questions": made.questions, **made.settings},
        "colligate": made.versions.get("colligate"),
        **{f"model: {role}": vars(record) for role, record in made.models.items()},
        **{
            f"row: {each.label}": {"strategy": each.strategy, "set": each.set}
            for each in results.methods
        },
    }
    return [(name, _format_value(value)) for name, value in parts.items()]


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
