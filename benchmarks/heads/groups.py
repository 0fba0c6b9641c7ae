"""Make the groups of passages that the carried reranker was trained on.

    python benchmarks/heads/groups.py DATA OUT [SETS]
    colligate train head reranker --data OUT --out RERANKER

`DATA` has `NAME*.jsonl.gz` (`id`, `question`, `answers`, `documents` with `id`, `title`, `text`,
`gold_document_ids`, `meta`) with `NAME.corpus.jsonl.gz` (`id`, `title`, `text`). `OUT` gets
`train.jsonl`, `held_out.jsonl` and, of nq20, `test.jsonl`, which `benchmarks/reranking.py` judges.

A group is a question, passages that hold its answer, and others: those that the question brings and
those that a search by words finds, without those that contain an answer. Questions that share a
gold passage stay on one side of the split, and a training question is left out if a gold passage of
a question to be judged has the title of one of its own.
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
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from colligate.documents import Document, flat_tree
from colligate.lab.bench.datasets.records import load_records
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode

SETS = "nq20,asqa,hotpotqa,2wikimultihopqa,triviaqa"
TRAIN, CHECK, TEST = "train", "held_out", "test"

FOUND = 20  # passages that a search adds to what a question brings
LEAST_OTHERS = 4  # with fewer wrong passages a group teaches nothing
RARE = 0.5  # of the made questions in a pass over the groups
OFTEN = {"nq20": 2.0}  # times that a set's questions come in a pass

_SEED = "20261122"
# Shares of a set's questions: to judge by, and up to where to watch the training by.
_SHARES = {"nq20": (0.5, 0.55)}
_OTHER_SHARES = (0.0, 0.06)

# Questions that 2WikiMultihopQA's evidences answer: subject, relation, object.
_RELATIONS = {
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "place of birth": "Where was {} born?",
    "place of death": "Where did {} die?",
    "director": "Who directed {}?",
    "spouse": "Who is married to {}?",
    "father": "Who is the father of {}?",
    "mother": "Who is the mother of {}?",
    "country of citizenship": "Which country is {} from?",
    "publication date": "When was {} released?",
    "performer": "Who performed {}?",
    "composer": "Who composed the music of {}?",
}


@dataclass(frozen=True)
class Group:
    """A question, the passages that hold its answer, and others, the hardest first.

    `kind` is `question`, `reading` (one reading of an ambiguous question) or `evidence` (a question
    made from a fact of the data set).
    """

    set: str
    split: str
    id: str
    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    kind: str = "question"


async def main(data: Path, out: Path, sets: str = SETS) -> None:
    write_groups(
        out, _separate([each for name in sets.split(",") async for each in _read_set(data, name)])
    )


def write_groups(out: Path, groups: Sequence[Group]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for split in (TRAIN, CHECK, TEST):
        with (out / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for each in (group for group in groups if group.split == split):
                weight = OFTEN.get(each.set, 1.0) * (RARE if each.kind == "evidence" else 1.0)
                file.write(
                    json.dumps({**asdict(each), "weight": weight}, ensure_ascii=False) + "\n"
                )
    counts = Counter(f"{each.set} {each.split} {each.kind}" for each in groups)
    print(json.dumps(dict(sorted(counts.items())), indent=1))


def find_set(data: Path, name: str) -> Path:
    """Return the questions of a set; of several files (gold in several places) the last one."""
    files = [file for file in sorted(data.glob(f"{name}*.jsonl.gz")) if ".corpus." not in file.name]
    exact = data / f"{name}.jsonl.gz"
    return exact if exact in files else files[-1]


def spell_plainly(text: str) -> str:
    """Return the words of a text in lower case, letters without accents, signs as blanks."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return " ".join(re.findall(r"[a-z0-9]+", plain))


def has_answer(words: str, answers: Iterable[str]) -> bool:
    """Tell whether a normalised text contains one of the normalised answers, at whole words."""
    return any(f" {answer} " in f" {words} " for answer in answers)


_Record = Mapping[str, Any]


async def _read_set(data: Path, name: str) -> AsyncIterator[Group]:
    file, corpus_file = find_set(data, name), data / f"{name}.corpus.jsonl.gz"
    corpus = {record["id"]: record for _, record in load_records(corpus_file)}
    texts = {id_: render_record(record) for id_, record in corpus.items()}
    documents = [
        Document(id_, corpus[id_]["title"], text, flat_tree(id_, len(text)), language="en")
        for id_, text in texts.items()
    ]
    async with InMemorySources(documents) as sources:

        async def find(question: str, k: int = FOUND) -> list[_Record]:
            hits = await sources.search(question, k=k, mode=SearchMode.SPARSE)
            return [corpus[i] for i in dict.fromkeys(hit.passage.span.document_id for hit in hits)]

        for _, record in load_records(file):
            ids = set(record["gold_document_ids"])
            gold = [each for each in record["documents"] if each["id"] in ids and each["text"]]
            if not gold:
                continue
            split = _draw_split(name, file, gold)
            own = [each for each in record["documents"] if each["id"] not in ids]
            others = _leave_out(
                own + await find(record["question"]), ids, gold, _answers(record["answers"])
            )
            if name in _SHARES:  # these 19 are judged as they are: they hold no answer
                others = list(dict.fromkeys([*map(render_record, own), *others]))
            passages = tuple(map(render_record, gold))
            yield Group(name, split, record["id"], record["question"], passages, tuple(others))
            if split != TRAIN:
                continue
            for kind, question, right, answers, k in _derive(record, gold):
                wrong = [each for each in record["documents"] if each not in right]
                others = _leave_out(wrong + await find(question, k), ids, right, answers)
                id_ = f"{record['id']}/{kind}/{question}"
                passages = tuple(map(render_record, right))
                yield Group(name, split, id_, question, passages, tuple(others), kind)


def render_record(record: _Record) -> str:
    """Return a passage under its title."""
    return f"{record['title']}\n{record['text']}"


def _answers(given: Iterable[str]) -> list[str]:
    return [a for a in map(spell_plainly, given) if len(a) > 2 and a not in ("yes", "no")]


def _leave_out(
    found: Iterable[_Record], ids: Collection[str], gold: Iterable[_Record], answers: Sequence[str]
) -> list[str]:
    """Return the passages that are not gold and hold no answer, each text once."""
    seen = {spell_plainly(each["text"]) for each in gold}
    kept = []
    for each in found:
        words = spell_plainly(each["text"])
        if words not in seen and each["id"] not in ids and not has_answer(words, answers):
            seen.add(words)
            kept.append(render_record(each))
    return kept


def _draw_split(name: str, file: Path, gold: Sequence[_Record]) -> str:
    """Draw by a gold passage, so that questions that share it stay together."""
    key = min(spell_plainly(each["text"])[:200] for each in gold)
    drawn = hashlib.sha256(f"{_SEED}:{key}{file.name.partition('.')[0]}".encode()).digest()
    share = int.from_bytes(drawn[:8], "big") / 2**64
    test, check = _SHARES.get(name, _OTHER_SHARES)
    return TEST if share < test else CHECK if share < check else TRAIN


_Derived = tuple[str, str, list[_Record], list[str], int]


def _derive(record: _Record, gold: Sequence[_Record]) -> Iterator[_Derived]:
    """Yield more questions: kind, question, right passages, answers, passages to search for."""
    ids = {each["id"] for each in gold}
    for pair in record["meta"].get("qa_pairs", ()):  # ASQA's readings
        answers = [a for a in map(spell_plainly, pair["short_answers"]) if len(a) > 2]
        page = spell_plainly(pair["wikipage"] or "")
        right = [
            each
            for each in record["documents"]
            if has_answer(spell_plainly(each["text"]), answers)
            and (each["id"] in ids or spell_plainly(each["title"]) == page)
        ]
        if (
            answers
            and right
            and spell_plainly(pair["question"]) != spell_plainly(record["question"])
        ):
            yield "reading", pair["question"], right, answers, FOUND
    for subject, relation, value in record["meta"].get("evidences", ()):  # 2WikiMultihopQA's facts
        answers = [spell_plainly(value)]
        right = [
            each
            for each in gold
            if spell_plainly(each["title"]).startswith(spell_plainly(subject))
            and has_answer(spell_plainly(each["text"]), answers)
        ]
        if right:
            form = _RELATIONS.get(relation, f"What is the {relation} of {{}}?")
            yield "evidence", form.format(subject), right, answers, 12


def _separate(groups: Sequence[Group]) -> list[Group]:
    """Leave out training questions near judged ones, questions asked twice, and poor groups."""
    near = {_title(text) for each in groups if each.split != TRAIN for text in each.right}
    apart = [
        each
        for each in groups
        if each.split != TRAIN or not any(_title(text) in near for text in each.right)
    ]
    first: dict[str, Group] = {}
    for each in sorted(apart, key=lambda each: each.split == TRAIN):
        if len(each.wrong) >= LEAST_OTHERS:
            first.setdefault(spell_plainly(each.question), each)
    kept = list(first.values())
    random.Random(1).shuffle(kept)
    return kept


def _title(text: str) -> str:
    return spell_plainly(text.partition("\n")[0])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
