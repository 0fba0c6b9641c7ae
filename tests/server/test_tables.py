"""Tables over HTTP: estimated, filled, followed, corrected, downloaded, gone with a document."""

import asyncio
import io
import json
from typing import Any

import openpyxl
import pytest

from colligate.models import ChatRequest
from colligate.testing import ScriptedModel
from support.http_server import DEFAULT, HeldModel, parse_events, until
from support.leases import COLUMNS, LEASES, read_lease

TABLE = f"{DEFAULT}/table"


def reply(call: ChatRequest) -> str:
    return json.dumps(read_lease(call.prompt, (call.schema or {})["properties"]))


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(reply)


async def fill(client: Any, **body: Any) -> dict[str, Any]:
    response = await client.post(TABLE, json={"columns": COLUMNS, **body})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_table_is_estimated_filled_and_followed(serve, model):
    async with serve(model, LEASES) as client:
        said = (await client.post(f"{TABLE}/estimate", json={"columns": COLUMNS})).json()
        assert said["columns"] == ["rent", "ends on", "law", "parties", "renews"]
        assert (said["documents"], said["calls"]) == (2, 4)
        assert model.calls == []
        streamed = await client.post(TABLE, json={"columns": COLUMNS, "stream": True})
        events = parse_events(streamed.text)
        rows = [row for _, data in events if data.get("event") == "filled" for row in data["rows"]]
        (kind, table), run = events[-1], events[0][1]["id"]
        assert kind == "table"
        assert {row["title"] for row in rows} == {row["title"] for row in table["rows"]}
        anna, boris = table["rows"]
        value = anna["cells"]["rent"]["values"][0]
        assert (anna["source"], value["citation"]["source"]) == ("anna.md", "anna.md")
        span = f"start={value['citation']['start']}&end={value['citation']['end']}"
        cited = await client.get(f"{DEFAULT}/documents/{anna['document']}?{span}")
        assert cited.json()["text"] == value["citation"]["quote"]
        assert boris["cells"]["rent"]["doubt"] == "the document says several"
        kept = (await client.get(f"/api/runs/{run}")).json()
        assert (kept["question"], kept["strategy"], kept["table"]) == (COLUMNS, "table", table)
        answer = await client.get(f"/api/runs/{run}/answer.md")
        assert (answer.status_code, answer.json()["detail"]) == (404, "the run has no answer")
        for ending in ("xlsx", "csv", "json", "md"):
            file = await client.get(f"/api/runs/{run}/table.{ending}")
            assert f"table.{ending}" in file.headers["content-disposition"]
            if ending == "xlsx":
                assert openpyxl.load_workbook(io.BytesIO(file.content)).active["C2"].value == 48000
            else:
                assert "48" in file.text


async def test_cells_are_kept_and_only_new_ones_are_filled(serve, model):
    async with serve(model, LEASES) as client:
        boris = await client.document("Lease of Boris")
        await fill(client, documents=[boris])
        model.calls.clear()
        await fill(client)
        assert not any("Lease of Boris" in call.prompt for call in model.calls)
    model.calls.clear()
    async with serve(model) as client:  # another server, another column
        said = await client.post(f"{TABLE}/estimate", json={"columns": COLUMNS})
        assert said.json()["documents"] == 0
        await fill(client, columns=[{"name": "rent", "type": "money"}, {"name": "amount"}])
        assert all("amount" in str(call.schema) for call in model.calls if "rent" in call.prompt)
        gone = await client.document("Lease of Anna")
        assert (await client.delete(f"{DEFAULT}/documents/{gone}")).status_code == 204
        left = (client.server.libraries.folder("default") / "cells.jsonl").read_text()
        assert ("Anna" in left, "Boris" in left) == (False, True)


async def test_a_removed_document_ends_the_table_that_reads_it(serve):
    held = HeldModel(reply)
    async with serve(held, LEASES) as client:
        filling = asyncio.create_task(client.post(TABLE, json={"columns": COLUMNS}))
        await until(lambda: held.now == len(LEASES))
        gone = await client.document("Lease of Anna")
        assert (await client.delete(f"{DEFAULT}/documents/{gone}")).status_code == 204
        held.gate.set()
        await filling
        assert client.server.runs.list_runs("default") == []
        left = (client.server.libraries.folder("default") / "cells.jsonl").read_text()
        assert gone not in left


async def test_corrections_are_kept(serve, model):
    async with serve(model, LEASES) as client:
        table = await fill(client)
        anna, boris = (row["document"] for row in table["rows"])
        run = f"/api/runs/{table['run']}"

        async def put(status: int = 200, **said: Any) -> Any:
            response = await client.put(f"{run}/cell", json=said)
            assert response.status_code == status, response.text
            return response.json()

        cell = await put(document=boris, column="rent", text="USD 13,000")
        assert (cell["values"][0]["value"], cell["doubt"]) == (13000, "")
        assert (await put(document=anna, column="law", text=None))["values"]
        assert (await put(document=anna, column="renews", text=""))["values"] == []
        await put(404, document=anna, column="none", text="")
        await put(404, document="none", column="law", text="")
        await put(422, document=anna, column="law")
        for kept in ((await client.get(run)).json()["table"], await fill(client)):
            first, second = kept["rows"]
            assert second["cells"]["rent"]["values"][0]["written"] == "USD 13,000"
            law = first["cells"]["law"]
            assert (law["corrected"], law["doubt"]) == (True, "")
            assert first["cells"]["renews"]["reason"] == "not in the document"


async def test_a_table_waits_for_its_turn_and_is_corrected_when_it_has_ended(serve, held):
    async with serve(held, LEASES, socket=True) as client:
        async with client.stream("POST", TABLE, json={"columns": "rent", "stream": True}) as sent:
            async for line in sent.aiter_lines():
                if line.startswith("data: "):
                    run = json.loads(line.removeprefix("data: "))["id"]
                    break
            said = {"document": "x", "column": "rent", "text": ""}
            assert (await client.put(f"/api/runs/{run}/cell", json=said)).status_code == 409
        await client.server.runs.get(run).wait()  # the client has hung up
        kept = (await client.get(f"/api/runs/{run}")).json()
        assert (kept["state"], kept["problem"]["status"]) == ("cancelled", 409)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"columns": "rent: coins"}, "no type 'coins'"),
        ({"columns": "/etc/hosts.toml: date; /etc/hosts.json"}, ""),
        ({"columns": ""}, "1 to 50 columns"),
        ({"columns": [{"name": "rent", "typ": "money"}]}, "typ"),
        ({"columns": [{"name": "rent", "type": "choice"}]}, "must have choices"),
        ({"columns": "x" * 201}, "at most 200 characters"),
        ({"columns": "rent", "where": ["colour"]}, "colour"),
        ({"columns": "; ".join(f"{n} {'x' * 190}" for n in range(49))}, "limit is 8,000"),
    ],
)
async def test_wrong_columns_are_refused(serve, model, body, says):
    async with serve(model, LEASES) as client:
        response = await client.post(TABLE, json=body)
    assert response.status_code == (422 if says else 200), response.text
    assert says in response.text
