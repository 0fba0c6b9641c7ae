"""Measure what a small reader's odds say: of an answer read from one passage, and of comparisons.

    python benchmarks/pointwise.py odds --data DIR [--model bundled] [--limit 115]
    python benchmarks/pointwise.py chains --data DIR [--model bundled] [--skip 50] [--limit 100]

`DIR` has `reading.log_nq.jsonl.gz` and so on: a question, its passage and others that a search
found. `odds` judges the passages, reads the surest and prints how many answers are right and wrong
from each limit on, by the odds that the passage contains an answer, that it says this one, and by
both. `chains` asks `compare` about questions that compare two things whose facts are known.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from colligate.core.answer import Answer
from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.core.run import Run
from colligate.documents import Document, Passage, flat_tree
from colligate.library.in_memory import InMemorySources
from colligate.library.ranking import standardise, titled_text
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.models.names import open_model, open_reranker
from colligate.readers import pointwise
from colligate.strategies.decompose.method import Chain, compare

SETS = {"log_nq": 90, "log_triviaqa": 60, "log_popqa": 60, "2wiki_sub": 50}
LIMITS = (0.4, 0.5, 0.55, 0.6, 0.65, 0.7)

Record = dict[str, Any]


def read_records(data: Path, name: str) -> list[Record]:
    with gzip.open(data / f"reading.{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def draw(data: Path) -> list[Record]:
    """Return questions of the sets in turn, each set in the order of a hash of the ids."""
    drawn = []
    for name, count in SETS.items():
        each = {r["question"]: r for r in reversed(read_records(data, name)) if r.get("negatives")}
        drawn.append(sorted(each.values(), key=lambda r: _hash(r["id"]))[:count])
    return [record for turn in zip_longest(*drawn) for record in turn if record]


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def is_right(said: str, answers: list[str]) -> bool:
    """Return whether an answer holds a gold one, or is part of it."""
    said = _normalise(said)
    if said.split()[:1] in (["yes"], ["no"]):
        said = said.split()[0]
    golds = [gold for gold in map(_normalise, answers) if gold]
    return any(gold in said or (len(said) > 3 and said in gold) for gold in golds)


def _normalise(text: str) -> str:
    words = re.sub(r"[^\w\s]", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def make_passages(record: Record) -> list[Passage]:
    found = [record["passage"], *record["negatives"]][:8]
    documents = [
        Document(str(n), each.get("title") or "Untitled", text, flat_tree(str(n), len(text)))
        for n, each in enumerate(found)
        if (text := each["text"][:2000]).strip()
    ]
    return [each.passage(each.span(0, len(each))) for each in documents]


async def measure_odds(data: Path, run: Run, limit: int) -> None:
    read: list[tuple[float, float, bool]] = []
    for record in draw(data)[:limit]:
        question, passages = record["question"], make_passages(record)
        assert run.reranker is not None
        scores = await run.reranker.score(question, [titled_text(each) for each in passages])
        best = sorted(range(len(passages)), key=lambda at: -scores[at])[: pointwise.MOST_JUDGED]
        judged = [await pointwise.judge(question, passages[at], run) for at in best]
        odds = [each.odds["Yes"] for each in judged]
        sure = standardise([_log(each) for each in odds])
        sure += standardise([scores[at] for at in best])
        for place in sorted(range(len(best)), key=lambda at: -sure[at])[:2]:
            passage = passages[best[place]]
            asked = render_passages([passage]), render_question(question)
            messages = build_messages(pointwise.ANSWER, *asked)
            short = (await run.chat(messages, max_tokens=60)).text.strip()
            if short.strip(" .\"'").casefold() not in ("none", ""):
                said = Answer(question, "", short, True, short=short)
                says = await pointwise.ask_whether_said(said, [passage], run)
                read.append((odds[place], says, is_right(short, record["answers"])))
                break
    ways = {"contains": lambda c, s: c, "says": lambda c, s: s, "both": _join}
    for name, way in ways.items():
        for least in LIMITS:
            kept = [right for contains, says, right in read if way(contains, says) >= least]
            right, n = sum(kept), limit
            print(f"{name} {least}: right {right / n:.2f}, wrong {(len(kept) - right) / n:.2f}")


def _log(odds: float) -> float:
    odds = min(max(odds, 1e-6), 1 - 1e-6)
    return math.log(odds / (1 - odds))


def _join(contains: float, says: float) -> float:
    return 1 / (1 + math.exp(-(_log(contains) + _log(says)) / 2))


async def measure_chains(data: Path, run: Run, skip: int, limit: int) -> None:
    """Facts are sub-questions of the same pages, answered; the last two are the chains' ends."""
    facts: dict[str, dict[str, str]] = defaultdict(dict)
    for record in read_records(data, "2wiki_sub"):
        facts[record["passage"]["title"]][record["question"]] = record["answers"][0]
    asked: list[tuple[Record, list[tuple[str, str]]]] = []
    for record in read_records(data, "2wiki"):
        pages = [record["passage"], *record.get("supporting", [])]
        known = {k: v for page in pages for k, v in facts[page["title"]].items()}
        if record.get("kind") == "comparison" and len(known) in (2, 4):
            asked.append((record, list(known.items())))
    asked.sort(key=lambda each: _hash(each[0]["id"]))
    counts: Counter[str] = Counter()
    for record, known in asked[skip : skip + limit]:
        ends = []
        for step, answer in known[-2:]:
            roots = [q for q, a in known[:-2] if _normalise(a) in _normalise(step)]
            ends.append(Chain(roots[0] if roots else step, step, answer))
        said = await compare(record["question"], ends[0], ends[1], run)
        right = is_right(said, record["answers"])
        counts["right" if right else "wrong" if said else "not told"] += 1
    print(dict(counts))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["odds", "chains"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--skip", type=int, default=50)
    parser.add_argument("--limit", type=int, default=100)
    asked = parser.parse_args()
    model = open_model(asked.model)
    run = Run(InMemorySources([]), {Role.READER: model}, Meter(), reranker=open_reranker("minilm"))
    if asked.what == "odds":
        await measure_odds(asked.data, run, asked.limit)
    else:
        await measure_chains(asked.data, run, asked.skip, asked.limit)


if __name__ == "__main__":
    asyncio.run(main())
