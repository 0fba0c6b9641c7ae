"""Every error is an RFC 9457 problem, with the security headers, and counted by its status."""

from typing import Any

from colligate.server.runs import RecordedRun
from support.http_server import DEFAULT

ASK = f"{DEFAULT}/ask"


WRONG = [
    ("GET", "/api/nothing", {}, 404),
    ("GET", "/nothing", {}, 404),
    ("GET", "/api/libraries/none/documents", {}, 404),
    ("GET", f"{DEFAULT}/documents/nothing", {}, 404),
    ("GET", "/assets/nothing.js", {}, 404),
    ("PUT", "/api/libraries", {}, 405),
    ("GET", ASK, {}, 405),
    ("POST", ASK, {"content": b"{", "headers": {"content-type": "application/json"}}, 422),
    ("POST", ASK, {"content": b"question=x"}, 422),
    ("POST", ASK, {"json": {"question": "x", "strategy": "none such"}}, 422),
    ("POST", ASK, {"content": b"x" * (2 << 20)}, 413),
    ("POST", "/api/libraries", {"json": {"name": "default"}}, 409),
    ("GET", "/api/jobs/nothing", {}, 404),
    ("GET", "/api/runs/nothing/events", {}, 404),
]


async def test_each_is_a_problem(client):
    for method, path, sent, status in WRONG:
        response = await client.request(method, path, **sent)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert problem["detail"]
        assert problem["title"]
        assert ("allow" in response.headers) == (status == 405)
    faults = (await client.ask(documents=[1] * 5000)).json()
    assert (faults["status"], len(faults["errors"])) == (422, 20)  # of many some are listed
    unknown = (await client.ask(strategy="retrieve-reed")).json()
    assert unknown["title"] == "Unknown strategy"
    assert "retrieve-read" in unknown["detail"]
    assert unknown["hint"]


async def test_an_unexpected_exception_has_the_headers_and_is_counted(client, monkeypatch, caplog):
    def broken() -> list[str]:
        raise RuntimeError("secret words")

    monkeypatch.setattr(client.server.libraries, "list_names", broken)
    for path in ("/api/libraries", "/v1/models"):
        response = await client.get(path)
        assert response.status_code == 500
        assert "secret words" not in response.text
        assert response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"
    assert "secret words" in caplog.text
    monkeypatch.undo()
    metrics = (await client.get("/metrics")).text
    assert 'status="500"' in metrics
    assert 'status="499"' not in metrics


async def test_a_full_disk_lets_no_run_start_and_leaves_nothing(client, tmp_path, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordedRun, "save", full)
    response = await client.ask()
    assert response.status_code == 500
    assert "No space left" in response.json()["detail"]
    assert list((tmp_path / "papers" / "runs").iterdir()) == []
    monkeypatch.undo()
    assert await client.listed("runs") == []
    assert (await client.ask()).status_code == 200


async def test_a_run_that_was_forgotten_before_it_was_read_is_404(client):
    await client.ask()
    (run,) = client.server.runs.list_runs("default")
    run.kept_outcome = None
    run.delete_files()
    assert (await run.outcome())["problem"]["status"] == 404
