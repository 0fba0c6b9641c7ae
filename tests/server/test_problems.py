"""Whatever goes wrong is said as RFC 9457 says it, with the policy, and counted as what it was."""

from __future__ import annotations

from typing import Any

import pytest

ASK = "/api/libraries/default/ask"
QUESTION = {"question": "Where is the yard"}


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("GET", "/api/nothing", {}, 404),
        ("GET", "/nothing", {}, 404),
        ("GET", "/api/libraries/default/documents/nothing", {}, 404),
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
    ],
)
async def test_each_is_a_problem(
    client: Any, method: str, path: str, sent: dict[str, Any], status: int
) -> None:
    response = await client.request(method, path, **sent)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    said = response.json()
    assert said["status"] == status
    assert said["detail"]
    assert said["title"]
    if status == 405:
        assert response.headers["allow"]


async def test_what_nobody_expected_has_the_policy_and_is_counted(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[str]:
        raise RuntimeError("secret words")

    monkeypatch.setattr(client.app.state.server.libraries, "names", broken)
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


async def test_of_many_faults_some_are_named(client: Any) -> None:
    wrong = {"question": "x", "documents": [1] * 5000}
    response = await client.post(ASK, json=wrong)
    assert response.status_code == 422
    assert len(response.json()["errors"]) == 20


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "-1", "x", ""])
async def test_what_was_seen_last_may_be_anything(client: Any, number: str) -> None:
    run = (await client.post(ASK, json=QUESTION)).json()["run"]
    headers = {"Last-Event-ID": number.encode("latin-1")}
    response = await client.get(f"/api/runs/{run}/events", headers=headers)
    assert response.status_code == 200
    assert "event: answer" in response.text


async def test_a_full_disk_keeps_a_run_from_beginning_and_leaves_nothing(
    client: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from colligate.server.runs import RunFiles

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFiles, "write_summary", full)
    response = await client.post(ASK, json=QUESTION)
    assert response.status_code == 500
    assert "No space left" in response.json()["detail"]
    assert list((tmp_path / "papers" / "runs").iterdir()) == []
    monkeypatch.undo()
    assert (await client.get("/api/libraries/default/runs")).json() == []
    assert (await client.post(ASK, json=QUESTION)).status_code == 200


async def test_a_run_that_was_forgotten_before_it_was_read_is_no_fault(client: Any) -> None:
    server = client.app.state.server
    await client.post(ASK, json=QUESTION)
    (run,) = server.runs.of("default")
    run.kept_outcome = None
    run.files.delete()
    assert (await run.outcome())["problem"]["status"] == 404
