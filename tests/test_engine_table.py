"""Tables with a small reader, which is asked for one column at a time."""

from __future__ import annotations

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
        table = await engine.table("yearly rent: money; sum paid: money", tmp_path / "lease.md")
    [row] = table.rows
    [rent] = row.cells["yearly rent"].values
    assert (rent.value, rent.unit, rent.citation["start"]) == (48000, "EUR", 9)
    assert rent.probability > 0.5
    assert row.cells["sum paid"].reason == "not confirmed"
    assert "“rent” is no money" in row.cells["sum paid"].why
    assert len(asked) == 2
