"""The report as one HTML page that opens from a disk: style, script, pictures, answers inside."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from colligate import __version__
from colligate.bench.report.columns import Cell
from colligate.bench.report.numbers import NONE, places_of, said
from colligate.bench.report.questions import readable
from colligate.bench.report.report import Report
from colligate.bench.report.svg import legend_mark


def page(report: Report, beside: Path) -> str:
    """The whole page; links to traces are those of a page that will stand at `beside`.

    Every text of a document, a model or a person is escaped by the template, or put in by the
    script as text.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(_own("page.html.j2"))
    table = report.table
    return template.render(
        suite=report.contents.suite,
        facts=report.facts,
        remarks=report.remarks,
        table=table,
        measures=report.measure_tables,
        differences=report.differences,
        difference_numbers=report.difference_numbers,
        figures=report.pictures,
        verdicts=report.verdicts,
        kinds=report.kinds,
        failures=report.failures,
        questions=readable(report.contents, beside),
        made_with=report.made_with,
        mark=legend_mark,
        said=said,
        places_of=places_of,
        interval=interval,
        css=_own("page.css"),
        js=_own("page.js"),
        version=__version__,
    )


def interval(cell: Cell, places: int | None) -> str:
    """An interval, as exactly as its width deserves."""
    if cell.low is None or cell.high is None:
        return ""
    if places is not None and cell.high - cell.low >= 5:
        places = 0
    low, high = said(cell.low, places), said(cell.high, places)
    return f"{low} to {high}" if cell.low < 0 else f"{low}{NONE}{high}"


def _own(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
