"""What became of each answer, in a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from colligate.bench.report.contents import Contents
from colligate.bench.rows import Row


class Verdict(StrEnum):
    """From best to worst; `ANSWERED` is what nobody has judged."""

    RIGHT = "right"
    PARTLY = "partly right"
    ANSWERED = "not judged"
    WRONG = "wrong"
    REFUSED = "refused"
    FAILED = "failed"


MEANING: Mapping[Verdict, str] = {
    Verdict.RIGHT: "the right answer, or rightly none where the documents hold none",
    Verdict.PARTLY: "more than nothing of what was asked for",
    Verdict.ANSWERED: "answered, and no metric of this run says how well",
    Verdict.WRONG: "something else was answered",
    Verdict.REFUSED: "it said that the documents do not hold the answer, and they do",
    Verdict.FAILED: "it broke, and counts as wrong everywhere",
}


_MARKS = ("loong_spd", "loong_official")


def verdict(row: Row, metric: str) -> Verdict:
    """What became of an answer, by a metric that is 1 for a right one and 0 for a wrong; of marks
    that a judge gives (`loong_spd`, `loong_official`) 100 is right.

    Empty, or not measured: nobody can say, of those that gave an answer.
    """
    if row.outcome.error:
        return Verdict.FAILED
    if not row.answerable:
        return Verdict.WRONG if row.outcome.found else Verdict.RIGHT
    if not row.outcome.found:
        return Verdict.REFUSED
    value = row.metrics.get(metric)
    if value is None:
        return Verdict.ANSWERED
    share = value / 100 if metric in _MARKS else value
    if share > 0.999:
        return Verdict.RIGHT
    return Verdict.PARTLY if share > 0.001 else Verdict.WRONG


def verdicts(contents: Contents) -> dict[str, Counter[Verdict]]:
    """How many of each, by strategy."""
    deciding = {dataset: contents.deciding(dataset) for dataset in contents.datasets}
    found: dict[str, Counter[Verdict]] = {each.name: Counter() for each in contents.methods}
    for row in contents.rows:
        found[row.strategy][verdict(row, deciding[row.dataset])] += 1
    return found


def failures(contents: Contents) -> list[tuple[str, str, int, str]]:
    """Why answers failed: strategy, kind, how many, and one such error whole; the most first."""
    counted: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    labels = {each.name: each.label or each.name for each in contents.methods}
    for row in contents.rows:
        if row.outcome.error:
            key = (labels[row.strategy], _kind(row.outcome.error))
            counted[key] += 1
            examples.setdefault(key, row.outcome.error)
    return [(*key, count, examples[key]) for key, count in counted.most_common()]


def _kind(error: str) -> str:
    """What happened, without why: an error's line is "what: why; hint"."""
    what = error.split(": ", 1)[0].split("; ", 1)[0].strip()
    return what if len(what) <= 80 else what[:79] + "…"
