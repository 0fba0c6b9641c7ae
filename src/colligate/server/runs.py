"""The runs of a server: under way, waiting for their turn, or ended and kept on disk.

A run is a file of events, one JSON line each, and a file of how it ended. Whoever follows a run
reads its file, during the run or later, so no events stay in memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field

from colligate.concurrency import in_thread
from colligate.core.answer import Answer
from colligate.core.events import Drafted, Event, Located, Noted
from colligate.core.parameters import format_setting, set_parameters
from colligate.core.run import allow, parse_risk, refuse
from colligate.core.strategy import Strategy, load_strategy
from colligate.errors import UsageError
from colligate.library.sources import parse_conditions
from colligate.library.store import RUNS_FOLDER, erase_cells, holds_id
from colligate.library.web import hide_folders
from colligate.private import make_private_file, make_private_folder
from colligate.readers.filling import Shape
from colligate.readers.finding import Likely
from colligate.server.audit import note_use
from colligate.server.config import ServerConfig
from colligate.server.errors import Busy, Conflict, NotHere, RunFailed, problem, problem_of
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics
from colligate.server.shapes import (
    AskRequest,
    Correction,
    Feedback,
    RunRequest,
    TableRequest,
    describe_filled,
    describe_row,
    refuse_loading,
)
from colligate.server.stream import encode_json
from colligate.server.tables import Tables
from colligate.server.tokens import CALLER, Right
from colligate.server.work import Work, WorkState, finish
from colligate.table import Table
from colligate.table.filler import Filled


class Runs:
    """Starts runs, enforces the limits, and keeps the last runs.

    At most `config.runs` are under way at once. The others wait in order; an event `queued` gives
    the place of each.
    """

    def __init__(
        self, libraries: Libraries, config: ServerConfig, metrics: Metrics, tables: Tables
    ) -> None:
        self._libraries = libraries
        self._config = config
        self._metrics = metrics
        self._runs: dict[str, RecordedRun] = {}
        self._places = asyncio.Semaphore(config.runs)
        self._tables = tables
        self._correcting = asyncio.Lock()
        self._closing = False

    async def load(self) -> None:
        """Load the runs kept on disk; those that an earlier server did not end are cancelled."""
        for name in self._libraries.list_names():
            folder = self._libraries.folder(name) / RUNS_FOLDER
            for run in await in_thread(_load_runs, folder):
                self._runs[run.id] = run

    async def start(self, library: str, request: RunRequest) -> RecordedRun:
        """Ask a question of a library, or fill a table over it.

        `Busy` if too many runs wait or the server is stopping.
        """
        if self._closing:
            raise Busy("the server is stopping", "", "ask again when it is back")
        parse_conditions(request.where)
        asked: dict[str, Any]
        if isinstance(request, TableRequest):
            strategy = None
            columns = "; ".join(each.text for each in request.layout.columns)
            asked = {"question": columns, "strategy": "table", "parameters": {"rows": request.rows}}
        else:
            strategy = _make_strategy(request)
            parse_risk(request.risk)
            request.check_retriever()
            if request.json_schema is not None:
                Shape(request.json_schema)
            asked = request.model_dump(include={"question", "parameters", "retriever"})
            asked |= {"strategy": strategy.name, "earlier": request.earlier}
        if len(asked["question"]) > (limit := self._config.question_characters):
            why = f"it has {len(asked['question']):,} characters and the limit is {limit:,}"
            raise UsageError("the question or the list of columns is too long", why, "shorten it")
        folder = self._libraries.folder(library) / RUNS_FOLDER
        over = len(self._unfinished()) - self._config.runs
        if over >= self._config.waiting:
            why = f"{self._config.runs} questions are being answered and {over} wait"
            raise Busy("too many questions at once", why, "ask again later")
        note_use(library, question=asked["question"])
        caller = CALLER.get()
        run = RecordedRun(
            library=library,
            folder=folder,
            documents=request.documents,
            where=request.where,
            began=datetime.now(UTC).isoformat(timespec="milliseconds"),
            asked_by=None if caller is None else caller.name,
            asked_with=None if caller is None else caller.short_digest,
            **asked,
        )
        run.open(self._config.run_bytes)
        # Not in its task: requests of the same moment must not take the same place.
        self._runs[run.id] = run
        self._announce_places()
        work = self._execute(run, request, strategy)
        run.begin(work, lambda: self._end(run, "cancelled", self._cancelled()))
        return run

    def get(self, run_id: str) -> RecordedRun:
        """Return a run; `NotHere` if there is none of this id that the caller may see."""
        self._drop_erased()
        run = self._runs.get(run_id)
        if run is None or not run.visible:
            raise NotHere("no such run", "old runs are forgotten")
        note_use(run.library)
        return run

    def list_runs(self, library: str) -> list[RecordedRun]:
        """Return a library's runs, the newest first."""
        self._drop_erased()
        return [run for run in reversed(self._runs.values()) if run.library == library]

    def _drop_erased(self) -> None:
        """Drop the runs whose files the library has erased with a document."""
        for run in [run for run in self._runs.values() if run.ended]:
            if not run.summary.exists():
                del self._runs[run.id]

    def _unfinished(self) -> list[RecordedRun]:
        return [run for run in self._runs.values() if not run.ended]

    async def follow(self, run: RecordedRun, after: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """Yield a run's events as JSON, with their numbers, from the one after `after`."""
        at = number = 0
        while True:
            ended, changed = run.ended, run.changed
            try:
                lines, at = await in_thread(run.read_events, at)
            except FileNotFoundError:  # erased with a document; the run is cancelled for it
                await run.wait()
                return
            for line in lines:
                number += 1
                if number > after:
                    yield number, line
            if lines:
                continue
            if ended:
                return
            await changed.wait()

    async def forget(self, run: RecordedRun) -> None:
        """Delete a run, and stop it first if it is under way."""
        run.cancel()
        await run.wait()
        await self._delete(run)

    async def forget_library(self, library: str) -> None:
        for run in self.list_runs(library):
            await self.forget(run)
        self._tables.close(library)

    async def forget_documents(self, library: str, documents: Collection[str]) -> None:
        """Forget the runs that may hold text of these documents, which were removed.

        The library has erased the files that name one. A run under way that has not looked at
        them so far is checked when it ends.
        """
        for run in self.list_runs(library):
            if not run.events.exists():
                await self.forget(run)
            elif not run.ended:
                run.removed |= frozenset(documents)

    async def aclose(self, grace: float = 0.0) -> None:
        """Start no more. Waiting runs are cancelled; the others have `grace` seconds to finish."""
        self._closing = True
        for run in self._unfinished():
            if run.state == "queued":
                run.cancel()
        await finish(self._unfinished(), grace)
        self._tables.close()

    async def _delete(self, run: RecordedRun) -> None:
        if self._runs.pop(run.id, None) is not None:
            await in_thread(run.delete_files)

    async def correct(self, run: RecordedRun, said: Correction) -> dict[str, Any]:
        """Keep what a person says of a cell, and return it; `Conflict` before the run has ended."""
        if not run.ended:
            raise Conflict("the table is not filled so far", "", "correct it when it is")
        async with self._correcting:
            shown = await run.result("table")
            cell = await self._tables.correct(run.library, shown, said)
            self.get(run.id)  # one forgotten meanwhile is not written again
            await in_thread(run.save, {"table": shown})
        return cell

    async def rate(self, run: RecordedRun, said: Feedback) -> None:
        """Keep what a person says of an answer, in place of what was said before."""
        async with self._correcting:
            answer = await run.result()
            run.feedback = said
            await in_thread(run.save, {"answer": answer})

    async def list_feedback(self, library: str) -> list[dict[str, Any]]:
        """Return the rated answers that the caller may see, as questions that `bench run` reads."""
        infos = await (await self._libraries.open_library(library)).documents()
        names = {info.id: hide_folders(info.source) for info in infos}
        rated = [run for run in self.list_runs(library) if run.feedback and run.visible]
        return [_describe_feedback(run, await run.result(), names) for run in rated]

    async def _execute(
        self, run: RecordedRun, request: RunRequest, strategy: Strategy | None
    ) -> None:
        began = None
        state: WorkState
        try:
            async with self._places:
                run.state = "running"
                self._announce_places()
                began = time.perf_counter()
                result = await self._run(run, request, strategy)
            seconds = round(time.perf_counter() - began, 3)
            if isinstance(result, Table):
                run.found = bool(result.filled[0])
                shown = await in_thread(describe_filled, result)
            else:
                run.found, shown = result.found, result.to_json()
                for citation in shown["citations"]:  # no folder of the server is shown
                    citation["source"] = hide_folders(citation["source"])
            shown |= {"run": run.id, "seconds": seconds}
            state, outcome = "done", {request.makes: shown}
            run.calls = shown["usage"]["calls"]
            self._metrics.count_usage(shown["usage"])
        except asyncio.CancelledError:
            state, outcome = "cancelled", self._cancelled()
        except Exception as error:  # whatever a strategy of another package raises
            state, outcome = "failed", {"problem": problem_of(error)}
        if began is not None:
            run.seconds = round(time.perf_counter() - began, 3)
            self._metrics.run_seconds.labels(run.strategy).observe(run.seconds)
        self._metrics.runs.labels(run.strategy, state).inc()
        self._end(run, state, outcome)
        holds_text: bool = await in_thread(run.holds, run.removed) if run.removed else False
        if holds_text:
            await in_thread(erase_cells, run.folder.parent, run.removed)
            await self._delete(run)

    async def _run(
        self, run: RecordedRun, request: RunRequest, strategy: Strategy | None
    ) -> Answer | Table:
        engine = self._libraries.engine(run.library)
        limits: Any = request.model_dump(
            include={"documents", "where", "max_tokens_total", "timeout"}
        )
        limits["on_event"] = run.record
        if isinstance(request, TableRequest):
            book = await self._tables.open(run.library)
            return await engine.table(request.layout, book=book, **limits)
        assert strategy is not None
        return await engine.ask(
            request.question,
            strategy=strategy,
            retriever=request.retriever,
            risk=request.risk,
            schema=request.json_schema,
            consent=allow if request.yes else refuse,
            history=[turn.to_turn() for turn in request.history],
            live=request.stream,
            **limits,
        )

    def _cancelled(self) -> dict[str, Any]:
        if self._closing:
            return {"problem": problem(503, "the server is stopping", hint="ask when it is back")}
        return {"problem": problem(409, "the run was cancelled")}

    def _end(self, run: RecordedRun, state: WorkState, outcome: dict[str, Any]) -> None:
        """Record the end. Must not await: memory and disk change together."""
        run.state = state
        run.close(outcome)
        self._announce_places()
        self._forget_old(run.library)

    def _announce_places(self) -> None:
        """Record an event with its place for each waiting run whose place has changed."""
        unfinished = self._unfinished()
        waiting = [run for run in unfinished if run.state == "queued"]
        running = len(unfinished) - len(waiting)
        waiting = waiting[max(0, self._config.runs - running) :]
        self._metrics.running.set(running)
        self._metrics.waiting.set(len(waiting))
        for place, run in enumerate(waiting, start=1):
            if place != run.place:
                run.place = place
                with suppress(OSError):  # it cannot be recorded: the run itself will fail
                    run.write({"event": "queued", "place": place})

    def _forget_old(self, library: str) -> None:
        """Enforce the number and the bytes of runs kept; drop old outcomes from memory too."""
        total = 0
        for number, run in enumerate(run for run in self.list_runs(library) if run.ended):
            total += run.size
            if number >= self._config.kept_runs or (total > self._config.kept_bytes and number):
                del self._runs[run.id]
                with suppress(OSError):
                    run.delete_files()
            elif number:
                run.kept_outcome = None


def _make_strategy(request: AskRequest) -> Strategy:
    """Check a question and return its strategy with the parameters.

    A parameter may not name a model: the server would load any model named there.
    """
    if not request.question.strip():
        raise UsageError("the question is empty", hint="write a question")
    kind = load_strategy(request.strategy)
    for name in request.parameters:
        if not re.fullmatch(r"\w+", name):
            raise UsageError(f"{request.strategy} has no parameter {name!r}")
    texts = [f"{name}={format_setting(value)}" for name, value in request.parameters.items()]
    refuse_loading(kind, texts)
    return set_parameters(kind, texts)


def _describe_feedback(
    run: RecordedRun, answer: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return a rated answer as a question of a data set: a good one is the right answer to it."""
    assert run.feedback is not None
    given = answer["short_answer"] or answer["answer"]
    cited = [{key: each[key] for key in _CITED} for each in answer["citations"]]
    right: dict[str, Any] = {}
    if run.feedback.good and answer["found"]:
        gold = [names.get(each["document"], each["document"]) for each in cited]
        right = {"answer": given, "gold": gold}
    elif run.feedback.good:
        right = {"answerable": False}
    return {
        "id": run.id,
        "question": answer["question"],
        "documents": [*dict.fromkeys(names.get(each, each) for each in run.documents or ())],
        **right,
        "given": given,
        "cited": cited,
        "strategy": run.strategy,
        "asked_by": run.asked_by,
        **run.feedback.model_dump(),
    }


class RecordedRun(Work):
    """A run, under way or kept; `asked_by` is the named token of the question, if any."""

    question: str
    strategy: str
    parameters: dict[str, Any]
    retriever: str | None = None
    documents: list[str] | None
    where: list[str] = Field(default_factory=list)
    began: str
    seconds: float = 0.0
    calls: int = 0
    found: bool | None = None
    asked_by: str | None = None
    feedback: Feedback | None = None
    # Not shown: the beginning of the token's digest, since another may get its name later, and the
    # documents that earlier answers of the conversation cite, None if one came without.
    asked_with: str | None = Field(default=None, exclude=True)
    earlier: list[str] | None = Field(default_factory=list, exclude=True)
    # In memory alone. `removed` were removed during the run, `place` is the last one announced.
    # The outcome is in the summary, and in `kept_outcome` while the run is the newest.
    folder: Path = Field(exclude=True)
    removed: frozenset[str] = Field(default=frozenset(), exclude=True)
    place: int = Field(default=0, exclude=True)
    kept_outcome: dict[str, Any] | None = Field(default=None, exclude=True)
    _file: BinaryIO | None = None
    _left: int = 0
    _began: float = 0.0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: int = 0

    @property
    def visible(self) -> bool:
        """Whether the named token of this request, if any, may see it: its own, or all."""
        caller = CALLER.get()
        if caller is None or Right.ADMIN in caller.rights:
            return True
        own = (caller.name, caller.short_digest) == (self.asked_by, self.asked_with)
        return own and bool(caller.folders(self.library))

    def open(self, limit: int) -> None:
        """Create its files; after `limit` bytes of events the rest is not recorded."""
        try:
            make_private_folder(self.folder)
            make_private_file(self.events, fresh=True)
            self._file = self.events.open("wb", buffering=0)
            self.save({})
        except OSError:
            if self._file is not None:
                self._file.close()
            with suppress(OSError):
                self.delete_files()
            raise
        self._left, self._began = limit, time.perf_counter()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def record(self, event: Event) -> None:
        """Record an event of the engine, without prompts. May be called from any thread."""
        plain = event.to_json()
        plain.pop("messages", None)
        if isinstance(event, Located | Likely | Drafted):  # no folder of the server is shown
            for passage in plain.get("passages", [plain.get("sentence")]):
                passage |= {"source": hide_folders(passage["source"]), "folder": ""}
        if isinstance(event, Filled):
            plain["rows"] = [describe_row(row) for row in event.rows]
        if threading.get_ident() == self._thread or self._loop is None:
            self.write(plain)
        else:
            self._loop.call_soon_threadsafe(self.write, plain)

    def write(self, event: Mapping[str, Any]) -> None:
        """Add a line, and wake whoever follows."""
        if self._file is None or self._left <= 0:
            return
        line = encode_json({**event, "at": round(time.perf_counter() - self._began, 4)}) + b"\n"
        self._left -= len(line)
        if self._left <= 0:
            full = Noted("this run has more events than are recorded", warning=True)
            line = encode_json(full.to_json()) + b"\n"
        self._file.write(line)
        self.wake()

    def close(self, outcome: dict[str, Any]) -> None:
        """Write how it ended."""
        assert self._file is not None
        self._file.close()
        self._file, self.kept_outcome = None, outcome
        with suppress(OSError):  # a full disk; whoever waits gets the answer from memory
            if self.events.exists():  # otherwise they were erased with a document
                self.save(outcome)
        self.wake()

    async def outcome(self) -> dict[str, Any]:
        """Return the answer, table or problem under its name, or `{}` before the end."""
        outcome = self.kept_outcome
        if outcome is None and self.ended:
            try:
                outcome = json.loads(await in_thread(self.summary.read_bytes))
            except FileNotFoundError:
                return {"problem": problem(404, "the run was forgotten")}
        outcome = {key: value for key, value in (outcome or {}).items() if key in _OUTCOMES}
        for shown, listed in (("answer", "citations"), ("table", "rows")):
            found = outcome.get(shown, {}).get(listed, ())
            note_use(self.library, [each["document"] for each in found])
        return outcome

    async def result(self, name: str = "answer") -> dict[str, Any]:
        """Return the answer or the table of a run that has ended; raise `RunFailed` without."""
        outcome = await self.outcome()
        if name not in outcome:
            raise RunFailed(outcome.get("problem", problem(404, f"the run has no {name}")))
        result: dict[str, Any] = outcome[name]
        return result

    # Its files. These methods block, but only for a moment.

    @property
    def events(self) -> Path:
        """The file of events."""
        return self.folder / f"{self.id}.jsonl"

    @property
    def summary(self) -> Path:
        """The file of the question and how the run ended."""
        return self.folder / f"{self.id}.json"

    @property
    def size(self) -> int:
        """Bytes of both."""
        return sum(file.stat().st_size for file in (self.events, self.summary) if file.exists())

    def save(self, outcome: Mapping[str, Any]) -> None:
        """Write the summary, completely or not at all."""
        new = self.summary.with_suffix(".new")
        make_private_file(new)
        hidden = {"asked_with": self.asked_with, "earlier": self.earlier}
        new.write_bytes(encode_json({**self.model_dump(), **hidden, **outcome}))
        new.replace(self.summary)

    def read_events(self, at: int) -> tuple[list[bytes], int]:
        """Return whole lines from an offset on, at most a batch, and the offset after them."""
        with self.events.open("rb") as file:
            file.seek(at)
            lines = file.readlines(_BATCH)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # it is being written
        return [line.rstrip(b"\n") for line in lines], at + sum(map(len, lines))

    def holds(self, documents: Collection[str]) -> bool:
        """Return whether its files may hold text of one of these documents."""
        return any(holds_id(file, documents) for file in (self.events, self.summary))

    def delete_files(self) -> None:
        for suffix in _SUFFIXES:
            self.summary.with_suffix(suffix).unlink(missing_ok=True)


_BATCH = 1 << 18  # bytes read at once, about
_CITED = ("document", "start", "end", "quote")
_OUTCOMES = ("answer", "table", "problem")
_SUFFIXES = (".jsonl", ".json", ".new")


def _load_runs(folder: Path) -> list[RecordedRun]:
    """Return the runs in a folder, oldest first; delete what a crash left incomplete."""
    for file in (*folder.glob("*.jsonl"), *folder.glob("*.new")):
        if file.suffix == ".new" or not file.with_suffix(".json").exists():
            file.unlink()
    runs = []
    for file in folder.glob("*.json"):
        try:
            runs.append(_load_run(folder, file))
        except ValueError:  # half written when the machine stopped
            for suffix in _SUFFIXES:
                file.with_suffix(suffix).unlink(missing_ok=True)
    return sorted(runs, key=lambda run: run.began)


def _load_run(folder: Path, summary: Path) -> RecordedRun:
    run = RecordedRun.model_validate({**json.loads(summary.read_bytes()), "folder": folder})
    if not run.ended:
        run.state = "cancelled"
        run.events.touch()
        run.save({"problem": problem(503, "the server ended while it was under way")})
    return run
