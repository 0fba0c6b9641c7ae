"""The MCP server at /mcp of the HTTP server, through the SDK's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

QUESTION = "Where do bicycles stand?"
Connected = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connected(served: Any) -> Connected:
    @asynccontextmanager
    async def connect(mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {served.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(
                streamable_http_client(served.url + "mcp", http_client=http), mode=mode
            ) as client,
        ):
            yield client

    return connect


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_tools_answer(connected: Connected, mode: str) -> None:
    async with connected(mode) as client:
        reports: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports.append(message)

        answer = await client.call_tool(
            "ask", {"question": QUESTION}, progress_callback=on_progress
        )
        assert answer.structured_content["citations"][0]["quote"].startswith("Bicycles stand")
        assert reports
        found = await client.call_tool("search", {"query": "barrels in the cellar", "k": 1})
        (passage,) = found.structured_content["passages"]
        assert passage["title"] == "Cellar"
        (content,) = (await client.read_resource(passage["uri"])).contents
        assert content.text == passage["text"]
        listed = await client.call_tool("list_documents", {})
        assert listed.structured_content["total"] == 2
        section = await client.call_tool("read_section", {"document": passage["document"]})
        assert "Barrels" in section.structured_content["text"]


async def test_errors_are_told_to_the_model(connected: Connected) -> None:
    async with connected() as client:
        for arguments, words in (
            ({"question": QUESTION, "library": "nowhere"}, "no library 'nowhere'"),
            ({"question": "Does this fail?"}, "the model failed"),
            ({"question": "x" * 9000}, "too long"),
            ({"question": QUESTION, "strategy": "x"}, "unknown strategy"),
            ({"question": QUESTION, "strategy": "x" * 200}, "strategy"),
            ({"question": ""}, "question"),
        ):
            result = await client.call_tool("ask", arguments)
            assert result.is_error
            assert words in result.content[0].text


async def test_only_with_the_token(served: Any) -> None:
    async with httpx2.AsyncClient() as client:
        response = await client.post(served.url + "mcp", json={})
    assert response.status_code == 401


async def test_a_client_that_gives_up_frees_its_run(connected: Connected, model: Any) -> None:
    async with connected() as client:
        asking = asyncio.create_task(client.call_tool("ask", {"question": "Does it stall?"}))
        assert await asyncio.to_thread(model.stalled.wait, 20)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await asyncio.to_thread(model.freed.wait, 20)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_goes_away_frees_its_run(
    connected: Connected, model: Any, mode: str
) -> None:
    async with connected(mode) as client:
        asking = asyncio.create_task(client.call_tool("ask", {"question": "Does it stall?"}))
        assert await asyncio.to_thread(model.stalled.wait, 20)
    await asyncio.gather(asking, return_exceptions=True)
    assert await asyncio.to_thread(model.freed.wait, 20)


async def test_a_get_opens_no_stream(served: Any) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=10) as client:
        response = await client.get("mcp")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        metrics = (await client.get("metrics")).text
    assert 'method="GET",route="/mcp",status="405"' in metrics
