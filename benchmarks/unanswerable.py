"""Make unanswerable questions of answerable ones, as MuSiQue-Full made its own.

    python benchmarks/unanswerable.py --data DIR --out FILE [--limit 15] [--offset 160]

Of one step of a MuSiQue question, drawn at random, no paragraph is left that holds the step's
answer (Trivedi et al. 2022, section 5.3). `FILE` has the form of `musique_unanswerable.jsonl.gz`,
which `bench run auto --datasets unanswerable` reads.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path

from colligate.lab.bench.metrics.answers import normalise_squad
from results import Row, read_records, select_some


def withhold(record: Row) -> Row:
    """Return the question without the paragraphs that hold the answer of one of its steps."""
    step = random.Random(record["id"]).choice(record["meta"]["decomposition"])
    answer = f" {normalise_squad(step['answer'])} "
    left = [
        document
        for document in record["documents"]
        if answer not in f" {normalise_squad(document['title'] + ' ' + document['text'])} "
    ]
    meta = {**record["meta"], "answerable": False, "withheld_answers": record["answers"]}
    return {
        **record,
        "id": f"{record['id']}-unanswerable",
        "documents": left,
        "gold_document_ids": [],
        "answers": [],
        "meta": meta,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of musique.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=15)
    parser.add_argument("--offset", type=int, default=160)
    arguments = parser.parse_args()
    records = read_records(arguments.data / "musique.jsonl.gz")
    drawn = select_some(records, len(records), arguments.offset)
    split = [record for record in drawn if record["meta"]["decomposition"]]
    made = map(withhold, split[: arguments.limit])
    with gzip.open(arguments.out, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in made)


if __name__ == "__main__":
    main()
