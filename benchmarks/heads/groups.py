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
from colligate.models.embedders import StaticEmbedder

# The most questions that are drawn of each set. Wrong passages are of the same family: those of
# another would be told by how they are written. The shares were not searched for.
FAMILIES = {
    "nq": {"nq_qed": 8000, "nq_open_gold": 2200, "nq_migres": 70},
    "squad": {"squad_dev": 6000, "squad_train": 8900, "mlqa_en": 1200},
    "sentences": {"squad_train_sentences": 2000, "qamr": 2000},
    "tydiqa": {"tydiqa_en": 3700},
    "chains": {"hotpotqa": 1000, "2wiki": 700, "2wiki_sub": 1200, "popqa": 360},
    "log": {"log_nq": 900, "log_triviaqa": 500, "log_popqa": 750, "log_bamboogle": 130},
    "swapped": {"nq_swap": 1500},
    "filings": {"tatqa": 1400},
    "medicine": {"covidqa": 1200, "bioasq": 1500},
    "stories": {"fairytaleqa": 2000},
    "said": {"boolq": 2000, "condaqa": 800, "clapnq": 600, "ropes": 400},
}
TEST = "nq20_gold_at_9"
# Questions of these sets, with passages that a search found, that are left to calibrate with.
CALIBRATED = {"log_nq": 150, "log_triviaqa": 150, "log_popqa": 150, "2wiki_sub": 150}
OWN, NEAR = 8, 12  # wrong passages that a question brings, and that are the nearest to it
LEAST_OTHERS = 4  # with fewer wrong passages a group teaches nothing
_HELD_OUT = 0.01
_SEED = "20261122"


@dataclass(frozen=True)
class Group:
    """A question, the passages that hold its answer, if any, and others, the hardest first."""

    set: str
    id: str
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    answer: tuple[int, int] | None = None  # where the answer stands in the first right one


_Record = Mapping[str, Any]


async def main(data: Path, out: Path) -> None:
    write_lines(out / "test.jsonl", map(asdict, _read_test(data / "dev")))
    most = {name: n for family in FAMILIES.values() for name, n in family.items()}
    records = {name: draw_records(data / "train", name) for name in most}
    near = _answering_titles(data / "dev")
    kept = {name: records[name][:n] for name, n in CALIBRATED.items()}
    near |= {_title(each) for drawn in kept.values() for each in drawn}
    near.discard("")
    asked = {spell_plainly(each["question"]) for drawn in kept.values() for each in drawn}
    groups = []
    for family in FAMILIES.values():
        chosen = []
        for name in family:
            for each in records[name][: most[name]]:
                question = spell_plainly(each["question"])
                if question not in asked and not any(_title(one) in near for one in _own(each)):
                    chosen.append((name, each))
                    asked.add(question)
        groups += await _make_groups(chosen, near)
    random.Random(1).shuffle(groups)
    held = {title for each in groups if _share(title := _first_title(each)) < _HELD_OUT}
    for file, held_out in (("train", False), ("held_out", True)):
        chosen_groups = [each for each in groups if (_first_title(each) in held) == held_out]
        write_lines(out / f"{file}.jsonl", map(asdict, chosen_groups))
        print(file, dict(sorted(Counter(each.set for each in chosen_groups).items())))


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


def draw_records(train: Path, name: str) -> list[_Record]:
    """Return the questions of a set by a hash of their ids, those that bring others first."""
    records = [record for _, record in load_records(train / f"reading.{name}.jsonl.gz")]
    asked = {each["question"]: each for each in reversed(records)}
    drawn = sorted(asked.values(), key=lambda each: hashlib.sha256(each["id"].encode()).digest())
    return sorted(drawn, key=lambda each: not each.get("negatives"))


def _answering_titles(dev: Path) -> set[str]:
    files = [file for file in sorted(dev.glob("*.jsonl.gz")) if ".corpus." not in file.name]
    return {
        spell_plainly(each["title"])
        for file in files
        for _, record in load_records(file)
        for each in record.get("documents", ())
        if each["id"] in record["gold_document_ids"]
    }


async def _make_groups(chosen: Sequence[tuple[str, _Record]], near: Collection[str]) -> list[Group]:
    pool = list({each["passage"]["text"]: each["passage"] for _, each in chosen}.values())
    embedder = StaticEmbedder()
    rows = await embedder.embed([render_record(each) for each in pool], "passage")
    asked = await embedder.embed([each["question"] for _, each in chosen], "query")
    groups = []
    for (name, each), question in zip(chosen, asked, strict=True):
        scores = rows @ question
        best = np.argpartition(-scores, min(4 * NEAR, len(pool) - 1))[: 4 * NEAR]
        best = best[np.argsort(-scores[best])]
        own = [other for other in each.get("negatives", ()) if _title(other) not in near]
        if not each["answerable"]:
            own.insert(0, each["passage"])
        wrong = _leave_out(own, [pool[at] for at in best], each)
        right = tuple(map(render_record, _own(each))) if each["answerable"] else ()
        if len(wrong) >= LEAST_OTHERS:
            answer = _find_answer(each) if right else None
            groups.append(Group(name, each["id"], each["question"], right, tuple(wrong), answer))
    return groups


def _find_answer(record: _Record) -> tuple[int, int] | None:
    """Return where the answer stands in the passage under its title, if that is known."""
    start = record["answer_start"]
    if start is None:
        return None
    start += len(render_record({**record["passage"], "text": ""}))
    return start, start + len(record["answers"][0])


def _own(record: _Record) -> list[_Record]:
    return [record["passage"], *record.get("supporting", ())]


def _leave_out(own: Sequence[_Record], found: Sequence[_Record], record: _Record) -> list[str]:
    """Return the passages that hold no answer, each text once, the question's own and others in
    turn. They have titles only if the right one has: a title would tell it from them."""
    answers = [a for a in map(spell_plainly, record["answers"]) if len(a) > 2]
    answers = [each for each in answers if each not in ("yes", "no")]
    right = _own(record) if record["answerable"] else ()
    seen = {spell_plainly(each["text"]) for each in right}
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
            texts = (tuple(map(render_record, each)) for each in (right, wrong))
            yield Group("nq20", record["id"], record["question"], *texts)


def _share(key: str) -> float:
    return int.from_bytes(hashlib.sha256(f"{_SEED}:{key}".encode()).digest()[:8], "big") / 2**64


def write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of JSON, a line for each row."""
    lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), "utf-8")


def _title(record: _Record) -> str:
    return spell_plainly((record.get("passage") or record)["title"])


def _first_title(group: Group) -> str:
    text = (*group.right, *group.wrong)[0]
    return spell_plainly(text.partition("\n")[0]) or spell_plainly(text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
