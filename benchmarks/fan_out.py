"""Measure what SPD-RAG adds to the delays it cannot avoid, and the memory of a document.

    python benchmarks/fan_out.py [--documents 100] [--delay 1] [--limit 16] [--rounds 3]
    python benchmarks/fan_out.py --memory [--documents 100 2000]

A server in a separate process answers each call after a fixed delay, whatever their number: the
coordinator gets two tasks, a document's agent searches once and then returns the sentence that was
asked for, a synthesis quotes its input. The delays that cannot be avoided are one for the
coordinator, ceil(documents / calls in flight) times the two calls of an agent, and one for each
level of the synthesis. The documents are in the library before the clock starts. Memory is the peak
of a process that asks once; that of a document is the growth between the two sizes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import re
import resource
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

CALLS_A_DOCUMENT = 2  # a search, then the findings
QUESTION = "How many millimetres of rain did each station record in March?"
SHOWN = re.compile(r'<passage number="(\d+)"[^>]*>\n(.*?)\n?</passage', re.DOTALL)
MB = 1e6


def write_documents(folder: Path, count: int) -> None:
    """Write station reports of about 500 words in three sections, the fact in the second."""
    months = "January February April May June July August September October November".split()
    for number in range(count):
        ledger = " ".join(
            f"In {month} the warden of station {number} read the gauge {(number * at) % 28 + 1}"
            f" times, cleaned the funnel and noted wind from quarter {(number + at) % 4}."
            for at, month in enumerate(months, 1)
        )
        (folder / f"station-{number:04}.md").write_text(
            f"# Report of station {number}\n\n## Readings\n\n{ledger}\n\n## Rain\n\n"
            f"Station {number} recorded {number % 90 + 10} millimetres of rain in March."
            f" The gauge of station {number} stands on a lawn.\n\n## Upkeep\n\n{ledger}\n",
            encoding="utf-8",
        )


# The server


def make_reply(body: dict) -> tuple[str, str]:
    """Return who asks, recognised by the schema of the reply, and the reply's text."""
    asked = body["response_format"]["json_schema"]["schema"]["properties"]
    text = "\n".join(turn["content"] for turn in body["messages"])
    shown = [(int(number), " ".join(said.split())) for number, said in SHOWN.findall(text)]
    facts = [(number, fact) for number, said in shown if (fact := _fact(said))]
    if "sub_agent_todos" in asked:
        who, said = "coordinator", _plan()
    elif "action" in asked:
        who, said = "findings" if shown else "search", _turn(facts)
    else:
        who, said = "synthesis", _answer(facts)
    return who, json.dumps({name: said[name] for name in asked})


def _plan() -> dict:
    tasks = ["Find the rain recorded in March.", "Find the name of the station."]
    return {
        "sub_agent_todos": [{"task": task} for task in tasks],
        "synthesis_directive": "List every station.",
    }


def _turn(facts: list[tuple[int, str]]) -> dict:
    """Return the turn of an agent that searches until it was shown the fact."""
    return {
        "reasoning": "The rain in March is asked for.",
        "findings": [{"passage": n, "quote": fact, "finding": fact} for n, fact in facts],
        "action": "finalize" if facts else "search",
        "query": "rain recorded in March",
        "relevance": 0.9,
    }


def _answer(facts: list[tuple[int, str]]) -> dict:
    """Return at most twelve statements of six facts each, the most that a reply may have."""
    rows = [facts[at : at + 6] for at in range(0, min(len(facts), 72), 6)]
    statements = [
        {
            "quotes": [{"passage": n, "quote": fact} for n, fact in row],
            "sentence": " ".join(fact for _, fact in row),
        }
        for row in rows
    ]
    return {"statements": statements, "short_answer": "", "found": True}


def _fact(text: str) -> str:
    found = re.search(r"Station \d+ recorded \d+ millimetres of rain in March\.", text)
    return found[0] if found else ""


def make_response(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    body = json.dumps(
        {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 60, "total_tokens": 960},
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


class Server:
    """Count calls by who asked; a call to the synthesis that finds none open begins a level."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.asked: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.most_open = 0

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
                body = await reader.readexactly(int(length))
                until = time.perf_counter() + self.delay
                who, text = make_reply(json.loads(body))
                self.asked["levels"] += who == "synthesis" and not self.open[who]
                self.asked[who] += 1
                self.open[who] += 1
                self.most_open = max(self.most_open, self.open.total())
                await asyncio.sleep(until - time.perf_counter())
                self.open[who] -= 1
                writer.write(make_response(text))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def serve(delay: float, pipe) -> None:
    """Serve until a message is false; any other asks for the counts since the last one."""

    async def run() -> None:
        server = Server(delay)
        listening = await asyncio.start_server(
            server.handle_connection, "127.0.0.1", 0, limit=1 << 24, backlog=256
        )
        pipe.send(listening.sockets[0].getsockname()[1])
        while await asyncio.to_thread(pipe.recv):
            pipe.send({**server.asked, "most open": server.most_open})
            server.asked.clear()
            server.most_open = 0

    asyncio.run(run())


# The client, in a separate process


def index(folder: str, library: str, embedder: str) -> None:
    from colligate.engine import Engine

    async def run() -> None:
        async with Engine(model="bundled", embedder=embedder, library=library) as engine:
            await engine.add([folder])

    asyncio.run(run())


def ask(url: str, library: str, embedder: str, limit: int, rounds: int, pipe) -> None:
    """Ask `rounds` times; the first opens models and library, and is not counted."""
    from colligate.core.strategy import make_strategy
    from colligate.engine import Engine
    from colligate.models.openai import OpenAIChat
    from colligate.models.openai_http import Policy

    async def run() -> None:
        model = OpenAIChat("m", url, policy=Policy(in_flight=limit))
        spd_rag = make_strategy(
            "spd-rag",
            concurrency=limit,
            most_calls=None,
            whole=False,  # two calls a document, as in the paper
        )
        async with Engine(model=model, embedder=embedder, library=library) as engine:
            for number in range(rounds):
                began, spent = time.perf_counter(), time.process_time()
                answer = await engine.ask(f"{QUESTION} ({number})", strategy=spd_rag)
                seconds = time.perf_counter() - began
                pipe.send(
                    {
                        "seconds": seconds,
                        "processor": time.process_time() - spent,
                        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                        "citations": len(answer.citations),
                        "warnings": answer.warnings,
                    }
                )
                pipe.recv()
        await model.aclose()

    asyncio.run(run())


def show(figure: str, value: float, unit: str, against: str) -> None:
    row = {"figure": figure, "value": round(value, 3), "unit": unit, "against": against}
    print(json.dumps(row), flush=True)


class Bench:
    """Run a server, and processes that ask it over libraries of so many documents."""

    def __init__(self, delay: float, limit: int, embedder: str, folder: Path) -> None:
        self.delay, self.limit, self.embedder, self.folder = delay, limit, embedder, folder
        self._processes = multiprocessing.get_context("spawn")
        self._here, there = self._processes.Pipe()
        self._server = self._processes.Process(target=serve, args=(delay, there), daemon=True)
        self._server.start()
        self.url = f"http://127.0.0.1:{self._here.recv()}/v1"

    def run_rounds(self, documents: int, rounds: int) -> list[dict]:
        """Return each round's measures with the counts of the server."""
        library = self._index(documents)
        here, there = self._processes.Pipe()
        arguments = (self.url, library, self.embedder, self.limit, rounds, there)
        process = self._processes.Process(target=ask, args=arguments)
        process.start()
        there.close()
        measured = []
        for _ in range(rounds):
            row = here.recv()
            self._here.send(True)
            row |= self._here.recv()
            expected = {"coordinator": 1, "search": documents, "findings": documents}
            got = {who: row.get(who, 0) for who in expected}
            if got != expected or row["warnings"] or not row["citations"]:
                raise SystemExit(
                    f"expected the calls {expected}, citations and no warning, got {row}"
                )
            measured.append(row)
            here.send(True)
        process.join()
        return measured

    def _index(self, documents: int) -> str:
        files, library = self.folder / f"files-{documents}", self.folder / f"library-{documents}"
        files.mkdir()
        write_documents(files, documents)
        arguments = (str(files), str(library), self.embedder)
        process = self._processes.Process(target=index, args=arguments)
        process.start()
        process.join()
        return str(library)

    def close(self) -> None:
        self._here.send(False)
        self._server.join()


def measure_time(bench: Bench, documents: int, rounds: int) -> None:
    measured = bench.run_rounds(documents, rounds + 1)[1:]
    chains = math.ceil(documents / bench.limit) * CALLS_A_DOCUMENT
    shares = []
    for row in measured:
        ideal = (1 + chains + row["levels"]) * bench.delay
        shares.append(ideal / row["seconds"])
    figure = f"{documents} documents, {bench.limit} at once, delay {bench.delay:g} s"
    against = f"ideal {ideal:g} s, goal >= 0.9"
    show(f"{figure}, time", statistics.median(shares), "of the ideal", against)
    processor = statistics.median(row["processor"] for row in measured) / documents * 1000
    show(f"{figure}, processor time a document", processor, "ms", f"embedder {bench.embedder}")
    most = max(row["most open"] for row in measured)
    show(f"{figure}, calls in flight", most, "at most", f"limit {bench.limit}")


def measure_memory(bench: Bench, sizes: list[int]) -> None:
    peaks = {}
    for documents in sizes:
        [row] = bench.run_rounds(documents, 1)
        peaks[documents] = row["peak"]
        against = f"{row['seconds']:.0f} s, embedder {bench.embedder}"
        show(f"{documents} documents, peak memory", row["peak"] / MB, "MB", against)
    if len(sizes) > 1:
        small, large = min(sizes), max(sizes)
        grown = (peaks[large] - peaks[small]) / (large - small) / 1000
        show(f"memory a document, {small} to {large}", grown, "KB", "flat is 0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, nargs="+")
    parser.add_argument("--delay", type=float, help="seconds")
    parser.add_argument("--limit", type=int, default=16, help="calls in flight")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--memory", action="store_true", help="measure memory, not time")
    arguments = parser.parse_args()
    delay = arguments.delay or (0.01 if arguments.memory else 1.0)
    sizes = arguments.documents or ([100, 2000] if arguments.memory else [100])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(delay, arguments.limit, arguments.embedder, Path(folder))
        if arguments.memory:
            measure_memory(bench, sizes)
        else:
            for documents in sizes:
                measure_time(bench, documents, arguments.rounds)
        bench.close()
