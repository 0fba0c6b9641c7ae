"""Questions answered on the workers of a Ray cluster; for the extra `scale`.

A worker opens the models by name for itself and answers one question at a time. Only the process
that asked writes the run's folder: a question that a dead worker had is asked again, and has one
row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from colligate.core.events import Trace
from colligate.lab.bench.corpus import CorpusResolver
from colligate.lab.bench.outcome import Answerer
from colligate.lab.bench.participants import Opening, RemoteAnswer, open_participants
from colligate.lab.bench.plan import SuiteEntry
from colligate.lab.bench.question import Question
from colligate.lab.bench.suites import Dataset
from colligate.lab.jobs.spending import Spending
from colligate.scale.ray_model import RETRIES, ray
from colligate.scale.ray_workers import RayWorkers


class RayAnswerers:
    """Workers that answer questions; `open_answerers` makes them."""

    def __init__(self, workers: RayWorkers, made: list[Any]) -> None:
        self._workers = workers
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        for each in made:
            self._free.put_nowait(each)

    async def answer(self, dataset: Dataset, question: Question, entry: SuiteEntry) -> RemoteAnswer:
        """Return the answer of a worker that has nothing to do, as soon as there is one.

        Raises:
            LibraryError: no worker can open what it needs, or none is left.
        """
        worker = await self._free.get()
        try:
            with self._workers.translate_errors():
                answered: RemoteAnswer = await worker.answer.remote(dataset, question, entry)
                return answered
        finally:
            self._free.put_nowait(worker)


@asynccontextmanager
async def open_answerers(
    workers: RayWorkers, count: int, opening: Opening
) -> AsyncIterator[RayAnswerers]:
    """Open `count` workers of a cluster, spread over its nodes; they share its GPUs, if any."""
    made: list[Any] = []
    try:
        with workers.translate_errors():
            share = min(1.0, ray.cluster_resources().get("GPU", 0) / count)
            kind = _Worker.options(scheduling_strategy="SPREAD", num_gpus=share)  # type: ignore[attr-defined]
            made += [kind.remote(opening) for _ in range(count)]
        yield RayAnswerers(workers, made)
    finally:
        for each in made:
            ray.kill(each)


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES)
class _Worker:
    """Answers questions on a node, one at a time."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()  # closed by the end of the process
        self._opened: tuple[Answerer, CorpusResolver] | None = None

    async def answer(self, dataset: Dataset, question: Question, entry: SuiteEntry) -> RemoteAnswer:
        answerer, corpora = self._opened or await self._open()
        before = answerer.spending.tokens
        async with corpora.open_sources(dataset, question) as sources:
            strategy = entry.for_question(question, dataset)
            outcome, trace = await answerer.answer(strategy, question.text, sources, entry.reader)
        events = trace.to_json() if self._opening.traces else []
        return outcome, events, answerer.spending.tokens - before

    async def _open(self) -> tuple[Answerer, CorpusResolver]:
        opening = self._opening
        answerer = Answerer(Spending(), opening.timeout)
        who, _ = await open_participants(
            opening.names, opening.plan, answerer, self._stack, Trace(keep=False)
        )
        corpora = CorpusResolver(
            opening.data,
            opening.indexes,
            who.answerer.embedder,
            engine="lance",
            is_filled=True,
            chunker=opening.names.chunker,
        )
        self._opened = who.answerer, corpora
        return self._opened
