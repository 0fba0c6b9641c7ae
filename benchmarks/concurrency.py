"""Measure what the client adds to many calls at once, compared with the plain openai client.

    python benchmarks/concurrency.py [--calls 64] [--delay 0.1] [--rounds 5]

A server in a separate process answers each chat call after a fixed delay, whatever their number.
All calls together cannot take less than ceil(calls / in flight) delays: each figure is a multiple
of that ideal, the median of rounds in which the two clients take turns, after one round that opens
the connections. A client adds its processor time, one call after another even if they are in
flight together; this is a second figure.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import statistics
import time

from openai import AsyncOpenAI

from colligate.models.base import ChatRequest, Message
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy
from results import read_arguments, say

IN_FLIGHT = (8, 16, 64)
CHOICE = {
    "index": 0,
    "finish_reason": "stop",
    "message": {"role": "assistant", "content": "An answer of a few words."},
}
USAGE = {"prompt_tokens": 400, "completion_tokens": 8, "total_tokens": 408}
FIELDS = {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "m"}
ANSWER = json.dumps({**FIELDS, "choices": [CHOICE], "usage": USAGE}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
RESPONSE = HEAD % len(ANSWER) + ANSWER


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Handle one connection: read each request completely and answer it after the delay."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            await asyncio.sleep(delay)
            writer.write(RESPONSE)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve(delay: float, pipe) -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda r, w: answer(r, w, delay), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def measure(call, calls: int) -> tuple[float, float]:
    """Return the seconds and processor seconds of so many calls at once."""
    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call() for _ in range(calls)))
    return time.perf_counter() - began, time.process_time() - spent


async def compare(url: str, in_flight: int, calls: int, delay: float, rounds: int) -> None:
    question = "Which of these passages says when the bridge was opened? " * 40
    model = OpenAIChat("m", url, policy=Policy(in_flight=in_flight))
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    slots = asyncio.Semaphore(in_flight)

    async def ours():
        await model.chat(ChatRequest([Message("user", question)], max_tokens=50))

    async def plain():
        turns = [{"role": "user", "content": question}]
        async with slots:
            await client.chat.completions.create(
                model="m", messages=turns, max_tokens=50, temperature=0.0
            )

    clients = {"colligate": ours, "openai client": plain}
    taken = {name: [] for name in clients}
    for _ in range(rounds + 1):
        for name, call in clients.items():
            taken[name].append(await measure(call, calls))
    ideal = math.ceil(calls / in_flight) * delay
    for name, [_, *measured] in taken.items():
        whole, own = (statistics.median(column) for column in zip(*measured, strict=True))
        figure = f"{calls} calls, {in_flight} in flight, {name}"
        against = f"ideal {ideal:.2f} s, goal <= 1.1"
        say(f"{figure}, time", whole / ideal, "times the ideal", against)
        say(f"{figure}, processor time a call", own / calls * 1000, "ms", f"delay {delay:g} s")
    await model.aclose()
    await client.close()


if __name__ == "__main__":
    arguments = read_arguments(__doc__, calls=64, delay=0.1, rounds=5)
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    server = processes.Process(target=serve, args=(arguments.delay, there), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    for in_flight in IN_FLIGHT:
        asyncio.run(compare(url, in_flight, arguments.calls, arguments.delay, arguments.rounds))
    server.terminate()
