"""Tables with a small reader, which is asked for one column at a time."""

from colligate import Engine
from colligate.models import Capability, LabelOdds
from colligate.testing import ScriptedModel

LEASE = "# Lease\n\nThe tenant pays a yearly rent of EUR 48,000 for the flat in Mill Street.\n"


async def test_a_small_reader_fills_one_cell_at_a_time_and_an_amount_needs_a_number(tmp_path):
    (tmp_path / "lease.md").write_text(LEASE)
    asked = []

    def say(call):
        asked.append(call.prompt)
        return "EUR 48,000" if "yearly rent?" in call.prompt else "rent"

    model = ScriptedModel(
        say,
        capabilities=[Capability.CHAT, Capability.LABELS],
        labels=lambda messages, labels, forced: LabelOdds({"Yes": 0.99, "No": 0.01}, 1.0),
    )
    names = {"embedder": "static", "reranker": "none", "check": "none", "reader": "pointwise"}
    async with Engine(model=model, library=tmp_path / "library", **names) as engine:
        about = await engine.estimate_table("yearly rent; sum paid", tmp_path / "lease.md")
        table = await engine.table("yearly rent: money; sum paid: money", tmp_path / "lease.md")
    [row] = table.rows
    [rent] = row.cells["yearly rent"].values
    assert (rent.value, rent.unit, rent.citation["start"]) == (48000, "EUR", 9)
    assert rent.probability > 0.5
    assert row.cells["sum paid"].reason == "not confirmed"
    assert "“rent” is no money" in row.cells["sum paid"].why
    assert len(asked) == 2
    documents, calls, tokens = about
    assert (documents, calls) == (1, 4)
    assert tokens < 3_000, "a short text is read, not a whole window"


STATEMENT = """# Report

| In thousands | 2023 | 2024 |
|---|---|---|
| Hardware revenue | 110 | 120 |
| Total revenue | 4,100 | 4,300 |
| Dividends per share | 0.4 | 0.5 |

Sales of boats fell.

| Segments | 2024 | 2023 |
|---|---|---|
| Boats | 900 | 1,100 |
| Total | 4,300 | 4,100 |
"""


async def test_a_small_reader_reads_tables_by_row_and_latest_period(tmp_path):
    """A row with the column's name needs no search; of others the reader picks one, or none."""
    (tmp_path / "report.md").write_text(STATEMENT)
    picked = []

    def rate(messages, labels, forced):
        if "Yes" in labels:
            return LabelOdds({"Yes": 0.9, "No": 0.1}, 1.0)
        picked.append(messages[-1].content)
        found = "revenue" in messages[-1].content.rpartition("Looked up")[2]
        rows = [each[:1] for each in messages[-1].content.splitlines() if "Total revenue" in each]
        best = rows[0] if found else "none"
        return LabelOdds({label: 0.6 if label == best else 0.4 / 8 for label in labels}, 1.0)

    chat = [Capability.CHAT, Capability.LABELS]
    model = ScriptedModel(lambda call: "none", capabilities=chat, labels=rate)
    names = {"embedder": "static", "reranker": "none", "check": "none", "reader": "pointwise"}
    async with Engine(model=model, library=tmp_path / "library", **names) as engine:
        table = await engine.table(
            "dividends per share: money; sales revenue: money; crew: number", tmp_path / "report.md"
        )
    [row] = table.rows
    [paid] = row.cells["dividends per share"].values
    assert (paid.written, paid.unit) == ("0.5", "In thousands")
    [revenue] = row.cells["sales revenue"].values
    assert (revenue.value, revenue.citation["quote"]) == (4300, "| Total revenue | 4,100 | 4,300 |")
    assert row.cells["crew"].reason == "not in the document"
    assert len(picked) == 2
