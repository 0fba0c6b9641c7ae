"""Self-RAG's own models: they judge by reflection tokens while they write. For the extra `local`.

Prompt and arithmetic are those of the released code: "### Instruction", "### Response", and each
judgement the share of a token among its kind, where the model writes one of that kind.
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
from colligate.models.hf.loading import facts, find, load_tokenizer
from colligate.models.hf.prompts import Prompts

RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY = tuple(f"[Utility:{number}]" for number in range(1, 6))
_ENDS = (*RETRIEVAL, "[Continue to Use Evidence]")
_PARAGRAPH = ("<paragraph>", "</paragraph>")
UTILITY_WEIGHTS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of the utilities 1 to 5, as the paper."""
_WINDOW = 4096  # of Llama 2, where the model does not say


@dataclass(frozen=True)
class Step:
    """A token that was written, its log-probability, and what reflection tokens had there."""

    token: int
    logprob: float
    marks: Mapping[str, float]


@dataclass(frozen=True)
class Reflected:
    """What was written after a passage, and how the model judges it.

    `likely` is the exponential of the mean log-probability, `relevant` and `supported` are in
    [0, 1], `useful` in [-1, 1]; a judgement the model does not make is 0.
    """

    text: str
    likely: float
    relevant: float
    supported: float
    useful: float
    input_tokens: int = 0
    output_tokens: int = 0


@lru_cache(maxsize=1)
def reflective(name: str) -> ReflectiveModel:
    """The model of a folder or hub name, the same one for the same name."""
    return ReflectiveModel(name)


class ReflectiveModel:
    """A model trained as Self-RAG's, by folder or hub name, loaded at its first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._threads = Threads(name)
        self._loaded: tuple[Prompts, Any, dict[str, int]] | None = None

    async def wants_retrieval(self, question: str) -> float:
        """The share of [Retrieval] as the answer's beginning, in [0, 1].

        Raises:
            MissingExtra: torch or transformers is not installed.
            UnknownModel, WeightsUnavailable: there is no such model, or it has no such tokens.
        """
        return await self._threads.run(partial(self._wants_retrieval, question))

    async def continued(
        self, question: str, passage: str, before: str, max_tokens: int
    ) -> Reflected:
        """What it writes after a passage and the answer so far, greedily.

        Raises:
            ContextTooSmall: the passage does not fit.
            MissingExtra, UnknownModel, WeightsUnavailable: as `wants_retrieval`.
        """
        return await self._threads.run(
            partial(self._continued, question, passage, before, max_tokens)
        )

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._threads.aclose()
        self._loaded = None

    def _wants_retrieval(self, question: str) -> float:
        prompts, runtime, marks = self._load()
        with runtime.working():
            _, logits = runtime.prefill(_asked(prompts, question, "", marks))
            step = _step(runtime.torch, logits, marks)
        return _share(step.marks, RETRIEVAL, (1.0, 0.0))

    def _continued(self, question: str, passage: str, before: str, max_tokens: int) -> Reflected:
        prompts, runtime, marks = self._load()
        opening, closing = _PARAGRAPH
        ids = [
            *_asked(prompts, question, before, marks),
            marks[RETRIEVAL[0]],
            marks[opening],
            *prompts.literal(blunt(passage, marks)),
            marks[closing],
        ]
        runtime.must_fit(len(ids) + max_tokens)
        ends = {marks[mark] for mark in _ENDS} | {prompts.tokenizer.eos_token_id}
        steps: list[Step] = []
        with runtime.working():
            cache, logits = runtime.prefill(ids)
            while len(steps) < max_tokens:
                steps.append(_step(runtime.torch, logits, marks))
                if steps[-1].token in ends:
                    break
                logits = runtime.forward([steps[-1].token], cache).logits[0, -1]
        special = set(marks.values()) | ends
        words = [step.token for step in steps if step.token not in special]
        text = prompts.tokenizer.decode(words, skip_special_tokens=True)
        return reflected(str(text).strip(), steps, marks, len(ids))

    def _load(self) -> tuple[Prompts, Any, dict[str, int]]:
        if self._loaded is None:
            # Not at the top: the runtime is for torch alone, and strategies import this module.
            from colligate.models.hf.loading import Runtime

            source = find(self.name)
            tokenizer = load_tokenizer(source)
            marks = _marks(tokenizer, self.name)
            window = facts(source)[0] or _WINDOW
            runtime = Runtime(source, self.name, context=window)
            self._loaded = Prompts(tokenizer, self.name), runtime, marks
        return self._loaded


def reflected(
    text: str, steps: Sequence[Step], marks: Mapping[str, int], input_tokens: int = 0
) -> Reflected:
    """The judgements in what was written: relevance at its first token, the others where they are.

    `marks` are the ids of the reflection tokens.
    """
    mean = math.fsum(step.logprob for step in steps) / max(1, len(steps))
    return Reflected(
        text,
        math.exp(mean) if steps else 0.0,
        _share(steps[0].marks, RELEVANCE, (1.0, 0.0)) if steps else 0.0,
        _judged(steps, marks, SUPPORT, (1.0, 0.5, 0.0)),
        _judged(steps, marks, UTILITY, UTILITY_WEIGHTS),
        input_tokens,
        len(steps),
    )


def _judged(
    steps: Sequence[Step], marks: Mapping[str, int], kind: Sequence[str], weights: Sequence[float]
) -> float:
    """The weighted shares of a kind of token where the first of the kind was written."""
    ids = {marks[mark] for mark in kind}
    first = next((step for step in steps if step.token in ids), None)
    return _share(first.marks, kind, weights) if first else 0.0


def _share(odds: Mapping[str, float], kind: Sequence[str], weights: Sequence[float]) -> float:
    total = math.fsum(odds[mark] for mark in kind)
    weighted = math.fsum(odds[mark] * weight for mark, weight in zip(kind, weights, strict=True))
    return weighted / total if total else 0.0


def _asked(prompts: Prompts, question: str, before: str, marks: Mapping[str, int]) -> list[int]:
    """The prompt up to where a passage, or the rest of the answer, begins."""
    text = f"### Instruction:\n{question.strip()}\n\n### Response:\n{before}"
    # Some tokenizers do not flag these tokens as special: text must not become one even so.
    return prompts.literal(blunt(text, marks), beginning=True)


def _step(torch: Any, logits: Any, marks: Mapping[str, int]) -> Step:
    """The likeliest token, and the probabilities of the reflection tokens beside it."""
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    token = int(logprobs.argmax())
    odds = {mark: math.exp(float(logprobs[number])) for mark, number in marks.items()}
    return Step(token, float(logprobs[token]), odds)


def _marks(tokenizer: Any, name: str) -> dict[str, int]:
    """The ids of the reflection tokens.

    Raises:
        WeightsUnavailable: the model was not trained with them.
    """
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    wanted = (*_ENDS, *RELEVANCE, *SUPPORT, *UTILITY, *_PARAGRAPH)
    missing = [mark for mark in wanted if mark not in vocabulary]
    if missing:
        raise WeightsUnavailable(
            f"{name} is no Self-RAG model",
            f"it has no token {missing[0]}",
            "take selfrag/selfrag_llama2_7b, or leave reflection out",
        )
    return {mark: vocabulary[mark] for mark in wanted}
