"""Measure ingestion as a share of the bare embedder's speed.

    python benchmarks/ingestion.py --data FOLDER [--embedder minilm|static]

The same texts are embedded in one run by a fresh library, and before and after it by the embedder
alone, because the speed of a shared machine varies.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from colligate.documents.chunking import Structural
from colligate.documents.reading import find_files, read_file
from colligate.errors import ColligateError
from colligate.library.library import AsyncLibrary
from colligate.library.sources import cut_passages, prepend_headings
from colligate.models import Embedder
from colligate.models.names import open_embedder
from results import read_arguments, say


def parse(data: Path) -> None:
    """Measure parsing, one file after the other, in this process."""
    size, seconds = 0, 0.0
    for path in find_files([data]).files:
        begun = time.perf_counter()
        try:
            read_file(path)
        except ColligateError:
            continue
        seconds += time.perf_counter() - begun
        size += path.stat().st_size
    say("ingestion: parsing alone, one process", size / 1e6 / seconds, "MB/s", f"{size} bytes")


async def time_embedder(embedder: Embedder, texts: list[str]) -> float:
    """Return the passages a second of the embedder alone, on texts sorted by length."""
    begun = time.perf_counter()
    await embedder.embed(sorted(texts, key=len))
    return len(texts) / (time.perf_counter() - begun)


async def list_texts(library: AsyncLibrary) -> list[str]:
    """Return the texts that were embedded."""
    texts = []
    for info in await library.documents():
        document = await library.document(info.id)
        for span in cut_passages(document, Structural()):
            passage = document.passage(span)
            texts.append(prepend_headings(passage.title, passage.section, passage.text))
    return texts


async def ingest(data: Path, name: str) -> None:
    embedder = open_embedder(name)
    await embedder.embed(["warm"])
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncLibrary(Path(folder) / "texts", embedder=embedder) as library:
            await library.add(data, index=False)
            texts = await list_texts(library)
        first = await time_embedder(embedder, texts)
        async with AsyncLibrary(Path(folder) / "library", embedder=embedder) as library:
            begun = time.perf_counter()
            result = await library.add(data)
            seconds = time.perf_counter() - begun
            begun = time.perf_counter()
            await library.add(data)
            again = time.perf_counter() - begun
        second = await time_embedder(embedder, texts)
    overall, alone = result.passages / seconds, (first + second) / 2
    what = f"{name}, {len(result.added)} files, {result.passages} passages"
    say("ingestion: bare embedder", alone, "passages/s", f"{first:.1f} before, {second:.1f} after")
    say("ingestion: overall", overall, "passages/s", what)
    say("ingestion: share of the bare embedder", overall / alone, "ratio", "goal >= 0.9")
    say("ingestion: nothing changed", again, "s", what)
    await embedder.aclose()


def main() -> None:
    given = read_arguments(__doc__, data=Path("examples"), embedder="minilm")
    parse(given.data)
    asyncio.run(ingest(given.data, given.embedder))


if __name__ == "__main__":
    main()
