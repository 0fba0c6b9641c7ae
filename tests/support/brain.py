"""A model that plays every part by the words it finds: for the page's tests and for looking at it.

It reads what it is shown, takes the sentences that share most words with the question, and says
them in the form that it is asked for. So a run has real spans, real scores and real searches.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PASSAGE = re.compile(r'<passage [^>]*?number="(\d+)"[^>]*>\n(.*?)\n</passage', re.S)
_DOCUMENT = re.compile(r'<document number="(\d+)">\n(.*?)\n</document', re.S)
_QUESTION = re.compile(r"Question: (?:<question>)?(.+?)(?:</question>)?(?:\n|$)")
_TASKS = "days to cure a first violation after notice, and rights reinstated or terminated"
_COMMON = frozenset(
    "the a an of and or in to is are was for under how many does do have has what which who when"
    " by that this it on with from be not any other you your question document".split()
)


def reply(messages: list[dict[str, Any]], schema: dict[str, Any] | None) -> str:
    """What the model says to these messages, held to a schema or free."""
    told = "\n\n".join(str(each["content"]) for each in messages)
    last = str(messages[-1]["content"])
    asked = _QUESTION.findall(told)
    question = asked[-1] if asked else _TASKS
    fields = set((schema or {}).get("properties", {}))
    if "sub_agent_todos" in fields:
        return json.dumps(
            {
                "sub_agent_todos": [
                    {"task": "Note how long this document gives to cure a violation."},
                    {"task": "Note what this document says happens to the rights meanwhile."},
                ],
                "synthesis_directive": "Compare the periods and name the document of each.",
            }
        )
    if "relevance" in fields or "action" in fields:
        return _agent(last, told, question, fields)
    if "need_retrieve" in fields:
        return _thought(told, question)
    if "entities" in fields:
        return _entities(told)
    if "scores" in fields:
        return _scores(last, question)
    if "headings" in fields and "quotes" in fields:
        return _routed(last, question)
    if "quotes" in fields and "answer" in fields:
        return _view(last, question)
    if "titles" in fields:
        return json.dumps({"titles": _titles(last, question)})
    if "Local or Global" in told or "[Local]" in told:
        return "[Local]"
    return _answer(last, question, schema or {})


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z0-9]{2,}", text.lower()) if w not in _COMMON}


def _overlap(sentence: str, question: str) -> float:
    wanted = _words(question)
    share = len(_words(sentence) & wanted) / (1 + len(wanted))
    numbers = "days" in wanted and re.search(r"\b(\d+|thirty|sixty) days\b", sentence)
    return share + (0.4 if numbers else 0.0)


def _sentences(text: str) -> list[str]:
    # Headings above a passage, and a heading in it that has a ruler, are no sentences.
    text = re.sub(r"^(?:.* › .*|(?:.*\n)?[-=]{4,})$", "", text, flags=re.M)
    return [s.strip() for s in re.split(r"(?<=[.;:])\s+", text) if 30 < len(s.strip()) < 500]


def _best(text: str, question: str) -> tuple[float, str]:
    return max(((_overlap(s, question), s) for s in _sentences(text)), default=(0.0, ""))


def _found(shown: list[tuple[str, str]], question: str, most: int) -> list[tuple[float, str, str]]:
    """The best sentence of each text shown, best first: score, number, sentence."""
    rows = [(*_best(text, question), number) for number, text in shown]
    rows = [row for row in rows if row[0] > 0.2 and row[1]]
    rows.sort(key=lambda row: -row[0])
    seen: dict[str, tuple[float, str, str]] = {}
    for score, sentence, number in rows:
        seen.setdefault(sentence, (score, number, sentence))
    return list(seen.values())[:most]


def _body(text: str) -> str:
    """A document without the line of its title."""
    return text.partition("\n")[2]


def _said(sentence: str) -> str:
    return " ".join(sentence.split()).rstrip(";:,") + ("" if sentence.endswith(".") else ".")


def _answer(last: str, question: str, schema: dict[str, Any]) -> str:
    found = _found(_PASSAGE.findall(last), question, 3)
    joined = '"quotes"' in json.dumps(schema)
    statements = [
        {"quotes": [{"passage": int(number), "quote": sentence[:380]}], "sentence": _said(sentence)}
        if joined
        else {"passage": int(number), "quote": sentence[:580], "sentence": _said(sentence)[:580]}
        for _, number, sentence in found
    ]
    short = re.findall(r"\b\d+ days\b", " ".join(s for _, _, s in found))
    return json.dumps(
        {
            "statements": statements,
            "short_answer": " and ".join(dict.fromkeys(short)) or "see the statements",
            "found": bool(statements),
        }
    )


def _agent(last: str, told: str, question: str, fields: set[str]) -> str:
    shown = _PASSAGE.findall(last)
    if "findings" not in fields or not shown:
        return json.dumps({"findings": [], "action": "search", "query": question[:100]})
    found = _found(shown, question, 2)
    again = told.count("<passages>") < 2 and not found
    return json.dumps(
        {
            "findings": [
                {"passage": int(n), "quote": s[:380], "finding": _said(s)[:280]}
                for _, n, s in found
            ],
            "action": "search" if again else "finalize",
            "query": "termination violation notice days" if again else "",
            "relevance": min(1.0, round(2 * found[0][0], 2)) if found else 0.05,
        }
    )


def _thought(told: str, question: str) -> str:
    facts = re.findall(r"^\s*[-*] (.{20,280})$", told, re.M)
    done = sum("days" in fact for fact in facts) >= 2 or len(facts) >= 8
    said = (
        "The facts give the periods that the question asks for."
        if done
        else f"It has to be found out what each document says about: {question[:120]}"
    )
    return json.dumps({"facts": facts[:2] or ["none"], "thought": said, "need_retrieve": not done})


def _entities(told: str) -> str:
    names = list(dict.fromkeys(re.findall(r"\b[A-Z][A-Za-z]{2,}(?: [A-Z][A-Za-z]+)*", told)))
    known = [n for n in ("Mozilla Public License", "GPL") if any(n in name for name in names)]
    found = known or names[-2:] or ["licence"]
    return json.dumps(
        {
            "entities": [
                {"entity": name, "keywords": [f"{name} days to cure a violation after notice"]}
                for name in found
            ]
        }
    )


def _scores(last: str, question: str) -> str:
    rows = []
    for number, text in _DOCUMENT.findall(last):
        score, sentence = _best(_body(text), question)
        p = min(1.0, round(2.2 * score, 1))
        answer = sentence[:110] if p >= 0.4 else ""
        rows.append({"doc_id": int(number), "answer": answer, "p": p})
    return json.dumps({"scores": rows})


def _routed(last: str, question: str) -> str:
    quotes, headings = [], []
    for line in re.findall(r"^\t*-?\d+: (.+)$", last, re.M):
        if line.startswith("=="):
            if _overlap(line, question + " termination compliance violation") > 0.05:
                headings.append(line)
        elif _overlap(line, question) > 0.25:
            quotes.append((_overlap(line, question), line[:90]))
    quotes.sort(reverse=True)
    return json.dumps({"quotes": [q for _, q in quotes[:3]], "headings": headings[:2]})


def _view(last: str, question: str) -> str:
    shown = [(number, _body(text)) for number, text in _DOCUMENT.findall(last)]
    found = _found(shown, question, 3)
    quotes = [{"quote": s[:230], "document": int(n)} for _, n, s in found]
    return json.dumps({"quotes": quotes or [{"quote": "", "document": 1}], "answer": "As quoted."})


def _titles(last: str, question: str) -> list[str]:
    lines = [line.strip("# -\t") for line in last.splitlines()]
    near = [line for line in lines if _overlap(line, question + " termination violation") > 0]
    return near[:4]
