"""Measure how often a right answer would be left out because no document names its subject.

    python benchmarks/subjects.py --data DIR

An answer counts only if a document that was read has a name of the question
(`colligate.core.subject`). For each question the documents that hold its answer are looked at, as
if all of them had been read: where they have none of its names, a right answer is lost. No model is
asked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from colligate.core.subject import find_names, mentions
from evidence_data import read_records

SETS = ("hotpotqa", "2wikimultihopqa", "musique", "triviaqa", "popqa", "asqa", "nq20_gold_at_9")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().data
    print(f"{'set':<18}{'questions':>10}{'with names':>12}{'left out':>10}")
    for name in SETS:
        corpus = folder / f"{name}.corpus.jsonl.gz"
        texts = {each["id"]: each for each in read_records(corpus)} if corpus.exists() else {}
        questions = list(read_records(folder / f"{name}.jsonl.gz"))
        named, lost = 0, []
        for each in questions:
            names = find_names(each["question"])
            shown = {**texts, **{one["id"]: one for one in each["documents"] if one["text"]}}
            gold = [shown[key] for key in each["gold_document_ids"] if key in shown]
            if not (names and gold):
                continue
            named += 1
            text = "\n".join(f"{one['title']}\n{one['text']}" for one in gold)
            if not mentions(text, names):
                lost.append(each["question"])
        print(f"{name:<18}{len(questions):>10}{named:>12}{len(lost):>10}")
        for question in lost:
            print(f"    {question}")


if __name__ == "__main__":
    main()
