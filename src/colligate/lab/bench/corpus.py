"""The documents that questions are asked over, opened and indexed once each."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from colligate.concurrency import in_thread
from colligate.core.events import Trace
from colligate.documents.chunking import STRUCTURAL
from colligate.errors import FaultyRecord
from colligate.lab.bench.datasets.passages import (
    Passages,
    check_documents,
    find_passages,
    load_documents,
    name_files,
)
from colligate.lab.bench.plan import require_path
from colligate.lab.bench.question import Candidate, Question
from colligate.lab.bench.suites import Dataset
from colligate.lab.jobs.identity import path_digest
from colligate.library.in_memory import InMemorySources
from colligate.library.library import AsyncLibrary
from colligate.library.sources import Sources
from colligate.models import Embedder
from colligate.reporting import ingest

INDEXES = "corpus"
"""The folder of indexed corpora, below that of a run or of samples."""

_READER = "colligate.lab.bench.datasets.passages:read_corpus_file"


@dataclass
class CorpusResolver:
    """Finds the documents of a question: those that it brings, or a corpus kept in a library.

    `data` is the folder of the data sets' files. Corpora are indexed below `indexes`, once: what a
    killed process has indexed is kept. Without an embedder nothing can be searched. `chunker`
    names what cuts documents into passages. Use it with `async with`.
    """

    data: Path
    indexes: Path
    embedder: Embedder | None = None
    trace: Trace = field(default_factory=Trace)
    chunker: str = STRUCTURAL
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    _libraries: dict[Path, AsyncLibrary] = field(default_factory=dict, init=False)
    _passages: dict[Path, Passages] = field(default_factory=dict, init=False)
    _names: dict[Path, Mapping[str, Sequence[str]]] = field(default_factory=dict, init=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __aenter__(self) -> CorpusResolver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def resolve(self, dataset: Dataset, question: Question) -> Question:
        """Return the question with the sources' ids of the documents and gold that it names."""
        if not self._is_folder(dataset):
            if dataset.over != "corpus":
                check_documents(question, await self._read_passages(dataset, question))
            return question
        folder = require_path(self.data, str(dataset.corpus))
        if folder not in self._names:
            library = await self._library(dataset)
            files = ((Path(info.source), info.id) for info in await library.documents())
            self._names[folder] = name_files(folder.absolute(), files)
        names = self._names[folder]

        def ids(given: Collection[str]) -> list[str]:
            if wrong := next((name for name in given if len(names.get(name, ())) != 1), None):
                several = "several files have this name" if wrong in names else ""
                why = several or "no readable file has this name"
                raise FaultyRecord(
                    f"cannot ask question {question.id}",
                    f"it names {wrong!r} in {folder}, and {why}",
                    "name it with its path below the folder",
                )
            return [names[name][0] for name in given]

        texts = (text for _, text in question.gold_texts)
        return replace(
            question,
            documents=tuple(map(Candidate, ids([each.id for each in question.documents]))),
            gold=tuple(ids(question.gold)),
            gold_texts=tuple(zip(ids([id_ for id_, _ in question.gold_texts]), texts, strict=True)),
        )

    @asynccontextmanager
    async def open_sources(self, dataset: Dataset, question: Question) -> AsyncIterator[Sources]:
        """Open the documents that a resolved question is asked over, ready to be searched."""
        over = dataset.over
        if over == "corpus" or (over == "documents" and not question.documents):
            yield await self._library(dataset)
        elif self._is_folder(dataset):
            library = await self._library(dataset)
            yield library.view([document.id for document in question.documents])
        else:
            passages = await self._read_passages(dataset, question)
            documents = await in_thread(load_documents, question, passages)
            made = InMemorySources(documents, self.embedder, chunker=self.chunker)
            async with made as sources:
                if self.embedder is not None and documents:
                    await sources.search("index", k=1)  # so that no answer's time includes it
                yield sources

    def _is_folder(self, dataset: Dataset) -> bool:
        """Tell whether the corpus is a folder of whole documents in files."""
        if dataset.corpus is None:
            return False
        return find_passages(require_path(self.data, dataset.corpus)).is_dir()

    async def _read_passages(self, dataset: Dataset, question: Question) -> Passages | None:
        """Return the file of the texts that a question leaves out; None if it leaves out none."""
        if dataset.corpus is None or all(each.text.strip() for each in question.documents):
            return None
        path = require_path(self.data, dataset.corpus)
        async with self._opening:
            if path not in self._passages:
                self._passages[path] = await in_thread(Passages.read, path)
            return self._passages[path]

    async def _library(self, dataset: Dataset) -> AsyncLibrary:
        """Return the corpus of a data set, indexed."""
        path = find_passages(require_path(self.data, str(dataset.corpus)))
        async with self._opening:
            if path not in self._libraries:
                embedder: Embedder | str = "minilm" if self.embedder is None else self.embedder
                by = embedder if isinstance(embedder, str) else embedder.name
                chunker = "" if self.chunker == STRUCTURAL else self.chunker
                folder = self.indexes / await in_thread(_name_index, path, by, chunker)
                library = AsyncLibrary(
                    folder,
                    embedder=embedder,
                    chunker=self.chunker,
                    reader=_READER,
                    follow_links=True,
                )
                self._stack.push_async_callback(library.close)
                await ingest(library, [path], self.trace, index=self.embedder is not None)
                self._libraries[path] = library
            return self._libraries[path]


def _name_index(path: Path, embedder: str, chunker: str) -> str:
    """Return the folder of a corpus's index, another one when a file of it changes. Blocks."""
    parts = [str(path.absolute()), embedder, path_digest(path), chunker]
    whole = "\0".join(filter(None, parts))
    readable = re.sub(r"[^\w.-]+", "-", path.name)[-60:]
    return f"{readable}-{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
