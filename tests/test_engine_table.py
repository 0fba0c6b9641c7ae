"""Tables with a small reader, which reads rows of tables and one passage at a time."""

from __future__ import annotations

import pytest

from colligate import Engine
from colligate.models import Capability, LabelOdds
from colligate.testing import ScriptedModel

LEASE = "# Lease\n\nThe tenant pays a yearly rent of EUR 48,000 for the flat in Mill Street.\n"
NAMES = {"embedder": "static", "reranker": "none", "check": "none", "reader": "pointwise"}


def make_model(say, yes=0.99):
    return ScriptedModel(
        say,
        capabilities=[Capability.CHAT, Capability.LABELS],
        labels=lambda messages, labels, forced: LabelOdds({"Yes": yes, "No": 1 - yes}, 1.0),
    )


async def test_a_small_reader_fills_one_cell_at_a_time_and_an_amount_needs_a_number(tmp_path):
    (tmp_path / "lease.md").write_text(LEASE)
    asked = []

    def say(call):
        asked.append(call.prompt)
        return "EUR 48,000" if "yearly rent?" in call.prompt else "rent"

    async with Engine(model=make_model(say), library=tmp_path / "library", **NAMES) as engine:
        about = await engine.estimate_table("yearly rent; sum paid", tmp_path / "lease.md")
        table = await engine.table("yearly rent: money; sum paid: money", tmp_path / "lease.md")
    [row] = table.rows
    [rent] = row.cells["yearly rent"].values
    assert (rent.value, rent.unit, rent.citation["start"]) == (48000, "EUR", 9)
    assert rent.probability > 0.5
    assert row.cells["sum paid"].reason == "not in the document"
    # Both columns over the beginning, then what a search finds for the one that is left.
    assert ["yearly rent?" in each for each in asked] == [True, False, False]
    documents, calls, tokens = about
    assert (documents, calls) == (1, 4)
    assert tokens < 3_000, "a short text is read, not a whole window"


@pytest.mark.parametrize(
    ("said", "yes", "reason"),
    [("EUR 48,000", 0.7, "not confirmed"), ("EUR 49,000", 0.99, "not in the document")],
)
async def test_a_cell_needs_words_that_stand_there_and_a_sure_reader(tmp_path, said, yes, reason):
    (tmp_path / "lease.md").write_text(LEASE)
    model = make_model(lambda call: said, yes)
    async with Engine(model=model, library=tmp_path / "library", **NAMES) as engine:
        table = await engine.table("yearly rent: money", tmp_path / "lease.md")
    cell = table.rows[0].cells["yearly rent"]
    assert (cell.values, cell.reason) == ((), reason)
    assert ("“EUR 48,000” is right with a probability of" in cell.why) == (yes < 0.9)


STATEMENT = """# Report

| In thousands | 2023 | 2024 |
|---|---|---|
| Hardware revenue | 110 | 120 |
| Total revenue | 4,100 | 4,300 |
| Dividends paid | 410 | 450 |
| Wages paid | 310 | 350 |

Sales of boats fell.

| Segments | 2024 | 2023 |
|---|---|---|
| Boats | 900 | 1,100 |
| Total revenue | 900 | 1,100 |
| Revenue, total | 4,300 | 4,100 |
| Paid to owners | 450 | 410 |
"""


async def test_a_small_reader_reads_tables_by_row_and_latest_period(tmp_path):
    """A row with the column's name needs no call; a figure that more rows have counts more."""
    (tmp_path / "report.md").write_text(STATEMENT)
    asked = []
    model = make_model(lambda call: asked.append(call.prompt) or "none")
    async with Engine(model=model, library=tmp_path / "library", **NAMES) as engine:
        table = await engine.table(
            "dividends paid: money; total revenue: money; wages paid: money; crew: number",
            tmp_path / "report.md",
        )
    [row] = table.rows
    [paid] = row.cells["dividends paid"].values
    assert (paid.written, paid.unit) == ("450", "In thousands")
    [revenue] = row.cells["total revenue"].values
    assert (revenue.value, revenue.citation["quote"]) == (4300, "| Total revenue | 4,100 | 4,300 |")
    left = ("wages paid", "crew")  # one row alone has the figure of the first, none the second
    assert {row.cells[name].reason for name in left} == {"not in the document"}
    assert all("wages paid?" in each or "crew?" in each for each in asked)
