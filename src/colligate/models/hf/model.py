"""The `hf:` backend: models in this process through transformers, with all capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.base import window
from colligate.models.decoding import GeneratedText, GenerationRequest
from colligate.models.hf.generate import BatchGenerator
from colligate.models.hf.loading import (
    HFTokenizer,
    ModelSource,
    find_source,
    import_transformers,
    load_tokenizer,
    read_sizes,
)
from colligate.models.hf.runtime import Runtime
from colligate.models.hf.score import LikelihoodScorer
from colligate.models.local import LocalBackend, LocalModel, Pair, choose_layers
from colligate.models.prompts import Prompts

_LONGEST_WINDOW = 32768


class HFModel(LocalModel):
    """A causal language model of transformers: a folder, a GGUF file or a hub name.

    At most `parallel` answers are computed together. The default of `context_tokens` is that of
    `base.window`, at most 32,768. `device` and `dtype` are those of `loading.load_model`.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel: the file or folder does not exist.
        WeightsUnavailable: the files, or those of the hub, are not a model that can be used.
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
        import_transformers()  # reports what is missing
        source = find_source(target)
        trained, kv_bytes, self.weights = read_sizes(source)
        context = context_tokens or window(trained, kv_bytes, most=_LONGEST_WINDOW)
        options = {"context": context, "device": device, "dtype": dtype}
        backend = _Backend(source, name, parallel, options)
        super().__init__(backend, name=name, version=source.version, context_tokens=context)


class _Backend(LocalBackend):
    def __init__(
        self, source: ModelSource, name: str, parallel: int, options: dict[str, Any]
    ) -> None:
        super().__init__(name)
        self._source = source
        self._parallel = parallel
        self._options = options
        self._tokenizer: Any = None
        self._runtime: Any = None  # this and the next two from `load` on
        self._generator: Any = None
        self._scorer: Any = None

    def load_prompts(self) -> Prompts:
        self._tokenizer = load_tokenizer(self._source)
        return Prompts(HFTokenizer(self._tokenizer), self.name)

    def load_vocabulary(self) -> Any:
        return import_module("llguidance.hf").from_tokenizer(self._tokenizer)

    def load(self) -> None:
        _ = self.prompts  # loads the tokenizer
        self._runtime = Runtime(self._source, self.name, **self._options)
        self._generator = BatchGenerator(self._runtime, self._tokenizer, self._parallel)
        self._scorer = LikelihoodScorer(self._runtime)

    def load_adapter(self, adapter: str | Path) -> str:
        key: str = self._runtime.adapters.load(adapter)
        return key

    async def generate(self, request: GenerationRequest) -> GeneratedText:
        self._generator.submit(request)
        [answer] = await self.finish([request])
        return answer

    def advance(self) -> None:
        self._generator.advance()

    async def score(self, pairs: Sequence[Pair], adapter: str, halt: Event) -> list[list[float]]:
        score = partial(self._scorer.score, pairs, adapter=adapter, stop=halt)
        scores: list[list[float]] = await self.computing.run(score)
        return scores

    async def attend(
        self, ids: list[int], first: int, layers: tuple[float, float], adapter: str, halt: Event
    ) -> list[float]:
        row = partial(compute_row, self._runtime, ids, first, layers, adapter, halt)
        return await self.computing.run(row)

    def free(self) -> None:
        self._runtime = self._generator = self._scorer = self._tokenizer = None


# Attention of a prompt's last tokens to parts of it
#
# All tokens before the query go through the model's fast kernel, which returns no probabilities;
# the query's tokens then go through the eager one, which does, a few at a time. A row costs the
# same as one decoded token, and a matrix of tokens by tokens is never made.

_ROWS = 16  # query tokens computed together: what the layers return for them is in memory at once


def compute_row(
    runtime: Runtime,
    ids: list[int],
    first: int,
    depths: tuple[float, float] = (0.0, 1.0),
    adapter: str = "",
    stop: Event | None = None,
) -> list[float]:
    """Compute the mean attention of the tokens from `first` on to each token; it sums to 1.

    Keys and values of all tokens are remembered for prompts with the same prefix.
    """
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
