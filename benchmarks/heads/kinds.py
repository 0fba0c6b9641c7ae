"""Make the questions that the sorter of kinds is trained on, or judge a sorter by others.

    python benchmarks/heads/kinds.py make DATA OUT
    colligate train head kinds --data OUT --out KINDS
    python benchmarks/heads/kinds.py judge DATA [KINDS]

`DATA` has `train/questions.NAME.jsonl.gz`, `train/reading.NAME.jsonl.gz` and, for `judge`,
`dev/NAME.jsonl.gz`. `questions.jsonl` beside this file has questions that were written for it, in
two parts: one is learnt from, the other, by another writer, is judged by.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from groups import write_lines

from colligate.lab.bench.datasets.records import load_records
from colligate.models.pairs import MiniLMKinds
from colligate.strategies.auto.prompts import QuestionKind

WRITTEN = Path(__file__).with_name("questions.jsonl")
FACT, STEPS = QuestionKind.FACT, QuestionKind.STEPS
# Of which sets how many questions are drawn, and how often each comes. How much was not searched
# for; the quizzes of TriviaQA come more often because few are at hand.
FILES: Sequence[tuple[str, tuple[str, ...], QuestionKind, int, float]] = (
    ("questions.nq_open", ("fact",), FACT, 3000, 1.0),
    ("questions.popqa", ("fact",), FACT, 1200, 1.0),
    ("questions.triviaqa", ("fact",), FACT, 688, 4.0),
    ("reading.log_triviaqa", (), FACT, 500, 4.0),
    ("questions.bioasq", ("fact",), FACT, 1100, 1.0),
    *((f"reading.{name}", (), FACT, 700, 1.0) for name in ("squad_dev", "tatqa", "tydiqa_en")),
    *((f"reading.{name}", (), FACT, 700, 1.0) for name in ("boolq", "fairytaleqa", "covidqa")),
    # Whether HotpotQA's other questions need several steps depends on the documents: left out.
    ("questions.hotpotqa", ("comparison",), STEPS, 1500, 1.0),
    *((f"questions.{name}", (), STEPS, 3000, 1.0) for name in ("2wiki", "musique")),
    ("questions.bioasq", ("list",), QuestionKind.LIST, 331, 1.0),
    ("questions.qmsum", (), QuestionKind.OVERVIEW, 400, 1.0),
)
OFTEN = 4.0  # how often a written question comes
# How many of a hundred questions are of each kind, whatever there are.
SHARES = dict(zip(QuestionKind, (0.34, 0.30, 0.10, 0.09, 0.10, 0.07), strict=True))
JUDGED = {
    "nq20_gold_at_9": FACT,
    "triviaqa": FACT,
    "popqa": FACT,
    "asqa": FACT,
    "hotpotqa": STEPS,
    "2wikimultihopqa": STEPS,
    "musique": STEPS,
}
OTHERS = {"questions.webquestions": FACT, "questions.strategyqa": STEPS}  # no set of theirs learnt
MOST = 200  # questions of each set that are judged


def read(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [record for _, record in load_records(file)]


def make(data: Path, out: Path) -> None:
    """Write `train.jsonl` and `held_out.jsonl`."""
    drawn = random.Random(0)
    rows: dict[QuestionKind, list[tuple[str, float]]] = defaultdict(list)
    for name, kinds, kind, most, often in FILES:
        found = read(data / "train" / f"{name}.jsonl.gz")
        asked = {each["question"] for each in found if not kinds or each["kind"] in kinds}
        questions = sorted(asked)
        drawn.shuffle(questions)
        rows[kind] += [(question, often) for question in questions[:most]]
    written = read(WRITTEN)
    for each in written:
        if not each["held"]:
            rows[QuestionKind(each["kind"])].append((each["question"], OFTEN))
    count = sum(map(len, rows.values()))
    weights = {k: SHARES[k] * count / sum(often for _, often in rows[k]) for k in rows}
    write_lines(
        out / "train.jsonl",
        (
            {"question": question, "kind": kind, "weight": weights[kind] * often}
            for kind, found in rows.items()
            for question, often in found
        ),
    )
    held = (each for each in written if each["held"])
    told = ({"question": each["question"], "kind": each["kind"]} for each in held)
    write_lines(out / "held_out.jsonl", told)


def iter_sets(data: Path) -> Iterator[tuple[str, QuestionKind, list[str]]]:
    """Yield sets of questions of one kind that were not learnt from."""
    for folder, sets in (("dev", JUDGED), ("train", OTHERS)):
        for name, kind in sets.items():
            found = read(data / folder / f"{name}.jsonl.gz")
            yield name, kind, [each["question"] for each in found][:MOST]
    written = read(WRITTEN)
    for kind in QuestionKind:
        yield "written", kind, [e["question"] for e in written if e["held"] and e["kind"] == kind]


def judge(data: Path, folder: Path | None) -> None:
    """Print of each set how many questions are taken for which kind."""
    sorter, kinds = MiniLMKinds(folder), list(QuestionKind)
    for name, kind, questions in iter_sets(data):
        scores = [sorter.score(each) for each in questions]
        told = Counter(kinds[max(range(len(kinds)), key=each.__getitem__)] for each in scores)
        shares = {str(k): round(told[k] / len(questions), 2) for k in told}
        print(f"{name}, {len(questions)}, {kind}: {shares}")


if __name__ == "__main__":
    what, data, *rest = sys.argv[1:]
    if what == "make":
        make(Path(data), Path(rest[0]))
    else:
        judge(Path(data), Path(rest[0]) if rest else None)
