"""Fit the probability of a small reader's answers.

    python benchmarks/pointwise.py odds --data DIR --out FILE.jsonl [--model bundled] [--limit 40]
    python benchmarks/pointwise.py fit --out FILE.jsonl [--rows ROWS.jsonl] [--promise FILE.json]

`DIR` has `reading.log_nq.jsonl.gz` and so on: a question, its passage and others that a search
found. `odds` reads `limit` questions of each set as the pointwise reader does, and half of them
again without the passages that answer. What is told of each answer is appended to FILE.jsonl; an
interrupted run goes on there. `fit` writes the probabilities (`readers/promise.json`); ROWS are
those of a bench run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.core.run import RISKS, Run, Shown
from colligate.documents import Document, Passage, flat_tree
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.models.names import open_model, open_reranker
from colligate.readers import pointwise
from colligate.readers.finding import find
from colligate.readers.promise import Promise, load_promise, logit
from heads.groups import CALIBRATED, draw_records, has_answer
from results import Row, Rows, read_arguments

# Not PopQA: many of its questions ("Who was the director of The Surface?") fit several things.
SETS = ("log_nq", "log_triviaqa", "2wiki_sub")


def draw(data: Path, limit: int) -> list[Row]:
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


def make_passages(record: Row, answers: list[str], run: Run) -> tuple[list[Passage], ...]:
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


async def read_all(data: Path, run: Run, limit: int, out: Path) -> None:
    """Add a row for each question, with its passages or without those that answer."""
    rows = Rows(out, ("id", "with"))
    for record in draw(data, limit):
        answers = [normalised for each in record["answers"] if (normalised := _normalise(each))]
        both = make_passages(record, answers, run)
        for with_answer, shown in zip((True, False), both, strict=True):
            wanted = with_answer or (shown and _hash(f"half {record['id']}")[0] < 128)
            key = {"id": record["id"], "with": with_answer}
            if wanted and key not in rows:
                rows.add(await read(record["question"], shown, answers, run) | key)


async def read(question: str, passages: list[Passage], answers: list[str], run: Run) -> Row:
    """Return what the small models tell of an answer, and whether it is right."""
    shown = [Shown(each) for each in passages]
    found = (await find(question, shown, run))[0]
    assert found.answer is not None
    said = (await run.document(found.answer.document_id)).slice(found.answer)
    row: Row = {"question": question, "answers": answers}
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


def fit(rows: list[Row], answered: list[Row]) -> Row:
    """Return the weights of each way to answer, and its answers by falling probability.

    `answered` are rows of a bench run with the present probabilities: with them constant and scale
    of what is read are fitted anew.
    """
    fitted = {}
    given = [row for row in answered if row["outcome"]["probability"]]
    for name in ("read", "found"):
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
        for fold in set(folds):
            others = regress(x[folds != fold], y[folds != fold])
            p[folds == fold] = others.predict_proba(x[folds == fold])[:, 1]
        order = np.argsort(-p)
        curve = [[round(float(p[at]), 4), bool(y[at])] for at in order]
        weights = np.round(regress(x, y).coef_[0] @ base, 4).tolist()
        fitted[name] = {"weights": weights, "curve": curve}
        print(f"{name}: n {len(told)}, right {y.mean():.2f}, area {roc_auc_score(y, p):.3f}")
        promise = Promise(tuple(fitted[name]["weights"]), tuple(map(tuple, curve)))
        for word, risk in RISKS.items():
            kept = p >= (limit := promise.limit(risk))
            wrong = (1 - y[kept]).mean() if kept.any() else 0.0
            print(f"{word} from {limit:.2f}: {kept.mean():.2f} given, {wrong:.2f} wrong")
    return fitted


def judge_row(row: Row) -> Row:
    """Return whether a row of a bench run is right; what has no answer is wrong."""
    short = row["outcome"]["short"] or row["outcome"]["text"]
    return {"id": row["question"], "right": is_right(short, row["answers"] or [])}


def regress(x: Any, y: Any) -> LogisticRegression:
    """Return a logistic regression, hardly held small; the constant is in a column of its own."""
    fitted = LogisticRegression(C=100, fit_intercept=False, solver="newton-cholesky", tol=1e-8)
    return fitted.fit(x, y)


async def main() -> None:
    files = dict.fromkeys(("data", "out", "promise", "rows"), Path)
    asked = read_arguments(__doc__, "odds|fit", **files, model="bundled", limit=40)
    if asked.what == "fit":
        answered = Rows(asked.rows, ("dataset", "question", "strategy"))
        fitted = fit(Rows(asked.out, ("id", "with")).all, answered.all)
        if asked.promise:
            known = json.loads(asked.promise.read_text("utf-8"))
            asked.promise.write_text(json.dumps(known | fitted) + "\n", "utf-8")
        return
    model = open_model(asked.model)
    run = Run(InMemorySources([]), {Role.READER: model}, Meter(), reranker=open_reranker("minilm"))
    await read_all(asked.data, run, asked.limit, asked.out)


if __name__ == "__main__":
    asyncio.run(main())
