"""Answers decoded together: one forward pass computes the next token of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from colligate.models.hf.prefix_cache import Layers
from colligate.models.hf.runtime import Runtime

_ROOM = 256  # tokens that fit after the longest row before everything is copied again


@dataclass(eq=False)
class Row:
    """A text of which `length` tokens are computed, and the token that follows them.

    `layers` are the keys and values of those computed, until a batch holds them.
    """

    layers: Layers
    length: int
    token: int


class Batch:
    """Keys and values of rows of different lengths, padded on the left.

    Whoever is given to `step` is decoded: when others than before are, their keys and values are
    put together anew. A batch that failed is good for nothing more.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rows: list[Row] = []
        self._cache: Any = None

    def step(self, rows: Sequence[Row]) -> Any:
        """Compute each row's token; the logits after it, [rows, vocabulary] in float32 on the CPU.

        To be called while `working`, with at least one row.
        """
        if self._rows != list(rows) or not self._cache.layers[0].room:
            self._arrange(rows)
        torch, model = self._runtime.torch, self._runtime.model
        lengths = torch.tensor([[row.length] for row in rows], device=model.device)
        longest = max(row.length for row in rows)
        places = torch.arange(longest + 1, device=model.device)
        logits = model(
            input_ids=torch.tensor([[row.token] for row in rows], device=model.device),
            attention_mask=(places >= longest - lengths).long(),
            position_ids=lengths,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        for row in rows:
            row.length += 1
        return logits[:, -1].float().cpu()

    def _arrange(self, rows: Sequence[Row]) -> None:
        """Hold these rows and no others, without padding that all of them have."""
        before = self._cache.layers if self._cache is not None else []
        places = {row: place for place, row in enumerate(self._rows)}
        longest = max(row.length for row in rows)
        layers = []
        for index in range(len(before or rows[0].layers)):
            parts = [
                row.layers[index] if row.layers else before[index].part(places[row], row.length)
                for row in rows
            ]
            layers.append(_layer()(parts, longest))
            if before:
                before[index] = None  # so that never more than one layer is held twice
        for row in rows:
            row.layers = ()
        self._rows = list(rows)
        self._cache = import_module("transformers.cache_utils").Cache(layers=layers)


@cache
def _layer() -> Any:
    base: Any = import_module("transformers.cache_utils").DynamicLayer

    class Roomy(base):  # type: ignore[misc]
        """A layer of a cache that writes new keys and values into room it has.

        What it derives from copies all there are at every token.
        """

        def __init__(self, parts: Layers, longest: int) -> None:
            super().__init__()
            self._keys, self._values = (
                self._padded([part[side] for part in parts], longest) for side in (0, 1)
            )
            self.dtype, self.device = self._keys.dtype, self._keys.device
            self.is_initialized = True
            self._hold(longest)

        @property
        def room(self) -> int:
            """Tokens that can still be written."""
            return int(self._keys.shape[2] - self.keys.shape[2])

        def part(self, row: int, length: int) -> tuple[Any, Any]:
            """Keys and values of the last `length` tokens of a row, [1, heads, length, width]."""
            return (
                self.keys[row : row + 1, :, self.keys.shape[2] - length :],
                self.values[row : row + 1, :, self.values.shape[2] - length :],
            )

        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Write keys and values after those held; all there are then."""
            start = self.keys.shape[2]
            self._hold(start + keys.shape[2])
            self.keys[:, :, start:] = keys
            self.values[:, :, start:] = values
            return self.keys, self.values

        def _hold(self, tokens: int) -> None:
            self.keys, self.values = self._keys[:, :, :tokens], self._values[:, :, :tokens]

        def _padded(self, tensors: Sequence[Any], longest: int) -> Any:
            _, heads, _, width = tensors[0].shape
            padded = tensors[0].new_zeros(len(tensors), heads, longest + _ROOM, width)
            for row, tensor in enumerate(tensors):
                padded[row, :, longest - tensor.shape[2] : longest] = tensor[0]
            return padded

    return Roomy


def choose(torch: Any, logits: Any, temperature: float, generator: Any) -> int:
    """A token by its float32 logits [vocabulary]: the best at temperature 0, else drawn.

    At least one of the logits must be finite, and none NaN.
    """
    if temperature <= 0:
        return int(logits.argmax())
    # From the largest down: a low temperature then leaves only that one, never infinities.
    weights = torch.softmax((logits - logits.max()) / temperature, dim=-1)
    return int(torch.multinomial(weights, 1, generator=generator))
