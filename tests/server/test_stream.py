"""Clients behind a real socket: events as they come, and clients that hang up."""

import asyncio
import json
from dataclasses import replace

import pytest

from colligate.core.events import Drafted
from colligate.documents import Passage, Span
from colligate.readers.finding import Likely
from colligate.server.stream import EventStream
from support.http_server import DEFAULT, QUESTION, RULES, parse_events, until

BODY = {"question": QUESTION, "stream": True}


async def test_a_stream_shows_and_counts_what_is_written(serve, monkeypatch):
    monkeypatch.setattr("colligate.core.run._SECONDS_BETWEEN_COUNTS", 0.0)
    async with serve(None, RULES) as client:
        counts, drafted = [], []
        for streamed in (True, False):
            await client.ask(stream=streamed)
            run = (await client.listed("runs"))[0]["id"]
            events = [sent for _, sent in await client.events(f"/api/runs/{run}/events")]
            counts.append([e["tokens"] for e in events if e.get("event") == "writing"])
            drafted.append([e for e in events if e.get("event") == "drafted"])
        assert counts[0] == sorted(counts[0])
        assert [len(each) > 1 for each in counts] == [True, False]
        assert drafted[0][-1]["state"] == "confirmed"
        assert drafted[0][-1]["passages"][0]["title"] == "Rules"
        assert drafted[1] == []


async def test_what_is_found_early_is_sent_without_the_folders_of_the_server(serve, held):
    place = Span("rules", 9, 37)
    found = Passage(place, "Bicycles stand in the yard, ", "Rules", source="/home/ana/rules.md")
    async with serve(held, RULES) as client:
        asking = client.begin(stream=True)
        await until(lambda: held.now == 1)
        (run,) = client.server.runs.list_runs("default")
        found = replace(found, folder="ana")
        run.record(Likely(found, Span("rules", 27, 35), 0.9))
        run.record(Drafted(0, "In the yard.", "confirmed", (found,)))
        held.gate.set()
        sent = (await asking).text
    (likely,) = [each for _, each in parse_events(sent) if each.get("event") == "likely"]
    assert likely["answer"] == {"document_id": "rules", "start": 27, "end": 35}
    assert (likely["sentence"]["text"], likely["sentence"]["source"]) == (found.text, "rules.md")
    assert "ana" not in sent


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_hangs_up_ends_its_run(serve, held, streamed):
    async with serve(held, RULES, socket=True, runs=1) as client:
        asking = client.begin(stream=streamed)
        await until(lambda: held.now == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await until(lambda: held.now == 0)
        held.gate.set()
        (run,) = client.server.runs.list_runs("default")
        await until(lambda: run.ended)
        assert run.state == "cancelled"
        assert (await client.ask()).status_code == 200


async def test_a_follower_that_hangs_up_leaves_the_run_alone(serve, held):
    async with serve(held, RULES, socket=True) as client:
        asking = client.begin()
        await until(lambda: held.now == 1)
        (run,) = client.server.runs.list_runs("default")
        async with client.stream("GET", f"/api/runs/{run.id}/events") as response:
            async for line in response.aiter_lines():
                if "asking" in line:
                    break
        held.gate.set()
        assert (await asking).status_code == 200


async def test_events_and_pings_come_while_the_model_is_still_asked(serve, held, monkeypatch):
    monkeypatch.setattr(EventStream, "DEFAULT_PING_INTERVAL", 0.01)
    async with serve(held, RULES, socket=True) as client:
        pings, steps = 0, []
        async with client.stream("POST", f"{DEFAULT}/ask", json=BODY) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    steps.append(json.loads(line[6:]).get("event", ""))
                pings += bool(held.now) and line.startswith(": ping")
                if pings >= 3 and "asking" in steps:  # the model is still asked
                    held.gate.set()
        assert pings >= 3
        assert steps[-2] == "answered"
