"""Measure how `auto` classifies questions: the odds of each kind, and the method it asks first.

    python benchmarks/kinds.py --data DIR [--limit 40] [--offset 0] [--sets ...] [--out FILE]

Sets of which the kind is known: NQ, TriviaQA, PopQA and WebQuestions ask for one fact;
2WikiMultihopQA, MuSiQue and HotpotQA for several steps (a paragraph of HotpotQA often states the
answer alone); QMSum and SQuALITY for an overview. Names with "train/" are of the training
questions, which the evaluation does not ask. No document is read.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from pathlib import Path

from colligate.lab.bench.significance import bootstrap
from colligate.models import LabelModel
from colligate.models.names import open_model
from colligate.strategies.auto.method import choose_kind
from colligate.strategies.auto.prompts import QuestionKind, kind_messages
from results import Rows, read_records, say, select_some

SETS = {
    "nq20_gold_at_9": QuestionKind.FACT,
    "triviaqa": QuestionKind.FACT,
    "popqa": QuestionKind.FACT,
    "2wikimultihopqa": QuestionKind.STEPS,
    "musique": QuestionKind.STEPS,
    "musique_unanswerable": QuestionKind.STEPS,
    "hotpotqa": QuestionKind.STEPS,
    "train/nq_open": QuestionKind.FACT,
    "train/popqa": QuestionKind.FACT,
    "train/triviaqa": QuestionKind.FACT,
    "train/webquestions": QuestionKind.FACT,
    "train/2wiki": QuestionKind.STEPS,
    "train/musique": QuestionKind.STEPS,
    "train/hotpotqa": QuestionKind.STEPS,
    "train/qmsum": QuestionKind.OVERVIEW,
    "train/squality": QuestionKind.OVERVIEW,
}


def read_questions(name: str, data: Path, limit: int, offset: int) -> list[str]:
    """Return questions of a set, a fixed sample."""
    folder, _, own = name.rpartition("/")
    file = f"train/questions.{own}" if folder else f"dev/{own}"
    records = read_records(data / f"{file}.jsonl.gz")
    return [record["question"] for record in select_some(records, limit, offset)]


async def measure(arguments: argparse.Namespace) -> None:
    model, data = arguments.model, arguments.data
    opened = open_model(model)
    assert isinstance(opened, LabelModel)
    rows = Rows(arguments.out, ("set", "question", "model"))
    labels = [kind.value for kind in QuestionKind]
    for name in arguments.sets:
        expected = SETS[name]
        own, began = [], time.perf_counter()
        for question in read_questions(name, data, arguments.limit, arguments.offset):
            key = {"set": name, "question": question, "model": model}
            if key not in rows:
                odds = (await opened.labels(kind_messages(question), labels)).odds
                rows.add(key | {"odds": dict(odds)})
            own.append(choose_kind(rows[key]["odds"]))
        seconds = (time.perf_counter() - began) / len(own)
        right = [float(kind is expected) for kind in own]
        low, high = bootstrap(right, seed=1)
        counts = ", ".join(f"{kind.value} {n}" for kind, n in Counter(own).most_common())
        sample = (
            f"{len(own)} questions: {counts}; 95% {low:.2f} to {high:.2f}; {seconds:.1f} s each"
        )
        say(f"{name}: classified as {expected.value}", sum(right) / len(right), "share", sample)
    await opened.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--offset", type=int, default=0, help="number of questions to skip")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
