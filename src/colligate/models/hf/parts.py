"""What a model and its adapted views share, each part made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar

from colligate.errors import ModelError
from colligate.models.hf.generation import Generator
from colligate.models.hf.grammar import Grammars
from colligate.models.hf.loading import Source, load_tokenizer
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime, Stopped
from colligate.models.hf.scoring import Scorer
from colligate.models.threads import Threads

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
