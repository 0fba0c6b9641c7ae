"""GGUF models in this process: chat, likelihood, labels, attention and adapters by llama.cpp."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Event
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from colligate.concurrency import Threads, physical_cores
from colligate.errors import MissingCapability, ModelError
from colligate.models.attention import read_question
from colligate.models.base import (
    Capability,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    Prompt,
    Usage,
    encodable,
    window,
)
from colligate.models.decoding import GeneratedText, GenerationRequest, PassStopped
from colligate.models.gguf import read_header
from colligate.models.grammar import Grammars
from colligate.models.label_odds import odds_of, require_labels
from colligate.models.llama.adapters import convert_adapter
from colligate.models.llama.api import Model, load_library
from colligate.models.llama.engine import AttentionRequest, LlamaEngine, Request, ScoreRequest
from colligate.models.llama.libraries import pull_libraries
from colligate.models.prompts import Prompts
from colligate.models.thinking import split_thinking, streamed
from colligate.models.weights import home

_LONGEST_WINDOW = 16384


class LlamaCpp:
    """A GGUF file as a model with all capabilities. It is loaded at the first call.

    Simultaneous calls are computed together, at most `parallel` answers. `context_tokens` is the
    limit for prompt and answer of one call together; by default the length the model was trained
    with, at most 16,384, and halved until its keys and values fit a quarter of the machine's
    memory. `threads` defaults to the physical cores. Up to `draft` tokens are guessed at a time
    where an answer repeats its prompt; the text is the same, with 0 as well.

    Raises:
        UnknownModel: there is no such file.
        WeightsUnavailable: it cannot be loaded, or llama.cpp's libraries are missing.
    """

    capabilities = frozenset(Capability)

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        context_tokens: int | None = None,
        parallel: int = 8,
        threads: int | None = None,
        draft: int = 16,
    ) -> None:
        path = Path(path).expanduser()
        header = read_header(path)
        stat = path.stat()
        self.name = name
        self.version = f"{stat.st_size}-{stat.st_mtime_ns}"  # of the file's content
        self.context_tokens = context_tokens or window(
            header.context_tokens, header.kv_bytes_per_token, most=_LONGEST_WINDOW
        )
        self._adapter = ""
        self._parts = _SharedParts(
            path,
            name,
            context=self.context_tokens,
            parallel=parallel,
            threads=threads or physical_cores(),
            draft=draft,
        )

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Answer messages. With a schema the text satisfies it, unless it is cut at the limit."""
        parts = self._parts
        # In the tokenizer's thread: a prompt must not wait for the answers in progress.
        generation, inside = await parts.reading.run(lambda: self._encode(request))
        with parts.stoppable(generation.halt):
            generated = await self._generate(generation, on_token, inside)
        text, thinking = split_thinking(("<think>" if inside else "") + generated.text)
        return Completion(
            text=text,
            usage=Usage(generated.input_tokens, generated.output_tokens, generated.cached_tokens),
            model=self.name,
            finish_reason=generated.finish_reason,
            thinking=thinking,
            warnings=() if parts.prompts.has_template else (_no_template(self.name),),
        )

    def _encode(self, request: ChatRequest) -> tuple[GenerationRequest, bool]:
        """Return what to generate, and whether the answer begins inside a block of thinking."""
        prompts, schema = self._parts.prompts, request.schema
        rendered = prompts.render(request.messages, think=schema is None)
        generation = GenerationRequest(
            prompts.encode(rendered),
            request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            stop=tuple(string for string in request.stop if string),
            grammar=None if schema is None else self._parts.grammars.compile(schema),
            adapter=self._adapter,
        )
        return generation, prompts.opens_thinking(rendered)

    async def _generate(
        self, request: GenerationRequest, on_token: OnToken | None, inside: bool
    ) -> GeneratedText:
        engine = await self._parts.open_engine()

        def begin(forward: Callable[[str], None]) -> Callable[[], GeneratedText]:
            request.on_piece = forward
            engine.submit(request)  # it joins the answers in progress
            return lambda: engine.run(request)

        try:
            return await streamed(
                self._parts.computing, begin, request.halt.set, on_token, inside_thinking=inside
            )
        except PassStopped:
            raise self._parts.closed() from None

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return likelihoods; what the texts begin with is computed once."""

        def read(prompts: Prompts) -> list[tuple[list[int], list[int]]]:
            prefixes = {p: prompts.encode_literal(p, beginning=True) for p, _ in pairs}
            return [(prefixes[p], prompts.encode_literal(text)) for p, text in pairs]

        return await self._score(read)

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Return the odds of each label, scored by all its tokens."""
        require_labels(labels)

        def read(prompts: Prompts) -> list[tuple[list[int], list[int]]]:
            prefix = prompts.encode(prompts.render(messages, think=False))
            prefix += prompts.encode_literal(forced)
            return [(prefix, prompts.encode_literal(label)) for label in labels]

        scores = await self._score(read)
        return odds_of({label: sum(s) for label, s in zip(labels, scores, strict=True)})

    async def _score(
        self, read: Callable[[Prompts], list[tuple[list[int], list[int]]]]
    ) -> list[list[float]]:
        """Return the log-probabilities of each second list of tokens after the first."""
        pairs = await self._parts.reading.run(lambda: read(self._parts.prompts))
        wanted = [(tuple(before + after), len(before)) for before, after in pairs]
        halt = Event()
        requests = {
            key: ScoreRequest(list(key[0]), key[1], self._adapter, halt)
            for key in wanted
            if key[1] < len(key[0])
        }
        await self._parts.compute(list(requests.values()), halt)
        found = {key: request.outcome for key, request in requests.items()}
        return [list(found.get(key) or []) for key in wanted]  # type: ignore[arg-type]

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        parts = self._parts
        with _known_places(self.name):
            ids, first, average = await parts.reading.run(
                lambda: read_question(parts.prompts, prompt, spans, query)
            )
        request = AttentionRequest(ids, first, layers, self._adapter)
        await parts.compute([request], request.halt)
        return average(request.outcome)

    async def with_adapter(self, adapter: str | Path) -> LlamaCpp:
        """Return the same weights with a LoRA adapter: a GGUF file, a folder of PEFT, or hub name.

        A folder of PEFT is converted once.
        """
        parts = self._parts
        path = await parts.reading.run(
            lambda: convert_adapter(adapter, parts.path, home() / "adapters")
        )
        engine = await parts.open_engine()
        key = await parts.computing.run(lambda: engine.add_adapter(path))
        stat = path.stat()
        view = copy(self)
        view.name = f"{parts.name}+{adapter}"
        view.version = f"{self.version}+{path.name}-{stat.st_size}-{stat.st_mtime_ns}"
        view._adapter = key
        return view

    async def count_tokens(self, text: str) -> int:
        return await self._parts.reading.run(lambda: len(self._parts.prompts.encode_literal(text)))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        def count() -> int:
            prompts = self._parts.prompts
            return len(prompts.encode(prompts.render(messages)))

        return await self._parts.reading.run(count)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return `find_token_spans` of the text; MissingCapability if its tokens rewrite it."""
        with _known_places(self.name):
            return await self._parts.reading.run(lambda: self._parts.prompts.token_spans(text))

    async def aclose(self) -> None:
        if not self._adapter:  # the base owns the weights
            await self._parts.aclose()


def _no_template(name: str) -> str:
    return f"{name} has no chat template: it is not an instruction model, and was given plain text"


@contextmanager
def _known_places(name: str) -> Iterator[None]:
    try:
        yield
    except UnknownPlaces as error:
        raise MissingCapability(
            f"{name} cannot tell where the tokens of a text are",
            "its tokenizer rewrites the text",
            "use another model",
        ) from error


class _SharedParts:
    """The parts that a model and its adapted views share, each made when it is first needed.

    The tokenizer is used in the thread `reading`, the weights in `computing`, so that reading a
    prompt and counting its tokens never wait for answers in progress.
    """

    def __init__(self, path: Path, name: str, **options: int) -> None:
        self.path = path
        self.name = name
        self.reading = Threads(f"{name} (tokenizer)")
        self.computing = Threads(name)
        self._options = options
        self._engine: LlamaEngine | None = None
        self._vocabulary: Model | None = None
        self._stops: set[Event] = set()
        # At interpreter exit native memory must be freed before Python's is.
        self._finalizer = weakref.finalize(self, _close, self.__dict__)

    @cached_property
    def vocabulary(self) -> Model:
        """The file without its weights. In `reading`."""
        self._vocabulary = Model(load_library(pull_libraries()), self.path, weights=False)
        return self._vocabulary

    @cached_property
    def prompts(self) -> Prompts:
        """The tokenizer and its template. In `reading`."""
        return Prompts(LlamaTokenizer(self.vocabulary), self.name)

    @cached_property
    def grammars(self) -> Grammars:
        """The compiler of schemas. In `reading`."""
        return Grammars(self.vocabulary.constrainer)

    async def open_engine(self) -> LlamaEngine:
        """Load the weights, at the first call."""

        def load() -> LlamaEngine:
            if self._engine is None:
                library = load_library(pull_libraries())
                self._engine = LlamaEngine(library, self.path, self.name, **self._options)
            return self._engine

        return self._engine if self._engine is not None else await self.computing.run(load)

    async def compute(self, requests: Sequence[Request], halt: Event) -> None:
        """Give requests their outcomes; they are stopped when nobody waits for them any more."""
        engine = await self.open_engine()
        with self.stoppable(halt):
            for request in requests:
                engine.submit(request)
            try:
                await self.computing.run(lambda: [engine.run(request) for request in requests])
            except PassStopped:
                raise self.closed() from None

    @contextmanager
    def stoppable(self, stop: Event) -> Iterator[None]:
        """Set `stop` when the block is left, or when the model is closed meanwhile."""
        self._stops.add(stop)
        try:
            yield
        finally:
            stop.set()
            self._stops.discard(stop)

    def closed(self) -> ModelError:
        """Make the error of a call during which the model was closed."""
        return ModelError(f"{self.name} was closed", "during a call", "create the model again")

    async def aclose(self) -> None:
        """Stop the calls in progress and free the memory. Safe to call twice."""
        for stop in list(self._stops):
            stop.set()
        await self.computing.aclose()
        await self.reading.aclose()
        await asyncio.to_thread(self._finalizer)


def _close(parts: dict[str, Any]) -> None:
    for name in ("_engine", "_vocabulary"):
        if parts[name] is not None:
            parts[name].close()


# The tokenizer and the chat template of the file


class LlamaTokenizer:
    """The vocabulary and template of a GGUF file, a `PromptTokenizer`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.controls = frozenset(
            model.piece(token).decode(errors="replace") for token in model.controls()
        )
        self.beginning = [model.bos] if model.adds_bos else []
        self.first = model.eos if model.bos < 0 else model.bos
        self._template = model.template()

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def apply_template(self, turns: list[dict[str, str]], *, answer: bool, think: bool) -> str:
        assert self._template is not None
        options = {} if think else {"enable_thinking": False}
        bos, eos = (
            self._model.piece(token).decode(errors="replace") if token >= 0 else ""
            for token in (self._model.bos, self._model.eos)
        )
        return _compile_template(self._template).render(
            messages=turns, add_generation_prompt=answer, bos_token=bos, eos_token=eos, **options
        )

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self._model.tokenize(encodable(text), special=special)

    def spans(self, text: str, *, special: bool) -> list[tuple[int, int]]:
        pieces = [self._model.piece(token) for token in self.encode(text, special=special)]
        return find_token_spans(encodable(text), pieces)


@cache
def _compile_template(text: str) -> Template:
    """Compile a chat template as transformers does; the file's author may be anyone."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment.from_string(text)


def _refuse(why: str) -> None:
    raise TemplateError(why)


# The place of each token in a text, from the bytes it is written as

_SPACE = ord(" ")
_BLANKS = set(b" \t\n\v\f\r")
_LOWER_ONE_EIGHTH_BLOCK = "\u2581".encode()  # SentencePiece's space; it reads this one as a space


class UnknownPlaces(ValueError):
    """The tokens are not those of the text."""


def find_token_spans(text: str, pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the half-open character range of each token, given its bytes in UTF-8, in order.

    Tokens that share a character have the whole of it each. Blanks that a tokenizer adds
    (SentencePiece, at the beginning) have an empty range. Blanks that it leaves out are in no
    token, nor are bytes that its vocabulary does not have at all. UnknownPlaces if the tokens are
    not of this text.

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
        raise UnknownPlaces("the tokens end before the text")
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
                raise UnknownPlaces("a token is not of the text")
            at += 1
        if data[at : at + 1] == bytes([byte]):
            width = 1
        elif byte == _SPACE and data.startswith(_LOWER_ONE_EIGHTH_BLOCK, at):
            width = len(_LOWER_ONE_EIGHTH_BLOCK)
        elif byte == _SPACE:
            continue
        else:
            raise UnknownPlaces("the text ends before the tokens")
        start = at if start is None else start
        at += width
    return at if start is None else start, at
