"""Measure the reranker on questions it was not trained on, against search and MiniLM's cosine.

    python benchmarks/reranking.py --data DATA --groups GROUPS/test.jsonl --indexes INDEXES

`DATA` holds the data sets (`dev/`, `wiki_structured/`), `GROUPS` is what `heads/groups.py` wrote:
its test questions are judged. --model is the folder of another reranker. Elsewhere the best
`--pool` passages of hybrid search are put in a new order, by the reranker alone and beside the
search as in a run. nDCG@10 counts the right passages of the whole set where they are named
(musique, popqa, triviaqa) and those of the pool elsewhere; differences are paired, with the 95%
interval of the bootstrap and the larger p of bootstrap and sign flips. The test groups are also
asked the question of another group: a reranker that still puts the right passage first tells it by
how it is written.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colligate.core.events import Trace
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.lab.bench.datasets.records import load_records
from colligate.lab.bench.significance import bootstrap, paired_bootstrap
from colligate.library.library import AsyncLibrary
from colligate.library.ranking import titled_text
from colligate.models import Embedder, Reranker
from colligate.models.embedders import MiniLM
from colligate.models.metering import Meter
from colligate.models.pairs import MiniLMReranker
from colligate.reporting import ingest
from heads.groups import has_answer, spell_plainly
from results import read_arguments

SEED = 0
READER = "colligate.lab.bench.datasets.passages:read_corpus_file"


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def compare(name: str, ours: Sequence[float], theirs: Sequence[float], **more: Any) -> None:
    found = paired_bootstrap(ours, theirs, SEED)
    say(
        figure=name,
        n=len(ours),
        value=round(float(np.mean(ours)), 3),
        interval=[round(each, 3) for each in bootstrap(ours, SEED)],
        against=round(float(np.mean(theirs)), 3),
        difference=[round(each, 3) for each in (found.mean, found.low, found.high)],
        p=round(found.p, 5),
        **more,
    )


def ndcg(right: Sequence[bool], wanted: int, k: int = 10) -> float:
    """Return nDCG@k of a ranking whose right places are given, of `wanted` right passages."""
    gained = sum(1 / math.log2(place + 2) for place, each in enumerate(right[:k]) if each)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(wanted, k)))
    return gained / ideal if wanted else 0.0


Score = Callable[[str, Sequence[str]], Awaitable[list[float]]]


async def rank(score: Score, question: str, texts: Sequence[str]) -> list[int]:
    scores = await score(question, texts)
    return sorted(range(len(texts)), key=lambda place: (-scores[place], place))


async def judge_groups(file: Path, ours: Score, theirs: Score) -> None:
    """Judge the test questions of each set: one right passage among twenty."""
    groups = [record for _, record in load_records(file)]
    for name in sorted({each["set"] for each in groups}):
        of_set = [each for each in groups if each["set"] == name]
        questions = [each["question"] for each in of_set]
        half = len(questions) // 2
        others = questions[half:] + questions[:half]
        for asked, what in ((questions, "unseen"), (others, "asked another question")):
            await judge_places(f"{name}, {what}", of_set, asked, ours, theirs)


async def judge_places(
    name: str,
    groups: Sequence[dict[str, Any]],
    questions: Sequence[str],
    ours: Score,
    theirs: Score,
) -> None:
    """Judge at which place the right passages of groups stand after these questions."""
    places: dict[str, list[int]] = {"ours": [], "theirs": []}
    for group, question in zip(groups, questions, strict=True):
        texts = [*group["wrong"][:19], *group["right"]]  # right ones last: ties count against them
        first_right = len(texts) - len(group["right"])
        for whose, score in (("ours", ours), ("theirs", theirs)):
            order = await rank(score, question, texts)
            places[whose].append(min(map(order.index, range(first_right, len(texts)))))
    for label, most in (("first", 1), ("among two", 2), ("among six", 6)):
        hit = {w: [float(place < most) for place in each] for w, each in places.items()}
        compare(f"{name}: {label} of 20", hit["ours"], hit["theirs"], unlike="cosine")
    inverse = {w: [1 / (place + 1) for place in each] for w, each in places.items()}
    compare(f"{name}: MRR", inverse["ours"], inverse["theirs"], unlike="cosine")


Judge = Callable[[Passage], bool]


async def judge_search(
    name: str,
    path: Path,
    records: Sequence[dict[str, Any]],
    indexes: Path,
    embedder: Embedder,
    reranker: Reranker,
    pool: int,
) -> None:
    """Judge the order of what hybrid search finds: its own, the reranker's, and of both joined."""
    kwargs = {} if name == "wiki" else {"reader": READER}
    found: dict[str, list[tuple[float, float]]] = {"search": [], "alone": [], "beside": []}
    async with AsyncLibrary(indexes / name, embedder=embedder, **kwargs) as library:
        await ingest(library, [path], Trace(), index=True)
        ids = {Path(info.source).name: info.id for info in await library.documents()}
        for record in records:
            judge, wanted, within = judge_of(name, record, ids)
            question = record["question"]
            hits = await library.search(question, k=pool, documents=within)
            if not hits:
                continue
            texts = [titled_text(hit.passage) for hit in hits]
            run = Run(library, {}, Meter(), reranker=reranker)
            joined = await run.search(question, k=pool - 1, pool=pool, documents=within)
            alone = [hits[place] for place in await rank(reranker.score, question, texts)]
            orders = {"search": hits, "alone": alone, "beside": joined}
            most = wanted or sum(judge(hit.passage) for hit in hits)
            for way, order in orders.items():
                right = mark_right([hit.passage for hit in order], judge, once=bool(wanted))
                found[way].append((ndcg(right, most), float(right[0])))
    for way, name_of_way in (("alone", "by its score alone"), ("beside", "beside the search")):
        for at, what in enumerate((f"nDCG@10 of {pool}", "a right one first")):
            ours, theirs = ([values[at] for values in found[each]] for each in (way, "search"))
            compare(f"{name}: {what}, {name_of_way}", ours, theirs, unlike="hybrid search")


def mark_right(passages: Sequence[Passage], judge: Judge, *, once: bool) -> list[bool]:
    """Return which passages are right; with `once` only the first of each document."""
    seen: set[str] = set()
    right = []
    for passage in passages:
        good = judge(passage) and not (once and passage.document_id in seen)
        if good:
            seen.add(passage.document_id)
        right.append(good)
    return right


def judge_of(
    name: str, record: dict[str, Any], ids: dict[str, str]
) -> tuple[Judge, int, list[str] | None]:
    """Return what tells a right passage, how many there are (0: unknown), and where to search."""
    if name == "financebench":  # within the filing; right are passages that begin on a gold page
        pages = {page + 1 for page in record["meta"]["evidence_pages"]}
        filing = record["gold_document_ids"][0].partition("#")[0]
        return lambda passage: passage.page in pages, 0, [filing]
    if name == "wiki":  # in all pages; right are passages of the right page with an answer in them
        page = ids[Path(record["meta"]["page_file"]).name]
        answers = [spell_plainly(each) for each in record["answers"]]

        def judge(passage: Passage) -> bool:
            return passage.document_id == page and has_answer(spell_plainly(passage.text), answers)

        return judge, 0, None
    gold = set(record["gold_document_ids"])
    return lambda passage: passage.document_id in gold, len(gold), None


async def main() -> None:
    places = dict.fromkeys(("data", "groups", "indexes", "model"), Path)
    sets = "musique,popqa,financebench,wiki"
    given = read_arguments(__doc__, **places, sets=sets, pool=20, limit=int)
    ours, embedder = MiniLMReranker(given.model), MiniLM()

    async def cosine(question: str, texts: Sequence[str]) -> list[float]:
        [asked] = await embedder.embed([question])
        return list(await embedder.embed(texts) @ asked)

    if given.groups:
        await judge_groups(given.groups, ours.score, cosine)
    for name in filter(None, given.sets.split(",")) if given.indexes else ():
        wiki = given.data / "wiki_structured"
        file = wiki / "questions_dev.jsonl.gz" if name == "wiki" else None
        path = wiki / "pages" if name == "wiki" else given.data / f"dev/{name}.corpus.jsonl.gz"
        found = load_records(file or given.data / f"dev/{name}.jsonl.gz")
        records = [record for _, record in found][: given.limit]
        await judge_search(name, path, records, given.indexes, embedder, ours, given.pool)


if __name__ == "__main__":
    asyncio.run(main())
