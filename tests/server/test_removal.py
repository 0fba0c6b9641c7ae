"""A removed document leaves nothing in what a server kept: runs that looked at it, files sent."""

import asyncio
from typing import Any

import pytest

from colligate.cli import main
from colligate.errors import ServerFailed
from colligate.library.library import AsyncLibrary
from colligate.testing import ScriptedModel
from support.http_server import DEFAULT, parse_events, until

FILES = {"yard.md": "# Yard\n\nThe key is under the mat.\n", "b.md": "# B\n\nText.\n"}
MAT = "Where is the mat"


async def test_a_removed_document_leaves_no_trace(serve, tmp_path):
    async with serve(files=FILES) as client:
        kept = (await client.ask("Text", documents=[await client.document("B")])).json()["run"]
        yard = await client.document("Yard")
        gone = (await client.ask(MAT, documents=[yard])).json()["run"]
        assert (await client.delete(f"{DEFAULT}/documents/{yard}")).status_code == 204
        assert [run["id"] for run in await client.listed("runs")] == [kept]
        assert (await client.get(f"/api/runs/{gone}")).status_code == 404
        for folder in ("files", "runs"):
            for file in (tmp_path / "papers" / folder).rglob("*"):
                assert file.is_dir() or b"under the mat" not in file.read_bytes()
        assert (await client.get(f"{DEFAULT}/documents/{yard}")).status_code == 404


@pytest.mark.parametrize("how", ["cited earlier", "said earlier", "read without an answer"])
async def test_whatever_showed_a_run_the_text_it_goes_with_the_document(serve, tmp_path, how):
    def reply(call: Any) -> Any:
        return "no JSON" if len(model.calls) == 1 else ServerFailed("broken", "", "")

    model = ScriptedModel(reply)
    async with serve(model, FILES) as client:
        yard = await client.document("Yard")
        if how == "read without an answer":
            await client.ask(MAT, strategy="full-context")
        else:
            turn: dict[str, Any] = {"question": MAT, "answer": "under the mat"}
            if how == "cited earlier":
                turn["cited"] = [{"document": yard, "start": 8, "end": 20}]
            await client.ask("Text", documents=[await client.document("B")], history=[turn])
        assert len(await client.listed("runs")) == 1
        await client.delete(f"{DEFAULT}/documents/{yard}")
        assert await client.listed("runs") == []
        assert list((tmp_path / "papers" / "runs").iterdir()) == []


async def test_a_run_under_way_that_holds_removed_text_is_not_kept(serve, held, tmp_path):
    async with serve(held, FILES) as client:
        runs = client.server.runs
        asking = client.begin(MAT)
        await until(lambda: held.now == 1)
        await client.delete(f"{DEFAULT}/documents/{await client.document('Yard')}")
        assert (await asking).status_code == 409
        assert runs.list_runs("default") == []
        # A run that had not looked at the document by then is checked when it ends.
        asking = client.begin("Text")
        await until(lambda: held.now == 1)
        (run,) = runs.list_runs("default")
        run.removed = frozenset({await client.document("B")})
        held.gate.set()
        assert (await asking).status_code == 200
        assert runs.list_runs("default") == []
        assert list((tmp_path / "papers" / "runs").iterdir()) == []


async def test_a_run_is_not_kept_whose_text_another_process_removes(serve, held, tmp_path):
    papers = tmp_path / "papers"
    async with serve(held, FILES) as client, AsyncLibrary(papers, embedder="static") as other:
        asking = client.begin(MAT)
        await until(lambda: held.now == 1)
        await other.remove([await client.document("Yard")])
        held.gate.set()
        await asking
        assert client.server.runs.list_runs("default") == []
        assert list((papers / "runs").iterdir()) == []
        assert [each["title"] for each in await client.listed("documents")] == ["B"]


async def test_a_follower_of_an_erased_run_learns_how_it_ended(serve, held):
    async with serve(held, FILES) as client:
        runs = client.server.runs
        asking = client.begin(MAT, stream=True)
        await until(lambda: held.now == 1)
        (run,) = runs.list_runs("default")
        run.delete_files()
        run.wake()  # the next event, before the run is stopped
        await asyncio.wait([asking], timeout=0.2)
        await runs.forget(run)
        name, problem = parse_events((await asking).text)[-1]
        assert (name, problem["status"]) == ("problem", 409)


async def test_the_command_line_removes_what_a_server_kept(serve, tmp_path):
    papers = tmp_path / "papers"
    async with serve(files=FILES) as client:
        kept = (await client.ask("Text", documents=[await client.document("B")])).json()["run"]
        await client.ask(MAT)
        turn = {"question": MAT, "answer": "under the mat"}  # its citations are not known
        await client.ask("Text", documents=[await client.document("B")], history=[turn])
        yard = await client.document("Yard")
    options = ["--library", str(papers), "--embedder", "static"]
    assert await asyncio.to_thread(main, ["library", "remove", yard, *options]) == 0
    left = [file for file in papers.rglob("*") if file.is_file()]
    assert not any(b"under the mat" in file.read_bytes() for file in left)
    assert not any(yard.encode() in file.read_bytes() for file in left)
    assert {file.stem for file in (papers / "runs").iterdir()} == {kept}
    assert [file.name for file in (papers / "files").rglob("*.*")] == ["b.md"]
    async with serve() as client:
        assert [run["id"] for run in await client.listed("runs")] == [kept]
