"""Libraries, documents, questions and runs over HTTP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import WeightsUnavailable
from colligate.models import Capability
from colligate.settings import Named, Settings

NAMES_A_MODEL = re.compile("adapter|encoder|classifier|expert|nli|reflection|model")
QUESTION = "Where do bicycles stand? hall"


async def document(client: Any) -> str:
    (found,) = (await client.get("/api/libraries/default/documents")).json()
    return str(found["id"])


async def asked(client: Any, library: str = "default", **how: Any) -> Any:
    return await client.post(f"/api/libraries/{library}/ask", json={"question": QUESTION, **how})


async def test_about_names_models_strategies_and_limits(client: Any) -> None:
    said = (await client.get("/api/about")).json()
    assert said["models"] == {"reader": "scripted"}
    strategies = {each["name"]: each for each in said["strategies"]}
    assert strategies["retrieve-read"]["runs"] is True
    # The scripted model chats and no more; this one reads likelihoods.
    assert strategies["longllmlingua"]["runs"] is False
    assert "likelihood" in strategies["longllmlingua"]["why_not"]
    assert any(each["name"] == "k" for each in strategies["retrieve-read"]["parameters"])
    assert said["libraries"] == ["default"]
    assert said["limits"]["question_characters"] == 8000


async def test_an_answer_and_its_citation_lead_to_the_document(client: Any) -> None:
    answer = (await asked(client)).json()
    assert answer["found"]
    (citation,) = answer["citations"]
    span = f"start={citation['start']}&end={citation['end']}"
    path = f"/api/libraries/default/documents/{citation['document']}"
    assert (await client.get(f"{path}?{span}")).json()["text"] == citation["quote"]
    run = (await client.get(f"/api/runs/{answer['run']}")).json()
    assert run["state"] == "done"
    assert run["answer"] == answer


async def test_events_stream_and_end_with_the_answer(client: Any, events: Any) -> None:
    streamed = events((await asked(client, stream=True)).text)
    names = [name for name, _ in streamed]
    assert names[0] == "run"
    assert names[-1] == "answer"
    assert set(names[1:-1]) == {"event"}
    steps = [data["event"] for name, data in streamed if name == "event"]
    assert steps[0] == "retrieved"
    assert steps[-1] == "answered"
    assert all("messages" not in data for _, data in streamed)
    replayed = events((await client.get(f"/api/runs/{streamed[0][1]['id']}/events")).text)
    assert replayed == streamed


async def test_prompts_are_shown_when_asked_for(client: Any, events: Any) -> None:
    body = {"question": QUESTION, "stream": True}
    response = await client.post("/api/libraries/default/ask?prompts=true", json=body)
    (step,) = [data for _, data in events(response.text) if data.get("event") == "asked"]
    assert QUESTION in step["messages"][-1]["content"]


async def test_a_replay_goes_on_after_the_last_event_seen(client: Any, events: Any) -> None:
    run = (await asked(client)).json()["run"]
    whole = events((await client.get(f"/api/runs/{run}/events")).text)
    header = {"Last-Event-ID": "2"}
    rest = events((await client.get(f"/api/runs/{run}/events", headers=header)).text)
    assert rest[1:] == whole[3:]


async def test_a_question_over_some_documents(client: Any, add: Any) -> None:
    added = await add(client, {"other.md": "# Other\n\nBicycles hang in the hall.\n"})
    (other,) = added["documents"]
    answer = (await asked(client, documents=[other])).json()
    assert {each["document"] for each in answer["evidence"]} == {other}
    unknown = await asked(client, documents=["nothing"])
    assert unknown.status_code == 404
    assert (await asked(client, documents=[])).status_code == 409


async def test_parameters_of_a_strategy(client: Any) -> None:
    answer = (await asked(client, strategy="retrieve-read", parameters={"k": 1})).json()
    assert len(answer["evidence"]) == 1
    wrong = await asked(client, parameters={"kk": 1})
    assert wrong.status_code == 422
    assert "kk" in wrong.json()["detail"]


async def test_no_client_names_a_model_or_a_folder_to_load(client: Any) -> None:
    tried = 0
    for strategy in (await client.get("/api/about")).json()["strategies"]:
        for parameter in strategy["parameters"]:
            if NAMES_A_MODEL.search(parameter["name"]):
                response = await asked(
                    client, strategy=strategy["name"], parameters={parameter["name"]: "/etc"}
                )
                assert response.status_code == 422
                assert "--allow-model" in response.json()["hint"]
                tried += 1
    assert tried > 5


async def test_models_that_were_allowed_may_be_named(serve: Any, add: Any) -> None:
    async with serve(allow_models=("hf:one",)) as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        for name, fits in (("hf:one", True), ("hf:two", False), (None, True)):
            named = {"router_adapter": name}
            response = await asked(client, strategy="rdr2", parameters=named)
            assert ("--allow-model" in response.text) is not fits


async def test_adapters_of_the_settings_are_on_the_steps(
    serve: Any, add: Any, scripted_model: Any
) -> None:
    class Adaptable(scripted_model):  # type: ignore[misc]
        async def with_adapter(self, adapter: str) -> Any:
            raise WeightsUnavailable(f"there is no adapter {adapter}")

    model = Adaptable(lambda _: "Cannot answer", capabilities=list(Capability))
    settings = Settings(adapters={"router": Named("trained")})
    async with serve(model, settings=settings) as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        response = await asked(client, strategy="rdr2")
        assert response.json()["title"] == "Weights unavailable"
        assert "there is no adapter trained" in response.text
        response = await asked(client, strategy="rdr2", parameters={"router_adapter": None})
        assert "adapter" not in response.text


async def test_problems_say_what_why_and_the_mend(client: Any) -> None:
    response = await asked(client, strategy="retrieve-reed")
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["title"] == "Unknown strategy"
    assert "retrieve-read" in problem["detail"]
    assert problem["hint"]
    missing = await client.get("/api/libraries/none/documents")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert (await client.get("/api/nowhere")).json()["status"] == 404
    assert (await client.put("/api/libraries")).status_code == 405


async def test_a_model_that_fails_is_the_gateways_fault(serve: Any, add: Any) -> None:
    from colligate.errors import ServerFailed
    from colligate.testing import ScriptedModel

    def fail(_: Any) -> BaseException:
        return ServerFailed("no answer", "the model's server failed", "look at it")

    async with serve(ScriptedModel(fail)) as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        response = await asked(client)
        assert response.status_code == 502
        assert response.json()["hint"] == "look at it"
        (run,) = (await client.get("/api/libraries/default/runs")).json()
        assert run["state"] == "failed"


async def test_an_empty_library_cannot_be_asked(serve: Any) -> None:
    async with serve() as client:
        assert (await asked(client)).status_code == 409


async def test_trees_pages_and_ranges(client: Any) -> None:
    path = f"/api/libraries/default/documents/{await document(client)}"
    tree = (await client.get(f"{path}/tree")).json()
    assert [node["title"] for node in tree["nodes"] if node["kind"] == "section"] == ["Rules"]
    assert (await client.get(f"{path}/pages/1")).status_code == 404
    whole = (await client.get(path)).json()
    assert whole["text"].startswith("# Rules")
    beyond = (await client.get(f"{path}?start=10000&end=20000")).json()
    assert (beyond["text"], beyond["start"]) == ("", whole["characters"])


async def test_long_texts_come_in_pieces(serve: Any, add: Any) -> None:
    text = "word " * 50_000
    async with serve() as client:
        await add(client, {"long.txt": text})
        path = f"/api/libraries/default/documents/{await document(client)}"
        first = (await client.get(path)).json()
        assert first["end"] == 200_000
        rest = (await client.get(f"{path}?start={first['end']}")).json()
        assert len(first["text"] + rest["text"]) == first["characters"]


async def test_passages_are_found(client: Any) -> None:
    query = {"q": "bicycles", "k": 3, "mode": "sparse"}
    (hit,) = (await client.get("/api/libraries/default/search", params=query)).json()
    assert hit["section"] == ["Rules"]
    assert "Bicycles" in hit["text"]


async def test_libraries_are_apart(client: Any, add: Any) -> None:
    made = await client.post("/api/libraries", json={"name": "other"})
    assert made.status_code == 201
    assert (await client.post("/api/libraries", json={"name": "other"})).status_code == 409
    assert (await client.post("/api/libraries", json={"name": "../other"})).status_code == 422
    await add(client, {"sheds.md": "# Sheds\n\nBicycles hang in the hall.\n"}, library="other")
    counts = {each["name"]: each["documents"] for each in (await libraries(client))}
    assert counts == {"default": 1, "other": 1}
    answer = (await asked(client, library="other")).json()
    assert answer["citations"][0]["title"] == "Sheds"
    assert [run["id"] for run in await runs(client, "other")] == [answer["run"]]
    assert (await client.delete("/api/libraries/other")).status_code == 204
    assert [each["name"] for each in await libraries(client)] == ["default"]
    assert (await client.get(f"/api/runs/{answer['run']}")).status_code == 404
    assert (await client.delete("/api/libraries/default")).status_code == 409


async def test_a_library_made_is_there_after_a_restart(serve: Any) -> None:
    async with serve() as client:
        await client.post("/api/libraries", json={"name": "other"})
    async with serve() as client:
        assert [each["name"] for each in await libraries(client)] == ["default", "other"]


async def test_a_removed_document_leaves_no_trace(client: Any, add: Any, tmp_path: Path) -> None:
    await add(client, {"yard.md": "# Yard\n\nA secret: the key is under the mat.\n"})
    kept = (await asked(client, documents=[await document_of(client, "Rules")])).json()["run"]
    yard = await document_of(client, "Yard")
    told = (await asked(client, documents=[yard])).json()["run"]
    removed = await client.delete(f"/api/libraries/default/documents/{yard}")
    assert removed.status_code == 204
    assert [run["id"] for run in await runs(client)] == [kept]
    assert (await client.get(f"/api/runs/{told}")).status_code == 404
    for folder in ("files", "runs"):
        for file in (tmp_path / "papers" / folder).rglob("*"):
            assert file.is_dir() or b"under the mat" not in file.read_bytes()
    assert (await client.get(f"/api/libraries/default/documents/{yard}")).status_code == 404


async def test_a_path_is_no_document(client: Any, tmp_path: Path) -> None:
    """`Library.remove` takes files and folders as well; over HTTP only ids are meant."""
    folder = str(tmp_path / "papers" / "files").replace("/", "%2F")
    response = await client.delete(f"/api/libraries/default/documents/{folder}")
    assert response.status_code == 404
    assert len((await client.get("/api/libraries/default/documents")).json()) == 1


async def test_runs_survive_a_restart(serve: Any, add: Any, events: Any) -> None:
    async with serve() as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        answer = (await asked(client)).json()
        before = (await client.get(f"/api/runs/{answer['run']}/events")).text
    async with serve() as client:
        (run,) = await runs(client)
        assert run["found"] is True
        assert (await client.get(f"/api/runs/{run['id']}")).json()["answer"] == answer
        assert (await client.get(f"/api/runs/{run['id']}/events")).text == before


async def test_what_a_killed_server_left_is_told_as_cancelled(
    serve: Any, add: Any, tmp_path: Path
) -> None:
    async with serve() as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        run = (await asked(client)).json()["run"]
    summary = tmp_path / "papers" / "runs" / f"{run}.json"
    said = json.loads(summary.read_text())
    del said["answer"]
    summary.write_text(json.dumps(said | {"state": "running", "found": None}))
    (summary.parent / "broken.json").write_text('{"quest')
    async with serve() as client:
        (found,) = await runs(client)
        assert found["state"] == "cancelled"
        assert "problem" in (await client.get(f"/api/runs/{run}")).json()
        assert '"event": "retrieved"' in (await client.get(f"/api/runs/{run}/events")).text


async def test_only_the_last_runs_are_kept(serve: Any, add: Any, tmp_path: Path) -> None:
    async with serve(kept_runs=2) as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        ids = [(await asked(client)).json()["run"] for _ in range(4)]
        assert [run["id"] for run in await runs(client)] == ids[:1:-1]
        assert len(list((tmp_path / "papers" / "runs").iterdir())) == 4


async def test_a_run_is_forgotten_when_deleted(client: Any) -> None:
    run = (await asked(client)).json()["run"]
    assert (await client.delete(f"/api/runs/{run}")).status_code == 204
    assert (await client.get(f"/api/runs/{run}")).status_code == 404
    assert await runs(client) == []


async def test_events_past_the_limit_are_not_recorded(serve: Any, add: Any, events: Any) -> None:
    async with serve(run_bytes=300) as client:
        await add(client, {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"})
        streamed = events((await asked(client, stream=True)).text)
        assert streamed[-1][0] == "answer"
        assert "more events than are recorded" in streamed[-2][1]["text"]


@pytest.mark.parametrize("question", ["", " \n", "x" * 8001])
async def test_questions_are_neither_empty_nor_endless(client: Any, question: str) -> None:
    response = await client.post("/api/libraries/default/ask", json={"question": question})
    assert response.status_code == 422
    assert await runs(client) == []


async def test_a_budget_is_held(client: Any) -> None:
    response = await asked(client, max_tokens_total=1)
    assert response.status_code == 422
    assert response.json()["title"] == "Budget exceeded"


async def libraries(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/api/libraries")).json()
    return found


async def runs(client: Any, library: str = "default") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"/api/libraries/{library}/runs")).json()
    return found


async def document_of(client: Any, title: str) -> str:
    found = (await client.get("/api/libraries/default/documents")).json()
    return str(next(each["id"] for each in found if each["title"] == title))


async def test_half_a_surrogate_pair_in_a_document_does_no_harm(serve: Any, add: Any) -> None:
    record = (
        b'{"id": "odd", "title": "T\\ud800", "text": "Half a pair \\ud83d is in the hall.\\n"}\n'
    )
    async with serve() as client:
        job = await add(client, {"odd.jsonl": record})
        assert job["documents"], job
        for path in ("", "/odd", "/odd/tree"):
            response = await client.get(f"/api/libraries/default/documents{path}")
            assert response.status_code == 200, path
        search = "/api/libraries/default/search?q=hall"
        assert "hall" in (await client.get(search)).json()[0]["text"]
        assert (await asked(client)).json()["found"]
