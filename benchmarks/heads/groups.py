"""Make the groups of passages that a reranker is trained on.

    python benchmarks/heads/groups.py DATA OUT
    colligate train head reranker --data OUT --out RERANKER

`DATA` has `train/reading.NAME.jsonl.gz` (a question, its `passage`, `supporting` ones, `negatives`)
and `dev/NAME*.jsonl.gz` (a question, its `documents`, those of them that answer it). `OUT` gets
`train.jsonl`, `held_out.jsonl` and, of NQ's 200 questions in `dev`, `test.jsonl`, which
`benchmarks/reranking.py` judges. No question of `dev` is trained on, nor any passage under the
title of one that answers a question there, be it right or wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from colligate.lab.bench.datasets.records import load_records
from colligate.models.embedders import MiniLM

# Questions that are drawn of each set. How much of each was not searched for.
SETS = {
    "nq_qed": 5000,
    "nq_open_gold": 2000,
    "tydiqa_en": 1500,
    "squad_dev": 1000,
    "squad_train": 1000,
    "squad_train_sentences": 600,
    "mlqa_en": 400,
    "tatqa": 600,
    "hotpotqa": 1000,
    "2wiki": 600,
    "2wiki_sub": 1000,
    "log_nq": 500,
    "log_triviaqa": 200,
}
TEST = "nq20_gold_at_9"
CALIBRATED_ON = 90  # questions of each set that are left to `benchmarks/pointwise.py`
OWN, NEAR = 8, 12  # wrong passages that a question brings, and that are the nearest to it
LEAST_OTHERS = 4  # with fewer wrong passages a group teaches nothing
_HELD_OUT = 0.01
_SEED = "20261122"


@dataclass(frozen=True)
class Group:
    """A question, the passages that hold its answer, and others, the hardest first."""

    set: str
    id: str
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


_Record = Mapping[str, Any]


async def main(data: Path, out: Path) -> None:
    _write(out / "test.jsonl", list(_read_test(data / "dev")))
    records = {name: _draw(data / "train", name) for name in SETS}
    near = _answering_titles(data / "dev")
    near |= {_title(each) for drawn in records.values() for each in drawn[:CALIBRATED_ON]}
    near.discard("")
    groups = await _make_groups(
        {name: drawn[CALIBRATED_ON:][: SETS[name]] for name, drawn in records.items()}, near
    )
    held = {_title_of(each.right[0]) for each in groups if _share(each.right[0]) < _HELD_OUT}
    for file, kept in (("train", False), ("held_out", True)):
        chosen = [each for each in groups if (_title_of(each.right[0]) in held) == kept]
        _write(out / f"{file}.jsonl", chosen)
        print(file, dict(sorted(Counter(each.set for each in chosen).items())))


def spell_plainly(text: str) -> str:
    """Return the words of a text in lower case, letters without accents, signs as blanks."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return " ".join(re.findall(r"[a-z0-9]+", plain))


def has_answer(words: str, answers: Iterable[str]) -> bool:
    """Tell whether a normalised text contains one of the normalised answers, at whole words."""
    return any(f" {answer} " in f" {words} " for answer in answers)


def render_record(record: _Record) -> str:
    """Return a passage under its title."""
    return f"{record['title']}\n{record['text']}"


def _draw(train: Path, name: str) -> list[_Record]:
    """Return the questions of a set that have an answer, in the order that pointwise.py has."""
    records = [record for _, record in load_records(train / f"reading.{name}.jsonl.gz")]
    with_others = [each for each in records if each.get("negatives")] or records
    asked = {each["question"]: each for each in reversed(with_others)}
    return sorted(asked.values(), key=lambda each: hashlib.sha256(each["id"].encode()).digest())


def _answering_titles(dev: Path) -> set[str]:
    files = [file for file in sorted(dev.glob("*.jsonl.gz")) if ".corpus." not in file.name]
    return {
        spell_plainly(each["title"])
        for file in files
        for _, record in load_records(file)
        for each in record.get("documents", ())
        if each["id"] in record["gold_document_ids"]
    }


async def _make_groups(
    records: Mapping[str, Sequence[_Record]], near: Collection[str]
) -> list[Group]:
    chosen = [
        (name, each)
        for name, drawn in records.items()
        for each in drawn
        if each["answerable"] and not any(_title(right) in near for right in _right(each))
    ]
    pool = list({each["passage"]["text"]: each["passage"] for _, each in chosen}.values())
    embedder = MiniLM()
    rows = await embedder.embed([render_record(each) for each in pool], "passage")
    groups = []
    for name, each in chosen:
        [asked] = await embedder.embed([each["question"]], "query")
        best = np.argsort(-(rows @ asked))[: 3 * NEAR]
        own = [other for other in each.get("negatives", ()) if _title(other) not in near]
        wrong = _leave_out(own, [pool[at] for at in best], each)
        right = tuple(map(render_record, _right(each)))
        if len(wrong) >= LEAST_OTHERS:
            groups.append(Group(name, each["id"], each["question"], right, tuple(wrong)))
    random.Random(1).shuffle(groups)
    return groups


def _right(record: _Record) -> list[_Record]:
    return [record["passage"], *record.get("supporting", ())]


def _leave_out(own: Sequence[_Record], found: Sequence[_Record], record: _Record) -> list[str]:
    """Return the passages that hold no answer, each text once, the question's own and others in
    turn. They have titles only if the right one has: a title would tell it from them."""
    answers = [a for a in map(spell_plainly, record["answers"]) if len(a) > 2]
    answers = [each for each in answers if each not in ("yes", "no")]
    seen = {spell_plainly(each["text"]) for each in _right(record)}
    kept: list[list[str]] = []
    for passages, most in ((own, OWN), (found, NEAR)):
        texts: list[str] = []
        for each in passages:
            words = spell_plainly(each["text"])
            if words in seen or has_answer(words, answers) or len(texts) == most:
                continue
            seen.add(words)
            title = each["title"] if record["passage"]["title"] else ""
            texts.append(render_record({"title": title, "text": each["text"]}))
        kept.append(texts)
    return [text for text in chain.from_iterable(zip_longest(*kept)) if text]


def _read_test(dev: Path) -> Iterator[Group]:
    """Yield half of NQ's questions, the right passage and the 19 wrong ones that come with it."""
    for _, record in load_records(dev / f"{TEST}.jsonl.gz"):
        ids = set(record["gold_document_ids"])
        right = [each for each in record["documents"] if each["id"] in ids]
        wrong = [each for each in record["documents"] if each["id"] not in ids]
        key = min(spell_plainly(each["text"])[:200] for each in right)
        if _share(key + TEST) < 0.5:
            yield Group(
                "nq20",
                record["id"],
                record["question"],
                tuple(map(render_record, right)),
                tuple(map(render_record, wrong)),
            )


def _share(key: str) -> float:
    return int.from_bytes(hashlib.sha256(f"{_SEED}:{key}".encode()).digest()[:8], "big") / 2**64


def _write(file: Path, groups: Sequence[Group]) -> None:
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in groups)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), "utf-8")


def _title(record: _Record) -> str:
    return spell_plainly((record.get("passage") or record)["title"])


def _title_of(text: str) -> str:
    return spell_plainly(text.partition("\n")[0]) or spell_plainly(text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
