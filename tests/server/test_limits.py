"""The limits of the server, how it refuses more, and 64 clients at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from colligate.server import ServerConfig
from colligate.server.app import BodyLimits
from colligate.server.errors import Busy
from colligate.server.shapes import AskRequest
from support.http_server import DEFAULT, RULES, form_of, parse_events, until

FILES = f"{DEFAULT}/files"


async def test_what_one_request_may_hold(serve):
    async with serve(upload_files=2, libraries=2) as client:
        files = form_of({f"{n}.md": "text" for n in range(3)})
        assert (await client.post(FILES, files=files)).status_code == 400
        assert await client.listed("documents") == []
        for name, status in (("a", 201), ("b", 409)):
            assert (await client.post("/api/libraries", json={"name": name})).status_code == status


async def test_a_body_without_a_length_is_counted(serve):
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
        while sent < 20_000_000:
            sent += 10_000
            yield b"x" * 10_000
        yield b"\r\n--b--\r\n"

    async with serve(socket=True, upload_bytes=100_000, upload_files=1) as client:
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        # The server answers and hangs up; the client may notice the one or the other first.
        with suppress(httpx2.NetworkError):
            response = await client.post(FILES, content=endless(), headers=headers)
            assert response.status_code == 413
        assert sent < 15_000_000
        assert (await client.get("/healthz")).status_code == 200
        assert await client.listed("documents") == []


async def test_too_many_uploads_at_once():
    inside, leave = asyncio.Event(), asyncio.Event()

    async def app(*_: Any) -> None:
        inside.set()
        await leave.wait()

    async def post(path: str = FILES) -> None:
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        await limits(scope, AsyncMock(), AsyncMock())

    limits = BodyLimits(app, ServerConfig(uploads=1))
    first = asyncio.create_task(post())
    await inside.wait()
    with pytest.raises(Busy):
        await post()
    leave.set()
    await post(f"{DEFAULT}/ask")
    await first
    await post()


async def test_runs_wait_in_order_and_learn_their_place(serve, held):
    async with serve(held, RULES, runs=1, waiting=2) as client:
        runs = client.server.runs
        asking = []
        for n in range(3):
            asking.append(client.begin(stream=True))
            await until(lambda n=n: len(runs.list_runs("default")) == n + 1)
        await until(lambda: held.now == 1)
        refused = await client.ask()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        held.gate.set()
        streams = [parse_events((await each).text) for each in asking]
        assert held.most == 1
        places = [[data["place"] for name, data in s if name == "queued"] for s in streams]
        assert places == [[], [1], [2, 1]]
        assert [stream[-1][0] for stream in streams] == ["answer"] * 3


async def test_metrics_count_and_hold_no_text(serve):
    files = {"secret-plan.md": "# Hidden title\n\nThe vault is in the hall.\n"}
    async with serve(files=files) as client:
        await client.ask("Where is the hall")
        document = await client.document("Hidden title")
        await client.get(f"{DEFAULT}/documents/{document}")
        await client.get("/api/libraries/vault/documents")
        await client.get("/api/hall/vault")
        metrics = (await client.get("/metrics")).text
        assert 'colligate_runs_total{state="done",strategy="auto"} 1.0' in metrics
        route = "/api/libraries/{name}/documents/{document_id}"
        assert f'method="GET",route="{route}",status="200"' in metrics
        assert 'colligate_tokens_total{direction="input",role="reader"}' in metrics
        for word in ("secret", "Hidden", "vault", "hall", document):
            assert word not in metrics


async def test_of_questions_in_the_same_moment_no_more_than_the_limit_start(serve, held):
    async with serve(held, RULES, runs=1, waiting=3) as client:
        start = client.server.runs.start
        request = AskRequest(question="Where is the yard")
        begun = await asyncio.gather(
            *(start("default", request) for _ in range(9)), return_exceptions=True
        )
        assert sum(isinstance(each, Busy) for each in begun) == 5
        first, second, third, fourth = (one for one in begun if not isinstance(one, BaseException))
        fourth.cancel()  # before it has taken a step
        await fourth.wait()
        await until(lambda: held.now == 1)
        first.cancel()  # its place is handed on while the second is on its way out
        second.cancel()
        await asyncio.gather(first.wait(), second.wait())
        assert {each.state for each in (first, second, fourth)} == {"cancelled"}
        await until(lambda: third.state == "running")
        held.gate.set()
        await third.wait()
        assert third.state == "done"


@pytest.mark.parametrize("clients", [12, pytest.param(64, marks=pytest.mark.real)])
async def test_clients_ask_at_once_and_none_gets_anothers_answer(serve, clients):
    """Half of them stream; each asks about its own house, in a library of one page a house."""
    files = {
        f"house{n}.md": f"# House {n}\n\nThe door of number{n} is painted shade{n}.\n"
        for n in range(clients)
    }
    async with serve(files=files, socket=True, runs=8, waiting=clients) as client:

        async def ask(n: int) -> dict[str, Any]:
            question = f"Which shade has the door of number{n}"
            response = await client.ask(question, stream=n % 2 == 0)
            assert response.status_code == 200, response.text
            if n % 2:
                return dict(response.json())
            name, answer = parse_events(response.text)[-1]
            assert name == "answer"
            return dict(answer)

        answers = await asyncio.gather(*map(ask, range(clients)))
        for n, answer in enumerate(answers):
            assert answer["answer"] == f"The door of number{n} is painted shade{n}. [1]"
            (citation,) = answer["citations"]
            assert citation["title"] == f"House {n}"
        assert len({answer["run"] for answer in answers}) == clients
        assert {run["state"] for run in await client.listed("runs")} == {"done"}
