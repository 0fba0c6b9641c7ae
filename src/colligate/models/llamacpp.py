"""GGUF models in this process: llama.cpp through xllamacpp, in threads of its own."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from colligate.errors import MissingCapability
from colligate.models import llama_scores
from colligate.models.cores import physical_cores
from colligate.models.gguf import read_header
from colligate.models.label_odds import require_labels
from colligate.models.llama_engine import Engine
from colligate.models.protocols import Capability, Completion, LabelOdds, Message, OnToken
from colligate.models.streaming import streamed
from colligate.models.text import encodable
from colligate.models.threads import Threads
from colligate.models.token_spans import token_spans
from colligate.models.window import window

T = TypeVar("T")

_LONGEST_WINDOW = 16384


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
        context = context_tokens or window(
            header.context_tokens,
            header.kv_bytes_per_token,
            most=_LONGEST_WINDOW,
            parallel=parallel,
        )
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
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": [string for string in stop if string],
        }
        if seed is not None:
            request["seed"] = seed
        if schema is not None:
            held = {"name": "answer", "schema": dict(schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": held}

        stopped = threading.Event()
        return await streamed(
            self._threads,
            lambda forward: self._engine.chat(messages, request, forward, stopped),
            stopped.set,
            on_token,
        )

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Natural log-probability of each token of `continuation` after `prefix`.

        An empty prefix stands for the beginning of a text.

        Raises:
            ContextTooSmall: if the two do not fit together.
        """
        [scores] = await self.likelihoods([(prefix, continuation)])
        return scores

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """`likelihood` of each (prefix, continuation), in the order given.

        They are computed in the order of their prefixes: what two neighbours begin with
        alike, llama.cpp keeps. Different prefixes run side by side where there are several slots.

        Raises:
            ContextTooSmall: if a pair does not fit; the others are given up.
        """
        together: dict[str, list[int]] = {}
        for index, (prefix, _) in enumerate(pairs):
            together.setdefault(encodable(prefix), []).append(index)
        prefixes = sorted(together)

        def score(prefix: str, stopped: threading.Event) -> list[list[float]]:
            texts = [encodable(pairs[index][1]) for index in together[prefix]]
            return llama_scores.likelihoods(self._engine, prefix, texts, stopped)

        calls = [asyncio.ensure_future(self._stoppable(partial(score, p))) for p in prefixes]
        try:
            found = dict(zip(prefixes, await asyncio.gather(*calls), strict=True))
        finally:
            for call in calls:
                call.cancel()
        scored = {i: s for p in prefixes for i, s in zip(together[p], found[p], strict=True)}
        return [scored[index] for index in range(len(pairs))]

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Odds of each label as the answer's beginning, or after `forced`; scored whole.

        Raises:
            ContextTooSmall: if the messages do not fit.
            ValueError: there are no labels, an empty or a doubled one.
        """
        require_labels(labels)
        begun = encodable(forced)

        def score(stopped: threading.Event) -> LabelOdds:
            return llama_scores.label_odds(self._engine, messages, labels, begun, stopped)

        return await self._stoppable(score)

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text, exactly."""
        return await self._threads.run(lambda: len(self._engine.tokens(encodable(text))))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """Tokens of messages in the model's template, exactly."""
        return await self._threads.run(lambda: len(self._engine.prompt_tokens(messages)))

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """The half-open character ranges of a text's tokens, exactly; see `ChatModel`.

        Raises:
            MissingCapability: the tokenizer changes more of a text than its blanks.
        """
        text = encodable(text)
        tokens = await self._threads.run(lambda: self._engine.pieces(text))
        try:
            return token_spans(text, [token.piece for token in tokens])
        except ValueError as error:
            raise MissingCapability(
                f"{self._name} cannot tell where a text's tokens lie",
                "its tokenizer rewrites the text",
                "use another model",
            ) from error

    async def aclose(self) -> None:
        """Stop the calls under way, which fail, and free the model's memory. Safe to call twice."""
        self._engine.stop()
        await self._threads.aclose()
        await asyncio.to_thread(self._finalizer)

    async def _stoppable(self, work: Callable[[threading.Event], T]) -> T:
        """The work's result; cancelling stops it at the next token or batch of the prompt."""
        stopped = threading.Event()
        try:
            return await self._threads.run(lambda: work(stopped))
        finally:
            stopped.set()
