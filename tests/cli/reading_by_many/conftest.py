"""Five real licences, and a server that takes every part the three strategies have to give.

Which part it is asked for it tells by the schema of the reply alone (DuQUAD's two readers have
none), and what it says it copies from what it is shown: the sentence about notices.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LICENCES = Path(__file__).parents[3] / "examples" / "licences"
QUESTION = "Which notices must stay in copies of the software?"
NOTICES = {
    "MIT": "The above copyright notice and this permission notice shall be included in all copies",
    "ISC": "the above copyright notice and this permission notice appear in all copies",
    "Zlib": "This notice may not be removed or altered from any source distribution",
    "BSL-1.0": "must be included in all copies of the Software, in whole or in part",
    "BSD-3-Clause": "Redistributions of source code must retain the above copyright notice",
}
_SHOWN = re.compile(
    r'<(?:passage|document) number="(\d+)"[^>]*>\n(.*?)</(?:passage|document)', re.S
)


def schema_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """The schema a reply is held to, or is asked to keep to in the prompt."""
    if "response_format" in body:
        held: dict[str, Any] = body["response_format"]["json_schema"]["schema"]
        return held
    _, told, schema = body["messages"][-1]["content"].rpartition("with nothing else:\n{")
    return json.loads("{" + schema) if told else None


def part(body: dict[str, Any]) -> str:
    """Which part a request gives to the model."""
    schema = schema_of(body)
    if schema is None:  # not every reply has one
        return "scores" if '"scores"' in body["messages"][0]["content"] else "view"
    parts = {
        "sub_agent_todos": "coordinator",
        "action": "agent",
        "need_retrieve": "reasoner",
        "entities": "identifier",
        "scores": "scores",
        "statements": "statements",
        "quotes": "view",
        "judgements": "check",
    }
    return next(parts[field] for field in parts if field in schema["properties"])


def shown(body: dict[str, Any]) -> list[tuple[int, str]]:
    """The numbered texts of a prompt, its whole conversation together."""
    text = "\n".join(turn["content"] for turn in body["messages"])
    return [(int(number), " ".join(said.split())) for number, said in _SHOWN.findall(text)]


class Answers:
    """What the server says, by part; a test may put another function in place of one.

    `served` are the requests by part, in order, `at(part)` those for one. `failure` is a reply
    that refuses with 500. `echo` is repeated wherever the model writes words of its own.
    """

    def __init__(self, server: Any) -> None:
        self.server = server
        server.fail(500)
        self.failure = server.script.pop()
        self.served: list[tuple[str, dict[str, Any]]] = []
        self.notices = list(NOTICES.values())
        self.echo = ""
        self.say: dict[str, Callable[[dict[str, Any]], Any]] = {
            "coordinator": self.plan,
            "agent": self.agent,
            "reasoner": self.reason,
            "identifier": self.identify,
            "scores": self.score,
            "statements": self.state,
            "view": self.view,
            "check": self.judge,
        }

    def __call__(self, body: dict[str, Any]) -> Any:
        if body.get("logprobs"):
            return "Yes"  # what the server can do is tried, before the run
        asked = part(body)
        self.served.append((asked, body))
        said = self.say[asked](body)
        if not isinstance(said, dict):
            return said
        fields = (schema_of(body) or {"properties": said})["properties"]
        return json.dumps({field: said[field] for field in fields})

    def at(self, name: str) -> list[dict[str, Any]]:
        return [body for asked, body in self.served if asked == name]

    def counted(self) -> dict[str, int]:
        return dict(Counter(asked for asked, _ in self.served))

    def found(self, body: dict[str, Any]) -> list[tuple[int, str]]:
        """The notices that stand in what a prompt shows, each with its number there."""
        numbered = shown(body)
        return [
            next((number, notice) for number, text in numbered if notice in text)
            for notice in self.notices
            if any(notice in text for _, text in numbered)
        ]

    def plan(self, body: dict[str, Any]) -> dict[str, Any]:
        tasks = ["Find which notices must be kept in copies.", "Find where they must stand."]
        directive = "Name what each licence wants kept."
        plan = [{"task": task + self.echo} for task in tasks]
        return {"sub_agent_todos": plan, "synthesis_directive": directive + self.echo}

    def agent(self, body: dict[str, Any]) -> dict[str, Any]:
        if not shown(body):
            turn = {"reasoning": f"Look for it.{self.echo}", "action": "search"}
            return {**turn, "query": "notices in copies", "findings": "", "relevance": 0.0}
        report = "\n".join(
            f"1. Found: {notice}.{self.echo} “{notice}”" for _, notice in self.found(body)
        )
        turn = {"reasoning": "It is here.", "action": "finalize", "query": ""}
        return {**turn, "findings": report, "relevance": 0.9 if report else 0.0}

    def reason(self, body: dict[str, Any]) -> dict[str, Any]:
        first = "(nothing yet)" in body["messages"][-1]["content"]
        missing, enough = "The notices of each licence are missing.", "All notices are known."
        return {"thought": (missing if first else enough) + self.echo, "need_retrieve": first}

    def identify(self, body: dict[str, Any]) -> dict[str, Any]:
        names = ["copyright notice", "source distribution"]
        keywords = ["notice must appear in all copies", "retain the notice"]
        return {"entities": [{"entity": name + self.echo, "keywords": keywords} for name in names]}

    def score(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = dict(shown(body))
        rows = [
            {"doc_id": number, "answer": notice, "p": 0.9} for number, notice in self.found(body)
        ]
        scored = {row["doc_id"] for row in rows}
        rows += [{"doc_id": n, "answer": "", "p": 0.1} for n in texts if n not in scored]
        return {"scores": rows}

    def state(self, body: dict[str, Any]) -> dict[str, Any]:
        statements: list[dict[str, Any]] = []
        for number, notice in self.found(body):
            quote = {"passage": number, "quote": notice}
            joined = "Joined" in json.dumps(schema_of(body))
            said = {"sentence": f"{notice}."}
            statements.append({"quotes": [quote], **said} if joined else {**quote, **said})
        return {"statements": statements, "short_answer": "all", "found": bool(statements)}

    def judge(self, body: dict[str, Any]) -> dict[str, Any]:
        numbers = re.findall(r"^Statement (\d+):", body["messages"][-1]["content"], re.M)
        return {"judgements": [{"number": int(n), "verdict": "supports"} for n in numbers]}

    def view(self, body: dict[str, Any]) -> Any:
        found = self.found(body)[:3]
        quotes = [{"quote": notice, "document": number} for number, notice in found]
        if "important_docs" not in body["messages"][0]["content"]:
            return {"quotes": quotes, "answer": f"Notices.{self.echo}"}
        cited = " ".join(f'[DOC {number}] says "{notice}".' for number, notice in found)
        important = json.dumps({"important_docs": [number for number, _ in found]})
        return f"{cited}\n{self.echo}\n{important}"


@pytest.fixture
def licences(tmp_path: Path) -> Path:
    """A folder of five short licences."""
    made = tmp_path / "licences"
    made.mkdir()
    for name in NOTICES:
        shutil.copy(LICENCES / f"{name}.txt", made)
    return made


@pytest.fixture
def answers(openai_server: Any) -> Answers:
    made = Answers(openai_server)
    openai_server.answer = made
    return made
