"""The documents that the questions of a data set are asked over, opened and indexed once each."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from colligate.bench.datasets.corpus import Corpus, called, documents_of, hold_to
from colligate.bench.plan import require_path
from colligate.bench.question import Candidate, Question
from colligate.bench.suites import Dataset
from colligate.concurrency import in_thread
from colligate.core.events import Trace
from colligate.errors import FaultyRecord, LibraryLocked
from colligate.jobs.identity import path_digest
from colligate.library.in_memory import InMemorySources
from colligate.library.library import AsyncLibrary
from colligate.library.sources import Sources
from colligate.models import Embedder
from colligate.session import ingest

INDEXES = "corpus"
"""The folder of indexed corpora, below that of a run or of samples."""

_RECORDS = "corpus.jsonl"  # what a BEIR folder calls its passages
_NO_FILE = "no file that could be read is called so"
_READER = "colligate.bench.datasets.corpus:reading"


@dataclass
class CorpusResolver:
    """What is in view of a question: its own documents, or a corpus kept in a library.

    `data` is the folder of the data sets' files. Corpora are kept below `indexes`, and what a
    process that was killed had indexed is not indexed again. Without an embedder nothing can be
    searched. Use it with `async with`.
    """

    data: Path
    indexes: Path
    embedder: Embedder | None = None
    trace: Trace = field(default_factory=Trace)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    _libraries: dict[Path, AsyncLibrary] = field(default_factory=dict, init=False)
    _corpora: dict[Path, Corpus] = field(default_factory=dict, init=False)
    _names: dict[Path, Mapping[str, Sequence[str]]] = field(default_factory=dict, init=False)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __aenter__(self) -> CorpusResolver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def named(self, dataset: Dataset, question: Question) -> Question:
        """The question with documents and gold called as they are in view.

        In a folder of files a question calls them by path, name or stem, the library by an id.

        Raises:
            FaultyRecord: a document that the question names is nowhere.
        """
        if dataset.corpus is None or not self._in_files(dataset):
            if dataset.over != "corpus":
                await in_thread(hold_to, question, self._corpus(dataset))
            return question
        folder = require_path(self.data, dataset.corpus)
        if folder not in self._names:
            library = await self._library(dataset)
            files = ((Path(info.source), info.id) for info in await library.documents())
            self._names[folder] = called(folder.absolute(), files)
        names = self._names[folder]

        def ids(given: Collection[str]) -> list[str]:
            if strange := next((name for name in given if len(names.get(name, ())) != 1), None):
                why = "several files are called so" if strange in names else _NO_FILE
                raise FaultyRecord(
                    f"cannot ask question {question.id}",
                    f"it names {strange!r} in {folder}, and {why}",
                    "name it with its path below the folder",
                )
            return [names[name][0] for name in given]

        texts = zip(
            ids([id_ for id_, _ in question.gold_texts]),
            (text for _, text in question.gold_texts),
            strict=True,
        )
        return replace(
            question,
            documents=tuple(map(Candidate, ids([each.id for each in question.documents]))),
            gold=tuple(ids(question.gold)),
            gold_texts=tuple(texts),
        )

    @asynccontextmanager
    async def of(self, dataset: Dataset, question: Question) -> AsyncIterator[Sources]:
        """The documents that a question (as `named` gives it) is asked over, ready to be searched.

        Raises:
            FaultyRecord: a document that the question names is nowhere, or the corpus is faulty.
            ColligateError: the corpus cannot be read or indexed.
        """
        if dataset.over == "corpus" or (dataset.over == "documents" and not question.documents):
            yield await self._library(dataset)
        elif self._in_files(dataset):
            library = await self._library(dataset)
            yield library.view([document.id for document in question.documents])
        else:
            documents = await in_thread(documents_of, question, self._corpus(dataset))
            async with InMemorySources(documents, self.embedder) as sources:
                if self.embedder is not None and documents:
                    await sources.search("index", k=1)  # so that no answer's time has it
                yield sources

    def _in_files(self, dataset: Dataset) -> bool:
        """Whether the corpus is a folder of whole documents in files."""
        if dataset.corpus is None:
            return False
        path = require_path(self.data, dataset.corpus)
        return path.is_dir() and not (path / _RECORDS).is_file()

    def _corpus(self, dataset: Dataset) -> Corpus | None:
        """Where the texts are that questions leave out."""
        if dataset.corpus is None:
            return None
        path = require_path(self.data, dataset.corpus)
        if path not in self._corpora:
            self._corpora[path] = Corpus(path)
        return self._corpora[path]

    async def _library(self, dataset: Dataset) -> AsyncLibrary:
        """The corpus of a data set, indexed."""
        assert dataset.corpus is not None  # `suites.checked`
        path = require_path(self.data, dataset.corpus)
        path = path / _RECORDS if (path / _RECORDS).is_file() else path
        async with self._opening:
            if path not in self._libraries:
                embedder: Embedder | str = "minilm" if self.embedder is None else self.embedder
                by = embedder if isinstance(embedder, str) else embedder.name
                folder = self.indexes / await in_thread(_index_name, path, by)
                library = AsyncLibrary(folder, embedder=embedder, reader=_READER)
                self._stack.push_async_callback(library.close)
                try:
                    await ingest(library, [path], self.trace, index=self.embedder is not None)
                except LibraryLocked as error:
                    hint = "wait for it, or name other --indexes"
                    raise LibraryLocked(f"cannot open {folder}", error.why, hint) from error
                self._libraries[path] = library
            return self._libraries[path]


def _index_name(path: Path, embedder: str) -> str:
    """What the index of a corpus is called: another for other files, and for the same elsewhere.

    Else what was taken out of a corpus would still be found, or what another of its name holds.
    Blocks.
    """
    whole = f"{path.absolute()}\0{embedder}\0{path_digest(path)}"
    readable = re.sub(r"[^\w.-]+", "-", path.name)[-60:]
    return f"{readable}-{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
