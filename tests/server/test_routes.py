"""Libraries, documents, questions and runs over HTTP."""

import json
import re

import pytest

from colligate import Settings
from colligate.errors import ServerFailed
from colligate.settings import Named
from colligate.testing import ScriptedModel
from support.http_server import DEFAULT, QUESTION, RULES, parse_events, quoting, until

NAMES_A_MODEL = re.compile("adapter|encoder|classifier|expert|nli|reflection|model")


async def test_about_names_models_strategies_and_limits(client):
    about = (await client.get("/api/about")).json()
    assert about["models"] == {"reader": "scripted"}
    assert about["advice"] == "", "whoever chose a model is not told of others"
    strategies = {each["name"]: each for each in about["strategies"]}
    assert strategies["retrieve-read"]["runs"] is True
    # The scripted model only chats; this strategy reads likelihoods.
    assert strategies["longllmlingua"]["runs"] is False
    assert "likelihood" in strategies["longllmlingua"]["why_not"]
    assert any(each["name"] == "k" for each in strategies["retrieve-read"]["parameters"])
    assert about["libraries"] == ["default"]
    assert about["limits"]["question_characters"] == 8000
    paths = (await client.get("/api/openapi.json")).json()["paths"]
    ids = [each["operationId"] for methods in paths.values() for each in methods.values()]
    assert len(set(ids)) == len(ids)
    assert {"ask_library", "read_document", "create_chat_completion"} <= set(ids)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", path, 200) for path in ("/v1//models/", "/v1/v1/models?x=1", "//api/libraries/")),
        ("GET", "/v1/chat/completions/models", 200),
        ("GET", "/v1/v1/embeddings", 405),
        *(("GET", "/v1" + path, 405) for path in ("/chat/completions" * n for n in (1, 2))),
        *(("HEAD", path, 200) for path in ("/", "/v1/models", "/api/libraries", "/healthz")),
        *(("HEAD", path, 405) for path in ("/v1/chat/completions", "/mcp")),
        *(("GET", path, 404) for path in ("/chat/completions", "/v1")),
    ],
)
async def test_addresses_are_joined_and_probed_in_many_ways(client, method, path, status):
    response = await client.request(method, f"http://127.0.0.1:8420{path}")
    assert response.status_code == status
    if status == 404:
        assert "at /v1" in response.json()["hint"]


async def test_the_page_and_its_packed_script_are_sent(client):
    (script,) = re.findall(r'src="\./(assets/[^"]+)"', (await client.get("/")).text)
    sent = await client.get(f"/{script}", headers={"Accept-Encoding": "gzip"})
    assert (sent.status_code, sent.headers["content-encoding"]) == (200, "gzip")
    assert "immutable" in sent.headers["cache-control"]


@pytest.mark.parametrize(
    ("headers", "content", "status", "words"),
    [
        ({"content-type": "application/json; charset=utf-8"}, None, 200, "yard"),
        ({"content-type": "text/plain"}, None, 422, "with the header Content-Type"),
        ({"content-encoding": "gzip"}, None, 415, "send it as it is"),
        ({"content-type": "application/json"}, b"{", 422, "it is not JSON"),
        ({"content-type": "application/json"}, b"{}", 422, "question: it is missing"),
    ],
)
async def test_a_body_is_json_or_it_is_said_what_is_wrong(client, headers, content, status, words):
    content = json.dumps({"question": QUESTION}).encode() if content is None else content
    response = await client.post(f"{DEFAULT}//ask/", headers=headers, content=content)
    assert response.status_code == status
    assert words in response.text


async def test_an_answer_and_its_citation_lead_to_the_document(client):
    answer = (await client.ask()).json()
    assert answer["found"]
    (citation,) = answer["citations"]
    span = f"start={citation['start']}&end={citation['end']}"
    path = f"{DEFAULT}/documents/{citation['document']}"
    assert (await client.get(f"{path}?{span}")).json()["text"] == citation["quote"]
    run = (await client.get(f"/api/runs/{answer['run']}")).json()
    assert run["state"] == "done"
    assert run["answer"] == answer


@pytest.mark.parametrize("endpoint", ["own", "OpenAI's"])
async def test_a_question_may_point_back_to_the_conversation(serve, endpoint):
    def reply(call):
        completes = "complete the last question" in call.messages[0].content
        return QUESTION if completes else quoting(call)

    model = ScriptedModel(reply)
    said = "Bicycles stand in the yard, or in the hall."
    async with serve(model, RULES) as client:
        if endpoint == "own":
            turns = [{"question": "Where do cars stand?", "answer": said}]
            answer = (await client.ask("And they?", history=turns)).json()
        else:
            messages = [
                {"role": "user", "content": "Where do cars stand?"},
                {"role": "assistant", "content": said},
                {"role": "user", "content": "And they?"},
            ]
            body = {"model": "auto", "messages": messages}
            answer = (await client.post("/v1/chat/completions", json=body)).json()["colligate"]
    assert answer["question"] == QUESTION
    assert answer["found"]
    conversation = model.calls[0].messages[-1].content
    assert conversation.splitlines() == [
        "Question: Where do cars stand?",
        f"Answer: {said}",
        "Last question: And they?",
    ]


async def test_a_question_over_some_documents(client):
    new = "# New rules\n\n1 May 2024\n\nBicycles hang in the hall.\n"
    (name,) = (await client.add({"new.md": new}))["documents"]
    for some in ({"where": ["date>=2024"]}, {"documents": [name]}):
        answer = (await client.ask(**some)).json()
        assert {each["document"] for each in answer["evidence"]} == {name}
    assert (await client.ask(documents=["nothing"])).status_code == 404
    assert (await client.ask(documents=[])).status_code == 409
    assert (await client.ask(where=["date>2024"])).status_code == 409  # no document meets it
    assert (await client.ask(where=["2024"])).status_code == 422
    query = {"q": "bicycles", "where": ["date>=2024", "title~rules"]}
    (hit,) = (await client.get(f"{DEFAULT}/search", params=query)).json()
    assert (hit["document"], hit["source"], hit["date"]) == (name, "new.md", "2024-05-01")
    listed = (await client.get(f"{DEFAULT}/documents")).json()
    assert [each["date"] for each in listed] == ["", "2024-05-01"]
    events = parse_events((await client.ask(where=["date>=2024"], stream=True)).text)
    (located,) = [sent["passages"] for _, sent in events if sent.get("event") == "located"]
    # No folder of the server is shown.
    assert [(each["source"], each["date"]) for each in located] == [("new.md", "2024-05-01")]


async def test_parameters_of_a_strategy_and_what_no_question_may_be(client):
    answer = (await client.ask(strategy="retrieve-read", parameters={"k": 1})).json()
    assert len(answer["evidence"]) == 1
    # Places of earlier answers that do not exist are no error.
    places = [("gone", 0, 5), ("gone", 9, 2), (await client.document("Rules"), 5, 1 << 40)]
    cited = [{"document": name, "start": start, "end": end} for name, start, end in places]
    turn = {"question": QUESTION, "answer": "In the yard.", "cited": cited}
    assert (await client.ask(history=[turn])).json()["found"]
    answer = (await client.ask(strategy="direct", risk="careful")).json()
    assert any("--risk says nothing" in warning for warning in answer["warnings"])
    turns = ({"answer": "no question"}, {"question": "x", "cited": [{"start": 1}]}, "text")
    for wrong, says in (
        *(({"question": text}, "question") for text in ("", " \n", "x" * 8001)),
        *(({"history": [turn]}, "history") for turn in turns),
        ({"parameters": {"kk": 1}}, "kk"),
        ({"max_tokens_total": 1}, "Budget exceeded"),
        ({"risk": 1}, "no risk '1.0'"),
    ):
        refused = await client.ask(**wrong)
        assert refused.status_code == 422, wrong
        assert says in refused.text
    # Three were answered, one began and was too dear.
    assert len(await client.listed("runs")) == 4


async def test_no_client_names_a_model_or_a_folder_to_load(serve):
    tried = 0
    async with serve(files=RULES) as client:
        for strategy in (await client.get("/api/about")).json()["strategies"]:
            for parameter in strategy["parameters"]:
                if NAMES_A_MODEL.search(parameter["name"]):
                    named = {parameter["name"]: "/etc"}
                    response = await client.ask(strategy=strategy["name"], parameters=named)
                    assert response.status_code == 422
                    assert "no model that a question names" in response.text
                    tried += 1
        answered = await client.ask(strategy="rdr2", parameters={"router_adapter": None})
        assert "no model that a question names" not in answered.text
    assert tried > 5


async def test_evidence_is_found_by_the_retriever_named(client):
    for retriever, searches in (
        (None, ["hybrid"]),
        ("sparse", ["sparse"]),
        ("sfs:documents=1", ["hybrid", "sfs"]),
    ):
        asked = {"strategy": "retrieve-read", "retriever": retriever}
        events = parse_events((await client.ask(**asked, stream=True)).text)
        assert [sent["how"] for _, sent in events if sent.get("event") == "retrieved"] == searches
        name, answer = events[-1]
        assert (name, answer["found"]) == ("answer", True)
        run = (await client.get(f"/api/runs/{answer['run']}")).json()
        assert run["retriever"] == retriever


@pytest.mark.parametrize(
    ("retriever", "says"),
    [
        ("http:http://127.0.0.1:9/retrieve", "only who runs the server names"),
        ("https://127.0.0.1:9/retrieve", "only who runs the server names"),
        ("HTTP:http://127.0.0.1:9/retrieve", "no retriever"),
        ("longrefinerr", "did you mean 'longrefiner'?"),
        ("sfs:documents=none", "valid integer"),
        ("dense:k=3", "has no parameters"),
        ("rdr2:k=3,router_adapter=/etc", "no model that a question names"),
        ("longrefiner:prompts=/etc/passwd", "no model that a question names"),
    ],
)
async def test_no_client_names_an_address_or_a_file_by_a_retriever(client, retriever, says):
    refused = await client.ask(retriever=retriever)
    assert refused.status_code == 422
    assert says in refused.text
    assert await client.listed("runs") == []


async def test_the_settings_of_the_server_may_name_a_retriever_server(serve, openai_server):
    there = {"id": "7", "title": "Yard", "text": "No bicycle stands in the hall."}
    found = {"result": [[{"document": there, "score": 0.9}]]}
    openai_server.garble(json.dumps(found).encode(), times=9)
    named = Settings(retriever=Named(f"http:{openai_server.address}"))
    async with serve(files=RULES, settings=named) as client:
        answer = (await client.ask(parameters={"effort": "low"})).json()
        (citation,) = answer["citations"]
        assert citation["quote"] == there["text"]
        # It is no document of the library.
        path = f"{DEFAULT}/documents/{citation['document']}"
        assert (await client.get(path)).status_code == 404
        rules = [await client.document("Rules")]
        for some in ({"documents": rules}, {"where": ["title~rules"]}):
            refused = await client.ask(**some)
            assert refused.status_code == 422
            assert "a corpus of its own" in refused.json()["detail"]
        answer = (await client.ask(documents=rules, retriever="hybrid")).json()
        assert [each["document"] for each in answer["citations"]] == rules


async def test_a_model_that_fails_is_the_gateways_fault(serve):
    failure = ServerFailed("no answer", "the model's server failed", "look at it")
    async with serve(ScriptedModel(lambda _: failure), RULES) as client:
        response = await client.ask()
        assert response.status_code == 502
        assert response.json()["hint"] == "look at it"
        (run,) = await client.listed("runs")
        assert run["state"] == "failed"


async def test_trees_pages_and_ranges(client):
    path = f"{DEFAULT}/documents/{await client.document('Rules')}"
    tree = (await client.get(f"{path}/tree")).json()
    assert [node["title"] for node in tree["nodes"] if node["kind"] == "section"] == ["Rules"]
    assert (await client.get(f"{path}/pages/1/picture")).status_code == 404
    whole = (await client.get(path)).json()
    assert whole["text"].startswith("# Rules")
    beyond = (await client.get(f"{path}?start=10000&end=20000")).json()
    assert (beyond["text"], beyond["start"]) == ("", whole["characters"])
    await client.add({"long.txt": "word " * 50_000})
    path = f"{DEFAULT}/documents/{await client.document('long')}"
    first = (await client.get(path)).json()
    assert first["end"] == 200_000
    rest = (await client.get(f"{path}?start={first['end']}")).json()
    assert len(first["text"] + rest["text"]) == first["characters"]


async def test_libraries_are_apart(client, tmp_path):
    for name, status in (("other", 201), ("other", 409), ("../other", 422)):
        assert (await client.post("/api/libraries", json={"name": name})).status_code == status
    await client.add({"sheds.md": "# Sheds\n\nBicycles hang in the hall.\n"}, library="other")
    libraries = (await client.get("/api/libraries")).json()
    assert {each["name"]: each["documents"] for each in libraries} == {"default": 1, "other": 1}
    answer = (await client.ask(library="other")).json()
    assert answer["citations"][0]["title"] == "Sheds"
    assert [run["id"] for run in await client.listed("runs", "other")] == [answer["run"]]
    assert (await client.delete("/api/libraries/other")).status_code == 204
    assert [each["name"] for each in (await client.get("/api/libraries")).json()] == ["default"]
    assert (await client.get(f"/api/runs/{answer['run']}")).status_code == 404
    assert (await client.delete("/api/libraries/default")).status_code == 409
    # `Library.remove` takes files and folders as well; over HTTP only ids are meant.
    folder = str(tmp_path / "papers" / "files").replace("/", "%2F")
    assert (await client.delete(f"{DEFAULT}/documents/{folder}")).status_code == 404
    assert len(await client.listed("documents")) == 1


async def test_half_a_surrogate_pair_in_a_document_does_no_harm(serve):
    record = b'{"id": "odd", "title": "T\\ud800", "text": "Half \\ud83d is in the hall.\\n"}\n'
    async with serve(files={"odd.jsonl": record}) as client:
        for path in ("", "/odd", "/odd/tree"):
            response = await client.get(f"{DEFAULT}/documents{path}")
            assert response.status_code == 200, path
        assert "hall" in (await client.get(f"{DEFAULT}/search?q=hall")).json()[0]["text"]
        assert (await client.ask()).json()["found"]


# Runs: followed, replayed, kept, forgotten.


KINDS = {
    "md": ("text/markdown; charset=utf-8", b"# Where do bicycles stand? hall"),
    "html": ("text/html; charset=utf-8", b"<!doctype html>"),
    "docx": ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK"),
    "bib": ("application/x-bibtex", b""),
}


async def test_an_answer_is_downloaded_as_a_file(serve, held):
    async with serve(held, RULES) as client:
        asking = client.begin()
        await until(lambda: held.now == 1)
        (run,) = await client.listed("runs")
        path = f"/api/runs/{run['id']}/answer"
        assert (await client.get(f"{path}.md")).status_code == 409
        held.gate.set()
        await asking
        for ending, (kind, start) in KINDS.items():
            file = await client.get(f"{path}.{ending}")
            assert file.headers["content-type"] == kind
            assert file.headers["content-disposition"] == f'attachment; filename="answer.{ending}"'
            assert file.content.startswith(start)
        assert (await client.get(f"{path}.pdf")).status_code == 422
        assert (await client.get("/api/runs/none/answer.md")).status_code == 404


async def test_events_stream_and_a_replay_resumes_after_the_last_one_seen(client):
    response = await client.ask(stream=True)
    (run,) = await client.listed("runs")
    path = f"/api/runs/{run['id']}/events"
    assert (await client.get(path)).text == response.text
    whole = parse_events(response.text)
    assert [name for name, _ in whole] == ["run", *["event"] * (len(whole) - 2), "answer"]
    steps = [data["event"] for _, data in whole[1:-1]]
    assert (steps[0], steps[-1]) == ("retrieved", "answered")
    assert all("messages" not in data for _, data in whole)
    for last_seen, skipped in (("2", 2), *((x, 0) for x in ("-1", "x", "", "9" * 5000, "\u00b2"))):
        headers = {"Last-Event-ID": last_seen.encode("latin-1")}
        sent = parse_events((await client.get(path, headers=headers)).text)
        assert sent[1:] == whole[1 + skipped :], last_seen
    assert (await client.delete(f"/api/runs/{run['id']}")).status_code == 204
    assert (await client.get(f"/api/runs/{run['id']}")).status_code == 404
    assert await client.listed("runs") == []


async def test_runs_and_libraries_survive_a_restart(serve, tmp_path):
    """A run that a killed server left is listed as cancelled."""
    async with serve(files=RULES) as client:
        await client.post("/api/libraries", json={"name": "other"})
        answer = (await client.ask()).json()
        path = f"/api/runs/{answer['run']}"
        before = (await client.get(f"{path}/events")).text
    async with serve() as client:
        libraries = (await client.get("/api/libraries")).json()
        assert [each["name"] for each in libraries] == ["default", "other"]
        (run,) = await client.listed("runs")
        assert run["found"] is True
        assert (await client.get(path)).json()["answer"] == answer
        assert (await client.get(f"{path}/events")).text == before
    summary = tmp_path / "papers" / "runs" / f"{answer['run']}.json"
    kept = json.loads(summary.read_text())
    del kept["answer"]
    summary.write_text(json.dumps(kept | {"state": "running", "found": None}))
    (summary.parent / "broken.json").write_text('{"quest')
    async with serve() as client:
        (found,) = await client.listed("runs")
        assert found["state"] == "cancelled"
        assert "problem" in (await client.get(path)).json()
        assert '"event": "retrieved"' in (await client.get(f"{path}/events")).text


async def test_the_last_runs_and_the_first_events_of_each_are_kept(serve, tmp_path):
    async with serve(files=RULES, run_bytes=300, kept_runs=2) as client:
        ids = [(await client.ask()).json()["run"] for _ in range(3)]
        assert [run["id"] for run in await client.listed("runs")] == ids[:0:-1]
        assert len(list((tmp_path / "papers" / "runs").iterdir())) == 4
        streamed = await client.events(f"/api/runs/{ids[-1]}/events")
        assert streamed[-1][0] == "answer"
        assert "more events than are recorded" in streamed[-2][1]["text"]
