"""Fit the probability of a small reader's answers.

    python benchmarks/pointwise.py odds --data DIR --out FILE.jsonl [--model bundled] [--limit 40]
    python benchmarks/pointwise.py fit --out FILE.jsonl [--rows ROWS.jsonl] [--promise FILE.json]
    python benchmarks/pointwise.py chains --data DIR [--model bundled] [--skip 50] [--limit 100]

`DIR` has `reading.log_nq.jsonl.gz` and so on: a question, its passage and others that a search
found. `odds` reads `limit` questions of each set as the pointwise reader does, and half of them
again without the passages that answer. What is told of each answer is appended to FILE.jsonl; an
interrupted run goes on there. `fit` writes the probabilities (`readers/promise.json`); ROWS are
those of a bench run. `chains` asks `compare` about questions that compare two things whose facts
are known.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import numpy as np

from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.core.run import RISKS, Run, Shown
from colligate.documents import Document, Passage, flat_tree
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.models.names import open_model, open_reranker
from colligate.readers import pointwise
from colligate.readers.finding import find
from colligate.readers.promise import Promise, Way, load_promise, logit
from colligate.strategies.decompose.method import Chain, compare
from heads.groups import CALIBRATED, draw_records, has_answer

# Not PopQA: many of its questions ("Who was the director of The Surface?") fit several things.
SETS = ("log_nq", "log_triviaqa", "2wiki_sub")

Record = dict[str, Any]


def read_records(data: Path, name: str) -> list[Record]:
    with gzip.open(data / f"reading.{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def draw(data: Path, limit: int) -> list[Record]:
    """Return questions of the sets in turn, of those that `heads/groups.py` leaves to this."""
    drawn = [draw_records(data, name)[: CALIBRATED[name]] for name in SETS]
    some = [[r for r in of_set if r["answerable"]][:limit] for of_set in drawn]
    return [record for turn in zip_longest(*some) for record in turn if record]


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def is_right(said: str, answers: list[str]) -> bool:
    """Return whether an answer holds a gold one ("American" holds "America"), or is part of it."""
    said = _normalise(said)
    if said.split()[:1] in (["yes"], ["no"]):
        said = said.split()[0]
    golds = [gold for gold in map(_normalise, answers) if gold]
    return any(
        has_answer(said, [gold])
        or (len(gold) > 3 and f" {gold}" in f" {said}")
        or (len(said) > 3 and said in gold)
        for gold in golds
    )


def _normalise(text: str) -> str:
    words = re.sub(r"[^\w\s]", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def make_passages(record: Record, answers: list[str], run: Run) -> tuple[list[Passage], ...]:
    """Return the passages of a question, and those of them that hold no answer."""
    passages = []
    for n, each in enumerate([record["passage"], *record["negatives"]][:8]):
        if text := each["text"][:2000].strip():
            name = f"{record['id']}-{n}"
            made = Document(name, each.get("title") or "Untitled", text, flat_tree(name, len(text)))
            run.adopt(made)
            passages.append(made.passage(made.span(0, len(made))))
    without = [each for each in passages if not has_answer(_normalise(each.text), answers)]
    return passages, [each for each in without if not each.id.startswith(f"{record['id']}-0:")]


def load(out: Path) -> list[Record]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


async def read_all(data: Path, run: Run, limit: int, out: Path) -> None:
    """Append a line for each question, with its passages or without those that answer."""
    done = {(row["id"], row["with"]) for row in load(out)}
    for record in draw(data, limit):
        answers = [normalised for each in record["answers"] if (normalised := _normalise(each))]
        both = make_passages(record, answers, run)
        for with_answer, shown in zip((True, False), both, strict=True):
            wanted = with_answer or (shown and _half(record["id"]))
            if not wanted or (record["id"], with_answer) in done:
                continue
            row = await read(record["question"], shown, answers, run)
            row |= {"id": record["id"], "with": with_answer}
            with out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")


async def read(question: str, passages: list[Passage], answers: list[str], run: Run) -> Record:
    """Return what the small models tell of an answer, and whether it is right."""
    shown = [Shown(each) for each in passages]
    found = (await find(question, shown, run))[0]
    assert found.answer is not None
    said = (await run.document(found.answer.document_id)).slice(found.answer)
    row: Record = {"question": question, "answers": answers}
    row["found"] = {"signs": found.signs, "short": said, "right": is_right(said, answers)}
    ordered, sure, _ = await pointwise.order(question, shown, run)
    for each in ordered[: pointwise.MOST_READ]:
        asked = render_passages([each.shown.passage]), render_question(question)
        messages = build_messages(pointwise.ANSWER, *asked)
        short = (await run.chat(messages, max_tokens=pointwise.REPLY_TOKENS)).text.strip()
        if not pointwise.is_none(short):
            says = await pointwise.ask_whether_said(question, short, [each.shown.passage], run)
            assert says is not None
            signs = logit(sure), logit(says)
            row["read"] = {"signs": signs, "short": short, "right": is_right(short, answers)}
            break
    return row


def _half(name: str) -> bool:
    return _hash(f"half {name}")[0] < 128


def fit(rows: list[Record], answered: list[Record]) -> Record:
    """Return the weights of each way to answer, and its answers by falling probability.

    `answered` are rows of a bench run with the present probabilities: with them constant and scale
    of what is read are fitted anew.
    """
    fitted = {}
    given = [row for row in answered if row["outcome"]["probability"]]
    for name in get_args(Way):
        told = [{**row[name], "id": row["id"]} for row in rows if name in row]
        x = np.array([[1.0, *row["signs"]] for row in told])
        base = np.eye(x.shape[1])
        if given and name == "read":
            base = np.array([[1.0, *[0.0] * (x.shape[1] - 1)], load_promise(name).weights])
            told += [judge_row(row) for row in given]
            again = [[1.0, logit(row["outcome"]["probability"])] for row in given]
            x = np.vstack([x @ base.T, again])
        y = np.array([row["right"] for row in told], float)
        # Each answer's place in the curve is by weights that were fitted without its fold.
        folds = np.array([_hash(row["id"])[1] % 10 for row in told])
        p = np.zeros(len(told))
        for fold in range(10):
            weights = regress(x[folds != fold], y[folds != fold])
            p[folds == fold] = _share(x[folds == fold] @ weights)
        order = np.argsort(-p)
        curve = [[round(float(p[at]), 4), bool(y[at])] for at in order]
        weights = np.round(regress(x, y) @ base, 4).tolist()
        fitted[name] = {"weights": weights, "curve": curve}
        print(f"{name}: n {len(told)}, right {y.mean():.2f}, area {area(p, y):.3f}")
        promise = Promise(tuple(fitted[name]["weights"]), tuple(map(tuple, curve)))
        for word, risk in RISKS.items():
            kept = p >= (limit := promise.limit(risk))
            wrong = (1 - y[kept]).mean() if kept.any() else 0.0
            print(f"{word} from {limit:.2f}: {kept.mean():.2f} given, {wrong:.2f} wrong")
    return fitted


def judge_row(row: Record) -> Record:
    """Return whether a row of a bench run is right; what has no answer is wrong."""
    short = row["outcome"]["short"] or row["outcome"]["text"]
    return {"id": row["question"], "right": is_right(short, row["answers"] or [])}


def regress(x: Any, y: Any) -> Any:
    """Return the weights of a logistic regression, hardly held small, by Newton's method."""
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        p = _share(x @ weights)
        slope = x.T @ (p - y) + 0.01 * weights
        curved = (x * (p * (1 - p))[:, None]).T @ x + 0.01 * np.eye(len(weights))
        weights = weights - np.linalg.solve(curved, slope)
    return weights


def _share(logits: Any) -> Any:
    return 1 / (1 + np.exp(-logits))


def area(p: Any, y: Any) -> float:
    """Return how often a right answer is more probable than a wrong one."""
    right, wrong = p[y == 1], p[y == 0]
    return float((right[:, None] > wrong[None]).mean() + (right[:, None] == wrong[None]).mean() / 2)


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
    parser.add_argument("what", choices=["odds", "fit", "chains"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--promise", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--skip", type=int, default=50)
    parser.add_argument("--limit", type=int, default=40)
    asked = parser.parse_args()
    if asked.what == "fit":
        fitted = fit(load(asked.out), load(asked.rows) if asked.rows else [])
        if asked.promise:
            asked.promise.write_text(json.dumps(fitted) + "\n", "utf-8")
        return
    model = open_model(asked.model)
    run = Run(InMemorySources([]), {Role.READER: model}, Meter(), reranker=open_reranker("minilm"))
    if asked.what == "odds":
        asked.out.touch()
        await read_all(asked.data, run, asked.limit, asked.out)
    else:
        await measure_chains(asked.data, run, asked.skip, asked.limit)


if __name__ == "__main__":
    asyncio.run(main())
