"""Make the claims that a verifier is trained on, from sets that people labelled.

    python benchmarks/heads/claims.py DATA OUT [--made DIR]
    colligate train head verifier --data OUT --out VERIFIER

`DATA` has `claims.NAME.jsonl.gz`, `DIR` the `train.jsonl` of claims that a program made (this file
in 3c2e5bed was that program). `OUT` gets `train.jsonl` and `held_out.jsonl`, which share no page,
premise or article.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.lab.bench.datasets.records import load_records
from colligate.models.pairs import join_title

# How often a claim of a set comes in a pass. Labels made by a rule, image captions and chat come
# less often. The shares were not searched for.
WEIGHTS = {
    "fever": 1.0,
    "fever_symmetric": 2.0,
    "fm2": 1.0,
    "nli_new_protocols": 1.0,
    "mnli_dev": 1.0,
    "nli_counterfactual": 1.0,
    "snli_dev": 0.5,
    "wice": 2.0,
    "expertqa": 0.5,
    "begin_wow": 0.3,
    "conjnli": 0.2,
}
MADE = 0.75  # of the claims of the program
TITLED = ("fever", "fm2", "wice")  # their groups are the titles of pages
_HELD_OUT = 0.02


def read_claims(data: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the claims of a set, each with its group."""
    for _, each in load_records(data / f"claims.{name}.jsonl.gz"):
        title = each["group"] if name in TITLED else ""
        yield {
            "claim": each["claim"],
            "evidence": join_title(title, each["evidence"]),
            "label": each["label"],
            "weight": WEIGHTS[name],
            "set": name,
            "group": f"{name} {each['group']}",
        }


def read_made(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the claims that a program made."""
    for _, each in load_records(folder / "train.jsonl"):
        yield each | {"weight": MADE, "set": "made", "group": each["document"]}


def main(data: Path, out: Path, made: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    drawn: Counter[str] = Counter()
    with (out / "train.jsonl").open("w") as train, (out / "held_out.jsonl").open("w") as held_out:
        claims = [each for name in WEIGHTS for each in read_claims(data, name)]
        for each in [*claims, *(read_made(made) if made else ())]:
            digest = hashlib.sha256(each["group"].encode()).digest()
            kept = int.from_bytes(digest[:4]) < _HELD_OUT * 2**32
            drawn[each["set"]] += 1
            (held_out if kept else train).write(json.dumps(each) + "\n")
    print(json.dumps(drawn))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--made", type=Path)
    main(**vars(parser.parse_args()))
