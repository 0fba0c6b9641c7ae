"""Models in this process through transformers and torch: every capability there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, TypeVar

from colligate.concurrency import Threads
from colligate.errors import ModelError
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
from colligate.models.hf.generate import Generator
from colligate.models.hf.grammar import Grammars
from colligate.models.hf.loading import (
    Runtime,
    Source,
    Stopped,
    facts,
    find,
    load_tokenizer,
    transformers,
)
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.score import Scorer
from colligate.models.label_odds import odds_of, require_labels
from colligate.models.thinking import split_thinking, streamed

if TYPE_CHECKING:
    from colligate.models.hf.generate import Generated, Request
_LONGEST_WINDOW = 32768


class HFModel:
    """A causal language model as `transformers` loads it: a folder, a GGUF file or a hub name.

    Weights are loaded at the first call. Calls made at the same time are computed together, at
    most `parallel` of them. `context_tokens` is what one call may use, prompt and answer
    together; by default the length the model was trained with, at most 32,768, and halved until
    its keys and values fit a quarter of the machine's memory. `device` and `dtype` are explained
    in `loading.load_model`.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel: there is no such file or folder.
        WeightsUnavailable: what is there, or in the hub, is no model that can be used.
    """

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
        transformers()  # or say what is missing

        source = find(target)
        trained, kv_bytes = facts(source)
        self._name = name
        self._version = source.version
        self._adapter = ""
        self._context = context_tokens or window(trained, kv_bytes, most=_LONGEST_WINDOW)
        self._parts = Parts(
            source,
            name,
            context=self._context,
            parallel=parallel,
            device=device,
            dtype=dtype,
        )

    @property
    def name(self) -> str:
        """The model string that names it."""
        return self._name

    @property
    def version(self) -> str:
        """Another one when the files are others, the adapter's too."""
        return self._version

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All of them."""
        return frozenset(Capability)

    @property
    def context_tokens(self) -> int:
        """How many tokens prompt and answer of one call may have together."""
        return self._context

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call; see `ChatModel.chat`.

        With a schema the text is JSON that satisfies it, unless `finish_reason` is "length".

        Raises:
            ContextTooSmall: the prompt does not fit.
            RequestRefused: the chat template refuses the messages, or the schema is not supported.
        """
        # Read in a thread of its own: a prompt must not wait for the answers under way.
        generation, inside = await self._parts.reading.run(lambda: self._request(request))
        with self._parts.stoppable(generation.halt):
            generated = await self._generate(generation, on_token, inside)
        text, thinking = split_thinking(("<think>" if inside else "") + generated.text)
        return Completion(
            text=text,
            usage=Usage(generated.input_tokens, generated.output_tokens, generated.cached_tokens),
            model=self._name,
            finish_reason=generated.finish_reason,
            thinking=thinking,
            warnings=() if self._parts.prompts().has_template else (_no_template(self._name),),
        )

    def _request(self, chat: ChatRequest) -> tuple[Request, bool]:
        """Return what is to be generated, and whether it begins inside a block of thinking."""
        from colligate.models.hf.generate import Request

        prompts = self._parts.prompts()
        rendered = prompts.render(chat.messages, think=chat.schema is None)
        request = Request(
            prompts.encode(rendered),
            chat.max_tokens,
            temperature=chat.temperature,
            seed=chat.seed,
            stop=tuple(string for string in chat.stop if string),
            grammar=None if chat.schema is None else self._parts.grammars().of(chat.schema),
            adapter=self._adapter,
        )
        return request, prompts.opens_thinking(rendered)

    async def _generate(
        self, request: Request, on_token: OnToken | None, inside: bool
    ) -> Generated:
        from colligate.models.hf.loading import Stopped

        def generate(forward: Callable[[str], None]) -> Generated:
            request.on_piece = forward
            return generator.run(request)

        generator = await self._parts.generating()
        # From here, so that it joins the answers under way instead of waiting for their end.
        generator.submit(request)
        try:
            return await streamed(
                self._parts.computing, generate, request.halt.set, on_token, inside_thinking=inside
            )
        except Stopped:
            raise self._parts.closed() from None

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """`likelihood` of each pair, all in as few passes as they fit in; see `scoring.Scorer`."""
        return await self._parts.compute(
            lambda stop: self._parts.scorer().likelihoods(pairs, adapter=self._adapter, stop=stop)
        )

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Odds of each label, scored whole; see `LabelModel.labels`.

        Raises:
            ContextTooSmall: if the messages do not fit.
        """
        require_labels(labels)

        def score(stop: Event) -> list[list[float]]:
            prompts = self._parts.prompts()
            prefix = prompts.encode(prompts.render(messages, think=False)) + prompts.literal(forced)
            given = [prompts.literal(label) for label in labels]
            return self._parts.scorer().continuations(
                prefix, given, adapter=self._adapter, stop=stop
            )

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
        """Mean attention of query tokens to a token of each span; see `AttentionModel`."""
        from colligate.models.hf.attention import attention

        return await self._parts.compute(
            lambda stop: attention(
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
        """The same weights with a LoRA adapter; see `AdapterModel.with_adapter`."""
        key = await self._parts.compute(lambda _: self._parts.runtime().adapters.load(adapter))
        view = copy(self)
        view._name = f"{self._parts.name}+{adapter}"
        view._version = f"{self._version}+{key}"
        view._adapter = key
        return view

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text, exactly."""
        return len(await self.token_spans(text))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """Tokens of messages with their template, exactly."""

        def count() -> int:
            prompts = self._parts.prompts()
            return len(prompts.encode(prompts.render(messages)))

        return await self._parts.reading.run(count)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """The half-open character ranges of a text's tokens."""
        return await self._parts.reading.run(lambda: self._parts.prompts().spans(text))

    async def aclose(self) -> None:
        """Free the model's memory; calls under way are stopped. Safe to call twice."""
        if not self._adapter:
            await self._parts.aclose()


def _no_template(name: str) -> str:
    return f"{name} has no chat template: it is not made for instructions, and was given plain text"


# What a model and its adapted views share, each part made when it is first needed.

T = TypeVar("T")


class Parts:
    """The tokenizer's side is used in the thread `reading`, the weights' side in `computing`.

    Reading a prompt and counting its tokens so never wait for answers under way.
    """

    def __init__(
        self, source: Source, name: str, *, context: int, parallel: int, device: str, dtype: str
    ) -> None:
        self.name = name
        self.reading = Threads(f"{name} (tokenizer)")
        self.computing = Threads(name)
        self._source = source
        self._context = context
        self._parallel = parallel
        self._device = device
        self._dtype = dtype
        self._tokenizing = Lock()
        self._prompts: Prompts | None = None
        self._grammars: Grammars | None = None
        self._runtime: Runtime | None = None
        self._generator: Generator | None = None
        self._scorer: Scorer | None = None
        self._stops: set[Event] = set()

    def prompts(self) -> Prompts:
        """The tokenizer; from either thread."""
        with self._tokenizing:
            if self._prompts is None:
                self._prompts = Prompts(load_tokenizer(self._source), self.name)
            return self._prompts

    def grammars(self) -> Grammars:
        """What answers can be held to. In `reading`."""
        if self._grammars is None:
            self._grammars = Grammars(self.prompts().tokenizer)
        return self._grammars

    def runtime(self) -> Runtime:
        """The weights. In `computing`."""
        if self._runtime is None:
            self._runtime = Runtime(
                self._source,
                self.name,
                context=self._context,
                device=self._device,
                dtype=self._dtype,
            )
        return self._runtime

    def generator(self) -> Generator:
        """What writes answers. In `computing`."""
        if self._generator is None:
            self._generator = Generator(self.runtime(), self.prompts(), self._parallel)
        return self._generator

    async def generating(self) -> Generator:
        """What writes answers, for the event loop."""
        if self._generator is not None:
            return self._generator
        return await self.computing.run(self.generator)

    def scorer(self) -> Scorer:
        """What scores continuations. In `computing`."""
        if self._scorer is None:
            self._scorer = Scorer(self.runtime(), self.prompts())
        return self._scorer

    async def compute(self, work: Callable[[Event], T]) -> T:
        """Do some work in `computing`; it is stopped when nobody waits for it any more."""
        with self.stoppable(Event()) as stop:
            try:
                return await self.computing.run(lambda: work(stop))
            except Stopped:
                raise self.closed() from None

    @contextmanager
    def stoppable(self, stop: Event) -> Iterator[Event]:
        """`stop` is set when the block is left, or when the model is closed meanwhile."""
        self._stops.add(stop)
        try:
            yield stop
        finally:
            stop.set()
            self._stops.discard(stop)

    def closed(self) -> ModelError:
        """What a call gets that the closing of the model ended."""
        return ModelError(f"{self.name} was closed", "during a call", "make the model anew")

    async def aclose(self) -> None:
        """Stop what is under way and free the memory. Safe to call twice."""
        for stop in list(self._stops):
            stop.set()
        await self.computing.aclose()
        await self.reading.aclose()
        self._runtime = self._generator = self._scorer = self._prompts = self._grammars = None
