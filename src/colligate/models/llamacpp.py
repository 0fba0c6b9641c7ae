"""GGUF models in this process: llama.cpp through xllamacpp.

`LlamaCpp` is the asynchronous face; `_Engine` blocks and runs in the model's own threads.
Prompts that begin alike share their work: llama.cpp keeps the keys and values of the last
prompts and computes only from the first token that differs, so put what is common first.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from colligate.errors import (
    ContextTooSmall,
    ModelError,
    RequestRefused,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models.cores import physical_cores
from colligate.models.gguf import Header, read_header
from colligate.models.protocols import Capability, Completion, Message, OnToken, Usage
from colligate.models.thinking import ThinkingFilter, split_thinking

# OpenMP's threads spin while they wait for one another; beside another busy process that costs
# ten times the work. This is what libgomp does itself when it sees more threads than cores.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import xllamacpp

_T = TypeVar("_T")
_DEFAULT_CONTEXT = 16384
_LEAST_CONTEXT = 2048
_BATCH = 128  # prompt tokens between two chances to cancel; larger is no faster on a CPU
_PROMPT_CACHE_MIB = 512


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
        self._engine = _Engine(path, name, context, parallel, threads or physical_cores())
        self._executor = ThreadPoolExecutor(parallel, thread_name_prefix="llama.cpp")
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
            "stop": list(stop),
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

        answer = self._submit(lambda: self._engine.chat(request, forward, stopped))
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
        return await self._submit(lambda: self._engine.likelihood(prefix, continuation))

    async def labels(self, prefix: Sequence[Message], labels: Sequence[str]) -> dict[str, float]:
        """Probability of each label, scored whole and normalised over the labels given.

        Raises:
            ContextTooSmall: if the messages do not fit.
        """
        turns = _turns(prefix)
        return await self._submit(lambda: self._engine.labels(turns, labels))

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text, exactly."""
        return await self._submit(lambda: len(self._engine.tokens(text)))

    async def aclose(self) -> None:
        """Free the model's memory, once the calls under way are done. Safe to call twice."""
        await asyncio.to_thread(self._executor.shutdown)
        await asyncio.to_thread(self._finalizer)

    def _submit(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._executor, work)
        except RuntimeError as error:
            raise ModelError(f"{self._name} was closed", "", "make the model anew") from error


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


@dataclass
class _Engine:
    """llama.cpp's server object, without asyncio. Threads may call it side by side."""

    path: Path
    name: str
    context: int
    parallel: int
    threads: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._server: Any = None
        self._http: httpx2.Client | None = None
        self._beginning: list[int] = []

    def chat(
        self, request: dict[str, Any], on_piece: Callable[[str], None], stopped: threading.Event
    ) -> Completion:
        """Stream one answer; `stopped` ends it at the next token or batch of the prompt."""
        content: list[str] = []
        thinking: list[str] = []
        finish_reason, usage = "stop", Usage()
        failure: dict[str, Any] | None = None

        def on_chunk(chunk: str) -> bool:
            nonlocal finish_reason, usage, failure
            event = json.loads(chunk)
            if "error" in event:
                failure = event
                return True
            for choice in event["choices"]:
                finish_reason = choice["finish_reason"] or finish_reason
                thinking.append(choice["delta"].get("reasoning_content") or "")
                if piece := choice["delta"].get("content"):
                    content.append(piece)
                    on_piece(piece)
            if spent := event.get("usage"):
                usage = Usage(
                    input_tokens=spent["prompt_tokens"],
                    output_tokens=spent["completion_tokens"],
                    cached_tokens=spent["prompt_tokens_details"]["cached_tokens"],
                )
            return stopped.is_set()

        self._handle("chat_completions", json.dumps(request), on_chunk)
        if failure is not None:
            raise self._error(failure)
        text, inline_thinking = split_thinking("".join(content))
        thoughts = "\n\n".join(filter(None, ("".join(thinking).strip(), inline_thinking)))
        return Completion(text, usage, self.name, finish_reason, thoughts)

    def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Log-probabilities of the continuation's tokens; both texts are taken literally."""
        return self._score(self.tokens(prefix, beginning=True), self.tokens(continuation))

    def labels(self, turns: list[dict[str, str]], labels: Sequence[str]) -> dict[str, float]:
        """Softmax of the labels' log-probabilities after the templated turns."""
        if not all(labels):
            raise ValueError("a label must not be empty")
        prompt = self._post("/apply-template", {"messages": turns})["prompt"]
        # The template begins the text itself; its marks are special tokens.
        prefix = self.tokens(prompt, special=True)
        scores = {label: sum(self._score(prefix, self.tokens(label))) for label in labels}
        most = max(scores.values(), default=0.0)
        odds = {label: math.exp(score - most) for label, score in scores.items()}
        return {label: odd / sum(odds.values()) for label, odd in odds.items()}

    def tokens(self, text: str, *, special: bool = False, beginning: bool = False) -> list[int]:
        """Token ids. `special` reads marks like <|im_start|>; `beginning` adds what begins a text.

        What begins a text is the BOS token for models that use one; an empty text
        gets one in any case, since something must come before the first token.
        """
        request = {"content": text, "parse_special": special, "add_special": beginning}
        ids: list[int] = self._post("/tokenize", request)["tokens"]
        return ids if ids or not beginning else self._beginning

    def close(self) -> None:
        """Free the model. Idempotent."""
        with self._lock:
            if self._http is not None:
                self._http.close()
            self._http = self._server = None

    def _score(self, prefix: list[int], continuation: list[int]) -> list[float]:
        # llama.cpp gives no log-probabilities of a prompt, but it gives those of what it
        # writes; a grammar of literal tokens leaves it only one thing to write. The numbers
        # are those of the whole vocabulary, before the grammar.
        if not continuation:
            return []
        if len(prefix) + len(continuation) > self.context:
            raise self._too_small(len(prefix) + len(continuation))
        request = {
            "prompt": prefix,
            "max_tokens": len(continuation),
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in continuation),
            "temperature": 0.0,
            "logprobs": 1,
        }
        answer = self._handle("completions", request)
        if "error" in answer:
            raise self._error(answer)
        written = answer["choices"][0]["logprobs"]["content"]
        if [token["id"] for token in written] != continuation:
            raise ServerFailed(
                f"{self.name} cannot score this continuation", "llama.cpp wrote other tokens"
            )
        return [token["logprob"] for token in written]

    def _handle(self, route: str, *arguments: Any) -> Any:
        try:
            return getattr(self._load(), f"handle_{route}")(*arguments)
        except (ValueError, RuntimeError) as error:  # Exceptions of C++, e.g. for a bad schema.
            kind = RequestRefused if isinstance(error, ValueError) else ServerFailed
            raise kind(f"{self.name} refused the call", str(error)) from error

    def _load(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server, self._http = self._start()
                mark = self._http.get("/props").json()
                begin = mark.get("bos_token") or mark.get("eos_token") or "\n"
                request = {"content": begin, "parse_special": True}
                self._beginning = self._http.post("/tokenize", json=request).json()["tokens"]
            return self._server

    def _start(self) -> tuple[Any, httpx2.Client]:
        params = xllamacpp.CommonParams()
        params.model.path = str(self.path)
        params.n_ctx = self.context * self.parallel
        params.n_parallel = self.parallel
        params.n_batch = _BATCH
        params.warmup = False
        params.verbosity = -1
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        for cpu in (params.cpuparams, params.cpuparams_batch):
            cpu.n_threads = self.threads
        # llama.cpp opens a loopback port, which we use to tokenise; the key keeps others out.
        key = secrets.token_urlsafe(32)
        params.api_keys = [key]
        try:
            server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise WeightsUnavailable(
                f"cannot load {self.path}",
                "llama.cpp cannot read it: it is damaged, of a kind not known, or too large",
                "fetch it again, or take another model",
            ) from error
        http = httpx2.Client(
            base_url=server.listening_address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
            trust_env=False,
        )
        return server, http

    def _post(self, route: str, request: dict[str, Any]) -> dict[str, Any]:
        self._load()
        assert self._http is not None
        answer: dict[str, Any] = self._http.post(route, json=request).json()
        if "error" in answer:
            raise self._error(answer)
        return answer

    def _error(self, answer: dict[str, Any]) -> ModelError:
        error = answer["error"]
        if error.get("type") == "exceed_context_size_error":
            return self._too_small(error["n_prompt_tokens"])
        kind = RequestRefused if error.get("code", 500) < 500 else ServerFailed
        return kind(f"{self.name} refused the call", str(error.get("message", "")))

    def _too_small(self, needed: int) -> ContextTooSmall:
        return ContextTooSmall(
            f"the prompt does not fit {self.name}",
            f"it has {needed} tokens and the window {self.context}",
            "give fewer or shorter passages, or a model with a larger window",
        )


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
