"""What was run and with what, in the words of both forms of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from colligate.bench.report.contents import Contents
from colligate.bench.report.numbers import said, several

Fact = tuple[str, str, str]
"""What a figure is called, the figure, and what stands beneath it."""

Words = tuple[tuple[str, Sequence[Sequence[str]]], ...]
"""Tables of words, each with its title."""


def facts(contents: Contents) -> tuple[Fact, ...]:
    """What was run, in a few figures."""
    rows, made = contents.rows, contents.provenance
    questions = len({(row.dataset, row.question) for row in rows})
    failed = sum(bool(row.outcome.error) for row in rows)
    usage = [row.outcome.usage for row in rows]
    into, out, calls = (
        sum(int(each.get(name) or 0) for each in usage)
        for name in ("input_tokens", "output_tokens", "calls")
    )
    prices = [each.get("cost_usd") for each in usage]
    known = [float(price) for price in prices if price is not None]
    dollars = f"{said(sum(known))} USD" + ("" if len(known) == len(prices) else " and more")
    models = {
        role: record.name for role, record in made.models.items() if role not in ("embedder",)
    }
    reader = models.pop("reader", next(iter(models.values()), "none"))
    others = [f"{role}: {_short(name)}" for role, name in models.items() if name != reader]
    sessions = len(made.sessions)
    again = "in one go" if sessions == 1 else f"in {sessions} goes"
    sets = len(contents.datasets)
    return (
        ("Questions", f"{questions:,}", f"of {several(sets, 'data set')}, seed {made.seed}"),
        ("Strategies", str(len(contents.methods)), f"{several(len(rows), 'answer')}"),
        ("Failed", f"{failed:,}", f"{said(100 * failed / max(1, len(rows)), 1)} % of the answers"),
        ("Reader", _short(reader), ", ".join(others)),
        ("Tokens", _large(into + out), f"{_large(into)} in, {_large(out)} out"),
        ("Calls", f"{calls:,}", dollars),
        ("Begun", _when(made.began), again if sessions else ""),
        ("On", *_machine(made.sessions[-1].hardware if made.sessions else {})),
    )


def remarks(contents: Contents) -> tuple[str, ...]:
    """What a reader of the numbers must know first."""
    found = []
    asked = {name: set[str]() for name in contents.datasets}
    for row in contents.rows:
        asked[row.dataset].add(row.question)
    wanted = {name: len(questions) for name, questions in asked.items()}
    wanted |= contents.provenance.questions
    due = sum(wanted.values()) * len(contents.methods)
    if not contents.rows:
        found.append("No question has been answered yet.")
    elif len(contents.rows) < due:
        missing = due - len(contents.rows)
        found.append(
            f"The run is not complete: {missing:,} of {due:,} answers are missing, so some means "
            "are over fewer questions than others."
        )
    unmeasured = sum(bool(row.unmeasured) for row in contents.rows)
    if unmeasured:
        found.append(
            f"{unmeasured:,} answers could not be measured in every way; they are left out of the "
            "means that need it, and say why below."
        )
    few = min((len(questions) for questions in asked.values()), default=_FEW)
    if few < _FEW:
        found.append(
            f"Some data sets have as few as {several(few, 'question')}. Intervals and stars of so "
            "few say little of questions that were not asked."
        )
    return tuple(found)


_FEW = 30  # below it the percentiles of a bootstrap are too narrow


def made_with(contents: Contents) -> Words:
    """All that the numbers can be made again with."""
    made = contents.provenance
    asked = ", ".join(f"{name}: {count:,}" for name, count in made.questions.items())
    run = [("suite", made.suite), ("seed", str(made.seed)), ("questions", asked or "unknown")]
    run += [(name, _value(value)) for name, value in made.settings.items()]
    models = [
        (role, record.name, record.digest or _value(record.said) or "no digest")
        for role, record in made.models.items()
    ]
    strategies = [
        (each.label or each.name, each.strategy, ", ".join(each.set) or "its defaults")
        for each in contents.methods
    ]
    sessions = []
    for number, session in enumerate(made.sessions, 1):
        ended = _when(session.ended) if session.ended else "not ended, or killed"
        when = f"{_when(session.began)} to {ended}"
        sessions.append((str(number), when, _value(session.hardware), f"commit {session.commit}"))
        if session.arguments:
            sessions.append((f"{number}, arguments", _value(session.arguments), "", ""))
    tables: list[tuple[str, Sequence[Sequence[str]]]] = [
        ("The run", run),
        ("Models", models),
        ("Strategies", strategies),
        ("Sessions", sessions),
        ("Versions", list(made.versions.items())),
        ("Prompts, SHA-256 of the source that writes them", list(made.prompts.items())),
        ("Data, SHA-256", list(made.data.items())),
    ]
    return tuple((title, rows) for title, rows in tables if rows)


def _value(value: Any) -> str:
    """A setting as a person reads it."""
    if isinstance(value, Mapping):
        told = {name: each for name, each in value.items() if each not in _UNSAID}
        return ", ".join(f"{name}: {_value(each)}" for name, each in told.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_UNSAID: tuple[Any, ...] = (None, "", [], {}, ())


def _large(count: int) -> str:
    """1,234,567 as 1.2 M."""
    for power, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= power:
            return f"{said(count / power, 1 if count < 100 * power else 0)}{unit}"
    return f"{count:,}"


def _short(model: str) -> str:
    """A model's name without the folder that it lies in."""
    kind, _, name = model.partition(":")
    return f"{kind}:{name.rsplit('/', 1)[-1]}" if kind == "gguf" else model


def _when(text: str) -> str:
    """A time as a person reads it, in UTC."""
    try:
        return datetime.fromisoformat(text).strftime("%-d %B %Y, %H:%M")
    except ValueError:
        return text or "unknown"


def _machine(hardware: Mapping[str, Any]) -> tuple[str, str]:
    """The graphics cards or else the processor, and what is beside them."""
    gpus, processor = _value(hardware.get("gpus") or ""), _value(hardware.get("processor") or "")
    beside = [processor] if gpus and processor else []
    if cores := hardware.get("cores"):
        beside.append(f"{cores} cores")
    if memory := hardware.get("memory_gb"):
        beside.append(f"{memory} GB")
    return gpus or processor or "unknown", ", ".join(beside)
