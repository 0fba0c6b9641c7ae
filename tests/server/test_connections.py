"""Clients that connect and send nothing, or half a request, keep nobody else from being served."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import httpx2
import pytest

from support.http_server import DEFAULT, RULES, until

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
POST = (
    b"POST /api/libraries/default/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\n"
)


@asynccontextmanager
async def connected(
    client: httpx2.AsyncClient, sent: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of its own, on which this was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that is received until the server closes the connection."""
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    ("limit", "sent", "said"),
    [
        ("header_seconds", HALF, b"HTTP/1.1 408 "),
        ("header_seconds", b"", b""),
        ("body_seconds", POST + b'Content-Length: 100\r\n\r\n{"question": ', b"HTTP/1.1 4"),
        ("body_seconds", POST + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"que\r\n', b"HTTP/1.1 4"),
        (
            "body_seconds",
            POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 4",
        ),
    ],
)
async def test_what_does_not_come_is_waited_for_so_long(serve, limit, sent, said):
    async with serve(socket=True, **{limit: 0.2}) as client:
        async with connected(client, sent) as (reader, _):
            assert (await rest(reader))[: len(said) or None] == said
        assert (await client.get("/healthz")).status_code == 200


async def test_an_answer_may_take_longer_than_a_request(serve, held):
    limits = {"header_seconds": 0.05, "body_seconds": 0.05}
    async with serve(held, RULES, socket=True, **limits) as client:
        asking = client.begin()
        await until(lambda: held.now == 1)
        async with connected(client, HALF) as (reader, _):
            await rest(reader)  # so the limits have passed
        held.gate.set()
        assert (await asking).json()["found"]


async def test_a_client_may_rest_between_two_requests(serve):
    """Else the server closes the connection while the next request is on its way."""
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with (
        serve(socket=True, header_seconds=0.1) as client,
        connected(client, request) as (reader, writer),
    ):
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        async with connected(client, b"") as (other, _):
            await rest(other)  # so the time for headers has passed
        writer.write(request + HALF)
        said = await rest(reader)
        assert said.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in said


async def test_the_connection_that_has_waited_longest_makes_room(serve):
    async with (
        serve(socket=True, connections=2) as client,
        connected(client, HALF) as (oldest, _),
        connected(client, HALF),
    ):
        assert (await client.get("/healthz")).status_code == 200
        assert await rest(oldest) == b""


async def test_requests_under_way_keep_their_places(serve, held):
    async with serve(held, RULES, socket=True, connections=2) as client:
        asking = [client.begin(), client.begin()]
        await until(lambda: held.now == 2)
        async with connected(client, b"") as (reader, _):
            assert (await rest(reader)).startswith(b"HTTP/1.1 503 ")
        held.gate.set()
        assert [(await each).json()["found"] for each in asking] == [True, True]
        assert (await client.get(f"{DEFAULT}/documents")).status_code == 200


@pytest.mark.real
@pytest.mark.linux  # limits of another process
def test_more_half_open_connections_than_descriptors_do_not_end_the_server(command):
    import resource

    few = 'ulimit -Sn 128 && ulimit -Hn 256 && exec "$@"'
    serving = command(before=["sh", "-c", few, "sh"])
    with serving.client() as client, ExitStack() as opened:
        soft_and_hard = resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE)
        assert soft_and_hard == (256, 256)
        for _ in range(400):
            address = ("127.0.0.1", client.base_url.port)
            half_open = opened.enter_context(socket.create_connection(address))
            half_open.sendall(HALF)
        assert client.get("/healthz").status_code == 200
        opened.close()
        assert client.get("/api/about").status_code == 200
    assert serving.stop() == 0, serving.said
    assert "Traceback" not in serving.said
