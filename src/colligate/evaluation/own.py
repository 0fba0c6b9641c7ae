"""The suite `own`: a user's questions over a folder of documents, asked of several strategies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from colligate.evaluation.suite import Suite
from colligate.evaluation.suites import parse_suite

NAME = "own"

STRATEGIES = ("retrieve-read", "duquad", "dualrag", "spd-rag", "rdr2", "longrefiner")
_OTHERS = ("direct", "full-context")


def own_suite(questions: Path, documents: Path | None, format: str = "auto") -> Suite:
    """The suite of one file of questions; without `documents` each question brings its own.

    Questions that name documents are asked over these, the others over the whole folder.

    Raises:
        UsageError: as `parse_suite`.
    """
    over = "candidates" if documents is None else "documents"
    metrics = ("short", "evidence", "citations", "abstention", "cost")
    entries: list[tuple[str, str | Sequence[str]]] = [
        ("name", NAME),
        ("file", str(questions.absolute())),
        ("format", format),
        ("over", over),
        ("metrics", list(metrics)),
    ]
    if documents is not None:
        entries.append(("corpus", str(documents.absolute())))
    lines = [
        'title = "Your own questions"',
        "[[datasets]]",
        *(f"{key} = {_toml(value)}" for key, value in entries),
        *(f"[[strategies]]\nname = {_toml(name)}" for name in STRATEGIES),
        *(f"[[strategies]]\nname = {_toml(name)}\ndefault = false" for name in _OTHERS),
        *(_column(metric, label) for metric, label in _COLUMNS),
        '[[pictures]]\nkind = "pareto"',
    ]
    return parse_suite("\n".join(lines) + "\n", NAME, NAME)


_COLUMNS = (("containment", "Acc"), ("f1", "F1"), ("em", "EM"))


def _column(metric: str, label: str) -> str:
    parts = f'dataset = "{NAME}"\nmetric = "{metric}"\nlabel = "{label}"\nscale = 100'
    return f"[[columns]]\n{parts}"


def _toml(value: str | Sequence[str]) -> str:
    """A string or a list of them: JSON writes both as TOML does, with no bytes but ASCII."""
    return json.dumps(value)
