"""The loaded model, and the forward passes that generation, scoring and attention share.

All of it runs in one thread; only the events that stop a pass are set from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Event
from typing import Any

from colligate.errors import ContextTooSmall, MissingCapability, ServerFailed
from colligate.models.hf.adapters import Adapters
from colligate.models.hf.loading import Source, load_model
from colligate.models.hf.prefix_cache import Layers, PrefixCache

_REMEMBERED_BYTES = 1 << 30
_PIECE = 8192  # tokens in one forward pass: bounds what the layers in between take


class Stopped(Exception):
    """The caller gave up; the forward pass was left between two layers."""


class Runtime:
    """A causal language model of transformers, loaded when made."""

    def __init__(
        self, source: Source, name: str, *, context: int, device: str = "auto", dtype: str = "auto"
    ) -> None:
        self.name = name
        self.context = context
        self.torch = import_module("torch")
        self.model = load_model(source, device=device, dtype=dtype)
        self.remembered = PrefixCache(_REMEMBERED_BYTES)
        self.adapters = Adapters(self.model, name)
        self._stop: Event | None = None
        for layer in getattr(self.model.get_decoder(), "layers", ()):
            layer.register_forward_pre_hook(self._check)

    def must_fit(self, tokens: int) -> None:
        """Raise ContextTooSmall if so many tokens do not fit the window."""
        if tokens > self.context:
            raise ContextTooSmall(
                f"the prompt does not fit {self.name}",
                f"it has {tokens} tokens and the window {self.context}",
                "give fewer or shorter passages, or a model with a larger window",
            )

    @contextmanager
    def working(self, stop: Event | None = None, adapter: str = "") -> Iterator[None]:
        """Compute with an adapter, without gradients, until done or stopped.

        Raises:
            Stopped: `stop` was set; within one layer's time.
            ServerFailed: memory ran out, or torch failed otherwise.
        """
        before, self._stop = self._stop, stop
        try:
            with self.torch.inference_mode():
                self.adapters.use(adapter)
                yield
        except (RuntimeError, MemoryError) as error:
            memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            mend = "ask over less text, or use a smaller model" if memory else ""
            raise ServerFailed(
                f"{self.name} could not compute", str(error).split("\n")[0][:300], mend
            ) from error
        finally:
            self._stop = before

    def prefill(
        self, ids: Sequence[int], *, adapter: str = "", keep: bool = True
    ) -> tuple[Any, Any]:
        """A cache of the keys and values of all `ids`, and the logits [vocabulary] after the last.

        What an earlier prompt began with is not computed again. To be called while `working`.
        With `keep` the prompt is remembered in turn.

        Raises:
            ContextTooSmall: if there are more than the window holds.
        """
        self.must_fit(len(ids))
        layers, known = self.remembered.longest(ids[:-1], adapter)
        cache = self.cache(layers)
        logits = None
        for start in range(known, len(ids), _PIECE):
            logits = self.forward(ids[start : min(start + _PIECE, len(ids))], cache).logits[0, -1]
        if keep:
            self.remembered.keep(ids, self.layers_of(cache), adapter)
        return cache, logits

    def forward(self, ids: Sequence[int], cache: Any = None, **options: Any) -> Any:
        """One pass over tokens that follow what the cache holds; logits of the last one only."""
        given = self.torch.tensor([list(ids)], device=self.model.device)
        return self.model(
            input_ids=given, past_key_values=cache, use_cache=cache is not None,
            **{"logits_to_keep": 1, **options},
        )  # fmt: skip

    def cache(self, layers: Layers = ()) -> Any:
        """A cache that holds these keys and values and grows with each pass.

        Every layer keeps all its tokens, those with a sliding window too: so that any beginning
        of it can be cut out.
        """
        made = import_module("transformers").DynamicCache()
        for index, (keys, values) in enumerate(layers):
            made.update(keys, values, index)
        return made

    def layers_of(self, cache: Any) -> Layers:
        """A cache's keys and values."""
        return [(layer.keys, layer.values) for layer in cache.layers]

    @contextmanager
    def attending(self, implementation: str) -> Iterator[None]:
        """Compute attention in another way (`eager` returns its probabilities).

        Raises:
            MissingCapability: the model cannot.
        """
        before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(implementation)
        except (ValueError, ImportError) as error:
            raise MissingCapability(
                f"{self.name} cannot compute its attention as {implementation}",
                str(error),
                "take a model of another architecture",
            ) from error
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def _check(self, *_: object) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped
