"""The `hf:` backend: models in this process through transformers, with all capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

from colligate.concurrency import Threads
from colligate.errors import MissingCapability, ModelError
from colligate.models.attention import choose_layers, read_question
from colligate.models.base import (
    Capability,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    Prompt,
    Usage,
    window,
)
from colligate.models.decoding import GeneratedText, GenerationRequest, PassStopped
from colligate.models.grammar import Grammars
from colligate.models.hf.generate import BatchGenerator
from colligate.models.hf.loading import (
    ModelSource,
    find_source,
    import_transformers,
    load_tokenizer,
    read_sizes,
)
from colligate.models.hf.runtime import Runtime
from colligate.models.hf.score import LikelihoodScorer
from colligate.models.hf.tokenizer import HFTokenizer
from colligate.models.label_odds import odds_of, require_labels
from colligate.models.prompts import Prompts
from colligate.models.thinking import split_thinking, streamed

_LONGEST_WINDOW = 32768

T = TypeVar("T")


class HFModel:
    """A causal language model of transformers: a folder, a GGUF file or a hub name.

    Weights are loaded at the first call. Simultaneous calls are computed together, at most
    `parallel` of them. `context_tokens` is the limit for prompt and answer of one call together;
    by default the length the model was trained with, at most 32,768, and halved until its keys
    and values fit a quarter of the machine's memory. `device` and `dtype` are those of
    `loading.load_model`.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel: there is no such file or folder.
        WeightsUnavailable: the files, or those of the hub, are not a model that can be used.
    """

    capabilities = frozenset(Capability)

    def __init__(
        self,
        target: str,
        *,
        name: str,
        context_tokens: int | None = None,
        parallel: int = 8,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        import_transformers()  # reports what is missing
        source = find_source(target)
        trained, kv_bytes = read_sizes(source)
        self.name = name
        self.version = source.version  # changes with the files, the adapter's included
        self.context_tokens = context_tokens or window(trained, kv_bytes, most=_LONGEST_WINDOW)
        self._adapter = ""
        self._parts = _SharedParts(
            source,
            name,
            parallel=parallel,
            options={"context": self.context_tokens, "device": device, "dtype": dtype},
        )

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Answer messages. With a schema the text satisfies it, unless it is cut at the limit."""
        # In the tokenizer's thread: a prompt must not wait for the answers in progress.
        generation, inside = await self._parts.reading.run(lambda: self._encode(request))
        with self._parts.stoppable(generation.halt):
            generated = await self._generate(generation, on_token, inside)
        text, thinking = split_thinking(("<think>" if inside else "") + generated.text)
        return Completion(
            text=text,
            usage=Usage(generated.input_tokens, generated.output_tokens, generated.cached_tokens),
            model=self.name,
            finish_reason=generated.finish_reason,
            thinking=thinking,
            warnings=() if self._parts.prompts().has_template else (_no_template(self.name),),
        )

    def _encode(self, request: ChatRequest) -> tuple[GenerationRequest, bool]:
        """Return what to generate, and whether the answer begins inside a block of thinking."""
        prompts, schema = self._parts.prompts(), request.schema
        rendered = prompts.render(request.messages, think=schema is None)
        generation = GenerationRequest(
            prompts.encode(rendered),
            request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            stop=tuple(string for string in request.stop if string),
            grammar=None if schema is None else self._parts.grammars().compile(schema),
            adapter=self._adapter,
        )
        return generation, prompts.opens_thinking(rendered)

    async def _generate(
        self, request: GenerationRequest, on_token: OnToken | None, inside: bool
    ) -> GeneratedText:
        generator = await self._parts.open_generator()

        def begin(forward: Callable[[str], None]) -> Callable[[], GeneratedText]:
            request.on_piece = forward
            generator.submit(request)  # it joins the answers in progress
            return lambda: generator.run(request)

        try:
            return await streamed(
                self._parts.computing, begin, request.halt.set, on_token, inside_thinking=inside
            )
        except PassStopped:
            raise self._parts.closed() from None

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return likelihoods, computed in as few passes as possible."""
        return await self._parts.compute(
            lambda stop: self._parts.scorer().score_texts(pairs, adapter=self._adapter, stop=stop)
        )

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Return the odds of each label, scored by all its tokens."""
        require_labels(labels)

        def score(stop: Event) -> list[list[float]]:
            prompts = self._parts.prompts()
            prefix = prompts.encode(prompts.render(messages, think=False))
            prefix += prompts.encode_literal(forced)
            ids = [prompts.encode_literal(label) for label in labels]
            return self._parts.scorer().score_ids(prefix, ids, adapter=self._adapter, stop=stop)

        scores = await self._parts.compute(score)
        return odds_of({label: sum(s) for label, s in zip(labels, scores, strict=True)})

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        return await self._parts.compute(
            lambda stop: compute_attention(
                self._parts.runtime(),
                self._parts.prompts(),
                prompt,
                spans,
                query=query,
                layers=layers,
                adapter=self._adapter,
                stop=stop,
            )
        )

    async def with_adapter(self, adapter: str | Path) -> HFModel:
        key = await self._parts.compute(lambda _: self._parts.runtime().adapters.load(adapter))
        view = copy(self)
        view.name = f"{self._parts.name}+{adapter}"
        view.version = f"{self.version}+{key}"
        view._adapter = key
        return view

    async def count_tokens(self, text: str) -> int:
        return len(await self.token_spans(text))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        def count() -> int:
            prompts = self._parts.prompts()
            return len(prompts.encode(prompts.render(messages)))

        return await self._parts.reading.run(count)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return await self._parts.reading.run(lambda: self._parts.prompts().token_spans(text))

    async def aclose(self) -> None:
        if not self._adapter:  # the base owns the weights
            await self._parts.aclose()


def _no_template(name: str) -> str:
    return f"{name} has no chat template: it is not an instruction model, and was given plain text"


class _SharedParts:
    """The parts that a model and its adapted views share, each made when it is first needed.

    The tokenizer is used in the thread `reading`, the weights in `computing`, so that reading a
    prompt and counting its tokens never wait for answers in progress.
    """

    def __init__(
        self,
        source: ModelSource,
        name: str,
        *,
        parallel: int,
        options: dict[str, Any],
    ) -> None:
        self.name = name
        self.reading = Threads(f"{name} (tokenizer)")
        self.computing = Threads(name)
        self._source = source
        self._parallel = parallel
        self._options = options
        self._tokenizing = Lock()
        self._tokenizer: Any = None
        self._prompts: Prompts | None = None
        self._grammars: Grammars | None = None
        self._runtime: Runtime | None = None
        self._generator: BatchGenerator | None = None
        self._scorer: LikelihoodScorer | None = None
        self._stops: set[Event] = set()

    def prompts(self) -> Prompts:
        """Load the tokenizer. In either thread."""
        with self._tokenizing:
            if self._prompts is None:
                self._tokenizer = load_tokenizer(self._source)
                self._prompts = Prompts(HFTokenizer(self._tokenizer), self.name)
            return self._prompts

    def tokenizer(self) -> Any:
        """Load the tokenizer, as transformers has it. In either thread."""
        self.prompts()
        return self._tokenizer

    def grammars(self) -> Grammars:
        """Make the compiler of schemas. In `reading`."""
        if self._grammars is None:
            make_tokens = import_module("llguidance.hf").from_tokenizer
            self._grammars = Grammars(partial(make_tokens, self.tokenizer()))
        return self._grammars

    def runtime(self) -> Runtime:
        """Load the weights. In `computing`."""
        if self._runtime is None:
            self._runtime = Runtime(self._source, self.name, **self._options)
        return self._runtime

    def generator(self) -> BatchGenerator:
        """Make the generator of answers. In `computing`."""
        if self._generator is None:
            self._generator = BatchGenerator(self.runtime(), self.tokenizer(), self._parallel)
        return self._generator

    async def open_generator(self) -> BatchGenerator:
        """Make the generator of answers, from the event loop."""
        if self._generator is not None:
            return self._generator
        return await self.computing.run(self.generator)

    def scorer(self) -> LikelihoodScorer:
        """Make the scorer of continuations. In `computing`."""
        if self._scorer is None:
            self._scorer = LikelihoodScorer(self.runtime(), self.prompts())
        return self._scorer

    async def compute(self, work: Callable[[Event], T]) -> T:
        """Do some work in `computing`; it is stopped when nobody waits for it any more."""
        with self.stoppable(Event()) as stop:
            try:
                return await self.computing.run(lambda: work(stop))
            except PassStopped:
                raise self.closed() from None

    @contextmanager
    def stoppable(self, stop: Event) -> Iterator[Event]:
        """Set `stop` when the block is left, or when the model is closed meanwhile."""
        self._stops.add(stop)
        try:
            yield stop
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
        self._runtime = self._generator = self._scorer = None
        self._tokenizer = self._prompts = self._grammars = None


# Attention of a prompt's last tokens to parts of it
#
# All tokens before the query go through the model's fast kernel, which returns no probabilities;
# the query's tokens then go through the eager one, which does, a few at a time. A row costs the
# same as one decoded token, and a matrix of tokens by tokens is never made.

_ROWS = 16  # query tokens computed together: what the layers return for them is in memory at once


def compute_attention(
    runtime: Runtime,
    prompts: Prompts,
    prompt: Prompt,
    spans: Sequence[tuple[int, int]],
    *,
    query: int | None = None,
    layers: tuple[float, float] = (0.0, 1.0),
    adapter: str = "",
    stop: Event | None = None,
) -> list[float]:
    """Compute the mean attention of the query's tokens to a token of each span.

    See `AttentionModel.attention` for the parameters and errors. Keys and values of the whole
    prompt are remembered for prompts with the same prefix.
    """
    ids, first, average = read_question(prompts, prompt, spans, query)
    return average(_compute_row(runtime, ids, first, layers, adapter, stop))


def _compute_row(
    runtime: Runtime,
    ids: list[int],
    first: int,
    depths: tuple[float, float],
    adapter: str,
    stop: Event | None,
) -> list[float]:
    """Compute the mean attention of the tokens from `first` on to each token; it sums to 1."""
    runtime.check_fits(len(ids))
    with runtime.inference(stop, adapter):
        # Not kept yet: the query's keys are missing, and two copies would be in memory.
        cache = runtime.prefill(ids[:first], adapter=adapter, keep=False)[0] if first else None
        cache = runtime.new_cache() if cache is None else cache
        total = runtime.torch.zeros(len(ids), dtype=runtime.torch.float32)
        with runtime.use_attention("eager"):
            for start in range(first, len(ids), _ROWS):
                piece = ids[start : start + _ROWS]
                attentions = runtime.forward(piece, cache, output_attentions=True).attentions
                total += _sum_rows(runtime, attentions, depths, start + len(piece), len(ids))
        runtime.prefixes.store(ids, runtime.layers_of(cache), adapter)
        row: list[float] = (total / (len(ids) - first)).tolist()
    return row


def _sum_rows(
    runtime: Runtime, attentions: Any, depths: tuple[float, float], end: int, size: int
) -> Any:
    """Average the rows of the tokens before `end` over layers and heads, and add them up.

    A layer's probabilities are [1, heads, rows, tokens]; the sum is [size], float32.
    """
    if not attentions or any(layer is None for layer in attentions):
        raise MissingCapability(
            f"{runtime.name} gives no attention",
            "its implementation in transformers does not return it",
            "use a model of another architecture",
        )
    counted = [attentions[i] for i in choose_layers(len(attentions), depths)]
    total = runtime.torch.zeros(size, dtype=runtime.torch.float32)
    for layer in counted:
        row = layer[0].float().mean(dim=0).sum(dim=0).cpu()
        # A layer with a sliding window may leave out the tokens before it.
        total[end - len(row) : end] += row
    return total / len(counted)
