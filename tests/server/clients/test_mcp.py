"""The MCP server through the SDK's own client: in process, over stdio, over HTTP."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from colligate import Engine
from colligate.errors import ServerFailed
from colligate.models import ChatRequest
from colligate.server.mcp import SingleLibrary, make_mcp_server
from colligate.testing import ScriptedModel
from support.embedders import WordEmbedder
from support.leases import COLUMNS, LEASES, read_lease
from support.models import one_by_one, statement_reply

Connected = Callable[..., AbstractAsyncContextManager[Client]]

QUESTION = "Where do bicycles stand?"
REPLY = statement_reply("Bicycles stand in the yard", "Bicycles stand in the yard.", "in the yard")
CELLAR = {"query": "barrels in the cellar"}


@pytest.fixture
def connected(folder: Path, tmp_path: Path) -> Connected:
    """A client of a server in this process. It must be closed by the task that opened it."""

    @asynccontextmanager
    async def connect(reply: Callable[[ChatRequest], str] = lambda _: REPLY) -> Any:
        model = ScriptedModel(reply)
        engine = Engine(model=model, embedder="static", library=tmp_path / "library")
        async with engine, Client(make_mcp_server(SingleLibrary(engine, [folder]))) as client:
            yield client

    return connect


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


async def rules_in(client: Client) -> str:
    listed = await called(client, "list_documents")
    return next(each["id"] for each in listed["documents"] if each["title"] == "House rules")


async def test_the_tools_are_offered_as_ones_that_only_read(connected, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    async with connected() as client:
        assert (root.handlers, root.level) == ([], level)  # the program's own logging is kept
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"ask", "fill_table", "search", "read_section", "list_documents"}
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
            assert tool.output_schema is not None
            assert "\n " not in (tool.description or "")
        assert "duquad" in str(tools["ask"].input_schema)


async def test_a_question_may_point_back_to_the_conversation(connected):
    def reply(call: ChatRequest) -> str:
        return QUESTION if "complete the last question" in call.messages[0].content else REPLY

    turns = [{"question": "Do cars or bicycles stand there?", "answer": "Cars do not."}]
    async with connected(reply) as client:
        answer = await called(client, "ask", question="Where do they?", history=turns)
    assert (answer["question"], answer["found"]) == (QUESTION, True)


async def test_a_table_is_filled_with_its_progress_and_kept(folder, connected):
    for name, text in LEASES.items():
        (folder / name).write_text(text)
    asked: list[str] = []

    def reply(call: ChatRequest) -> str:
        asked.append(call.prompt)
        return json.dumps(read_lease(call.prompt, (call.schema or {})["properties"]))

    said: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    wanted = {"columns": COLUMNS, "documents": ["Lease of Anna", "boris.md"]}
    async with connected(reply) as client:
        filled = await client.call_tool("fill_table", wanted, progress_callback=on_progress)
        assert "| Lease of Anna | anna.md | 48000 EUR [1] |" in filled.content[0].text
        anna, boris = filled.structured_content["rows"]
        assert anna["cells"]["rent"]["values"][0]["citation"]["source"] == "anna.md"
        assert boris["cells"]["rent"]["doubt"] == "the document says several"
        assert said
        calls = len(asked)
        await called(client, "fill_table", **wanted)
        assert len(asked) == calls
        assert "no type 'coins'" in await refused(client, "fill_table", columns="rent: coins")


async def test_effort_and_consent_are_set_by_the_client(folder, connected):
    for number in range(50):  # more than are read at once
        (folder / f"{number}.md").write_text(f"# Yard {number}\n\n" + "Bicycles stand. " * 60)
    question = {"question": "Which bicycles stand in each yard?"}
    async with connected(one_by_one) as client:
        some = await called(client, "ask", **question)
        assert "read the documents one by one" in some["how"]
        assert any("of 52: --yes reads all" in warning for warning in some["warnings"])
        every = await called(client, "ask", **question, yes=True)
        assert not any("--yes" in warning for warning in every["warnings"])
        once = await called(client, "ask", **question, yes=True, effort="low")
        assert "one by one" not in once["how"]
        wrong = {**question, "strategy": "duquad", "effort": "low"}
        assert "has no parameter" in await refused(client, "ask", **wrong)
        known = await called(client, "ask", **question, strategy="direct", risk="careful")
        assert any("--risk says nothing" in warning for warning in known["warnings"])
        assert "no risk '2.0'" in await refused(client, "ask", **question, risk=2)


async def test_a_retriever_is_named_and_never_an_address(connected):
    async with connected() as client:
        for retriever in ("sparse", "sfs:documents=2"):
            assert (await called(client, "ask", question=QUESTION, retriever=retriever))["found"]
        for retriever, says in (
            ("http://127.0.0.1:9", "only who runs the server"),
            ("rdr2:prompts=/etc/passwd", "no model that a question names"),
        ):
            wrong = {"question": QUESTION, "retriever": retriever}
            assert says in await refused(client, "ask", **wrong)


async def test_passages_are_found_in_all_documents_or_in_some(connected):
    async with connected() as client:
        found = await called(client, "search", query="bicycles in the yard", k=1)
        (passage,) = found["passages"]
        assert (passage["section"], passage["date"]) == (["House rules", "Bicycles"], "")
        assert "Bicycles stand in the yard" in passage["text"]
        rules, where = await rules_in(client), ["title~house"]
        for some in (
            {"documents": [rules]},
            {"where": where},
            {"documents": ["rules.md"], "where": where},
            {"documents": ["house rules"]},
        ):
            found = await called(client, "search", **CELLAR, **some)
            assert {each["document"] for each in found["passages"]} == {rules}
        assert "no document meets" in await refused(client, "search", **CELLAR, where=["date>2024"])
        assert "no-such" in await refused(client, "search", **CELLAR, documents=["no-such"])


async def test_a_document_is_read_by_its_sections_and_piece_by_piece(connected, folder):
    written = (folder / "rules.md").read_text()
    async with connected() as client:

        async def read(**what: Any) -> Any:
            return await called(client, "read_section", document="rules.md", **what)

        whole = await read()
        assert whole["text"].strip() == written.strip()
        (rules,) = whole["subsections"]
        assert rules["title"] == "House rules"
        sections = (await read(start=rules["start"]))["subsections"]
        pets = next(each for each in sections if each["title"] == "Pets")
        inside = await read(start=pets["start"], end=pets["end"])
        assert inside["section"] == ["House rules", "Pets"]
        assert [each["title"] for each in inside["subsections"]] == ["Notes"]
        pieces, start = [], 0
        while start is not None:
            piece = await read(start=start, most=50)
            assert len(piece["text"]) <= 50
            pieces.append(piece["text"])
            start = piece["next"]
        assert "".join(pieces) == whole["text"]
        at = written.index("Bicycles stand")
        piece = await read(start=at, end=at + 8)
        assert (piece["text"], piece["source"]) == ("Bicycles", "rules.md")


async def test_documents_are_listed_in_pages_and_one_added_meanwhile_is_seen(connected, folder):
    async with connected() as client:
        first = await called(client, "list_documents", limit=1)
        assert first["total"] == 2
        second = await called(client, "list_documents", limit=1, offset=first["next"])
        assert second["next"] is None
        assert first["documents"][0]["id"] != second["documents"][0]["id"]
        assert "/" not in first["documents"][0]["source"]  # its folder is not shown
        (folder / "attic.md").write_text("# Attic\n\nTrunks stand in the attic.\n")
        found = await called(client, "search", query="trunks in the attic", k=1)
        assert found["passages"][0]["title"] == "Attic"


class Gated(WordEmbedder):
    """Embeds passages once `gate` is open, queries at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, kind: str = "passage") -> Any:
        if kind == "passage":
            await self.gate.wait()
        return await super().embed(texts, kind=kind)


async def test_calls_are_answered_over_what_has_been_read_so_far(folder, tmp_path):
    embedder = Gated()
    model = ScriptedModel(lambda call: REPLY)
    engine = Engine(model=model, embedder=embedder, library=tmp_path / "library")
    service = SingleLibrary(engine, [folder])
    async with engine, aclosing(service), Client(make_mcp_server(service)) as client:
        embedder.gate.set()
        await engine.add([folder / "rules.md"])
        embedder.gate.clear()
        service.patience = 0
        answer = await called(client, "ask", question=QUESTION)
        assert answer["found"]
        assert "not read yet: ask again later to include" in str(answer["warnings"])
        assert (await called(client, "search", query="barrels"))["unread"]
        assert (await called(client, "list_documents"))["total"] == 1
        embedder.gate.set()
        service.patience = 30
        listed = await called(client, "list_documents")
        assert (listed["total"], listed["unread"]) == (2, 0)
        assert not (await called(client, "ask", question=QUESTION))["warnings"]


async def test_errors_are_told_to_the_model(connected):
    async with connected() as client:
        rules = {"document": await rules_in(client)}
        for tool, arguments, words in (
            ("read_section", {"document": "no-such"}, "no-such"),
            ("read_section", {**rules, "start": 99_999}, "character"),
            ("read_section", {**rules, "start": 9, "end": 99_999}, "character"),
            ("read_section", {**rules, "start": 9, "end": 3}, ""),
            ("ask", {"question": QUESTION, "strategy": "duquat"}, "did you mean"),
            ("ask", {"question": "  "}, "empty"),
            ("search", {"query": "x", "library": "other"}, "no library"),
            ("search", {"query": "x", "k": 0}, "k: "),
            ("search", {"query": ""}, "query: it is empty"),
            ("search", {}, "query: it is missing"),
        ):
            said = await refused(client, tool, **arguments)
            assert words in said
            assert "pydantic" not in said


async def test_the_list_names_the_files_that_could_not_be_read(connected, folder):
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    async with connected() as client:
        (warning,) = (await called(client, "list_documents"))["warnings"]
    assert "broken.pdf" in warning


async def test_the_reason_is_told_of_tasks_that_failed_together():
    class Failing(SingleLibrary):
        async def answer(self, *_: Any) -> dict[str, Any]:
            raise ExceptionGroup("2 readers", [ServerFailed("the model failed", "", "wait")])

    engine = Engine(model=ScriptedModel(lambda call: REPLY), embedder="static")
    async with engine, Client(make_mcp_server(Failing(engine))) as client:
        assert "the model failed; wait" in await refused(client, "ask", question=QUESTION)


async def test_over_stdio_from_the_command_line(folder, tmp_path, openai_server):
    openai_server.answer = REPLY
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-m", "colligate", "mcp", str(folder)),
            *("--library", str(tmp_path / "library"), "--embedder", "static"),
            *("--model", f"openai:scripted@{openai_server.url}"),
        ],
        env={**os.environ, "OPENAI_API_KEY": "none", "XDG_CONFIG_HOME": str(tmp_path)},
    )
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            answer = await called(client, "ask", question=QUESTION)
            found = await called(client, "search", query="barrels", k=1)
    assert answer["citations"][0]["quote"].startswith("Bicycles stand in the yard")
    assert found["passages"][0]["title"] == "Cellar"
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.posix
def test_an_interrupt_ends_it_while_the_client_is_silent(tmp_path):
    command = [sys.executable, "-m", "colligate", "mcp", "--library", str(tmp_path / "l")]
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


# Over HTTP, at /mcp.


@pytest.fixture
def connected_http(served: Any) -> Connected:
    @asynccontextmanager
    async def connect(mode: str = "auto", token: str = "") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or served.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(
                streamable_http_client(served.url + "mcp", http_client=http), mode=mode
            ) as client,
        ):
            yield client

    return connect


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_tools_answer(connected_http, mode):
    async with connected_http(mode) as client:
        reports: list[tuple[float, str | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, message))

        question = {"question": QUESTION}
        answer = await client.call_tool("ask", question, progress_callback=on_progress)
        text = answer.content[0].text
        assert text.startswith("Bicycles stand in the yard. [1]")
        assert "[1] House rules › Bicycles (rules.md)" in text
        (citation,) = answer.structured_content["citations"]
        assert citation["quote"] == "Bicycles stand in the yard, never in the hall."
        assert reports
        assert [seen for seen, _ in reports] == sorted({seen for seen, _ in reports})
        assert all(message for _, message in reports)
        (passage,) = (await called(client, "search", **CELLAR, k=1))["passages"]
        assert passage["title"] == "Cellar"
        assert (await called(client, "list_documents"))["total"] == 2
        section = await called(client, "read_section", document=passage["document"])
        assert "Barrels" in section["text"]
        for wrong, words in (
            ({"library": "nowhere"}, "no library 'nowhere'"),
            ({"question": "Does this fail?"}, "the model failed"),
            ({"question": "x" * 9000}, "too long"),
            ({"question": ""}, "question"),
        ):
            assert words in await refused(client, "ask", **{**question, **wrong})


async def test_named_tokens_have_the_same_rights(connected_http, served):
    async with connected_http("auto", served.reader) as client:
        assert "lacks the right ask" in await refused(client, "ask", question=QUESTION)
        assert (await called(client, "search", **CELLAR, k=1))["passages"]
    reading = {"search": CELLAR, "list_documents": {}, "read_section": {"document": "rules.md"}}
    async with connected_http("auto", served.asker) as client:
        assert (await called(client, "ask", question=QUESTION))["found"]
        for tool, arguments in reading.items():
            assert "lacks the right read" in await refused(client, tool, **arguments)


@pytest.mark.parametrize(("mode", "cancels"), [("auto", True), ("auto", False), ("legacy", False)])
async def test_a_client_that_gives_up_or_leaves_frees_its_run(connected_http, model, mode, cancels):
    async with connected_http(mode) as client:
        asking = asyncio.create_task(client.call_tool("ask", {"question": "Does it stall?"}))
        assert await asyncio.to_thread(model.stalled.wait, 20)
        if cancels:
            asking.cancel()
            assert await asyncio.to_thread(model.freed.wait, 20)
    await asyncio.gather(asking, return_exceptions=True)
    assert await asyncio.to_thread(model.freed.wait, 20)


async def test_a_get_opens_no_stream_and_no_request_goes_without_the_token(served):
    headers = {"Authorization": f"Bearer {served.token}", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=10) as client:
        response = await client.post("mcp", json={}, headers={"Authorization": "Bearer x"})
        assert response.status_code == 401
        response = await client.get("mcp")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        metrics = (await client.get("metrics")).text
    assert 'method="GET",route="/mcp",status="405"' in metrics
