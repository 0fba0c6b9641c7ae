"""llama.cpp's server object in this process, without asyncio.

Prompts that begin alike share their work: llama.cpp keeps the keys and values of the last
prompts and computes only from the first token that differs, so put what is common first.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from colligate.errors import (
    ContextTooSmall,
    ModelError,
    RequestRefused,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models.cores import wait_without_spinning
from colligate.models.protocols import Completion, Message, Usage
from colligate.models.text import blunt, encodable, marks
from colligate.models.thinking import split_thinking

wait_without_spinning()

import xllamacpp  # noqa: E402 (libgomp reads the setting when it is loaded)

_BATCH = 128  # prompt tokens between two chances to cancel; larger is no faster on a CPU
_PROMPT_CACHE_MIB = 512


class Token(NamedTuple):
    """A token and the bytes it is written as, which need not be whole characters."""

    id: int
    piece: bytes


@dataclass
class Engine:
    """A model file in llama.cpp, loaded at the first call. Threads may call it side by side.

    Calls that compute take `stopped`, an event that ends them at the next token or batch of
    the prompt; `stop` ends all of them. They then raise ModelError.
    """

    path: Path
    name: str
    context: int
    parallel: int
    threads: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server: Any = None
        self._http: httpx2.Client | None = None
        self._beginning: list[int] = []
        self._marks: list[str] = []

    def chat(
        self,
        messages: Sequence[Message],
        request: dict[str, Any],
        on_piece: Callable[[str], None],
        stopped: threading.Event,
    ) -> Completion:
        """Stream one answer; `request` is what goes with the messages."""
        content: list[str] = []
        thinking: list[str] = []
        finish_reason, usage = "stop", Usage()

        def on_event(event: dict[str, Any]) -> None:
            nonlocal finish_reason, usage
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

        spoken = {**request, "messages": self._turns(messages)}
        spoken["stream_options"] = {"include_usage": True}
        self._stream("chat_completions", spoken, on_event, stopped)
        text, inline_thinking = split_thinking("".join(content))
        thoughts = "\n\n".join(filter(None, ("".join(thinking).strip(), inline_thinking)))
        return Completion(text, usage, self.name, finish_reason, thoughts)

    def complete(
        self, prompt: list[int], request: dict[str, Any], stopped: threading.Event
    ) -> list[dict[str, Any]]:
        """What llama.cpp says of each token it writes after a prompt; `request` is the rest."""
        written: list[dict[str, Any]] = []

        def on_event(event: dict[str, Any]) -> None:
            for choice in event["choices"]:
                written.extend((choice.get("logprobs") or {}).get("content", []))

        self._stream("completions", {**request, "prompt": prompt}, on_event, stopped)
        return written

    def tokens(self, text: str, *, special: bool = False, beginning: bool = False) -> list[int]:
        """Token ids. `special` reads marks like <|im_start|>; `beginning` adds what begins a text.

        What begins a text is the BOS token for models that use one; an empty text
        gets one in any case, since something must come before the first token.
        """
        request = {"content": text, "parse_special": special, "add_special": beginning}
        ids: list[int] = self._post("/tokenize", request)["tokens"]
        return ids if ids or not beginning else self._beginning

    def pieces(self, text: str, *, special: bool = False) -> list[Token]:
        """The same tokens, each with what it is written as."""
        request = {"content": text, "parse_special": special, "with_pieces": True}
        request["add_special"] = False
        found = self._post("/tokenize", request)["tokens"]
        return [Token(token["id"], _bytes(token["piece"])) for token in found]

    def prompt_tokens(self, messages: Sequence[Message]) -> list[int]:
        """Messages as the model reads them, up to where its answer begins."""
        prompt = self._post("/apply-template", {"messages": self._turns(messages)})["prompt"]
        return self.tokens(prompt, special=True, beginning=True)

    def vocabulary(self) -> int:
        """How many tokens there are."""
        self._load()
        return int(self._request("GET", "/v1/models")["data"][0]["meta"]["n_vocab"])

    def too_small(self, needed: int) -> ContextTooSmall:
        """The error for a prompt of so many tokens."""
        return ContextTooSmall(
            f"the prompt does not fit {self.name}",
            f"it has {needed} tokens and the window {self.context}",
            "give fewer or shorter passages, or a model with a larger window",
        )

    def stop(self) -> None:
        """End the calls under way; those that come later are refused."""
        self._closing.set()

    def close(self) -> None:
        """Free the model. Idempotent."""
        with self._lock:
            self._server = None
            if self._http is not None:
                self._http.close()
                self._http = None

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        return [{"role": m.role, "content": self._disarm(encodable(m.content))} for m in messages]

    def _disarm(self, text: str) -> str:
        # A template puts text between its marks, and the whole is read with control tokens in
        # it: what the text itself holds of them must be letters by then.
        self._load()
        text = blunt(text, self._marks)
        while (read := self.tokens(text, special=True)) != (letters := self.tokens(text)):
            more = Counter(read) - Counter(letters)
            found = (token for token in self.pieces(text, special=True) if token.id in more)
            spelt = dict.fromkeys(token.piece.decode(errors="replace") for token in found)
            controls = [mark for mark in spelt if self._is_control(mark)]
            if not controls:
                raise RequestRefused(
                    f"{self.name} refused a text", "it reads control tokens that are not spelt out"
                )
            text = blunt(text, controls)
        return text

    def _is_control(self, mark: str) -> bool:
        read = self.tokens(mark, special=True)
        return len(read) == 1 and read != self.tokens(mark)

    def _stream(
        self,
        route: str,
        request: dict[str, Any],
        on_event: Callable[[dict[str, Any]], None],
        stopped: threading.Event,
    ) -> None:
        failure: dict[str, Any] | None = None
        cut = False

        def on_chunk(chunk: str) -> bool:
            nonlocal failure, cut
            event = json.loads(chunk)
            if "error" in event:
                failure = event
                return True
            on_event(event)
            cut = stopped.is_set() or self._closing.is_set()
            return cut

        server = self._load()
        # Progress through the prompt is told, so that a long one can be stopped as well.
        request = {**request, "stream": True, "return_progress": True}
        try:
            getattr(server, f"handle_{route}")(json.dumps(request), on_chunk)
        except (ValueError, RuntimeError) as error:  # Exceptions of C++, e.g. for a bad schema.
            kind = RequestRefused if isinstance(error, ValueError) else ServerFailed
            raise kind(f"{self.name} refused the call", str(error)) from error
        if failure is not None:
            raise self._error(failure)
        if cut:
            raise ModelError(f"a call to {self.name} was stopped", "it was given up or closed")

    def _load(self) -> Any:
        with self._lock:
            if self._closing.is_set():
                raise ModelError(f"{self.name} was closed", "", "make the model anew")
            if self._server is None:
                server, self._http = self._start()
                try:
                    self._learn()
                except BaseException:
                    self._http.close()
                    raise
                self._server = server
            return self._server

    def _learn(self) -> None:
        """What begins a text, and which marks are control tokens whatever llama.cpp says.

        Those are the ones the template itself writes, since some models spell their turns in
        ordinary letters, as [INST], and what begins and ends a text.
        """
        props = self._request("GET", "/props")
        ends = [props.get("bos_token") or "", props.get("eos_token") or ""]
        request = {"content": ends[0] or ends[1] or "\n", "parse_special": True}
        self._beginning = self._request("POST", "/tokenize", request)["tokens"]
        written = "\n".join(ends)
        turns = [{"role": r, "content": "."} for r in ("system", "user", "assistant", "user")]
        for probe in (turns, turns[1:]):  # Some templates have no place for a system's turn.
            try:
                written += self._request("POST", "/apply-template", {"messages": probe})["prompt"]
            except (RequestRefused, ServerFailed):
                continue
            break
        self._marks = marks(written)

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
            return self.too_small(error["n_prompt_tokens"])
        kind = RequestRefused if error.get("code", 500) < 500 else ServerFailed
        return kind(f"{self.name} refused the call", str(error.get("message", "")))


def _bytes(piece: str | list[int]) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)
