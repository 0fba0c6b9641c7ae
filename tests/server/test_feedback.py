"""What people say of answers: kept with the run, seen by its owner, a data set for the bench."""

from colligate.lab.bench.datasets import read_questions
from colligate.server.tokens import Right, TokenFile
from support.http_server import DEFAULT, QUESTION, RULES, until


async def test_rated_answers_are_a_data_set(serve, tmp_path):
    async with serve(files=RULES) as client:
        document = await client.document("Rules")
        runs = []
        for question, of in ((QUESTION, [document]), ("Who painted the gate? gate", None)):
            asked = await client.ask(question, strategy="retrieve-read", documents=of)
            runs.append(asked.json()["run"])
        bad = {"good": False, "note": "which yard?"}
        for run, said in ((runs[0], bad), (runs[0], {"good": True}), (runs[1], {"good": True})):
            rated = await client.post(f"/api/runs/{run}/feedback", json=said)
            assert rated.status_code == 204
        wrong = await client.post(f"/api/runs/{runs[0]}/feedback", json={"good": "?"})
        assert wrong.status_code == 422
    async with serve() as client:  # kept on disk
        assert (await client.get(f"/api/runs/{runs[0]}")).json()["feedback"]["good"] is True
        file = tmp_path / "rated.jsonl"
        file.write_bytes((await client.get(f"{DEFAULT}/feedback")).content)
    refused, right = read_questions(file, "own")
    assert (right.text, right.answers) == (
        QUESTION,
        ("Bicycles stand in the yard, never in the hall.",),
    )
    assert right.gold == ("rules.md",)
    assert [each.id for each in right.documents] == ["rules.md"]
    assert not refused.answerable
    (cited,) = right.meta["cited"]
    assert cited["quote"] == right.answers[0]
    assert right.meta["good"] is True


async def test_only_answers_are_rated_and_by_their_owners(serve, held, tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    ana, ben = (
        {"Authorization": f"Bearer {tokens.make(n, [Right.READ, Right.ASK])}"} for n in "ab"
    )
    async with serve(held, tokens=tokens.path, token="owner-token") as client:
        owner = {"Authorization": "Bearer owner-token"}
        client.headers.update(owner)
        await client.add(RULES)
        asking = client.begin(strategy="retrieve-read")
        await until(lambda: held.now == 1)
        (run,) = await client.listed("runs")
        path, good = f"/api/runs/{run['id']}/feedback", {"good": True}
        assert (await client.post(path, json=good)).status_code == 409
        held.gate.set()
        await asking
        assert (await client.post(path, json=good, headers=ana)).status_code == 404
        assert (await client.post(path, json=good)).status_code == 204
        assert (await client.get(f"{DEFAULT}/feedback")).text.count("\n") == 1
        assert (await client.get(f"{DEFAULT}/feedback", headers=ben)).text == ""
        failed = await client.post(f"{DEFAULT}/table", json={"columns": "place: text"})
        rated = await client.post(f"/api/runs/{failed.json()['run']}/feedback", json=good)
        assert rated.status_code == 404
