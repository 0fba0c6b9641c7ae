"""Self-RAG's own models: they judge their text by reflection tokens that they write.

Prompt and arithmetic are those of the released code: "### Instruction", "### Response", and each
judgement is the share of a token's probability among its kind, where the model writes such a token.
A strategy knows only `ReflectiveModel`, not the passes that it runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from colligate.concurrency import Threads
from colligate.errors import WeightsUnavailable
from colligate.models.base import blunt
from colligate.models.hf.loading import HFTokenizer, find_source, load_tokenizer, read_sizes
from colligate.models.hf.runtime import Runtime
from colligate.models.prompts import Prompts

RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY = tuple(f"[Utility:{number}]" for number in range(1, 6))
UTILITY_WEIGHTS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of the utilities 1 to 5, as in the paper."""
_ENDS = (*RETRIEVAL, "[Continue to Use Evidence]")
_PARAGRAPH = ("<paragraph>", "</paragraph>")
TOKENS = (*_ENDS, *RELEVANCE, *SUPPORT, *UTILITY, *_PARAGRAPH)
"""All the special tokens that such a model must have."""

_WINDOW = 4096  # of Llama 2, if the model does not state its own


@dataclass(frozen=True)
class ReflectedText:
    """Text written after a passage, and the model's judgement of it.

    `likely` is the exponential of the mean log-probability, `relevant` and `supported` are in
    [0, 1], `useful` in [-1, 1]; a judgement that the model does not make is 0. `more` is the share
    of looking up or reading on among the tokens that end a segment; 0 if the answer ended.
    """

    text: str
    likely: float
    relevant: float
    supported: float
    useful: float
    more: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


class ReflectiveModel:
    """A model trained as Self-RAG's, by folder or hub name, loaded at its first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._threads = Threads(name)
        self._loaded: tuple[Any, Prompts, Runtime, dict[str, int]] | None = None

    async def wants_retrieval(self, question: str) -> float:
        """Return the share of [Retrieval] at the beginning of the answer, in [0, 1].

        Raises:
            MissingExtra: torch or transformers is not installed.
            UnknownModel, WeightsUnavailable: there is no such model, or it has no such tokens.
        """

        def ask() -> float:
            _, prompts, runtime, ids_of = self._load()
            with runtime.inference():
                _, logits = runtime.prefill(_encode_prompt(prompts, question, "", ids_of))
                step = _choose_step(runtime.torch, logits, ids_of)
            return _weigh(step.probabilities, RETRIEVAL, (1.0, 0.0))

        return await self._threads.run(ask)

    async def continue_answer(
        self, question: str, passage: str, before: str, max_tokens: int
    ) -> ReflectedText:
        """Write greedily after a passage and the answer so far."""
        return await self._threads.run(
            partial(self._continue_answer, question, passage, before, max_tokens)
        )

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._loaded = None

    def _continue_answer(
        self, question: str, passage: str, before: str, max_tokens: int
    ) -> ReflectedText:
        tokenizer, prompts, runtime, ids_of = self._load()
        opening, closing = _PARAGRAPH
        ids = [
            *_encode_prompt(prompts, question, before, ids_of),
            ids_of[RETRIEVAL[0]],
            ids_of[opening],
            *prompts.encode_literal(blunt(passage, ids_of)),
            ids_of[closing],
        ]
        runtime.check_fits(len(ids) + max_tokens)
        ends = {ids_of[mark] for mark in _ENDS} | {tokenizer.eos_token_id}
        steps: list[ReflectionStep] = []
        with runtime.inference():
            cache, logits = runtime.prefill(ids)
            while len(steps) < max_tokens:
                steps.append(_choose_step(runtime.torch, logits, ids_of))
                if steps[-1].token in ends:
                    break
                logits = runtime.forward([steps[-1].token], cache).logits[0, -1]
        special = set(ids_of.values()) | ends
        words = [step.token for step in steps if step.token not in special]
        text = tokenizer.decode(words, skip_special_tokens=True)
        return judge_steps(str(text).strip(), steps, ids_of, len(ids))

    def _load(self) -> tuple[Any, Prompts, Runtime, dict[str, int]]:
        if self._loaded is None:
            source = find_source(self.name)
            tokenizer = load_tokenizer(source)
            ids_of = _find_ids(tokenizer, self.name)
            window = read_sizes(source)[0] or _WINDOW
            runtime = Runtime(source, self.name, context=window)
            prompts = Prompts(HFTokenizer(tokenizer), self.name)
            self._loaded = tokenizer, prompts, runtime, ids_of
        return self._loaded


get_reflective_model = lru_cache(maxsize=1)(ReflectiveModel)
"""Return the model of a folder or hub name, one for the whole process."""


def _encode_prompt(
    prompts: Prompts, question: str, before: str, ids_of: Mapping[str, int]
) -> list[int]:
    """Encode the prompt, up to where a passage or the rest of the answer begins."""
    text = f"### Instruction:\n{question.strip()}\n\n### Response:\n{before}"
    # Some tokenizers do not flag these tokens as special; text must not become one in any case.
    return prompts.encode_literal(blunt(text, ids_of), beginning=True)


@dataclass(frozen=True)
class ReflectionStep:
    """A written token, its log-probability, and the reflection tokens' probabilities there."""

    token: int
    logprob: float
    probabilities: Mapping[str, float]


def _choose_step(torch: Any, logits: Any, ids_of: Mapping[str, int]) -> ReflectionStep:
    """Choose the most likely token."""
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    token = int(logprobs.argmax())
    probabilities = {mark: math.exp(float(logprobs[number])) for mark, number in ids_of.items()}
    return ReflectionStep(token, float(logprobs[token]), probabilities)


def judge_steps(
    text: str, steps: Sequence[ReflectionStep], ids_of: Mapping[str, int], input_tokens: int = 0
) -> ReflectedText:
    """Compute the judgements of a text: relevance at its first token, the others at their tokens.

    `ids_of` are the ids of the reflection tokens.
    """
    mean = math.fsum(step.logprob for step in steps) / max(1, len(steps))
    return ReflectedText(
        text,
        math.exp(mean) if steps else 0.0,
        _weigh(steps[0].probabilities, RELEVANCE, (1.0, 0.0)) if steps else 0.0,
        _judge_kind(steps, ids_of, SUPPORT, (1.0, 0.5, 0.0)),
        _judge_kind(steps, ids_of, UTILITY, UTILITY_WEIGHTS),
        _judge_kind(steps[-1:], ids_of, _ENDS, (1.0, 0.0, 1.0)),
        input_tokens,
        len(steps),
    )


def _judge_kind(
    steps: Sequence[ReflectionStep],
    ids_of: Mapping[str, int],
    kind: Sequence[str],
    weights: Sequence[float],
) -> float:
    """Weigh the shares of a kind of token where the first of that kind was written."""
    ids = {ids_of[mark] for mark in kind}
    first = next((step for step in steps if step.token in ids), None)
    return _weigh(first.probabilities, kind, weights) if first else 0.0


def _weigh(
    probabilities: Mapping[str, float], kind: Sequence[str], weights: Sequence[float]
) -> float:
    total = math.fsum(probabilities[mark] for mark in kind)
    weighted = math.fsum(
        probabilities[mark] * weight for mark, weight in zip(kind, weights, strict=True)
    )
    return weighted / total if total else 0.0


def _find_ids(tokenizer: Any, name: str) -> dict[str, int]:
    """Return the ids of the reflection tokens, or report that the model does not have them."""
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    missing = [mark for mark in TOKENS if mark not in vocabulary]
    if missing:
        raise WeightsUnavailable(
            f"{name} is not a Self-RAG model",
            f"it has no token {missing[0]}",
            "use selfrag/selfrag_llama2_7b, or leave reflection out",
        )
    return {mark: vocabulary[mark] for mark in TOKENS}
