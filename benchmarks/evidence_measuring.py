"""Share code between benchmarks of evidence: sources, models, chunks in a budget, rows, figures."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colligate.core.events import Trace
from colligate.documents import Document, Node, Passage, Span
from colligate.documents.chunking import Chunker
from colligate.lab.bench.significance import bootstrap, paired_bootstrap
from colligate.library.in_memory import InMemorySources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.names import open_embedder, open_reranker
from colligate.session import Session
from colligate.testing import ScriptedModel
from evidence_data import SUITES, Shown

Row = dict[str, Any]

SEPARATOR = "\n\n"

# The command line


def add_arguments(parser: argparse.ArgumentParser, suites: Collection[str] = SUITES) -> None:
    """Add the arguments that these benchmarks share."""
    parser.add_argument("--suite", choices=suites, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of questions")
    parser.add_argument("--cache", type=Path, required=True, help="folder for vectors, structures")
    parser.add_argument("--out", type=Path, help="file of rows, one a question and method (JSONL)")
    parser.add_argument("--limit", type=int, help="number of questions")
    parser.add_argument("--model", help="model to ask; its tokenizer counts for all methods")
    parser.add_argument("--worker-model")
    parser.add_argument("--scorer")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--seed", type=int, default=1)
    if suites is SUITES:  # elsewhere methods name their own parameters
        parser.add_argument("--local-only", action="store_true", help="call no language model")
        parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")


async def open_models(
    arguments: argparse.Namespace, stack: AsyncExitStack
) -> dict[Role, ChatModel]:
    """Open the models of the arguments; without one, a model that only estimates tokens."""
    if arguments.model is None or getattr(arguments, "local_only", False):
        return {Role.READER: ScriptedModel(name="estimate")}
    named = {
        Role.READER: arguments.model,
        Role.WORKER: arguments.worker_model,
        Role.SCORER: arguments.scorer,
    }
    session = await stack.enter_async_context(Session(models=named))
    return await session.open_models(Trace())


async def open_embedder_of(
    arguments: argparse.Namespace, stack: AsyncExitStack
) -> RememberedEmbedder:
    """Open the embedder of the arguments; its vectors are kept in the cache folder."""
    embedder = await asyncio.to_thread(open_embedder, arguments.embedder)
    remembered = RememberedEmbedder(embedder, arguments.cache / "vectors.sqlite")
    stack.push_async_callback(remembered.aclose)
    return remembered


async def open_reranker_of(
    arguments: argparse.Namespace,
    stack: AsyncExitStack,
    embedder: Embedder,
    models: Mapping[Role, ChatModel],
) -> Reranker | None:
    """Open the reranker of the arguments; none for "none"."""
    if arguments.reranker == "none":
        return None
    scorer = models.get(Role.SCORER, models[Role.READER])
    reranker = await asyncio.to_thread(
        open_reranker, arguments.reranker, embedder=embedder, scorer=scorer
    )
    stack.push_async_callback(reranker.aclose)
    return reranker


@dataclass
class Corpus:
    """Search the documents of a suite in chunks of several kinds, each indexed once."""

    documents: Mapping[str, Document]
    embedder: Embedder
    stack: AsyncExitStack
    _sources: dict[Chunker, InMemorySources] = field(default_factory=dict)

    async def open_sources(self, chunker: Chunker) -> InMemorySources:
        """Return the documents, searchable in these chunks."""
        if chunker not in self._sources:
            given = InMemorySources(list(self.documents.values()), self.embedder, chunker=chunker)
            self.stack.push_async_callback(given.close)
            await given.search("index", k=1)  # so that indexing is not timed
            self._sources[chunker] = given
        return self._sources[chunker]


# Chunks under a budget


class Ruler:
    """Return the tokens of texts by a model's own count, after `learn` has counted them."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self._model = model
        self._known: dict[str, int] = {}

    async def learn(self, texts: Iterable[str]) -> None:
        """Count the tokens of texts."""
        for text in texts:
            if text not in self._known:
                self._known[text] = await self._model.count_tokens(text)

    def __call__(self, text: str) -> int:
        """Return the tokens of a text that `learn` has counted."""
        return self._known[text]


async def fill_budget(
    ranked: Sequence[Passage], documents: Mapping[str, Document], budget: int, ruler: Ruler
) -> Shown:
    """Return the best passages that fit a budget, without those that are too long for the rest.

    They are shown like a refiner's selection: documents by their best passage, in each the
    passages in order, its title once, and each heading once above its text. The budget applies to
    the sum of the tokens of these pieces and to the whole.
    """
    spans = [passage.span for passage in ranked]
    await ruler.learn(piece for span in spans for piece in list_pieces([span], documents))
    room = budget
    while True:
        chosen: list[Span] = []
        for span in spans:
            if not any(span.overlaps(other) for other in chosen):
                more = [*chosen, span]
                if sum(map(ruler, list_pieces(more, documents))) <= room:
                    chosen = more
        evidence = make_shown(chosen, documents)
        await ruler.learn([evidence.text])
        excess = ruler(evidence.text) - budget
        if excess <= 0:
            return evidence
        room -= excess


def make_shown(chosen: Sequence[Span], documents: Mapping[str, Document]) -> Shown:
    """Return spans as a reader gets them."""
    passages = [documents[span.document_id].passage(span) for span in chosen]
    return Shown("".join(list_pieces(chosen, documents)).strip(), passages)


def list_pieces(chosen: Sequence[Span], documents: Mapping[str, Document]) -> Iterator[str]:
    """Yield title, headings and texts in the order of the whole."""
    for id_ in dict.fromkeys(span.document_id for span in chosen):
        document = documents[id_]
        spans = sorted(span for span in chosen if span.document_id == id_)
        above: dict[int, Node] = {}
        for span in spans:
            above.update({node.id: node for node in _headings(document, span)})
        shown_by_chunk = {
            n for n, node in above.items() if any(s.overlaps(_heading(node)) for s in spans)
        }
        titled = [node for node in above.values() if node.title == document.title]
        if not any(node.id in shown_by_chunk for node in titled):
            yield f"# {document.title}{SEPARATOR}"
        done = shown_by_chunk | {node.id for node in titled}
        for span in spans:
            for node in _headings(document, span):
                if node.id not in done:
                    done.add(node.id)
                    yield document.slice(_heading(node)).strip() + SEPARATOR
            yield document.slice(span) + SEPARATOR


def _headings(document: Document, span: Span) -> list[Node]:
    """Return the headings above a span, the outermost first."""
    node = document.tree.node_at(span.start)
    around = [node, *document.tree.ancestors(node)]
    return [node for node in reversed(around) if node.heading is not None]


def _heading(node: Node) -> Span:
    assert node.heading is not None
    return node.heading


# Files kept between runs


class RememberedEmbedder:
    """Keep an embedder's vectors in a file, by its name and the text's digest."""

    def __init__(self, embedder: Embedder, file: Path) -> None:
        self.name = embedder.name
        self.dimension = embedder.dimension
        self._embedder = embedder
        file.parent.mkdir(parents=True, exist_ok=True)
        self._kept = sqlite3.connect(file, timeout=60, isolation_level=None)
        self._kept.execute("PRAGMA journal_mode=WAL")
        self._kept.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        keys = [hashlib.sha256(f"{self.name}\0{kind}\0{t}".encode()).digest() for t in texts]
        rows = [self._of(key) for key in keys]
        missing = [i for i, row in enumerate(rows) if row is None]
        if missing:
            fresh = await self._embedder.embed([texts[i] for i in missing], kind=kind)
            self._kept.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [(keys[i], row.tobytes()) for i, row in zip(missing, fresh, strict=True)],
            )
            for i, row in zip(missing, fresh, strict=True):
                rows[i] = row
        found = [row for row in rows if row is not None]
        return np.stack(found) if found else np.empty((0, self.dimension), np.float32)

    async def aclose(self) -> None:
        self._kept.close()
        await self._embedder.aclose()

    def _of(self, key: bytes) -> NDArray[np.float32] | None:
        found = self._kept.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if found is None else np.frombuffer(found[0], np.float32)


class Rows:
    """Keep a row for each question and method, and write it to disk at once.

    Rows that are in the file are not measured again, so a run that was stopped resumes. `keys`
    identify a row.
    """

    def __init__(self, file: Path | None, keys: Sequence[str]) -> None:
        self._file = file
        self._keys = keys
        self._rows: dict[tuple[Any, ...], Row] = {}
        if file is not None and file.exists():
            for line in file.read_text("utf-8").splitlines():
                row = json.loads(line)
                self._rows[self._key(row)] = row

    def __contains__(self, row: Row) -> bool:
        return self._key(row) in self._rows

    def __getitem__(self, row: Row) -> Row:
        return self._rows[self._key(row)]

    @property
    def all(self) -> list[Row]:
        """Return every row."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._rows[self._key(row)] = row
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._keys)


# Figures


def say(figure: str, value: float | None, unit: str, against: object = None) -> None:
    """Print one figure."""
    rounded = None if value is None else round(value, 3)
    line = {"figure": figure, "value": rounded, "unit": unit, "against": against}
    print(json.dumps(line, ensure_ascii=False), flush=True)


def say_means(rows: Sequence[Row], what: str) -> None:
    """Print the mean of each measure over a method's rows; `what` has a place for its name."""
    for name in dict.fromkeys(name for row in rows for name in row["measures"]):
        values = [row["measures"][name] for row in rows if name in row["measures"]]
        say(what.format(name), float(np.mean(values)), "share", f"{len(values)} questions")


def say_mean(what: str, values: Sequence[float], seed: int, unit: str, against: str = "") -> None:
    """Print the mean of values, one for each question, with its interval."""
    if not values:
        return
    low, high = bootstrap(np.asarray(values, np.float64), seed)
    interval = f"95% interval {low:.3f} to {high:.3f}, {len(values)} questions"
    say(what, float(np.mean(values)), unit, f"{interval}; {against}" if against else interval)


def index_by_question(rows: Sequence[Row], measure: str) -> dict[str, float]:
    """Return one measure by question, of rows with one for each question."""
    return {r["question"]: r["measures"][measure] for r in rows if measure in r["measures"]}


def say_difference(
    what: str, first: Mapping[str, float], second: Mapping[str, float], seed: int, unit: str
) -> None:
    """Print the first minus the second, over the questions that both have."""
    both = [question for question in first if question in second]
    if not both:
        return
    pairs = np.array([[first[q], second[q]] for q in both])
    more = paired_bootstrap(pairs[:, 0], pairs[:, 1], seed)
    interval = f"95% interval {more.low:.3f} to {more.high:.3f}, p {more.p:.4f}"
    interval = f"{interval}, {len(both)} questions"
    say(what, more.mean, unit, interval)
