"""What the server takes on, and how it says that it takes no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2

from colligate.server.app import BodyLimits
from colligate.server.config import ServerConfig
from colligate.server.errors import Busy
from colligate.server.runs import AskRequest

RULES = {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"}
ASK = "/api/libraries/default/ask"
BODY = {"question": "Where is the hall"}


async def test_a_body_that_says_it_is_too_long_is_not_read(serve: Any) -> None:
    async with serve(body_bytes=1000) as client:
        response = await client.post(ASK, json={"question": "x" * 2000})
        assert response.status_code == 413
        assert response.headers["content-type"] == "application/problem+json"


async def test_a_body_that_does_not_say_is_counted(listen: Any) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
        while sent < 20_000_000:
            sent += 10_000
            yield b"x" * 10_000
        yield b"\r\n--b--\r\n"

    async with listen(upload_bytes=100_000, upload_files=1) as client:
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        # The server answers and hangs up; the client may notice the one or the other first.
        with suppress(httpx2.NetworkError):
            response = await client.post(
                "/api/libraries/default/files", content=endless(), headers=headers
            )
            assert response.status_code == 413
        assert sent < 15_000_000
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/api/libraries/default/documents")).json() == []


async def test_too_many_files_in_one_request(serve: Any) -> None:
    async with serve(upload_files=2) as client:
        files = [("files", (f"{n}.md", b"text")) for n in range(3)]
        response = await client.post("/api/libraries/default/files", files=files)
        assert response.status_code == 400
        assert (await client.get("/api/libraries/default/documents")).json() == []


async def test_too_many_uploads_at_once() -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def app(*_: Any) -> None:
        inside.set()
        await go_on.wait()

    async def ask(path: str = "/api/libraries/default/files") -> list[int]:
        said: list[int] = []

        async def send(message: Any) -> None:
            said.extend([message["status"]] if "status" in message else [])

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await limits({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
        return said

    limits = BodyLimits(app, ServerConfig(uploads=1))
    first = asyncio.create_task(ask())
    await inside.wait()
    assert await ask() == [503]
    go_on.set()
    assert await ask("/api/libraries/default/ask") == []
    await first
    assert await ask() == []


async def test_too_many_libraries(serve: Any) -> None:
    async with serve(libraries=2) as client:
        assert (await client.post("/api/libraries", json={"name": "a"})).status_code == 201
        assert (await client.post("/api/libraries", json={"name": "b"})).status_code == 409


async def test_runs_wait_in_order_and_are_told_their_place(
    serve: Any, add: Any, events: Any, held: Any, until: Any
) -> None:
    async with serve(held, runs=1, waiting=2) as client:
        await add(client, RULES)

        def ask() -> asyncio.Task[Any]:
            return asyncio.create_task(client.post(ASK, json={**BODY, "stream": True}))

        runs = client.app.state.server.runs
        tasks = []
        for n in range(3):
            tasks.append(ask())
            await until(lambda n=n: len(runs.of("default")) == n + 1)
        await until(lambda: held.asked == 1)
        refused = await client.post(ASK, json=BODY)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        held.gate.set()
        streams = [events((await task).text) for task in tasks]
        assert held.most == 1
        places = [[data["place"] for name, data in s if name == "queued"] for s in streams]
        assert places == [[], [1], [2, 1]]
        assert [stream[-1][0] for stream in streams] == ["answer"] * 3


async def test_a_waiting_run_that_is_cancelled_makes_way(
    serve: Any, add: Any, held: Any, until: Any
) -> None:
    async with serve(held, runs=1, waiting=1) as client:
        await add(client, RULES)
        first = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: held.asked == 1)
        second = asyncio.create_task(client.post(ASK, json=BODY))
        runs = client.app.state.server.runs
        await until(lambda: len(runs.of("default")) == 2)
        waiting = next(run for run in runs.of("default") if run.state == "queued")
        assert (await client.delete(f"/api/runs/{waiting.id}")).status_code == 204
        assert (await second).status_code == 409
        third = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: len(runs.of("default")) == 3)
        held.gate.set()
        assert [(await each).status_code for each in (first, third)] == [200, 200]


async def test_a_running_run_that_is_cancelled_frees_its_place(
    serve: Any, add: Any, held: Any, until: Any
) -> None:
    async with serve(held, runs=1) as client:
        await add(client, RULES)
        first = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: held.asked == 1)
        (run,) = (await client.get("/api/libraries/default/runs")).json()
        assert run["state"] == "running"
        await client.delete(f"/api/runs/{run['id']}")
        assert (await first).status_code == 409
        assert held.now == 0
        assert (await client.get(f"/api/runs/{run['id']}")).json()["state"] == "cancelled"
        held.gate.set()
        assert (await client.post(ASK, json=BODY)).status_code == 200


async def test_too_many_streams(listen: Any, add: Any, held: Any, until: Any) -> None:
    async with listen(held, streams=1, runs=2) as client:
        held.gate.set()
        await add(client, RULES)
        held.gate.clear()
        async with client.stream("POST", ASK, json={**BODY, "stream": True}):
            await until(lambda: held.asked == 1)
            refused = await client.post(ASK, json={**BODY, "stream": True})
            assert refused.status_code == 503
        server = client.app.state.server
        await until(lambda: all(run.over for run in server.runs.of("default")))
        held.gate.set()
        assert (await client.post(ASK, json={**BODY, "stream": True})).status_code == 200


async def test_metrics_count_and_tell_no_text(serve: Any, add: Any) -> None:
    async with serve() as client:
        await add(client, {"secret-plan.md": "# Hidden title\n\nThe vault is in the hall.\n"})
        await client.post(ASK, json={"question": "Where is the hall"})
        (document,) = (await client.get("/api/libraries/default/documents")).json()
        await client.get(f"/api/libraries/default/documents/{document['id']}")
        await client.get("/api/libraries/vault/documents")
        await client.get("/api/hall/vault")
        shown = (await client.get("/metrics")).text
        assert 'colligate_runs_total{state="done",strategy="retrieve-read"} 1.0' in shown
        route = "/api/libraries/{name}/documents/{document_id}"
        assert f'method="GET",route="{route}",status="200"' in shown
        assert 'colligate_tokens_total{direction="input",role="reader"}' in shown
        for word in ("secret", "Hidden", "vault", "hall", document["id"]):
            assert word not in shown


async def test_of_questions_that_come_in_the_same_moment_no_more_are_let_in(
    serve: Any, add: Any, held: Any
) -> None:
    async with serve(held, runs=1, waiting=2) as client:
        await add(client, RULES)
        runs = client.app.state.server.runs
        asked = AskRequest(question="Where is the yard")
        begun = await asyncio.gather(
            *(runs.start("default", asked) for _ in range(9)), return_exceptions=True
        )
        assert sum(isinstance(each, Busy) for each in begun) == 6
        taken = [each for each in begun if not isinstance(each, BaseException)]
        assert len(taken) == 3
        for each in reversed(taken):  # before any of them has taken a step
            each.cancel()
        await asyncio.gather(*(each.wait() for each in taken))
        assert {each.state for each in taken} == {"cancelled"}
        held.gate.set()
        assert (await client.post(ASK, json=BODY)).status_code == 200


async def test_a_place_that_becomes_free_while_the_next_is_cancelled_is_the_third_ones(
    serve: Any, add: Any, held: Any, until: Any
) -> None:
    async with serve(held, runs=1, waiting=3) as client:
        await add(client, RULES)
        runs = client.app.state.server.runs
        asked = AskRequest(question="Where is the yard")
        first, second, third = [await runs.start("default", asked) for _ in range(3)]
        await until(lambda: held.now == 1)
        first.cancel()  # its place is handed on while the second is on its way out
        second.cancel()
        await asyncio.gather(first.wait(), second.wait())
        assert (first.state, second.state) == ("cancelled", "cancelled")
        await until(lambda: third.state == "running")
        held.gate.set()
        await third.wait()
        assert third.state == "done"
