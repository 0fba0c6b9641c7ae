"""A loaded model: its forward passes, remembered prefixes and LoRA adapters.

Generation, scoring and attention share it. All of it runs in one thread; only the events that stop
a forward pass are set from other threads.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from threading import Event
from typing import Any

from colligate.errors import (
    MissingCapability,
    MissingExtra,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models.decoding import PassStopped
from colligate.models.hf.loading import ModelSource, import_transformers, load_model
from colligate.models.local import count_shared
from colligate.models.lora import (
    LoraFiles,
    find_lora,
    read_lora_settings,
    refuse_adapter,
    shorten_error,
)
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
            raise ServerFailed(
                f"{self.name} could not compute", str(error).split("\n")[0][:300], hint
            ) from error
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
        """Return a cache's keys and values."""
        return [(layer.keys, layer.values) for layer in cache.layers]

    @contextmanager
    def use_attention(self, implementation: str) -> Iterator[None]:
        """Compute attention with another function; "eager" returns its probabilities."""
        before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(implementation)
        except (ValueError, ImportError) as error:
            raise MissingCapability(
                f"{self.name} cannot compute its attention as {implementation}",
                str(error),
                "use a model of another architecture",
            ) from error
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)

    def _check_stop(self, *_: object) -> None:
        if self._stop is not None and self._stop.is_set():
            raise PassStopped


# Keys and values of earlier prompts, for prompts with the same prefix


class PrefixCache:
    """The prompts used last, in at most `limit` bytes. Not safe for several threads at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[_Entry] = []

    def find_longest(self, ids: Sequence[int], adapter: str = "") -> tuple[Layers, int]:
        """Return keys and values of the longest remembered prefix of `ids`, and its length."""
        best, length = None, 0
        for entry in self._entries:
            if entry.adapter == adapter and (shared := count_shared(entry.ids, ids)) > length:
                best, length = entry, shared
        if best is None:
            return (), 0
        self._entries.remove(best)
        self._entries.append(best)
        layers = tuple((k[:, :, :length], v[:, :, :length]) for k, v in best.layers)
        return layers, length

    def store(self, ids: Sequence[int], layers: Layers, adapter: str = "") -> None:
        """Remember keys and values of exactly these tokens, and forget their prefixes."""
        new = _Entry(tuple(ids), adapter, tuple(layers))
        self._entries = [
            entry
            for entry in self._entries
            if entry.adapter != adapter or count_shared(entry.ids, new.ids) < len(entry.ids)
        ]
        if new.size > self._limit:
            return
        self._entries.append(new)
        while self.size > self._limit:
            self._entries.pop(0)

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return sum(entry.size for entry in self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


@dataclass(frozen=True)
class _Entry:
    """Keys and values of `ids` under an adapter.

    They are never written to: a cache that continues from them makes new tensors.
    """

    ids: tuple[int, ...]
    adapter: str
    layers: Layers

    @property
    def size(self) -> int:
        return sum(tensor.nbytes for pair in self.layers for tensor in pair)


# LoRA adapters


class Adapters:
    """The LoRA adapters loaded into a model, through peft; at most one is in use at a time.

    For the model's thread only. Only plain LoRA is accepted: matrices that are added to the base's
    own. Other features of peft (trained biases or whole layers, initialisation from the base's
    singular vectors) write into the base, which other adapters and the base alone share. Nothing
    is ever merged: the base computes the same bits before, between and after.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._loaded: set[str] = set()
        self._layers: list[Any] = []
        self._used = ""

    def load(self, adapter: str | Path) -> str:
        """Load a folder or hub name, and return the key by which to `use` it.

        The key is made from the files' content: an adapter is loaded once wherever its files are,
        and results stored under its key belong to it.
        """
        import_transformers()  # turns its messages off
        try:
            import_module("peft.functional")
            peft = import_module("peft")
        except ImportError as error:
            raise MissingExtra.of(error, "adapters need peft", "local") from error
        files = find_lora(adapter)
        key = files.hash_content()
        if key not in self._loaded:
            settings = read_lora_settings(files)
            matrices = _read_matrices(files)
            try:
                self._inject(peft, key, settings, matrices, adapter)
            finally:
                kind = import_module("peft.tuners.tuners_utils").BaseTunerLayer
                self._layers = [m for m in self._model.modules() if isinstance(m, kind)]
                self._apply()
            self._loaded.add(key)
        return key

    def use(self, adapter: str = "") -> None:
        """Compute with the adapter of this key from now on; "" is the base model alone."""
        if adapter == self._used:
            return
        self._used = adapter
        self._apply()

    def _inject(
        self, peft: Any, key: str, settings: dict[str, Any], matrices: dict[str, Any], adapter: Any
    ) -> None:
        """Add the matrices to the model's layers, or leave the model unchanged on failure."""
        model = self._model
        cast = {name: matrix.to(model.dtype) for name, matrix in matrices.items()}
        with warnings.catch_warnings():
            # peft warns of several adapters in one model; what matters is checked below.
            warnings.simplefilter("ignore")
            try:
                config = peft.LoraConfig(**settings)
                peft.inject_adapter_in_model(config, model, key, low_cpu_mem_usage=True)
                result = peft.set_peft_model_state_dict(
                    model, cast, adapter_name=key, low_cpu_mem_usage=True
                )
                missing = [name for name in result.missing_keys if f".{key}" in name]
                if missing or result.unexpected_keys:
                    example = [*missing, *result.unexpected_keys][0].replace(f".{key}", "")
                    raise ValueError(f"they differ in {example}")
            except Exception as error:  # peft and torch have no common class of errors.
                peft.functional.delete_adapter(model, key, prefix="lora_")
                getattr(model, "peft_config", {}).pop(key, None)
                raise WeightsUnavailable(
                    f"the adapter {adapter} does not fit {self._name}",
                    shorten_error(error),
                    "give one that was trained on this model",
                ) from error
        model.eval()  # new modules are in training mode, where dropout is active

    def _apply(self) -> None:
        # As set_adapter and enable_adapters do, without updating which parameters are trained:
        # none is, and that update takes a third of a decoding step at each switch.
        for layer in self._layers:
            layer._active_adapter = [self._used] if self._used else []
            layer._disable_adapters = not self._used


_MATRIX = re.compile(r"\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.weight|\.bias)?$")


def _read_matrices(files: LoraFiles) -> dict[str, Any]:
    """Read the tensors by name, on the processor. No code in the file is run."""
    weights = files.weights
    try:
        if weights.suffix == ".safetensors":
            tensors = import_module("safetensors.torch").load_file(weights)
        else:
            tensors = import_module("torch").load(weights, map_location="cpu", weights_only=True)
        matrices = dict(tensors)
    except Exception as error:  # safetensors and torch have no common class of errors.
        why = f"its {weights.name} is damaged ({shorten_error(error)})"
        raise refuse_adapter(files.adapter, why) from error
    if other := [name for name in matrices if not _MATRIX.search(name)]:
        # They would overwrite the base's own.
        raise refuse_adapter(files.adapter, f"it is more than plain LoRA: it holds {other[0]}")
    return matrices
