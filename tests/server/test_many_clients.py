"""64 clients at once."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

from support.http_server import parse_events

CLIENTS = 64


async def test_64_clients_ask_at_once_and_none_gets_anothers_answer(serve: Any) -> None:
    """Half of them stream; each asks about its own house, in a library of one page a house."""
    files = {
        f"house{n}.md": f"# House {n}\n\nThe door of number{n} is painted shade{n}.\n"
        for n in range(CLIENTS)
    }
    async with serve(files=files, socket=True, runs=8, waiting=CLIENTS) as client:

        async def ask(n: int) -> dict[str, Any]:
            question = f"Which shade has the door of number{n}"
            response = await client.ask(question, stream=n % 2 == 0)
            assert response.status_code == 200, response.text
            if n % 2:
                return dict(response.json())
            name, answer = parse_events(response.text)[-1]
            assert name == "answer"
            return dict(answer)

        await ask(0)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        answers = await asyncio.gather(*map(ask, range(CLIENTS)))
        after, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for n, answer in enumerate(answers):
            assert answer["answer"] == f"The door of number{n} is painted shade{n}. [1]"
            (citation,) = answer["citations"]
            assert citation["title"] == f"House {n}"
        assert len({answer["run"] for answer in answers}) == CLIENTS
        # A run leaves a line in a list behind, and while it is under way its prompt.
        assert after - before < 8_000_000
        assert most - before < 64_000_000
        assert {run["state"] for run in await client.listed("runs")} == {"done"}
