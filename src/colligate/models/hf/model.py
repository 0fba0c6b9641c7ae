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
from colligate.models.local import LocalBackend, LocalModel, Pair
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

    async def attend(self, ids: list[int], adapter: str, halt: Event) -> list[float]:
        return await self.computing.run(partial(compute_row, self._runtime, ids, adapter, halt))

    def free(self) -> None:
        self._runtime = self._generator = self._scorer = self._tokenizer = None


# Attention of a prompt's last token to parts of it
#
# All tokens before it go through the model's fast kernel, which returns no probabilities; the last
# one then goes through the eager one, which does. A row costs the same as one decoded token, and a
# matrix of tokens by tokens is never made.


def compute_row(
    runtime: Runtime, ids: list[int], adapter: str = "", stop: Event | None = None
) -> list[float]:
    """Return the last token's attention to each token, the mean of all layers and heads."""
    runtime.check_fits(len(ids))
    with runtime.inference(stop, adapter):
        cache = runtime.new_cache()
        if ids[1:]:
            cache, _ = runtime.prefill(ids[:-1], adapter=adapter, keep=False)
        with runtime.use_attention("eager"):
            layers = runtime.forward(ids[-1:], cache, output_attentions=True).attentions
        if not layers or any(layer is None for layer in layers):
            what = f"{runtime.name} gives no attention"
            why = "its implementation in transformers does not return it"
            raise MissingCapability(what, why, "use a model of another architecture")
        total = runtime.torch.zeros(len(ids), dtype=runtime.torch.float32)
        for layer in layers:  # [1, heads, 1, tokens]
            row = layer[0, :, -1].float().mean(dim=0).cpu()
            # A layer with a sliding window may leave out the tokens before it.
            total[len(ids) - len(row) :] += row
        means: list[float] = (total / len(layers)).tolist()
    return means
