"""GGUF models in this process: chat, likelihood, labels, attention and adapters by llama.cpp."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from colligate.concurrency import physical_cores
from colligate.errors import MissingCapability, WeightsUnavailable
from colligate.models.base import Capability, encodable, window
from colligate.models.decoding import GeneratedText, GenerationRequest, Request
from colligate.models.gguf import read_header
from colligate.models.llama.api import Model, load_library
from colligate.models.llama.attention import AttentionRequest
from colligate.models.llama.beginnings import Beginnings
from colligate.models.llama.engine import EngineLimits, LlamaEngine, ScoreRequest
from colligate.models.llama.libraries import VERSION, pull_libraries
from colligate.models.local import LocalBackend, LocalModel, Pair
from colligate.models.prompts import Prompts
from colligate.models.weights import home

ADAPTER = "adapter.gguf"
"""The file of an adapter in the folder that `colligate train fit` writes."""

_LONGEST_WINDOW = 16384
T = TypeVar("T")


class LlamaCpp(LocalModel):
    """A GGUF file in llama.cpp.

    At most `parallel` answers are computed together. The default of `context_tokens` is that of
    `base.window`, at most 16,384; that of `threads` the physical cores. Up to `draft` tokens are
    guessed at a time where an answer repeats its prompt; the text is the same, with 0 as well.
    Attention is not offered if no layer attends. UnknownModel if the file does not exist,
    WeightsUnavailable if it cannot be loaded, or llama.cpp's libraries are missing.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        context_tokens: int | None = None,
        parallel: int = 8,
        threads: int | None = None,
        draft: int = 7,
    ) -> None:
        path = Path(path).expanduser()
        header = read_header(path)
        context = context_tokens or window(
            header.context_tokens, header.kv_bytes_per_token, most=_LONGEST_WINDOW
        )
        limits = EngineLimits(context, parallel, threads or physical_cores(), draft)
        self._llama = _Backend(path, name, limits)
        super().__init__(self._llama, name=name, version=_version(path), context_tokens=context)
        self.weights = header.weights
        if header.kv_bytes_per_token is None:  # none of its layers attends
            self.capabilities = self.capabilities - {Capability.ATTENTION}

    def stop_thinking(self) -> None:
        """Tell the model not to think before it answers, if its template knows that."""
        self._llama.thinks = False


def _version(path: Path) -> str:
    stat = path.stat()
    return f"{VERSION}-{stat.st_size}-{stat.st_mtime_ns}"


class _Backend(LocalBackend):
    def __init__(self, path: Path, name: str, limits: EngineLimits) -> None:
        super().__init__(name)
        self._path = path
        self.thinks = True
        self._limits = limits
        self._vocabulary: Model | None = None  # the file without its weights
        self._engine: LlamaEngine | None = None
        # At interpreter exit native memory must be freed before Python's is.
        weakref.finalize(self, _free, self.__dict__)

    def load_prompts(self) -> Prompts:
        self._vocabulary = Model(load_library(pull_libraries()), self._path, weights=False)
        return Prompts(LlamaTokenizer(self._vocabulary, thinks=self.thinks), self.name)

    def load_vocabulary(self) -> Any:
        assert self._vocabulary is not None
        return self._vocabulary.make_llguidance_tokenizer()

    def load(self) -> None:
        library = load_library(pull_libraries())
        beginnings = Beginnings(
            home() / "beginnings", _version(self._path), self.prompts.encode_beginnings()
        )
        self._engine = LlamaEngine(library, self._path, self.name, beginnings, self._limits)

    def load_adapter(self, adapter: str | Path) -> str:
        return self.engine.add_adapter(_find_adapter(adapter))

    @property
    def engine(self) -> LlamaEngine:
        assert self._engine is not None
        return self._engine

    async def generate(self, request: GenerationRequest) -> GeneratedText:
        [answer] = await self._compute([request])
        return answer

    def advance(self) -> None:
        self.engine.advance()

    async def score(self, pairs: Sequence[Pair], adapter: str, halt: Event) -> list[list[float]]:
        wanted = [(tuple(before + after), len(before)) for before, after in pairs]
        requests = {
            (ids, first): ScoreRequest(list(ids), first, adapter=adapter, halt=halt)
            for ids, first in wanted
            if first < len(ids)
        }
        outcomes = await self._compute(list(requests.values()))
        scores = dict(zip(requests, outcomes, strict=True))
        return [list(scores.get(key, ())) for key in wanted]

    async def attend(self, ids: list[int], adapter: str, halt: Event) -> list[float]:
        [row] = await self._compute([AttentionRequest(ids, adapter=adapter, halt=halt)])
        return row

    async def _compute(self, requests: Sequence[Request[T]]) -> list[T]:
        for request in requests:
            self.engine.submit(request)
        return await self.finish(requests)

    def free(self) -> None:
        _free(self.__dict__)


def _find_adapter(adapter: str | Path) -> Path:
    """Find an adapter given by path, or by the folder that holds it as `adapter.gguf`."""
    path = Path(adapter).expanduser()
    file = path / ADAPTER if path.is_dir() else path
    what = f"cannot load the adapter {adapter}"
    if not file.is_file():
        why = f"it holds no {ADAPTER}" if path.is_dir() else "the file does not exist"
        hint = "colligate train fit writes one, and llama.cpp's convert_lora_to_gguf.py; or use hf:"
        raise WeightsUnavailable(what, why, hint)
    if "adapter.alora.invocation_tokens" in read_header(file).metadata:
        raise WeightsUnavailable(what, "it is not a plain LoRA adapter", "use another one")
    return file


def _free(backend: dict[str, Any]) -> None:
    for name in ("_engine", "_vocabulary"):
        if backend[name] is not None:
            backend[name].close()


class LlamaTokenizer:
    """The vocabulary and template of a GGUF file, a `PromptTokenizer`."""

    def __init__(self, model: Model, *, thinks: bool = True) -> None:
        self._model = model
        self._thinks = thinks
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
        options = {} if think and self._thinks else {"enable_thinking": False}
        bos, eos = (
            self._model.piece(token).decode(errors="replace") if token >= 0 else ""
            for token in (self._model.bos, self._model.eos)
        )
        return _compile_template(self._template).render(
            messages=turns, add_generation_prompt=answer, bos_token=bos, eos_token=eos, **options
        )

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self._model.tokenize(encodable(text), special=special)

    def spans(self, text: str) -> list[tuple[int, int]]:
        pieces = [self._model.piece(token) for token in self.encode(text, special=False)]
        try:
            return find_token_spans(encodable(text), pieces)
        except ValueError as error:
            what = f"{self._model.path.name} cannot tell where the tokens of a text are"
            why = "its tokenizer rewrites the text"
            raise MissingCapability(what, why, "use another model") from error


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
