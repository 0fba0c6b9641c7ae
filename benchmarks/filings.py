"""Measure search over FinanceBench's filings as PDFs: is the right one first, is the page found.

    python benchmarks/filings.py --data DIR --library CACHE [--misses]

`DIR` holds `pdf/` and `dev/financebench.jsonl.gz`; the 25 questions about these PDFs are asked over
all 17. The first run indexes them in `CACHE` (MiniLM, minutes). The page is found if the first
5,000 characters found overlap a page of the evidence. Dense search and BM25 are also joined in the
ways of `search.py`. `--misses` names the questions.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from colligate.core.run import Run
from colligate.documents import Document, Hit
from colligate.lab.bench.datasets.records import load_records
from colligate.library.library import AsyncLibrary
from colligate.models.embedders import MiniLM
from colligate.models.metering import Meter
from colligate.models.pairs import MiniLMReranker
from search import say, search_both

CHARACTERS = 5_000
K, POOL = 20, 50  # `POOL` as in `retrieve-read`


def has_page(hits: Iterable[Hit], filing: Document, pages: Sequence[int]) -> bool:
    """Return whether the first 5,000 characters found overlap one of these pages (from 0)."""
    left = CHARACTERS
    for span in (hit.passage.span for hit in hits):
        end = min(span.end, span.start + left)
        if span.document_id == filing.id and any(
            span.start < filing.pages[page].end and filing.pages[page].start < end for page in pages
        ):
            return True
        left -= end - span.start
        if left <= 0:
            break
    return False


async def measure(data: Path, cache: Path, misses: bool) -> None:
    first: dict[str, list[bool]] = {}
    found: dict[str, list[bool]] = {}
    questions = []
    async with AsyncLibrary(cache, embedder=MiniLM()) as library:
        await library.add(data / "pdf")
        ids = {Path(info.source).stem: info.id for info in await library.documents()}
        reranker = MiniLMReranker()
        for _, record in load_records(data / "dev/financebench.jsonl.gz"):
            if (name := record["meta"]["doc_name"]) not in ids:
                continue
            question, filing = record["question"], await library.document(ids[name])
            questions.append(f"{name}: {question}")
            ways = await search_both(library, question)
            ways["hybrid search"] = await library.search(question, k=K)
            run = Run(library, {}, Meter(), reranker=reranker)
            ways["hybrid, by minilm"] = await run.search(question, k=K, pool=POOL)
            for way, hits in ways.items():
                first.setdefault(way, []).append(hits[0].passage.document_id == filing.id)
                right = has_page(hits, filing, record["meta"]["evidence_pages"])
                found.setdefault(way, []).append(right)
    for figure, values, goal in (
        ("right filing first", first, "goal 23"),
        ("page of the evidence in 5,000 characters", found, "goal 22"),
    ):
        for way, right in values.items():
            say(f"{figure}, {way}", sum(right), f"of {len(right)}", goal)
            for question, good in zip(questions, right, strict=True):
                if misses and not good:
                    print(f"    {question}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True, help="kept for the next run")
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    asyncio.run(measure(given.data, given.library, given.misses))


if __name__ == "__main__":
    main()
