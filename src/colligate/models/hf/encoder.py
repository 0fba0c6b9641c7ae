"""An encoder of transformers in a thread of its own: for models that read and do not write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from colligate.errors import ServerFailed
from colligate.models.hf.loading import find, load_tokenizer, pretrained, transformers
from colligate.models.threads import Threads

T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    """A tokenizer and the model it belongs to, and the device it is on."""

    torch: Any
    tokenizer: Any
    model: Any

    @property
    def device(self) -> Any:
        """Where the model's weights are."""
        return self.model.device

    def tokens(self, text: str) -> Any:
        """The `ids` and `offsets` of a literal text, as `tokenizers` gives them.

        What is written like a mark of the model ("[SEP]") is none, and none is put around.
        """
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    def room(self, most: int) -> int:
        """How many tokens of a text are read at once, marks apart: `most` with them, or fewer.

        Fewer where the model has places for no more.
        """
        places = getattr(self.model.config, "max_position_embeddings", None) or most
        before, after = self.around()
        most = min(most, places, self.tokenizer.model_max_length)
        return max(1, most - len(before) - len(after))

    def around(self) -> tuple[list[int], list[int]]:
        """The ids of the marks that the model expects before and after a text."""
        whole = self.tokenizer.backend_tokenizer.encode("a")
        first = whole.special_tokens_mask.index(0)
        last = len(whole.ids) - whole.special_tokens_mask[::-1].index(0)
        return whole.ids[:first], whole.ids[last:]


class Encoder:
    """A model of one of transformers' Auto classes, from a folder or by hub name.

    Weights are loaded at the first call, onto a GPU if there is one.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such folder, or it holds no model.
    """

    def __init__(self, name_or_path: str, auto_class: str) -> None:
        transformers()  # or say what is missing
        self.name = name_or_path
        self._source = find(name_or_path)
        self._auto_class = auto_class
        self._threads = Threads(name_or_path)
        self._loaded: Loaded | None = None

    async def run(self, work: Callable[[Loaded], T]) -> T:
        """What some work with the loaded model gives; the event loop does not wait for it.

        Raises:
            WeightsUnavailable: the model cannot be loaded.
            ServerFailed: memory ran out, or torch failed otherwise.
        """
        return await self._threads.run(lambda: self._work(work))

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._threads.aclose()
        self._loaded = None

    def _work(self, work: Callable[[Loaded], T]) -> T:
        if self._loaded is None:
            self._loaded = self._load()
        with _told(self.name), self._loaded.torch.inference_mode():
            return work(self._loaded)

    def _load(self) -> Loaded:
        torch = import_module("torch")
        tokenizer = load_tokenizer(self._source)
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        model = pretrained(getattr(transformers(), self._auto_class), self._source)
        place = "cuda" if torch.cuda.is_available() else "cpu"
        return Loaded(torch, tokenizer, model.to(place).eval())


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise ServerFailed(f"{name} could not compute", str(error).split("\n")[0][:300]) from error
