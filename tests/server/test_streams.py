"""Clients behind a real socket: events as they come, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

RULES = {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"}
ASK = "/api/libraries/default/ask"
BODY = {"question": "Where is the hall"}


async def test_events_come_while_the_model_is_still_asked(listen: Any, add: Any, held: Any) -> None:
    async with listen(held) as client:
        await add(client, RULES)
        seen: list[str] = []
        async with client.stream("POST", ASK, json={**BODY, "stream": True}) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]).get("event", ""))
                if "asking" in seen and not held.gate.is_set():
                    assert held.now == 1
                    held.gate.set()
        assert seen[-2] == "answered"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_hangs_up_frees_its_run(
    listen: Any, add: Any, held: Any, streamed: bool, until: Any
) -> None:
    async with listen(held, runs=1) as client:
        await add(client, RULES)
        asking = asyncio.create_task(client.post(ASK, json={**BODY, "stream": streamed}))
        await until(lambda: held.now == 1)
        asking.cancel()
        await until(lambda: held.now == 0)
        runs = client.app.state.server.runs
        (run,) = runs.of("default")
        await until(lambda: run.over)
        assert run.state == "cancelled"
        held.gate.set()
        assert (await client.post(ASK, json=BODY)).status_code == 200


async def test_a_detached_run_goes_on_without_its_client(
    listen: Any, add: Any, held: Any, until: Any
) -> None:
    async with listen(held) as client:
        await add(client, RULES)
        path = f"{ASK}?detached=true"
        asking = asyncio.create_task(client.post(path, json={**BODY, "stream": True}))
        await until(lambda: held.now == 1)
        asking.cancel()
        await asyncio.wait([asking])
        held.gate.set()
        (run,) = client.app.state.server.runs.of("default")
        await until(lambda: run.over)
        assert run.state == "done"
        last = (await client.get(f"/api/runs/{run.id}/events")).text
        assert "event: answer" in last


async def test_a_follower_that_hangs_up_leaves_the_run_alone(
    listen: Any, add: Any, held: Any, until: Any
) -> None:
    async with listen(held) as client:
        await add(client, RULES)
        asking = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: held.now == 1)
        server = client.app.state.server
        (run,) = server.runs.of("default")
        async with client.stream("GET", f"/api/runs/{run.id}/events") as response:
            async for line in response.aiter_lines():
                if "asking" in line:
                    break
        await until(lambda: server.open_streams == 0)
        held.gate.set()
        assert (await asking).status_code == 200


async def test_a_silent_stream_is_kept_alive(
    listen: Any, add: Any, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colligate.server.stream.EventStream.DEFAULT_PING_INTERVAL", 0.01)
    async with listen(held) as client:
        await add(client, RULES)
        pings = 0
        async with client.stream("POST", ASK, json={**BODY, "stream": True}) as response:
            async for line in response.aiter_lines():
                pings += line.startswith(": ping")
                if pings == 3:
                    held.gate.set()
                if line.startswith("event: answer"):
                    break
        assert pings >= 3
