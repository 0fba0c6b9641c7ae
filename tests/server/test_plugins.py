"""A strategy of another package is listed, asked and followed like colligate's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.http_server import RULES, parse_events
from support.plugins import TOY_ENTRY_POINTS, TOY_STRATEGY, installed

FILES = {**RULES, "attic.md": "# Attic\n\nTrunks.\n"}


async def test_a_strategy_from_outside_is_listed_and_its_events_have_lines(
    serve: Any, tmp_path: Path
) -> None:
    with installed(tmp_path / "site", TOY_STRATEGY, TOY_ENTRY_POINTS):
        async with serve(files=FILES) as client:
            strategies = (await client.get("/api/about")).json()["strategies"]
            (toy,) = [each for each in strategies if each["name"] == "toy"]
            assert toy["summary"] == "Name the first document"
            assert toy["runs"] is True
            assert [each["name"] for each in toy["parameters"]] == ["backwards"]
            models = (await client.get("/v1/models")).json()["data"]
            assert "colligate/toy" in {model["id"] for model in models}
            response = await client.ask(strategy="toy", stream=True, parameters={"backwards": True})
            streamed = parse_events(response.text)
            (event,) = [data for _, data in streamed if data.get("event") == "sorted"]
            assert event["line"] == "titles in order: 2"
            assert len(event["spans"]) == 2
            name, answer = streamed[-1]
            assert (name, answer["answer"]) == ("answer", "Rules")
    async with serve() as client:  # not installed any more: its runs still replay
        (run,) = await client.listed("runs")
        replayed = await client.events(f"/api/runs/{run['id']}/events")
        assert event in [data for _, data in replayed]
        assert (await client.ask(strategy="toy")).status_code == 422
