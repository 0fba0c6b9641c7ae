"""Web addresses as sources: what is fetched, kept, fetched again, refused and removed."""

import socket
import ssl

import httpx2
import pytest
import trustme

from colligate.documents.reading import Limits
from colligate.errors import ReadingError
from colligate.library import SearchMode
from colligate.library.web import _check_redirect
from support.web import serve_web

OTTERS = "# Otters\n\nOtters hold hands while they sleep.\n"
PAGE = "<html><body><h1>Otters</h1><p>Otters hold hands while they sleep.</p></body></html>"


@pytest.fixture
def web():
    with serve_web() as served:
        yield served


async def test_a_page_is_fetched_searched_and_named_by_its_address(library, web):
    web.pages["/wiki/Otter"] = ("text/html; charset=utf-8", PAGE)
    address = f"{web.url}/wiki/Otter"
    result = await library.add(f"{address}#habits")
    assert list(result.addresses.values()) == [address]
    (info,) = await library.documents()
    assert (info.source, info.title) == (address, "Otters")
    (hit,) = await library.search("hold hands", k=1, mode=SearchMode.SPARSE)
    assert "<p>" not in hit.passage.text


async def test_only_what_has_changed_is_fetched_again(library, web):
    web.pages["/otter.md"] = ("text/plain", OTTERS)
    address = f"{web.url}/otter.md"
    assert len((await library.add(address)).added) == 1
    assert len((await library.add(address)).unchanged) == 1
    assert [status for _, status in web.answers] == [200, 304]
    web.pages["/otter.md"] = ("text/plain", OTTERS.replace("sleep", "drift"))
    changed = await library.add(address)
    assert len(changed.updated) == 1
    (info,) = await library.documents()
    assert "drift" in (await library.document(info.id)).text
    # Now it is another kind of file, and the one before is gone.
    web.pages["/otter.md"] = ("text/html", PAGE)
    await library.add(address)
    assert [info.title for info in await library.documents()] == ["Otters"]
    assert await library.verify() == []


@pytest.mark.parametrize(
    ("path", "kind", "content", "media_type"),
    [
        ("/get?id=7", "text/csv", "name,age\notter,3\n", "text/csv"),
        ("/2401.12345", "text/markdown", OTTERS, "text/markdown"),
        ("/README.md", "text/html", PAGE, "text/html"),
        ("/notes.md", "text/plain", OTTERS, "text/markdown"),
        ("/", "text/html", PAGE, "text/html"),
    ],
)
async def test_the_server_says_what_kind_it_is(library, web, path, kind, content, media_type):
    web.pages[path] = (kind, content)
    (document,) = (await library.add(web.url + path)).document_ids
    assert (await library.document(document)).media_type == media_type


async def test_what_cannot_be_fetched_is_one_line(library, web, folder, monkeypatch):
    for status in (403, 404, 410):
        web.pages[f"/{status}"] = status
    web.pages["/large"] = ("text/plain", "x" * 2_000)
    monkeypatch.setattr("colligate.library.web.Limits", lambda: Limits(file_bytes=1_000))
    wrong = [
        (f"{web.url}/403", "HTTP 403 Forbidden; it may need a login"),
        (f"{web.url}/404", "HTTP 404 Not Found; check the address"),
        (f"{web.url}/410", "HTTP 410 Gone; check the address"),
        (f"{web.url}/large", "it has more than 1,000 bytes"),
        ("http://127.0.0.1:1/", "check the address and the network"),
        ("http://example.com/a", "use https:"),
        ("https://me:secret@example.com/a", "password"),
        ("ftp://example.com/a", "it is not an https: address"),
        ("https:/", "it is not an https: address"),
    ]
    result = await library.add([folder, *(address for address, _ in wrong)])
    assert len(result.added) == 3
    said = [str(problem) for problem in result.problems]
    assert len(said) == len(wrong)
    for line, (_, why) in zip(said, wrong, strict=True):
        assert line.startswith("cannot fetch ")
        assert why in line
    assert said[2].endswith("check the address")
    assert "secret" not in "".join(said)


async def test_a_body_without_a_stated_length_is_bounded_too(library, web, monkeypatch):
    web.pages["/large"] = ("text/plain", "x" * 2_000)
    web.headers["Content-Length"] = ""
    monkeypatch.setattr("colligate.library.web.Limits", lambda: Limits(file_bytes=1_000))
    (problem,) = (await library.add(f"{web.url}/large")).problems
    assert "more than 1,000 bytes" in str(problem)


async def test_bytes_that_arrive_are_reported_with_the_total_if_it_is_known(library, web):
    web.pages["/otter.md"] = ("text/plain", OTTERS)
    web.headers["Content-Length"] = ""
    steps = []
    await library.add(f"{web.url}/otter.md", on_progress=steps.append)
    fetching = [(step.done, step.total) for step in steps if step.phase == "fetching"]
    assert fetching == [(0, 0), (len(OTTERS), 0)]


async def test_a_silent_server_is_not_waited_for(library, monkeypatch):
    monkeypatch.setattr("colligate.library.web._SECONDS_OF_SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        (problem,) = (await library.add(address)).problems
    assert str(problem).endswith("no answer within 0.2 seconds; try again later")


async def test_a_file_that_cannot_be_read_is_named_by_its_address(library, web):
    web.pages["/broken.docx"] = ("application/octet-stream", "PK\x03\x04 broken")
    ((_, error),) = (await library.add(f"{web.url}/broken.docx")).failed
    assert str(error).startswith(f"cannot read {web.url}/broken.docx: ")


async def test_redirects_are_followed_within_reason(library, web):
    web.pages |= {"/round": 302, "/away": 302, "/otter.md": ("text/plain", OTTERS)}
    web.headers["Location"] = "/otter.md"
    assert len((await library.add(f"{web.url}/away")).added) == 1
    web.headers["Location"] = "/round"
    web.pages["/far"] = 302
    (problem,) = (await library.add(f"{web.url}/round")).problems
    assert "redirect" in str(problem)
    web.headers["Location"] = "http://example.com/"
    (problem,) = (await library.add(f"{web.url}/far")).problems
    assert "it redirects to example.com: http: lets others" in str(problem)


@pytest.mark.parametrize("target", ["127.0.0.1", "10.0.0.8", "[::1]", "169.254.169.254"])
async def test_a_public_page_does_not_lead_into_this_network(target):
    request = httpx2.Request("GET", f"https://{target}/secrets")
    with pytest.raises(ReadingError, match="which is not a public address"):
        await _check_redirect(httpx2.URL("https://93.184.216.34/"))(request)
    await _check_redirect(httpx2.URL("https://192.168.1.2/"))(request)


async def test_offline_the_page_from_before_is_read(library, web):
    web.pages["/otter.md"] = ("text/plain", OTTERS)
    address = f"{web.url}/otter.md"
    before = await library.add(address)
    web.pages["/otter.md"] = 503
    after = await library.add(address)
    assert after.document_ids == before.document_ids
    (warning,) = after.warnings
    assert "HTTP 503" in warning
    assert warning.endswith("what was fetched before is read")


async def test_a_removed_page_leaves_nothing(library, web):
    web.pages |= {f"/{name}.md": ("text/plain", f"# {name}\n\nText.") for name in ("a", "b")}
    added = await library.add([f"{web.url}/a.md", f"{web.url}/b.md"])
    assert sorted(await library.named()) == sorted(added.addresses.values())
    await library.remove([f"{web.url}/a.md"])
    (document,) = [info.id for info in await library.documents()]
    await library.remove([document])
    assert list((library.path / "web").iterdir()) == []
    assert await library.named() == []


async def test_a_certificate_is_checked(library, monkeypatch, tmp_path):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serve_web(context) as web:
        web.pages["/otter.md"] = ("text/plain", OTTERS)
        (problem,) = (await library.add(f"{web.url}/otter.md")).problems
        assert "certificate verify failed" in str(problem)
        assert "set SSL_CERT_FILE" in str(problem)
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert len((await library.add(f"{web.url}/otter.md")).added) == 1
