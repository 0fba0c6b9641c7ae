"""Compare what a retriever finds with as many tokens of the engine's own search, in pairs.

    python benchmarks/refined.py QUESTIONS PAGES --library DIR --out rows.jsonl

`QUESTIONS` are records of the plain form, `PAGES` a folder of documents. A row says whether an
answer of its question is in the titles and texts that the retriever found, and in the first
passages of the search: as many as have no more tokens together, and one more. A run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from colligate import Engine
from colligate.core.run import Run
from colligate.documents import Hit
from colligate.lab.bench.metrics.short_answers import containment
from colligate.lab.bench.significance import paired_bootstrap
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.retrievers import make_retriever
from results import Row, read_records

KINDS = ("found", "fewer", "more")


async def measure(record: Row, run: Run, retriever: str) -> Row:
    model, meter = run.model(Role.READER), run.meter

    async def count(hits: Sequence[Hit]) -> int:
        return sum([await model.count_tokens(hit.passage.text) for hit in hits])

    question = record["question"]
    run.retriever = make_retriever(retriever)
    found = {"found": await run.search(question, k=10)}
    tokens = await count(found["found"])
    run.retriever = None
    searched = await run.search(question, k=25, pool=50)
    fits = [n for n in range(len(searched) + 1) if await count(searched[:n]) <= tokens][-1]
    found |= {"fewer": searched[:fits], "more": searched[: fits + 1]}
    row: Row = {"id": record["id"], "calls": meter.report().calls}
    for kind, hits in found.items():
        shown = "\n".join(text for hit in hits for text in (hit.passage.title, hit.passage.text))
        row[kind] = containment(shown, tuple(record["answers"]))
        row[f"{kind}_tokens"] = await count(hits)
    return row


def show(rows: Sequence[Row]) -> None:
    for kind in KINDS:
        share, tokens = (fmean(row[name] for row in rows) for name in (kind, f"{kind}_tokens"))
        pairs = ([row["found"] for row in rows], [row[kind] for row in rows])
        less = paired_bootstrap(*pairs, seed=0)
        line = f"{kind}: {share:.3f} of {len(rows)}, {tokens:.0f} tokens; found is"
        print(f"{line} {less.mean:+.3f} ({less.low:+.3f} to {less.high:+.3f}), p {less.p:.2f}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", type=Path)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--retriever", default="longrefiner:budget=1024")
    parser.add_argument("--reranker", default="minilm")
    parser.add_argument("--limit", type=int, default=52)
    asked = parser.parse_args()
    rows: list[Row] = []
    if asked.out.exists():
        rows = [json.loads(line) for line in asked.out.read_text().splitlines()]
    done = {row["id"] for row in rows}
    async with Engine(library=asked.library, reranker=asked.reranker) as engine:
        await engine.add([asked.pages])
        models, library = await engine.open_models(), await engine.open_library()
        reranker, embedder = await engine.open_reranker(), await engine.open_embedder()
        for record in read_records(asked.questions)[: asked.limit]:
            if record["id"] not in done:
                run = Run(library, models, Meter(), reranker=reranker, embedder=embedder)
                rows.append(await measure(record, run, asked.retriever))
                with asked.out.open("a") as lines:
                    lines.write(json.dumps(rows[-1]) + "\n")
    show(rows)


if __name__ == "__main__":
    asyncio.run(main())
