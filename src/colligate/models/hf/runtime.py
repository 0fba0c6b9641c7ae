"""A loaded model: its forward passes and remembered prefixes.

Generation, scoring and attention share it. All of it runs in one thread; only the events that stop
a forward pass are set from other threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from inspect import signature
from threading import Event
from typing import Any

from cachetools import LRUCache

from colligate.errors import MissingCapability, ServerFailed
from colligate.models.decoding import PassStopped
from colligate.models.hf.adapters import Adapters
from colligate.models.hf.loading import ModelSource, load_model
from colligate.models.local import count_shared
from colligate.models.prompts import check_fits

Layers = Sequence[tuple[Any, Any]]
"""Keys and values of each layer, tensors of [1, heads, tokens, width]."""

_PREFIX_BYTES = 1 << 30
_PASS_TOKENS = 8192  # in one forward pass: limits the memory of the layers in between


class Runtime:
    """A causal language model of transformers; it is loaded by the constructor."""

    def __init__(
        self,
        source: ModelSource,
        name: str,
        *,
        context: int,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        self.name = name
        self.context = context
        self.torch = import_module("torch")
        self.model = load_model(source, device=device, dtype=dtype)
        self.prefixes = PrefixCache(_PREFIX_BYTES)
        self.adapters = Adapters(self.model, name)
        self._stop: Event | None = None
        for layer in getattr(self.model.get_decoder(), "layers", ()):
            layer.register_forward_pre_hook(self._check_stop)

    def check_fits(self, tokens: int) -> None:
        """Raise ContextTooSmall if so many tokens do not fit the window."""
        check_fits(tokens, self.context, self.name)

    @contextmanager
    def inference(self, stop: Event | None = None, adapter: str = "") -> Iterator[None]:
        """Compute with an adapter and without gradients.

        Setting `stop` raises PassStopped within the time of one layer. A failure of torch, such as
        a lack of memory, becomes ServerFailed.
        """
        before, self._stop = self._stop, stop
        try:
            with self.torch.inference_mode():
                self.adapters.use(adapter)
                yield
        except (RuntimeError, MemoryError) as error:
            memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            hint = "ask over less text, or use a smaller model" if memory else ""
            what = f"{self.name} could not compute"
            raise ServerFailed(what, str(error).split("\n")[0][:300], hint) from error
        finally:
            self._stop = before

    def prefill(
        self, ids: Sequence[int], *, adapter: str = "", keep: bool = True
    ) -> tuple[Any, Any]:
        """Return a cache with the keys and values of all `ids`, and the logits [vocabulary] after
        the last.

        A prefix that an earlier prompt had is not computed again; with `keep` this prompt is
        remembered too. To be called within `inference`.
        """
        self.check_fits(len(ids))
        layers, known = self.prefixes.find_longest(ids[:-1], adapter)
        cache = self.new_cache(layers)
        logits = None
        for start in range(known, len(ids), _PASS_TOKENS):
            piece = ids[start : min(start + _PASS_TOKENS, len(ids))]
            logits = self.forward(piece, cache).logits[0, -1]
        if keep:
            self.prefixes.store(ids, self.layers_of(cache), adapter)
        return cache, logits

    def forward(self, ids: Sequence[int], cache: Any = None, **options: Any) -> Any:
        """Run one pass over the tokens after those in the cache; logits of the last one only."""
        batch = self.torch.tensor([list(ids)], device=self.model.device)
        options = {self.cache_name: cache, "logits_to_keep": 1, **options}
        return self.model(input_ids=batch, use_cache=cache is not None, **options)

    @cached_property
    def cache_name(self) -> str:
        """The model's name for its cache: `past_key_values` before transformers 5.24."""
        parameters = signature(self.model.forward).parameters
        return "cache" if "cache" in parameters else "past_key_values"

    def new_cache(self, layers: Layers = ()) -> Any:
        """Make a cache with these keys and values, which grows with each pass.

        Every layer keeps all its tokens, also those with a sliding window, so that any prefix can
        be cut out of it.
        """
        cache = import_module("transformers").DynamicCache()
        for index, (keys, values) in enumerate(layers):
            cache.update(keys, values, index)
        return cache

    @staticmethod
    def layers_of(cache: Any) -> Layers:
        return [(layer.keys, layer.values) for layer in cache.layers]

    @contextmanager
    def use_attention(self, implementation: str) -> Iterator[None]:
        """Compute attention with another function; "eager" returns its probabilities."""
        before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(implementation)
        except (ValueError, ImportError) as error:
            what, why = f"{self.name} cannot compute its attention as {implementation}", str(error)
            raise MissingCapability(what, why, "use a model of another architecture") from error
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def _check_stop(self, *_: object) -> None:
        if self._stop is not None and self._stop.is_set():
            raise PassStopped


class PrefixCache(LRUCache[tuple[str, tuple[int, ...]], Layers]):
    """Keys and values of the prompts used last, by adapter and tokens, in at most `limit` bytes.

    They are never written to: a cache that continues from them makes new tensors. Not safe for
    several threads at once.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit, lambda layers: sum(t.nbytes for pair in layers for t in pair))

    def find_longest(self, ids: Sequence[int], adapter: str = "") -> tuple[Layers, int]:
        """Return keys and values of the longest remembered prefix of `ids`, and its length."""
        shared = {key: count_shared(key[1], ids) for key in self if key[0] == adapter}
        best = max(shared, key=shared.__getitem__, default=None)
        if best is None or not shared[best]:
            return (), 0
        length = shared[best]
        return tuple((k[:, :, :length], v[:, :, :length]) for k, v in self[best]), length

    def store(self, ids: Sequence[int], layers: Layers, adapter: str = "") -> None:
        """Remember keys and values of exactly these tokens, and forget their prefixes."""
        for key in list(self):
            if key[0] == adapter and count_shared(key[1], ids) == len(key[1]):
                del self[key]
        with suppress(ValueError):  # it is larger than the limit
            self[adapter, tuple(ids)] = tuple(layers)
