"""Who may ask, and protection against other web pages in the same browser."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.errors import UsageError
from colligate.server.auth import check_token, normalize_origin
from colligate.server.config import is_loopback
from support.http_server import DEFAULT, RULES, form_of

TOKEN = "a-token-of-some-length"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
CLOSED = ["/api/about", "/api/runs/x", "/api/nothing", "/metrics", "/v1/models"]


async def test_nothing_is_shown_without_the_token(serve):
    cookie = {"Cookie": f"token={TOKEN}; Authorization=Bearer {TOKEN}"}
    wrong = ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}, cookie)
    async with serve(token=TOKEN) as client:
        for path in CLOSED:
            for headers in wrong:
                response = await client.get(path, headers=headers)
                assert response.status_code == 401, path
                assert response.headers["www-authenticate"].startswith("Bearer")
            assert (await client.get(path, headers=RIGHT)).status_code != 401
        for path in (f"{DEFAULT}/ask", f"{DEFAULT}/files", "/mcp"):
            assert (await client.post(path)).status_code == 401
        assert (await client.get(f"/api/about?token={TOKEN}")).status_code == 401
        assert (await client.get("/healthz")).status_code == 200
        reference = (await client.get("/api/openapi.json")).json()
        assert "/api/libraries/{name}/ask" in reference["paths"]
        for path in ("/", "/api/about", "/healthz", "/nothing", "/api/openapi.json"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'self'")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("origins", [(), ("*",)])
async def test_on_loopback_only_names_of_this_machine(serve, origins):
    """Another name was made to point here (DNS rebinding)."""
    async with serve(allow_origins=origins) as client:
        for status, hosts in (
            (421, ("evil.example", "evil.example:8420", "", "127.0.0.1.evil.example")),
            (200, ("localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST")),
        ):
            for host in hosts:
                response = await client.get("/api/libraries", headers={"Host": host})
                assert response.status_code == status, host
    for host in ("0.0.0.0", "::", "192.168.1.2", "papers.example", ""):
        assert not is_loopback(host)


async def test_pages_of_other_origins_change_nothing(serve):
    async with serve() as client:
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://["}, 403),
            ({"Origin": ""}, 403),
            ({"Origin": "http://127.0.0.1:9999"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "http://127.0.0.1:8420", "Sec-Fetch-Site": "same-origin"}, 202),
        ):
            files = form_of({"a.md": "# A\n\nText.\n"})
            response = await client.post(f"{DEFAULT}/files", files=files, headers=headers)
            assert response.status_code == status


async def test_origins_that_were_allowed(serve):
    origin = {"Origin": "https://papers.example"}
    # As a proxy in front of the server passes it on.
    proxied = {"Host": "papers.example", **origin}
    asking = {**origin, "Access-Control-Request-Method": "POST"}
    async with serve(allow_origins=("https://papers.example",)) as client:
        assert (await client.options("/api/libraries", headers=asking)).status_code == 200
        made = await client.post("/api/libraries", json={"name": "a"}, headers=origin)
        assert made.status_code == 201
        assert made.headers["access-control-allow-origin"] == "https://papers.example"
        assert (await client.get("/api/libraries", headers=proxied)).status_code == 200
    async with serve() as client:
        assert (await client.get("/api/libraries", headers=proxied)).status_code == 421
        response = await client.get("/api/libraries", headers=origin)
        assert "access-control-allow-origin" not in response.headers


async def test_behind_tls_citations_link_to_the_public_address(serve):
    messages = [{"role": "user", "content": "Where is the hall"}]
    body = {"model": "retrieve-read", "messages": messages}
    async with serve(files=RULES, allow_origins=("https://papers.example",)) as client:
        for host, url in (
            ("papers.example", "https://papers.example/#/document/default/"),
            ("127.0.0.1:8420", "http://127.0.0.1:8420/#/document/default/"),
        ):
            reply = await client.post("/v1/chat/completions", json=body, headers={"Host": host})
            (link,) = reply.json()["choices"][0]["message"]["annotations"]
            assert link["url_citation"]["url"].startswith(url)


@given(st.text(max_size=40) | st.builds(secrets.token_urlsafe))
def test_accepted_tokens_can_be_sent(token):
    try:
        taken = check_token(token)
    except UsageError:
        return
    assert taken.encode("ascii").decode() == taken
    assert len(taken) >= 16
    assert not any(character.isspace() for character in taken)


def test_origins_are_written_as_browsers_send_them():
    assert normalize_origin("https://Papers.Example/") == "https://papers.example"
    assert normalize_origin("http://[::1]:3000") == "http://[::1]:3000"
    for text in ("*", "null", "papers.example", "https://", "http://[", "https://a/b", "ftp://a"):
        with pytest.raises(UsageError, match="not an origin"):
            normalize_origin(text)
