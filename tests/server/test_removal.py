"""A removed document leaves nothing in what a server kept: runs that looked at it, files sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from colligate.cli.app import run_command
from colligate.errors import ServerFailed
from colligate.testing import ScriptedModel

ASK = "/api/libraries/default/ask"
FILES = {"yard.md": "# Yard\n\nThe key is under the mat.\n", "b.md": "# B\n\nText.\n"}


async def runs(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/api/libraries/default/runs")).json()
    return found


async def document_of(client: Any, title: str) -> str:
    found = (await client.get("/api/libraries/default/documents")).json()
    return str(next(each["id"] for each in found if each["title"] == title))


async def test_a_run_that_failed_over_whole_documents_goes_with_any_of_them(
    serve: Any, add: Any, tmp_path: Path
) -> None:
    def reply(call: Any) -> Any:
        return "no JSON" if len(model.calls) == 1 else ServerFailed("broken", "", "")

    model = ScriptedModel(reply)
    async with serve(model) as client:
        await add(client, FILES)
        body = {"question": "Where is the key?", "strategy": "full-context"}
        failed = await client.post(ASK, json=body)
        assert failed.status_code == 502
        (run,) = await runs(client)
        events = (await client.get(f"/api/runs/{run['id']}/events?prompts=true")).text
        assert "under the mat" in events
        yard = await document_of(client, "Yard")
        await client.delete(f"/api/libraries/default/documents/{yard}")
        assert await runs(client) == []
        assert list((tmp_path / "papers" / "runs").iterdir()) == []


async def test_a_run_under_way_that_shows_what_was_removed_meanwhile_is_not_kept(
    serve: Any, add: Any, held: Any, until: Any, tmp_path: Path
) -> None:
    async with serve(held) as client:
        await add(client, FILES)
        server = client.app.state.server
        yard = await document_of(client, "Yard")
        body = {"question": "Where is the mat"}
        asking = asyncio.create_task(client.post(ASK, json=body))
        await until(lambda: held.now == 1)
        (run,) = server.runs.of("default")
        await client.delete(f"/api/libraries/default/documents/{yard}")
        assert (await asking).status_code == 409
        assert server.runs.of("default") == []
        # One that had not looked at it by then is looked at when it ends.
        asking = asyncio.create_task(client.post(ASK, json={**body, "question": "Text"}))
        await until(lambda: held.now == 1)
        (run,) = server.runs.of("default")
        other = await document_of(client, "B")
        run.removed = frozenset({other})
        held.gate.set()
        assert (await asking).status_code == 200
        assert server.runs.of("default") == []
        assert list((tmp_path / "papers" / "runs").iterdir()) == []


async def test_who_follows_a_run_that_was_erased_is_told_how_it_ended(
    serve: Any, add: Any, held: Any, until: Any, events: Any
) -> None:
    async with serve(held) as client:
        await add(client, FILES)
        runs = client.app.state.server.runs
        body = {"question": "Where is the mat", "stream": True}
        asking = asyncio.create_task(client.post(ASK, json=body))
        await until(lambda: held.now == 1)
        (run,) = runs.of("default")
        run.files.delete()
        runs._recorders[run.id].wake()  # the next event, before the run is stopped
        await asyncio.wait([asking], timeout=0.2)
        await runs.forget(run)
        name, said = events((await asking).text)[-1]
        assert (name, said["status"]) == ("problem", 409)


async def test_the_command_line_removes_what_a_server_kept(
    serve: Any, add: Any, tmp_path: Path
) -> None:
    papers = tmp_path / "papers"
    async with serve() as client:
        await add(client, FILES)
        other = await document_of(client, "B")
        about_b = {"question": "Text", "documents": [other]}
        kept = (await client.post(ASK, json=about_b)).json()["run"]
        await client.post(ASK, json={"question": "Where is the mat"})
        yard = await document_of(client, "Yard")
    options = ["--library", str(papers), "--embedder", "static"]
    assert await asyncio.to_thread(run_command, ["library", "remove", yard, *options]) == 0
    left = [file for file in papers.rglob("*") if file.is_file()]
    assert not any(b"under the mat" in file.read_bytes() for file in left)
    assert not any(yard.encode() in file.read_bytes() for file in left)
    assert {file.stem for file in (papers / "runs").iterdir()} == {kept}
    assert [file.name for file in (papers / "files").rglob("*.*")] == ["b.md"]
    async with serve() as client:
        assert [run["id"] for run in await runs(client)] == [kept]
