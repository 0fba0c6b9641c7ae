"""The example corpus is what it says, its questions are right, and its notebooks run."""

import hashlib
import json
from pathlib import Path

import pytest

from colligate.models import ChatRequest, Message
from support.http_server import quoting

EXAMPLES = Path(__file__).parents[1] / "examples"
LICENCES = EXAMPLES / "licences"

DIGESTS = {
    "Apache-2.0.txt": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "Artistic.txt": "b7fd9b73ea99602016a326e0b62e6646060d18febdd065ceca8bb482208c3d88",
    "BSD-3-Clause.txt": "5d588eb3b157d52112afea935c88a7ff9efddc1e2d95a42c25d3b96ad9055008",
    "BSL-1.0.txt": "c9bff75738922193e67fa726fa225535870d2aa1059f91452c411736284ad566",
    "CC0-1.0.txt": "a2010f343487d3f7618affe54f789f5487602331c0a8d03f49e9a7c547cf0499",
    "GFDL-1.3.txt": "110535522396708cea37c72a802c5e7e81391139f5f7985631c93ef242b206a4",
    "GPL-2.txt": "8177f97513213526df2cf6184d8ff986c675afb514d4e68a404010521b880643",
    "GPL-3.txt": "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986",
    "ISC.txt": "e53348ce276358e9997014071c5294b36a18c4b34f32f00ee57b9acce0aafd63",
    "LGPL-2.1.txt": "dc626520dcd53a22f727af3ee42c770e56c97a64fe3adb063799d8ab032fe551",
    "LGPL-3.txt": "e3a994d82e644b03a792a930f574002658412f62407f5fee083f2555c5f23118",
    "MIT.txt": "86da0f01aeae46348a3c3d465195dc1ceccde79f79e87769a64b8da04b2a4741",
    "MPL-2.0.txt": "fab3dd6bdab226f1c08630b1dd917e11fcb4ec5e1e020e2c16f83a0a13863e85",
    "Zlib.txt": "8958b52583fb1f558227cb458066567895b0198198c33b2a46f8a35b1280ccc2",
}


def _words(text: str) -> str:
    return " ".join(text.split())


LINES = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
QUESTIONS = [json.loads(line) for line in LINES]
each_question = pytest.mark.parametrize("item", QUESTIONS, ids=[q["id"] for q in QUESTIONS])


def test_the_licences_are_complete_unchanged_and_listed():
    found = {it.name: hashlib.sha256(it.read_bytes()).hexdigest() for it in LICENCES.iterdir()}
    assert found == DIGESTS
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in DIGESTS if f"`{name}`" not in readme] == []


@each_question
def test_a_question_is_consistent_and_its_quotes_are_in_their_documents(item):
    assert list(item) == ["id", "question", "answers", "documents", "quotes", "found"]
    assert item["question"].endswith("?")
    assert item["found"] is bool(item["answers"]) is bool(item["documents"])
    for name, quote in zip(item["documents"], item["quotes"], strict=True):
        text = _words((LICENCES / name).read_text(encoding="ascii"))
        assert quote == _words(quote)
        assert quote in text, f"{name} does not hold {quote!r}"


@pytest.mark.parametrize("name", ["ask", "compare"])
def test_a_notebook_runs(name, openai_server, here, monkeypatch):
    def answer(body):
        told = [Message(each["role"], each["content"]) for each in body["messages"]]
        call = ChatRequest(told, max_tokens=100)
        return quoting(call) if "Question: " in call.prompt else "Hi."

    openai_server.answer = answer
    monkeypatch.setenv("COLLIGATE_MODEL", f"openai:scripted@{openai_server.url}")
    monkeypatch.chdir(EXAMPLES)
    known: dict[str, object] = {}
    for cell in json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), known)
