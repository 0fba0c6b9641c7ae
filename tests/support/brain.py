"""A model that plays every part by the words it finds: for the page's tests and for looking at it.

It takes the sentences that share most words with the question, and says them in the form that it
is asked for. So a run has real spans, real scores and real searches.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

from colligate.models import Capability, ChatRequest
from colligate.testing import ScriptedModel
from support.prompts import passages_in

_DOCUMENT = re.compile(r'<document number="(\d+)">\n.*?\n(.*?)\n</document', re.S)  # less its title
_QUESTION = re.compile(r"Question: (?:<question>)?(.+?)(?:</question>)?(?:\n|$)")
_TASKS = "days to cure a first violation after notice, and rights reinstated or terminated"
_COMMON = frozenset(
    "the a an of and or in to is are was for under how many does do have has what which who when"
    " by that this it on with from be not any other you your question document".split()
)
_PLAN = {
    "sub_agent_todos": [
        {"task": "Note how long this document gives to cure a violation."},
        {"task": "Note what this document says happens to the rights meanwhile."},
    ],
    "synthesis_directive": "Compare the periods and name the document of each.",
}


class Reader(ScriptedModel):
    """Plays every part; a question may demand that it never replies."""

    def __init__(self) -> None:
        super().__init__(
            _reply,
            capabilities=[Capability.CHAT, Capability.STRUCTURED],
            context_tokens=32_000,
            likelihood=lambda prefix, _: [-1.0 - len(prefix) % 7] * 4,
            attention=lambda _, spans: [1.0 / (1 + (end - start) % 11) for start, end in spans],
        )

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        if "never reply" in request.prompt:
            await asyncio.Event().wait()  # until the run is cancelled
        return await super().chat(request, on_token)


def _reply(call: ChatRequest) -> str:
    if "complete the last question" in call.messages[0].content:
        *_, before, asked = re.findall(r"[Qq]uestion: (.*)", call.messages[-1].content)
        return f"{before} {asked}"
    told = "\n\n".join(message.content for message in call.messages)
    last = call.messages[-1].content
    asked = _QUESTION.findall(told)
    question = asked[-1] if asked else _TASKS
    schema = dict(call.schema or {})
    fields = set(schema.get("properties", {}))
    if not fields:
        return _free(told, last, question)
    return json.dumps(_fields(fields, told, last, question, schema))


def _free(told: str, last: str, question: str) -> str:
    """Reply without a schema: a tag, a tree's nodes, a view of documents, titles, a synthesis."""
    if "[Local]" in told:
        return "[Local]"
    if "[EXPAND]" in told or "<expand>" in told:
        return _routed(last, question)
    if "important_docs" in told:
        found = _found(_DOCUMENT.findall(last), question, 3)
        quotes = "\n".join(f"“{sentence[:230]}” [DOC {n}]" for _, n, sentence in found)
        return quotes + json.dumps({"important_docs": [int(n) for _, n, _ in found]})
    lines = [line.strip("# -\t") for line in last.splitlines()]
    wanted = question + " termination violation"
    return "\n".join([line for line in lines if _overlap(line, wanted) > 0][:4])


def _fields(
    fields: set[str], told: str, last: str, question: str, schema: dict[str, Any]
) -> dict[str, Any]:
    if "sub_agent_todos" in fields:
        return _PLAN
    if "relevance" in fields or "action" in fields:
        return _agent(told, question, fields)
    if "need_retrieve" in fields:
        return _thought(told, question)
    if "entities" in fields:
        return _entities(told)
    if "scores" in fields:
        return {"scores": [_score(n, text, question) for n, text in _DOCUMENT.findall(last)]}
    if fields == {"kind"}:
        return {"kind": "fact"}
    if fields == {"judgements"}:
        numbers = re.findall(r"^Statement (\d+):", last, re.M)
        return {"judgements": [{"number": int(n), "verdict": "supports"} for n in numbers]}
    return _answer(last, question, schema)


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z0-9]{2,}", text.lower()) if w not in _COMMON}


def _overlap(sentence: str, question: str) -> float:
    wanted = _words(question)
    share = len(_words(sentence) & wanted) / (1 + len(wanted))
    numbers = "days" in wanted and re.search(r"\b(\d+|thirty|sixty) days\b", sentence)
    return share + (0.4 if numbers else 0.0)


def _best(text: str, question: str) -> tuple[float, str]:
    # Headings above a passage, and a heading in it that has a ruler, are not sentences.
    text = re.sub(r"^(?:.* › .*|(?:.*\n)?[-=]{4,})$", "", text, flags=re.M)
    sentences = [s.strip() for s in re.split(r"(?<=[.;:])\s+", text) if 30 < len(s.strip()) < 500]
    return max(((_overlap(s, question), s) for s in sentences), default=(0.0, ""))


def _found(
    shown: Iterable[tuple[int, str]], question: str, most: int
) -> list[tuple[float, int, str]]:
    """The best sentence of each text shown, best first: score, number, sentence."""
    rows = [(*_best(text, question), number) for number, text in shown]
    seen: dict[str, tuple[float, int, str]] = {}
    for score, sentence, number in sorted(rows, key=lambda row: -row[0]):
        if score > 0.2 and sentence:
            seen.setdefault(sentence, (score, number, sentence))
    return list(seen.values())[:most]


def _said(sentence: str) -> str:
    return " ".join(sentence.split()).rstrip(";:,") + ("" if sentence.endswith(".") else ".")


def _answer(last: str, question: str, schema: dict[str, Any]) -> dict[str, Any]:
    found = _found(passages_in(last).items(), question, 3)
    joined = '"quotes"' in json.dumps(schema)
    statements = [
        {"quotes": [{"passage": int(number), "quote": sentence[:380]}], "sentence": _said(sentence)}
        if joined
        else {"passage": int(number), "quote": sentence[:580], "sentence": _said(sentence)[:580]}
        for _, number, sentence in found
    ]
    short = re.findall(r"\b\d+ days\b", " ".join(s for _, _, s in found))
    return {
        "statements": statements,
        "short_answer": " and ".join(dict.fromkeys(short)),
        "found": bool(statements),
    }


def _agent(told: str, question: str, fields: set[str]) -> dict[str, Any]:
    searches = told.count("<passages>")
    found = _found(passages_in(told).items(), question, 2)
    if searches < 2 and not found and "query" in fields:
        query = "termination violation notice days" if searches else question[:100]
        return {"action": "search", "query": query, "relevance": 0, "findings": ""}
    lines = [f"{at}. Found: {_said(s)} “{s[:380]}”" for at, (_, _, s) in enumerate(found, 1)]
    return {
        "action": "finalize",
        "query": "",
        "relevance": min(1.0, round(2 * found[0][0], 2)) if found else 0.05,
        "findings": "\n".join(lines),
    }


def _thought(told: str, question: str) -> dict[str, Any]:
    facts = re.findall(r"^\s*[-*] (.{20,280})$", told, re.M)
    done = sum("days" in fact for fact in facts) >= 2 or len(facts) >= 8
    thought = (
        "The facts give the periods that the question asks for."
        if done
        else f"It has to be found out what each document says about: {question[:120]}"
    )
    return {"facts": facts[:2] or ["none"], "thought": thought, "need_retrieve": not done}


def _entities(told: str) -> dict[str, Any]:
    names = list(dict.fromkeys(re.findall(r"\b[A-Z][A-Za-z]{2,}(?: [A-Z][A-Za-z]+)*", told)))
    known = [n for n in ("Mozilla Public License", "GPL") if any(n in name for name in names)]
    query = "days to cure a violation after notice"
    found = known or names[-2:] or ["licence"]
    return {"entities": [{"entity": name, "keywords": [f"{name} {query}"]} for name in found]}


def _score(number: str, text: str, question: str) -> dict[str, Any]:
    score, sentence = _best(text, question)
    p = min(1.0, round(2.2 * score, 1))
    return {"doc_id": int(number), "answer": sentence[:110] if p >= 0.4 else "", "p": p}


def _routed(last: str, question: str) -> str:
    answers, headings = [], []
    for number, line in re.findall(r"^\t*(\d+): (.+)$", last, re.M):
        if line.startswith("=="):
            if _overlap(line, question + " termination compliance violation") > 0.05:
                headings.append(f"[EXPAND] {number}: {line}")
        elif _overlap(line, question) > 0.25:
            answers.append((_overlap(line, question), f"[ANSWER] {number}: {line[:40]}"))
    answers.sort(reverse=True)
    return "\n".join([*(line for _, line in answers[:3]), *headings[:2]]) or "Cannot answer"
