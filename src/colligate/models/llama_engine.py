"""llama.cpp's server object in this process, without asyncio.

Prompts that begin alike share their work: llama.cpp keeps the keys and values of the last
prompts and computes only from the first token that differs, so put what is common first.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from colligate.errors import (
    ContextTooSmall,
    ModelError,
    RequestRefused,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models.protocols import Completion, Usage
from colligate.models.thinking import split_thinking

# OpenMP's threads spin while they wait for one another; beside another busy process that costs
# ten times the work. This is what libgomp does itself when it sees more threads than cores.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import xllamacpp

_BATCH = 128  # prompt tokens between two chances to cancel; larger is no faster on a CPU
_PROMPT_CACHE_MIB = 512


@dataclass
class Engine:
    """A model file in llama.cpp, loaded at the first call. Threads may call it side by side."""

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
                server, self._http = self._start()
                mark = self._request("GET", "/props")
                begin = mark.get("bos_token") or mark.get("eos_token") or "\n"
                request = {"content": begin, "parse_special": True}
                self._beginning = self._request("POST", "/tokenize", request)["tokens"]
                self._server = server
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
        return self._request("POST", route, request)

    def _request(self, method: str, route: str, request: object = None) -> dict[str, Any]:
        assert self._http is not None
        try:
            answer: dict[str, Any] = self._http.request(method, route, json=request).json()
        except (httpx2.HTTPError, ValueError) as error:
            raise ServerFailed(f"{self.name} does not answer", str(error)) from error
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
