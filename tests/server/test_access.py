"""What a token may not see is as if it did not exist, on every route and in every tool.

Two servers get the same requests with the same tokens. One of them has what the tokens may not see,
the other has never had it: no reply may tell which one it comes from.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="it is not installed")
pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import httpx2
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import CacheConfig

from colligate import Engine
from colligate.server import ServerConfig, create_app
from colligate.server.tokens import Right, TokenFile
from colligate.testing import ScriptedModel
from support.http_server import form_of, quoting, threaded

BRIEFLY = settings(
    max_examples=3,
    phases=[Phase.generate],
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
APP = create_app(ServerConfig(), Engine)
SCHEMA = schemathesis.openapi.from_dict(
    APP.openapi(), config=schemathesis.Config(cache=CacheConfig(enabled=False))
)
OWNER = "the-token-of-the-owner"
SEEN = {
    "plan.md": "# Plan\n\nThe word of the day is zebra.\n",
    "notes.md": "# Notes\n\nThe hat of the day, and what a zebra eats.\n",
}
HIDDEN = {  # added first, and of another language: neither their numbers nor their words may tell
    "merger.md": "# Merger\n\nThe word of the night is zebra. The price is zebra.\n",
    "fusion.md": "# Fusion\n\nDas Wort der Nacht hat fünf Buchstaben. Der Preis hat sich verdoppelt"
    " und die Firma hat ihren Sitz verlegt, weil sie dort keine Steuern zahlen muss.\n",
}
COPY = {"notes.markdown": SEEN["notes.md"]}  # the same document, read last from there
QUESTION = "Which hat, which word? zebra"  # in German "hat" is a stop word

# What differs between two answers to the same request.
VOLATILE = re.compile(
    r'"(\w*seconds\w*|at|created|created_at|total_duration|began)":\s*("[^"]*"|[\d.e-]+)'
    r'|127\.0\.0\.1:\d+|"split":\s*{[^}]*}|"(chatcmpl-)?[\w-]{22,24}"'
)


class World:
    """A server, and the ids of what its tokens may not see."""

    def __init__(self, base: str) -> None:
        self.client = httpx2.Client(base_url=base, trust_env=False, timeout=60)
        self.base = base
        self.aims: list[dict[str, Any]] = []

    def add_hidden(self) -> None:
        """Make what only the owner sees: a library, files in others, and what was asked."""
        post, get = self._owned("POST"), self._owned("GET")
        post("/api/libraries", json={"name": "secret"})
        for name in ("secret", "default", "empty"):
            path = f"/api/libraries/{name}"
            job = post(f"{path}/files", files=form_of(HIDDEN)).json()["job"]
            get(f"/api/jobs/{job}/events")
            run = post(f"{path}/ask", json={"question": QUESTION}).json()["run"]
            listed = get(f"{path}/documents").json()
            document = next(each["id"] for each in listed if each["title"] == "Merger")
            post(f"/api/runs/{run}/feedback", json={"good": True, "note": "the word is zebra"})
            aim = {"name": name, "document_id": document, "job_id": job, "run_id": run}
            assert {each["language"] for each in listed} >= {"de", "en"}
            get(f"{path}/documents/{document}")
            get(f"/api/jobs/{job}")
            get(f"/api/runs/{run}")
            self.aims.append(aim)

    def _owned(self, method: str) -> Any:
        def send(path: str, **what: Any) -> httpx2.Response:
            response = self.client.request(method, path, headers=bearer(OWNER), **what)
            assert response.status_code < 300, response.text
            return response

        return send


@pytest.fixture(scope="module")
def worlds(tmp_path_factory) -> Iterator[tuple[World, World, dict[str, str]]]:
    """The server with what is hidden, the one without, and the tokens of both by their owners."""
    with_, without = (tmp_path_factory.mktemp(name) for name in ("with", "without"))
    given = TokenFile(with_ / "tokens.json")
    folders = [f"default:{with_ / 'files' / 'seen'}", f"empty:{with_ / 'files' / 'none'}"]
    tokens = {
        "folder": given.make("folder", [Right.READ, Right.ASK], folders),
        "library": given.make("library", [Right.READ, Right.ASK, Right.WRITE], ["own"]),
    }
    text = given.path.read_text().replace(str(with_), str(without))
    TokenFile(without / "tokens.json").path.touch(0o600)
    (without / "tokens.json").write_text(text)
    for place in (with_, without):
        made = {"hidden": HIDDEN, "seen": SEEN, "board": COPY} if place is with_ else {"seen": SEEN}
        for name, files in made.items():
            (place / "files" / name).mkdir(parents=True)
            for file, content in files.items():
                (place / "files" / name / file).write_text(content)
            asyncio.run(_index(place / "papers", place / "files" / name))

    def serve(place: Path) -> Any:
        limits = {"jobs": 10_000, "waiting": 10_000, "kept_runs": 10_000}
        model = ScriptedModel(quoting)
        return threaded(place, model, tokens=place / "tokens.json", token=OWNER, **limits)

    with serve(with_) as one, serve(without) as other:
        pair = World(one), World(other)
        for world in pair:
            for name in ("own", "empty"):
                world.client.post("/api/libraries", json={"name": name}, headers=bearer(OWNER))
        pair[0].add_hidden()
        yield *pair, tokens
        for world in pair:
            world.client.close()


async def _index(library: Path, folder: Path) -> None:
    async with Engine(model=ScriptedModel("?"), embedder="static", library=library) as engine:
        await engine.add([folder])


def said(response: Any) -> tuple[Any, ...]:
    """What a client learns from a response, without ids and times that differ anyway.

    Events of documents that are read at the same time come in any order.
    """
    text = VOLATILE.sub("~", response.text)
    if text.startswith(("event: ", "id: ", ": ")):
        text = "\n".join(sorted(each for each in text.splitlines() if not each.startswith("id:")))
    left_out = {"date", "content-length"} if text != response.text else {"date"}
    headers = {k.lower(): v for k, v in dict(response.headers).items()}
    return response.status_code, {k: headers[k] for k in headers.keys() - left_out}, text


def hostile(aim: dict[str, Any]) -> dict[str, Any]:
    """Values that point at what is hidden, by the names of parameters and of fields of bodies."""
    document = aim["document_id"]
    cited = [{"document": document, "start": 0, "end": 9}]
    return {
        **aim,
        "history": [{"question": QUESTION, "answer": "zebra", "cited": cited}],
        "model": "auto" if aim["name"] == "default" else f"auto@{aim['name']}",
        "library": aim["name"],
        "document": document,
        "documents": [document],
        "where": ["title~merger"],
        "question": QUESTION,
        "query": QUESTION,
        "q": QUESTION,
        "columns": "word: text",
        "strategy": "retrieve-read",
        "mode": "sparse",  # whose scores depend on how rare the words are
        "messages": [{"role": "user", "content": QUESTION}],
        "retriever": None,
        "stream": True,
    }


def point(given: Any, at: dict[str, Any]) -> Any:
    """Return a value of a request with the hostile ones wherever they fit."""
    if isinstance(given, dict):
        return {key: at[key] if key in at else point(each, at) for key, each in given.items()}
    return [point(each, at) for each in given] if isinstance(given, list) else given


def declared(method: str, path: str) -> tuple[set[str], set[str]]:
    """The parameters in the query of an operation, and the fields of its body."""
    whole = APP.openapi()
    operation = whole["paths"][path][method]
    content = operation.get("requestBody", {}).get("content", {})
    name = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    fields = whole["components"]["schemas"].get(name, {}).get("properties", {})
    return {p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"}, {*fields}


def aimed(case: Any, aim: dict[str, Any]) -> Iterator[None]:
    """Point a request at what is hidden in each way that its operation declares."""
    at, query, body = hostile(aim), case.query, case.body
    queries, fields = declared(case.method.lower(), case.path)
    if "input" in fields:
        at["model"] = at["model"].replace("auto", "embedder")
    case.path_parameters = point(case.path_parameters, at)
    for key in ("", "mode", "where", "documents", "history", "stream"):
        case.query, case.body = point(query, at), point(body, at)
        if key in queries:
            case.query = {**case.query, key: at[key]}
        elif key in fields and isinstance(body, dict):
            case.body = {**case.body, key: at[key]}
        elif key:
            continue
        yield


@SCHEMA.parametrize()
@BRIEFLY
def test_no_route_tells_of_what_a_token_does_not_see(case, worlds):
    there, absent, tokens = worlds
    for aim in there.aims:
        for _ in aimed(case, aim):
            for token in tokens.values():
                sent = {"headers": bearer(token), "timeout": 60}
                replies = [case.call(base_url=world.base, **sent) for world in (there, absent)]
                assert said(replies[0]) == said(replies[1]), (case.path, case.query, case.body)


def test_a_token_sees_what_it_is_bound_to(worlds):
    world, _, tokens = worlds

    def get(token: str, path: str) -> Any:
        return world.client.get(path, headers=bearer(tokens[token])).json()

    assert [each["name"] for each in get("library", "/api/libraries")] == ["own"]
    assert all(each["id"].endswith("@own") for each in get("library", "/v1/models")["data"])
    listed = get("folder", "/api/libraries/default/documents")
    assert sorted(each["source"] for each in listed) == ["notes.md", "plan.md"]
    assert get("folder", "/api/libraries")[0]["documents"] == 2
    found = get("folder", "/api/libraries/default/search?q=zebra")
    assert {each["source"] for each in found} == {"notes.md", "plan.md"}


def call(world: World, token: str, method: str, **params: Any) -> httpx2.Response:
    return world.client.post("/mcp", json=rpc(method, **params), headers=bearer(token))


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def bearer(token: str) -> dict[str, str]:
    accepted = "application/json, text/event-stream"
    return {"Authorization": f"Bearer {token}", "Accept": accepted}


def result_of(response: httpx2.Response) -> Any:
    line = next(line for line in response.text.splitlines() if line.startswith("data: {"))
    return json.loads(line.removeprefix("data: "))["result"]


def test_no_tool_tells_of_what_a_token_does_not_see(worlds):
    there, absent, tokens = worlds
    tools = result_of(call(there, tokens["folder"], "tools/list"))["tools"]
    assert tools
    for tool in tools:
        declared = tool["inputSchema"]["properties"]
        for aim in there.aims:
            at = hostile(aim)
            every = {key: at[key] for key in declared if key in at}
            needed = set(tool["inputSchema"].get("required", ()))
            assert {*needed, "library"} <= at.keys() & declared.keys(), "point it at what is hidden"
            least = {key: every[key] for key in {*needed, "library"}}
            titled = {**every, "document": "Merger", "documents": ["merger.md"]}
            titled = {key: titled[key] for key in every}
            for arguments in (every, least, titled):
                for token in tokens.values():
                    how = {"name": tool["name"], "arguments": arguments}
                    replies = [call(each, token, "tools/call", **how) for each in (there, absent)]
                    assert said(replies[0]) == said(replies[1]), how
    for listed in ("resources/list", "prompts/list"):
        for token in tokens.values():
            assert said(call(there, token, listed)) == said(call(absent, token, listed))


async def test_files_that_wait_to_be_read_tell_nothing(serve, tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    headers = bearer(tokens.make("folder", [Right.READ], [f"default:{tmp_path}"]))
    async with serve(tokens=tokens.path) as client:
        client.server.jobs.open("default").add(tmp_path / "waits.pdf")
        assert client.server.unread() == 1
        body = rpc("tools/call", name="list_documents")
        seen = result_of(await client.post("/mcp", headers=headers, json=body))
        assert seen["structuredContent"]["unread"] == 0


def test_every_route_is_tried():
    """A route that the OpenAPI document lacks is tried by no test above: name it here, or there."""

    def paths(routes: Any) -> Iterator[str]:
        for route in routes:
            if inner := getattr(route, "original_router", None):
                yield from paths(inner.routes)
            else:
                yield route.path

    untried = {*paths(APP.routes)} - {*SCHEMA.raw_schema["paths"]}
    untried = {path for path in untried if not path.startswith("/v1/models/")}
    assert untried <= {"/", "/index.html", "/assets", "/api/openapi.json", "/mcp"}
