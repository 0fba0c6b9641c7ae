"""Named tokens: each allows what it was made for, until it is revoked."""

import json
import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from colligate.cli import main
from colligate.errors import UsageError
from colligate.server.config import ServerConfig, parse_network
from colligate.server.tokens import Right, TokenFile
from support.http_server import DEFAULT, QUESTION, RULES, ServerClient, form_of

OWNER = "the-token-of-the-owner"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def fill(client: ServerClient) -> None:
    sent = await client.post(f"{DEFAULT}/files", files=form_of(RULES), headers=bearer(OWNER))
    await client.get(f"/api/jobs/{sent.json()['job']}/events", headers=bearer(OWNER))


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
def given(tokens: TokenFile) -> dict[str, str]:
    """A token of each right alone."""
    return {right.value: tokens.make(f"{right.value}-only", [right]) for right in Right}


ALLOWED = [
    ("GET", f"{DEFAULT}/documents", "read"),
    ("GET", f"{DEFAULT}/documents/x", "read"),
    ("GET", f"{DEFAULT}/search?q=hall", "read"),
    ("GET", f"{DEFAULT}/runs", "read ask"),
    ("GET", "/api/runs/x", "read ask"),
    ("DELETE", "/api/runs/x", "ask"),
    ("POST", f"{DEFAULT}/ask", "ask"),
    ("POST", f"{DEFAULT}/table", "ask"),
    ("POST", f"{DEFAULT}/table/estimate", "ask"),
    ("PUT", "/api/runs/x/cell", "ask"),
    ("POST", "/v1/chat/completions", "ask"),
    ("POST", "/api/chat", "ask"),
    ("POST", "/v1/embeddings", "read"),
    ("POST", "/api/embed", "read"),
    ("GET", "/v1/models", "read ask write"),
    ("GET", "/api/tags", "read ask write"),
    ("GET", "/api/version", "read ask write"),
    ("POST", "/api/show", "read ask write"),
    ("GET", "/api/about", "read ask write"),
    ("GET", "/api/libraries", "read ask write"),
    ("POST", "/api/libraries", "write"),
    ("POST", f"{DEFAULT}/files", "write"),
    ("DELETE", f"{DEFAULT}/documents/x", "write"),
    ("GET", "/api/jobs/x", "read write"),
    ("DELETE", "/api/jobs/x", "write"),
    ("DELETE", "/api/libraries/other", ""),
    ("GET", "/metrics", ""),
    ("POST", "/api/libraries/%0A", "write"),
    ("PUT", "/%0A", "write"),
]


async def test_a_right_allows_its_requests_and_admin_all(serve, tokens, given):
    async with serve(token=OWNER, tokens=tokens.path) as client:
        for method, path, allowed in ALLOWED:
            assert (await client.request(method, path)).status_code == 401
            for right, token in {**given, "owner": OWNER}.items():
                response = await client.request(method, path, headers=bearer(token))
                refused = right not in (*allowed.split(), "admin", "owner")
                assert (response.status_code == 403) == refused, (path, right, response.text)
                assert response.status_code != 401
                if refused:
                    assert f"the token {right}-only lacks the right" in response.text


async def test_a_token_sees_its_own_runs_and_an_admin_all(serve, tokens, given):
    """Also after a restart, and if the name is that of a token that was revoked."""
    ana = tokens.make("ana", [Right.READ, Right.ASK])
    body = {"question": QUESTION, "strategy": "retrieve-read"}

    async def sees(token: str) -> bool:
        listed = (await client.get(f"{DEFAULT}/runs", headers=bearer(token))).json()
        opened = (await client.get(run, headers=bearer(token))).status_code == 200
        assert [each["asked_by"] for each in listed] == ["ana"] * opened
        assert not any("asked_with" in each for each in listed)
        return opened

    async with serve(tokens=tokens.path, token=OWNER) as client:
        await fill(client)
        asked = await client.post(f"{DEFAULT}/ask", json=body, headers=bearer(ana))
        run = f"/api/runs/{asked.json()['run']}"
        seen = [await sees(token) for token in (ana, given["ask"], given["admin"], OWNER)]
        assert seen == [True, False, True, True]
        assert (await client.delete(run, headers=bearer(given["ask"]))).status_code == 404
        tokens.revoke("ana")
        new = tokens.make("ana", [Right.ASK, Right.READ])
        assert not await sees(new)
        assert (await client.delete(run, headers=bearer(new))).status_code == 404
    async with serve(tokens=tokens.path, token=OWNER) as client:
        assert not await sees(new)
        assert await sees(OWNER)


async def test_a_revoked_token_is_refused_at_once(serve, tokens):
    ana = tokens.make("ana", [Right.READ])
    ben = tokens.make("ben", [Right.READ])
    path = f"{DEFAULT}/documents"
    async with serve(tokens=tokens.path) as client:
        assert (await client.get(path, headers=bearer(ana))).status_code == 200
        TokenFile(tokens.path).revoke("ana")
        assert (await client.get(path, headers=bearer(ana))).status_code == 401
        assert (await client.get(path, headers=bearer(ben))).status_code == 200
        tokens.path.write_text("no list")
        assert (await client.get(path, headers=bearer(ben))).status_code == 401


async def test_each_use_is_logged_by_name(serve, tokens, given, caplog):
    caplog.set_level(logging.INFO, "colligate.audit")
    async with serve(tokens=tokens.path, token=OWNER) as client:
        await client.get(f"{DEFAULT}/documents?q=secret", headers=bearer(given["read"]))
        await client.get("/metrics", headers=bearer(given["read"]))
        await client.get("/api/about", headers=bearer(OWNER))
    said = [each.getMessage() for each in caplog.records if each.name == "colligate.audit"]
    assert [[*json.loads(line).values()][1:] for line in said] == [
        ["read-only", "GET", "/api/libraries/{name}/documents", "default", [], 200],
        ["read-only", "GET", "/metrics", "", [], 403],
    ]
    assert not any(token in line for token in [*given.values(), "secret"] for line in said)


@pytest.mark.posix
async def test_the_audit_log_names_what_was_opened_and_cited(serve, tokens, tmp_path, caplog):
    ana = tokens.make("ana", [Right.READ, Right.ASK])
    file = tmp_path / "audit.jsonl"
    async with serve(tokens=tokens.path, token=OWNER, audit=file) as client:
        await fill(client)
        (document,) = (await client.get(f"{DEFAULT}/documents", headers=bearer(OWNER))).json()
        before = len(file.read_text().splitlines())
        body = {"question": QUESTION, "strategy": "retrieve-read"}
        asked = await client.post(f"{DEFAULT}/ask", json=body, headers=bearer(ana))
        run = asked.json()["run"]
        for path in (f"{DEFAULT}/documents/{document['id']}", f"{DEFAULT}/search?q=hall"):
            await client.get(path, headers=bearer(ana))
        stream = {**body, "stream": True}
        await client.post(f"{DEFAULT}/ask", json=stream, headers=bearer(ana))
        await client.get(f"/api/runs/{run}/answer.md", headers=bearer(ana))
        await client.get(f"{DEFAULT}/documents", headers=bearer("wrong"))
        await client.get("/healthz")
        lines = [json.loads(line) for line in file.read_text().splitlines()[before:]]
        name, used = "/api/libraries/{name}", [document["id"]]
        assert [[*line.values()][1:] for line in lines] == [
            ["ana", "POST", f"{name}/ask", "default", used, 200],
            ["ana", "GET", f"{name}/documents/{{document_id}}", "default", used, 200],
            ["ana", "GET", f"{name}/search", "default", used, 200],
            ["ana", "POST", f"{name}/ask", "default", used, 200],
            ["ana", "GET", "/api/runs/{run_id}/answer.{ending}", "default", used, 200],
            [None, "GET", f"{DEFAULT}/documents", "", [], 401],
        ]
        assert not any("question" in line for line in lines)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.unlink()
        file.mkdir()  # as a full disk, it takes no line
        assert (await client.get(f"{DEFAULT}/runs", headers=bearer(ana))).status_code == 200
    assert "a line is lost" in caplog.text
    with pytest.raises(UsageError, match="cannot write the audit log"):
        async with serve(audit=file):
            pass


async def test_the_audit_log_has_questions_if_it_is_told_to(serve, tmp_path):
    file = tmp_path / "audit.jsonl"
    async with serve(files=RULES, audit=file, audit_questions=True) as client:
        await client.ask(strategy="retrieve-read")
    assert json.loads(file.read_text().splitlines()[-1])["question"] == QUESTION


async def test_a_trusted_proxy_says_who_asks(serve, tokens):
    tokens.make("ana@example.org", [Right.READ])
    ben = tokens.make("ben", [Right.READ])
    path = f"{DEFAULT}/documents"
    here = {"proxy_user_header": "X-Forwarded-User", "tokens": tokens.path, "token": OWNER}

    async def status(client: ServerClient, *users: str, **headers: str) -> int:
        named = [("X-Forwarded-User", user) for user in users]
        return (await client.get(path, headers=[*named, *headers.items()])).status_code

    trusted = (parse_network("127.0.0.0/8"),)
    async with serve(**here, trusted_proxies=trusted, socket=True) as client:
        assert await status(client, "ana@example.org") == 200
        assert await status(client) == 401
        assert await status(client, **bearer(ben)) == 200
        for users in (["eve"], [""], ["Ana@example.org"], ["eve", "ana@example.org"]):
            assert await status(client, *users) == 401
            assert await status(client, *users, **bearer(OWNER)) == 401
        refused = await client.post(f"{DEFAULT}/ask", headers={"X-Forwarded-User": "ben"})
        assert refused.status_code == 403
    async with serve(**here, trusted_proxies=(parse_network("10.1.2.3"),), socket=True) as client:
        assert await status(client, "ana@example.org") == 401
        assert await status(client, "eve", **bearer(ben)) == 200
    for missing in here.keys() - {"token"}:
        with pytest.raises(UsageError, match="go together"):
            ServerConfig(**{**here, missing: None}, trusted_proxies=trusted)
    with pytest.raises(UsageError, match="no network"):
        parse_network("proxy")


@pytest.mark.posix
def test_the_file_has_digests_alone_and_is_private(tokens, given):
    content = tokens.path.read_text()
    assert not any(token in content for token in given.values())
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert tokens.find(given["read"] + "x") is None


def test_tokens_made_at_once_are_all_kept(tmp_path):
    path = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: TokenFile(path).make(f"t{n}", [Right.READ]), range(24)))
    assert {each.name for each in TokenFile(path).read()} == {f"t{n}" for n in range(24)}


@pytest.mark.posix
def test_a_file_that_others_can_read_or_that_is_no_list_of_tokens_is_refused(tokens, given):
    for content in ("", "{}", '[{"name": "a"}]', "[1]", '[{"name": "A b"}]'):
        tokens.path.write_text(content)
        with pytest.raises(UsageError, match="not a list of tokens") as raised:
            tokens.read()
        assert "\n" not in str(raised.value)
    tokens.path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        tokens.read()


def test_a_file_of_an_earlier_version_is_read_unless_it_limits_requests(tokens, given):
    made = json.loads(tokens.path.read_text())
    tokens.path.write_text(json.dumps([{**each, "per_minute": None} for each in made]))
    assert tokens.find(given["read"]).rights == (Right.READ,)
    tokens.path.write_text(json.dumps([{**each, "per_minute": 30} for each in made]))
    with pytest.raises(UsageError, match="per_minute"):
        tokens.read()


def test_the_command_makes_lists_and_revokes(tokens, capsys, tmp_path, monkeypatch):
    def run(*arguments: str) -> tuple[int, Any]:
        status = main(["token", *arguments, "--tokens", str(tokens.path)])
        return status, capsys.readouterr()

    status, said = run("make", "ana", "--right", "write")
    assert status == 0
    assert tokens.find(said.out.strip()).rights == (Right.WRITE,)
    assert run("make", "ben")[0] == 0
    status, said = run("make", "ana")
    assert (status, said.out) == (2, "")
    assert "one of this name" in said.err
    assert run("make", "A b")[0] == 2
    listed = json.loads(run("list", "--json")[1].out)
    assert {it["name"]: it["rights"] for it in listed} == {"ana": ["write"], "ben": ["read", "ask"]}
    assert "sha256" not in listed[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "2024").mkdir(parents=True)
    bound = ("--library", "contracts", "--library", "default:reports/2024")
    assert run("make", "cy@example.org", *bound, "--no-secret")[1].out == "made cy@example.org\n"
    folder = f"default:{tmp_path.resolve() / 'reports' / '2024'}"
    assert tokens.read()[-1].libraries == ("contracts", folder)
    assert f"contracts, {folder}" in " ".join(run("list")[1].out.split())
    for refused, why in (
        (("--right", "admin", "--library", "a"), "admin cannot be bound"),
        (("--right", "write", "--library", "a:b"), "write cannot be bound"),
        (("--library", "A b"), "neither the NAME"),
        (("--library", "a:"), "neither the NAME"),
    ):
        status, said = run("make", "dan", *refused)
        assert (status, why in said.err) == (2, True), said.err
    assert run("revoke", "cy@example.org")[0] == 0
    assert "ana" in run("list")[1].out
    assert run("revoke", "ana")[0] == 0
    assert run("revoke", "ana")[0] == 2
    assert [each.name for each in tokens.read()] == ["ben"]
