"""GGUF models in this process: llama.cpp through xllamacpp, in its own threads.

Prompts that begin alike share their work: llama.cpp keeps the keys and values of the last prompts
and computes only from the first token that differs, so common text must come first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2

from colligate.concurrency import Threads, physical_cores, wait_without_spinning
from colligate.errors import (
    ContextTooSmall,
    MissingCapability,
    ModelError,
    RequestRefused,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models.base import (
    Capability,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    Usage,
    blunt,
    encodable,
    marks,
    window,
)
from colligate.models.gguf import read_header
from colligate.models.label_odds import odds_of, require_labels
from colligate.models.thinking import split_thinking, streamed

wait_without_spinning()

import xllamacpp  # noqa: E402 (libgomp reads the setting when it is loaded)

T = TypeVar("T")

_LONGEST_WINDOW = 16384


class LlamaCpp:
    """A GGUF file as a chat, likelihood and label model. It is loaded at the first call.

    `context_tokens` is the limit for prompt and answer of one call together; by default the
    length the model was trained with, at most 16,384, and halved until the keys and values of all
    `parallel` calls fit a quarter of the machine's memory. `threads` defaults to the physical
    cores. UnknownModel if there is no such file, WeightsUnavailable if it cannot be loaded.
    """

    capabilities = frozenset(
        {Capability.CHAT, Capability.STRUCTURED, Capability.LIKELIHOOD, Capability.LABELS}
    )

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
        self.name = name
        self.version = f"{stat.st_size}-{stat.st_mtime_ns}"  # of the file's content
        self.context_tokens = context
        self._engine = LlamaEngine(path, name, context, parallel, threads or physical_cores())
        self._threads = Threads(name, parallel)
        # At interpreter exit the native threads must be gone before Python's memory is.
        self._finalizer = weakref.finalize(self, self._engine.close)

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call. With a schema the text satisfies it, unless it is cut at the limit."""
        body: dict[str, Any] = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": [string for string in request.stop if string],
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if request.schema is not None:
            named = {"name": "answer", "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}

        stopped = threading.Event()
        return await streamed(
            self._threads,
            lambda forward: self._engine.chat(request.messages, body, forward, stopped),
            stopped.set,
            on_token,
        )

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return likelihoods.

        Pairs are computed in the order of their prefixes, because llama.cpp keeps the common
        beginning of two neighbours. Different prefixes run at once where there are several slots.
        """
        together: dict[str, list[int]] = {}
        for index, (prefix, _) in enumerate(pairs):
            together.setdefault(prefix, []).append(index)
        prefixes = sorted(together)

        def score(prefix: str, stopped: threading.Event) -> list[list[float]]:
            before = self._engine.tokens(prefix, beginning=True)
            pieces = [self._engine.pieces(pairs[index][1]) for index in together[prefix]]
            return [_score(self._engine, before, tokens, stopped) for tokens in pieces]

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
        """Return the odds of each label, scored by all its tokens."""
        require_labels(labels)

        def score(stopped: threading.Event) -> LabelOdds:
            engine = self._engine
            before = engine.prompt_tokens(messages) + engine.tokens(forced)
            pieces = {label: engine.pieces(label) for label in labels}
            scores = {key: sum(_score(engine, before, p, stopped)) for key, p in pieces.items()}
            return odds_of(scores)

        return await self._stoppable(score)

    async def count_tokens(self, text: str) -> int:
        return await self._threads.run(lambda: len(self._engine.tokens(text)))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        return await self._threads.run(lambda: len(self._engine.prompt_tokens(messages)))

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return `find_token_spans` of the text; MissingCapability if its tokens rewrite it."""
        tokens = await self._threads.run(lambda: self._engine.pieces(text))
        try:
            return find_token_spans(encodable(text), [token.piece for token in tokens])
        except ValueError as error:
            raise MissingCapability(
                f"{self.name} cannot tell where the tokens of a text are",
                "its tokenizer rewrites the text",
                "use another model",
            ) from error

    async def aclose(self) -> None:
        self._engine.stop()  # the calls under way fail
        await self._threads.aclose()
        await asyncio.to_thread(self._finalizer)

    async def _stoppable(self, work: Callable[[threading.Event], T]) -> T:
        """Run work; cancelling stops it after the next token or batch of the prompt."""
        stopped = threading.Event()
        try:
            return await self._threads.run(lambda: work(stopped))
        finally:
            stopped.set()


# llama.cpp's server object in this process, without asyncio

_BATCH = 128  # prompt tokens between two chances to cancel; larger is no faster on a CPU
_PROMPT_CACHE_MIB = 512


class Token(NamedTuple):
    """A token and its bytes, which need not be whole characters."""

    id: int
    piece: bytes


@dataclass
class LlamaEngine:
    """A model file in llama.cpp, loaded at the first call. Several threads may call it.

    Calls that compute take `stopped`, an event that ends them with ModelError after the next token
    or batch of the prompt; `stop` ends all of them.
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
        """Stream one answer; `request` is the request without its messages."""
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

        request = {
            **request,
            "messages": self._turns(messages),
            "stream_options": {"include_usage": True},
        }
        self._stream("chat_completions", request, on_event, stopped)
        text, inline_thinking = split_thinking("".join(content))
        thoughts = "\n\n".join(filter(None, ("".join(thinking).strip(), inline_thinking)))
        return Completion(text, usage, self.name, finish_reason, thoughts)

    def complete(
        self, prompt: list[int], request: dict[str, Any], stopped: threading.Event
    ) -> list[dict[str, Any]]:
        """Return llama.cpp's entry for each token it writes after a prompt."""
        written: list[dict[str, Any]] = []

        def on_event(event: dict[str, Any]) -> None:
            for choice in event["choices"]:
                written.extend((choice.get("logprobs") or {}).get("content", []))

        self._stream("completions", {**request, "prompt": prompt}, on_event, stopped)
        return written

    def tokens(self, text: str, *, special: bool = False, beginning: bool = False) -> list[int]:
        """Return token ids. `special` reads marks like <|im_start|> as control tokens.

        `beginning` puts the BOS token before them, for models that use one; an empty text gets one
        in any case, since something must come before the first token.
        """
        ids: list[int] = self._tokenize(text, parse_special=special, add_special=beginning)
        return ids if ids or not beginning else self._beginning

    def pieces(self, text: str, *, special: bool = False) -> list[Token]:
        """Return the same tokens, each with its bytes."""
        found = self._tokenize(text, parse_special=special, add_special=False, with_pieces=True)
        return [Token(token["id"], _bytes(token["piece"])) for token in found]

    def prompt_tokens(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of messages in the template, up to where the answer begins."""
        prompt = self._post("/apply-template", {"messages": self._turns(messages)})["prompt"]
        return self.tokens(prompt, special=True, beginning=True)

    def vocabulary(self) -> int:
        """Return the number of tokens that the model knows."""
        self._load()
        return int(self._request("GET", "/v1/models")["data"][0]["meta"]["n_vocab"])

    def too_small(self, needed: int) -> ContextTooSmall:
        """Return the error for a prompt of so many tokens."""
        return ContextTooSmall(
            f"the prompt does not fit {self.name}",
            f"it has {needed} tokens and the window {self.context}",
            "give fewer or shorter passages, or a model with a larger window",
        )

    def stop(self) -> None:
        """End the calls under way, and refuse later ones."""
        self._closing.set()

    def close(self) -> None:
        """Free the model. Safe to call twice."""
        with self._lock:
            self._server = None
            if self._http is not None:
                self._http.close()
                self._http = None

    def _turns(self, messages: Sequence[Message]) -> list[dict[str, str]]:
        return [{"role": m.role, "content": self._disarm(m.content)} for m in messages]

    def _disarm(self, text: str) -> str:
        # The template's marks are read as control tokens, so the same marks in the text itself
        # must be made letters before.
        self._load()
        text = blunt(text, self._marks)
        while (read := self.tokens(text, special=True)) != (letters := self.tokens(text)):
            more = Counter(read) - Counter(letters)
            found = (token for token in self.pieces(text, special=True) if token.id in more)
            spelt = dict.fromkeys(token.piece.decode(errors="replace") for token in found)
            controls = [mark for mark in spelt if self._is_control(mark)]
            if not controls:
                raise RequestRefused(
                    f"{self.name} refused a text", "it reads control tokens that are not in it"
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
        # Progress through the prompt is reported, so that a long one can be stopped as well.
        request = {**request, "stream": True, "return_progress": True}
        try:
            getattr(server, f"handle_{route}")(json.dumps(request), on_chunk)
        except (ValueError, RuntimeError) as error:  # Exceptions of C++, e.g. for a bad schema.
            kind = RequestRefused if isinstance(error, ValueError) else ServerFailed
            raise kind(f"{self.name} refused the call", str(error)) from error
        if failure is not None:
            raise self._error(failure)
        if cut:
            raise ModelError(f"a call to {self.name} was stopped", "it was cancelled or closed")

    def _load(self) -> Any:
        with self._lock:
            if self._closing.is_set():
                raise ModelError(f"{self.name} was closed", "", "open the model again")
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
        """Learn the tokens that begin a text, and the marks that count as control tokens.

        Those are the BOS and EOS tokens, and the marks that the template itself writes: some
        models mark their turns in ordinary letters, as [INST].
        """
        props = self._request("GET", "/props")
        ends = [props.get("bos_token") or "", props.get("eos_token") or ""]
        request = {"content": ends[0] or ends[1] or "\n", "parse_special": True}
        self._beginning = self._request("POST", "/tokenize", request)["tokens"]
        written = "\n".join(ends)
        turns = [{"role": r, "content": "."} for r in ("system", "user", "assistant", "user")]
        for probe in (turns, turns[1:]):  # some templates refuse a system's turn
            with contextlib.suppress(RequestRefused, ServerFailed):
                written += self._request("POST", "/apply-template", {"messages": probe})["prompt"]
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
                "llama.cpp cannot read it: it is damaged, of an unknown kind, or too large",
                "download it again, or use another model",
            ) from error
        http = httpx2.Client(
            base_url=server.listening_address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
            trust_env=False,
        )
        return server, http

    def _tokenize(self, text: str, **options: bool) -> list[Any]:
        tokens: list[Any] = self._post("/tokenize", {"content": encodable(text), **options})[
            "tokens"
        ]
        return tokens

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


# Log-probabilities of given text
#
# llama.cpp reports only those of tokens that it writes, so it is made to write the text: a grammar
# of literal tokens leaves it one choice, and the numbers are those of the whole vocabulary, before
# the grammar. A token that is not a whole character (a rare letter or an emoji is several) cannot
# be written so: there the model writes another one, and the token is looked up among the
# alternatives.

_LIKELIEST = 2000  # looked through first: to list a whole vocabulary takes up to seconds
_CERTAIN = 1e4


def _score(
    engine: LlamaEngine, prefix: list[int], continuation: list[Token], stopped: threading.Event
) -> list[float]:
    if continuation and len(prefix) + len(continuation) > engine.context:
        raise engine.too_small(len(prefix) + len(continuation))
    scores: list[float] = []
    context = list(prefix)
    for writable, run in groupby(continuation, _writable):
        ids = [token.id for token in run]
        if writable:
            scores += _score_by_writing(engine, context, ids, stopped)
            context += ids
            continue
        for token in ids:
            scores.append(_look_up(engine, context, token, stopped))
            context.append(token)
    return scores


def _writable(token: Token) -> bool:
    try:
        return not token.piece.decode().startswith("\0")
    except UnicodeDecodeError:
        return False


def _score_by_writing(
    engine: LlamaEngine, context: list[int], ids: list[int], stopped: threading.Event
) -> list[float]:
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in ids)
    request = {"max_tokens": len(ids), "grammar": grammar, "temperature": 0.0, "logprobs": 1}
    tokens = engine.complete(context, request, stopped)
    if [token["id"] for token in tokens] != ids:
        raise ServerFailed(
            f"{engine.name} cannot score this continuation", "llama.cpp wrote other tokens"
        )
    return [token["logprob"] for token in tokens]


def _look_up(
    engine: LlamaEngine, context: list[int], token: int, stopped: threading.Event
) -> float:
    # The token that is written instead must be a whole character to be reported at all.
    whole = engine.tokens("a")[-1]
    for most in (_LIKELIEST, engine.vocabulary()):
        bias = [[whole, _CERTAIN]]
        request = {"max_tokens": 1, "temperature": 0.0, "logprobs": most, "logit_bias": bias}
        for written in engine.complete(context, request, stopped):
            for alternative in written["top_logprobs"]:
                if alternative["id"] == token:
                    return float(alternative["logprob"])
    raise ServerFailed(
        f"{engine.name} cannot score this continuation", f"llama.cpp does not show token {token}"
    )


# The place of each token in a text, from the bytes it is written as

_SPACE = ord(" ")
_BLANKS = set(b" \t\n\v\f\r")
_LOWER_ONE_EIGHTH_BLOCK = "\u2581".encode()  # SentencePiece's space; it reads this one as a space


def find_token_spans(text: str, pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the half-open character range of each token, given its bytes in UTF-8, in order.

    Tokens that share a character have the whole of it each. Blanks that a tokenizer adds
    (SentencePiece, at the beginning) have an empty range. Blanks that it leaves out are in no
    token, nor are bytes that its vocabulary does not have at all. ValueError if the tokens are not
    of this text.

    >>> find_token_spans("n\u00e9 \u6771", [b" n", b"\\xc3\\xa9", b" \\xe6\\x9d", b"\\xb1"])
    [(0, 1), (1, 2), (2, 4), (3, 4)]
    >>> find_token_spans("a\u0006 b", [b"a", b" b"])
    [(0, 1), (2, 4)]
    """
    data = text.encode()
    may_be_missing = _BLANKS | set(range(256)) - set(b"".join(pieces))
    letters = [index for index, letter in enumerate(text) for _ in letter.encode()] + [len(text)]
    spans = []
    at = 0
    for piece in pieces:
        start = at
        if data.startswith(piece, at):
            at += len(piece)
        else:
            start, at = _find(data, at, piece, may_be_missing)
        spans.append((letters[start], letters[at - 1] + 1 if at > start else letters[start]))
    if not may_be_missing.issuperset(data[at:]):
        raise ValueError("the tokens end before the text")
    return spans


def _find(data: bytes, at: int, piece: bytes, may_be_missing: set[int]) -> tuple[int, int]:
    """Return where the piece begins and ends at or after `at`, one byte after another."""
    start = None
    for byte in piece:
        if byte == _SPACE:
            after = at
            while data[after : after + 1] and data[after] in may_be_missing - _BLANKS:
                after += 1
            if data[after : after + 1] == b" ":  # not added: it follows what is left out
                at = after
        while byte != _SPACE and data[at : at + 1] not in (bytes([byte]), b""):
            if data[at] not in may_be_missing:
                raise ValueError("a token is not of the text")
            at += 1
        if data[at : at + 1] == bytes([byte]):
            width = 1
        elif byte == _SPACE and data.startswith(_LOWER_ONE_EIGHTH_BLOCK, at):
            width = len(_LOWER_ONE_EIGHTH_BLOCK)
        elif byte == _SPACE:
            continue
        else:
            raise ValueError("the text ends before the tokens")
        start = at if start is None else start
        at += width
    return at if start is None else start, at
