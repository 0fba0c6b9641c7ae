"""GGUF models in this process: llama.cpp through xllamacpp, in threads of its own."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from colligate.models.cores import physical_cores
from colligate.models.gguf import Header, read_header
from colligate.models.label_odds import require_labels
from colligate.models.llama_engine import Engine
from colligate.models.protocols import Capability, Completion, Message, OnToken
from colligate.models.text import encodable
from colligate.models.thinking import ThinkingFilter
from colligate.models.threads import Threads

_DEFAULT_CONTEXT = 16384
_LEAST_CONTEXT = 2048


class LlamaCpp:
    """A GGUF file as a chat, likelihood and label model. It is loaded at the first call.

    `context_tokens` is what one call may use, prompt and answer together; by default
    the length the model was trained with, at most 16,384, and halved until the keys
    and values of all `parallel` calls fit a quarter of the machine's memory.
    `threads` defaults to the physical cores.

    Raises:
        UnknownModel: if there is no such file.
        WeightsUnavailable: if it is not a GGUF file, or (at the first call) cannot be loaded.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        context_tokens: int | None = None,
        parallel: int = 1,
        threads: int | None = None,
    ) -> None:
        path = Path(path).expanduser()
        header = read_header(path)
        context = context_tokens or _context(header, parallel)
        stat = path.stat()
        self._name = name
        self._version = f"{stat.st_size}-{stat.st_mtime_ns}"
        self._context = context
        self._engine = Engine(path, name, context, parallel, threads or physical_cores())
        self._threads = Threads(name, parallel)
        # At interpreter exit the native threads must be gone before Python's memory is.
        self._finalizer = weakref.finalize(self, self._engine.close)

    @property
    def name(self) -> str:
        """The model string that names it."""
        return self._name

    @property
    def version(self) -> str:
        """Another one when the file is another: its size and time."""
        return self._version

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Chat, JSON held to a schema, likelihood and labels."""
        return frozenset(
            {Capability.CHAT, Capability.STRUCTURED, Capability.LIKELIHOOD, Capability.LABELS}
        )

    @property
    def context_tokens(self) -> int:
        """How many tokens prompt and answer of one call may have together."""
        return self._context

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_token: OnToken | None = None,
    ) -> Completion:
        """One call; see `ChatModel.chat`.

        With `schema` the text is JSON that satisfies it, unless `finish_reason` is "length".

        Raises:
            ContextTooSmall: if the prompt does not fit.
            RequestRefused: if llama.cpp cannot make a grammar of the schema.
        """
        request: dict[str, Any] = {
            "messages": _turns(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": [string for string in stop if string],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        if seed is not None:
            request["seed"] = seed
        if schema is not None:
            held = {"name": "answer", "schema": dict(schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": held}

        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        stopped = threading.Event()

        def forward(piece: str) -> None:
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # The loop was closed: nobody is listening any more.
                stopped.set()

        answer = self._threads.run(lambda: self._engine.chat(request, forward, stopped))
        answer.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            visible = ThinkingFilter()
            while (piece := await pieces.get()) is not None:
                shown = visible.feed(piece)
                if on_token and shown:
                    on_token(shown)
            if on_token and (shown := visible.close()):
                on_token(shown)
            return await answer
        finally:
            stopped.set()
            answer.cancel()  # Does nothing to one that is done.

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Natural log-probability of each token of `continuation` after `prefix`.

        An empty prefix stands for the beginning of a text.

        Raises:
            ContextTooSmall: if the two do not fit together.
        """
        before, after = encodable(prefix), encodable(continuation)
        return await self._threads.run(lambda: self._engine.likelihood(before, after))

    async def labels(self, prefix: Sequence[Message], labels: Sequence[str]) -> dict[str, float]:
        """Probability of each label, scored whole and normalised over the labels given.

        Raises:
            ContextTooSmall: if the messages do not fit.
            ValueError: there are no labels, or an empty one.
        """
        require_labels(labels)
        turns = _turns(prefix)
        return await self._threads.run(lambda: self._engine.labels(turns, labels))

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text, exactly."""
        return await self._threads.run(lambda: len(self._engine.tokens(encodable(text))))

    async def aclose(self) -> None:
        """Free the model's memory, once the calls under way are done. Safe to call twice."""
        await self._threads.aclose()
        await asyncio.to_thread(self._finalizer)


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": encodable(m.content)} for m in messages]


def _context(header: Header, parallel: int) -> int:
    context = min(header.context_tokens or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
    memory = _memory_bytes()
    if memory is not None and header.kv_bytes_per_token is not None:
        while (
            context > _LEAST_CONTEXT and context * parallel * header.kv_bytes_per_token > memory / 4
        ):
            context //= 2
    return context


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Not a POSIX system.
        return None
