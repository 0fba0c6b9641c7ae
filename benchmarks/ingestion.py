"""Measure ingestion: as a share of the bare embedder's speed, and beside LlamaIndex and Haystack.

    python benchmarks/ingestion.py --data FOLDER [--embedder minilm|static]
    pip install --target PEERS llama-index-core llama-index-readers-file haystack-ai pypdf
    python benchmarks/ingestion.py --data DIR --peers PEERS

The same texts are embedded in one run by a fresh library, and before and after it by the embedder
alone, because the speed of a shared machine varies. With `--peers` each system reads the PDFs of
`DIR/pdf` from nothing in a process of its own, with the same MiniLM: LlamaIndex with pypdf and 256
tokens that share 20, Haystack with pypdf and 200 words. CPU is that of the process and what it
started. Then each is asked the questions of `DIR/dev/financebench.jsonl.gz` by its own search
(colligate: hybrid): is the right document first, and do 5,000 characters touch a page of the
evidence.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from colligate.documents.chunking import Structural
from colligate.documents.reading import find_files, read_file
from colligate.errors import ColligateError
from colligate.lab.bench.datasets.records import load_records
from colligate.library.library import AsyncLibrary
from colligate.library.sources import cut_passages, prepend_headings
from colligate.models import Embedder
from colligate.models.embedders import MiniLM
from colligate.models.names import open_embedder
from results import say


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


# Beside others


CHARACTERS, K = 5_000, 20
Found = tuple[str, set[int], int]  # file's name without ending, its pages from 0, characters
Search = Callable[[str], Iterable[Found]]


def embed(texts: list[str], kind: str = "passage") -> list[list[float]]:
    return asyncio.run(MINILM.embed(texts, kind)).tolist()


MINILM: Any = MiniLM()


def with_colligate(folder: Path) -> tuple[int, Search]:
    from colligate import Library

    kept = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    library = Library(Path(kept) / "library", embedder=MINILM)
    library.add(folder)
    infos = library.documents()

    def search(question: str) -> Iterator[Found]:
        for hit in library.search(question, k=K):
            document, span = library.document(hit.passage.document_id), hit.passage.span
            pages = {
                number
                for number, page in enumerate(document.pages)
                if span.start < page.end and page.start < span.end
            }
            yield Path(document.source).stem, pages, len(span)

    return sum(info.passages for info in infos), search


def with_llamaindex(folder: Path) -> tuple[int, Search]:
    from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.node_parser import SentenceSplitter

    class Embedding(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return embed([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def _get_query_embedding(self, query: str) -> list[float]:
            return embed([query], "query")[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    pages = SimpleDirectoryReader(str(folder)).load_data()
    nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(pages)
    index = VectorStoreIndex(nodes, embed_model=Embedding(embed_batch_size=512))
    retriever = index.as_retriever(similarity_top_k=K)

    def search(question: str) -> Iterator[Found]:
        for hit in retriever.retrieve(question):
            meta = hit.node.metadata
            stem = Path(meta["file_name"]).stem
            yield stem, {int(meta["page_label"]) - 1}, len(hit.node.get_content())

    return len(nodes), search


def with_haystack(folder: Path) -> tuple[int, Search]:
    from haystack.components.converters import PyPDFToDocument
    from haystack.components.preprocessors import DocumentSplitter
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    documents = PyPDFToDocument().run(sources=sorted(folder.glob("*.pdf")))["documents"]
    splitter = DocumentSplitter(split_by="word", split_length=200)
    splitter.warm_up()
    chunks = splitter.run(documents=documents)["documents"]
    embedded = []
    for chunk, vector in zip(chunks, embed([c.content for c in chunks]), strict=True):
        embedded.append(replace(chunk, embedding=vector))
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents(embedded)
    retriever = InMemoryEmbeddingRetriever(store, top_k=K)

    def search(question: str) -> Iterator[Found]:
        for hit in retriever.run(query_embedding=embed([question], "query")[0])["documents"]:
            page = hit.meta["page_number"] - 1
            pages = set(range(page, page + 1 + hit.content.count("\f")))
            yield Path(hit.meta["file_path"]).stem, pages, len(hit.content)

    return len(chunks), search


SYSTEMS = {"colligate": with_colligate, "llamaindex": with_llamaindex, "haystack": with_haystack}
MODULES = {  # imported before the clock starts
    "colligate": ["colligate.sync", "colligate.library.library", "colligate.documents.reading"],
    "llamaindex": ["llama_index.core", "llama_index.readers.file", "pypdf"],
    "haystack": [
        "haystack.components.converters",
        "haystack.components.preprocessors",
        "haystack.components.retrievers.in_memory",
        "haystack.document_stores.in_memory",
        "pypdf",
    ],
}


def spent() -> float:
    """Return the seconds of CPU of this process and its children that ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))


def ingest_as(system: str, data: Path) -> None:
    for module in MODULES[system]:
        import_module(module)
    embed(["warm"])
    cpu, wall = spent(), time.perf_counter()
    passages, search = SYSTEMS[system](data / "pdf")
    figures = {"cpu": round(spent() - cpu, 1), "seconds": round(time.perf_counter() - wall, 1)}
    right = found = asked = 0
    there = {path.stem for path in (data / "pdf").glob("*.pdf")}
    for _, record in load_records(data / "dev/financebench.jsonl.gz"):
        if (name := record["meta"]["doc_name"]) not in there:
            continue
        gold = set(record["meta"]["evidence_pages"])
        hits = list(search(record["question"]))
        asked += 1
        right += hits[0][0] == name
        left = CHARACTERS
        for stem, pages, length in hits:
            if stem == name and pages & gold:
                found += 1
                break
            left -= length
            if left <= 0:
                break
    figures |= {"passages": passages, "questions": asked, "right_first": right, "page_found": found}
    print(json.dumps({"system": system, **figures}), flush=True)


def compare_systems(data: Path, peers: Path) -> None:
    """Let each system ingest in a process of its own, and print its figures."""
    for system in SYSTEMS:
        command = [sys.executable, __file__, "--data", data, "--system", system, "--peers", peers]
        environment = {**os.environ, "HAYSTACK_TELEMETRY_ENABLED": "False"}
        subprocess.run([*map(str, command)], check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("examples"))
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--peers", type=Path, help="folder with LlamaIndex and Haystack")
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.system:
        sys.path.append(str(given.peers))
        ingest_as(given.system, given.data)
    elif given.peers:
        compare_systems(given.data, given.peers)
    else:
        parse(given.data)
        asyncio.run(ingest(given.data, given.embedder))


if __name__ == "__main__":
    main()
