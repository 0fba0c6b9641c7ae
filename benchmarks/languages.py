"""Measure search in German, Spanish and Chinese: is the right passage among the first five?

    python benchmarks/languages.py [--embedders minilm e5 ...] [--k 5]

The documents are articles 1 to 20 of the Universal Declaration of Human Rights in each language, a
document each (`languages.toml`); each language is asked ten questions in other words than its text,
over its own 20 articles ("alone") and over the 60 of all ("together"). Hybrid search, and BM25 and
vectors alone.
"""

from __future__ import annotations

import argparse
import asyncio
import tomllib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from colligate.documents import Document, flat_tree
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode
from colligate.models.names import open_embedder
from evidence_measuring import say

DATA = Path(__file__).with_suffix(".toml")


def make_documents(language: str, articles: list[str]) -> list[Document]:
    """Return a document for each article."""
    return [
        Document(
            f"{language}-{number}",
            str(number),
            text,
            flat_tree(f"{language}-{number}", len(text)),
            language=language,
        )
        for number, text in enumerate(articles, 1)
    ]


async def measure(embedders: list[str], k: int) -> None:
    data: dict[str, dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))
    own = {name: make_documents(name, each["articles"]) for name, each in data.items()}
    every = [document for documents in own.values() for document in documents]
    for embedder in embedders:
        async with AsyncExitStack() as stack:
            model = open_embedder(embedder)
            stack.push_async_callback(model.aclose)
            together = await stack.enter_async_context(InMemorySources(every, model))
            for language, each in data.items():
                alone = await stack.enter_async_context(InMemorySources(own[language], model))
                for where, sources in (("alone", alone), ("together", together)):
                    for mode in (SearchMode.HYBRID, SearchMode.DENSE, SearchMode.SPARSE):
                        found = 0
                        for question in each["questions"]:
                            hits = await sources.search(question["text"], k=k, mode=mode)
                            names = {hit.passage.document_id for hit in hits}
                            found += f"{language}-{question['article']}" in names
                        total = len(each["questions"])
                        figure = f"{language}, {where}, {mode.value}, {model.name}: first {k}"
                        say(figure, found / total, "share", f"{total} questions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedders", nargs="+", default=["minilm"])
    parser.add_argument("--k", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.embedders, arguments.k))


if __name__ == "__main__":
    main()
