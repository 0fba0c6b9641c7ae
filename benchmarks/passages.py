"""Measure how many of the passages that are read first say nothing.

    python benchmarks/passages.py --data DIR --library CACHE [--show]

`DIR` holds `pdf/`, `dev/` and `wiki_structured/`: 25 questions over 17 filings, and the first 25
over whole wiki pages. Their first ten passages are those of `ask` (hybrid search, reranked by
`minilm`). One says something if, beside headings and rows of a table of contents, it has a
sentence of four words or more, a row of two cells or more, or a list item of four words. The first
run indexes both in `CACHE` (minutes). A page of the evidence counts in the first 5,000 characters.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from colligate.core.run import Run
from colligate.documents import Document, Passage
from colligate.documents.sentences import split_sentences
from colligate.library.library import AsyncLibrary
from colligate.models.embedders import MiniLM
from colligate.models.metering import Meter
from colligate.models.pairs import MiniLMReranker
from results import Row, read_records, say

SENTENCE = re.compile(r"(?:\S+\s+){3,}.*[.!?:;\u3002\uff01\uff1f][\W_]*", re.DOTALL)
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\S+\s+){3,}\S+.*")
CHARACTERS = 5_000


def says_something(document: Document, passage: Passage) -> bool:
    span, text = passage.span, passage.text
    titles = {plain(section.title) for section in document.tree.sections}
    for section in reversed(document.tree.sections):
        if (line := section.heading) and span.start <= line.start < span.end:
            text = text[: line.start - span.start] + "\n\n" + text[line.end - span.start :]
    for start, end in split_sentences(text):
        piece = text[start:end]
        cells = [cell for cell in map(plain, piece.split("|")) if cell]
        listed = cells and (cells[-1].isdigit() and any(cell in titles for cell in cells[:-1]))
        row = piece.startswith("|") and len(cells) > 1 and not listed
        if row or (not piece.startswith("|") and (SENTENCE.match(piece) or ITEM.match(piece))):
            return True
    return False


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def has_evidence(found: list[Passage], filing: Document, pages: list[int]) -> bool:
    """Return whether the first 5,000 characters found overlap one of these pages (from 0)."""
    left = CHARACTERS
    for span in (passage.span for passage in found):
        end = min(span.end, span.start + max(left, 0))
        if span.document_id == filing.id and any(
            span.start < filing.pages[page].end and filing.pages[page].start < end for page in pages
        ):
            return True
        left -= end - span.start
    return False


async def ask(folder: Path, records: list[Row], cache: Path, show: bool) -> None:
    empty = found = pages = 0
    async with AsyncLibrary(cache / folder.name, embedder=MiniLM()) as library:
        await library.add(folder)
        infos = {Path(info.source).stem: info for info in await library.documents()}
        say(f"{folder.name}: passages", sum(info.passages for info in infos.values()), "")
        reranker = MiniLMReranker()
        for record in records:
            run = Run(library, {}, Meter(), reranker=reranker)
            hits = await run.search(record["question"], k=20, pool=50)
            passages = [hit.passage for hit in hits]
            if name := record["meta"].get("doc_name"):
                filing = await library.document(infos[name].id)
                pages += has_evidence(passages, filing, record["meta"]["evidence_pages"])
            for passage in passages[:10]:
                says = says_something(await library.document(passage.document_id), passage)
                found, empty = found + 1, empty + (not says)
                if show and not says:
                    print(f"--- {record['id']} {passage.id} {passage.section}\n{passage.text}")
    say(f"{folder.name}: without a sentence or row", empty / found, f"of {found}")
    if pages:
        say(f"{folder.name}: page of the evidence in 5,000 characters", pages, f"of {len(records)}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--show", action="store_true", help="print the passages that say nothing")
    given = parser.parse_args()
    pdf, wiki = given.data / "pdf", given.data / "wiki_structured"
    filings = read_records(given.data / "dev/financebench.jsonl.gz")
    asked = [each for each in filings if (pdf / f"{each['meta']['doc_name']}.pdf").exists()]
    await ask(pdf, asked, given.library, given.show)
    pages = read_records(wiki / "questions_dev.jsonl.gz")[:25]
    await ask(wiki / "pages", pages, given.library, given.show)


if __name__ == "__main__":
    asyncio.run(main())
