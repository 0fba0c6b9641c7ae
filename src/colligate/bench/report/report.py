"""The parts of a report, made once for both of its forms."""

from __future__ import annotations

from dataclasses import dataclass

from colligate.bench.report import summary
from colligate.bench.report.columns import Comparison
from colligate.bench.report.contents import Contents
from colligate.bench.report.figures import Figure, Numbers, Panel
from colligate.bench.report.numbers import places_of, said
from colligate.bench.report.panels import comparison_panels, probability, verdict_bars
from colligate.bench.report.pictures import pictures
from colligate.bench.report.tables import Table, all_measures, suite_table
from colligate.bench.report.verdicts import MEANING, Verdict, failures, verdicts


@dataclass(frozen=True)
class Report:
    """All that a report says. The first row of each of `measure_tables` is its head."""

    contents: Contents
    facts: tuple[summary.Fact, ...]
    remarks: tuple[str, ...]
    table: Table
    comparisons: tuple[Comparison, ...]
    measure_tables: tuple[Numbers, ...]
    differences: tuple[Panel, ...]
    difference_numbers: Numbers
    pictures: tuple[Figure, ...]
    verdicts: Figure
    kinds: tuple[tuple[str, str], ...]
    failures: list[tuple[str, str, int, str]]
    made_with: summary.Words


def reported(contents: Contents) -> Report:
    """All parts of the report on a run."""
    table, comparisons = suite_table(contents)
    there = {kind for each in verdicts(contents).values() for kind, n in each.items() if n}
    return Report(
        contents=contents,
        facts=summary.facts(contents),
        remarks=summary.remarks(contents),
        table=table,
        comparisons=comparisons,
        measure_tables=_measure_tables(contents),
        differences=comparison_panels(comparisons),
        difference_numbers=_difference_numbers(comparisons),
        pictures=pictures(contents),
        verdicts=verdict_bars(contents),
        kinds=tuple((kind.value, MEANING[kind]) for kind in Verdict if kind in there),
        failures=failures(contents),
        made_with=summary.made_with(contents),
    )


def _measure_tables(contents: Contents) -> tuple[Numbers, ...]:
    tables = []
    for each in all_measures(contents):
        head = (each.dataset, *(method.label or method.name for method in each.methods))
        body = [(metric, *map(said, values)) for metric, values in each.rows]
        tables.append((head, *body))
    return tuple(tables)


def _difference_numbers(comparisons: tuple[Comparison, ...]) -> Numbers:
    head = ("column", "best", "strategy", "difference", "low", "high", "p", "", "n")
    body = []
    for each in comparisons:
        places = places_of(each.head.scale)
        for other in each.others:
            body.append(
                (
                    each.head.title,
                    each.best.label or each.best.name,
                    other.method.label or other.method.name,
                    *(said(value, places) for value in (other.value, other.low, other.high)),
                    probability(other.p),
                    other.stars,
                    f"{other.n:,}",
                )
            )
    return (head, *body) if body else ()
