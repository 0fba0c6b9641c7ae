"""Signals and their fusion (sections 3.1 and Appendix H of DuQUAD, equations 1 to 3).

`fuse_signals` asks the run's models for three signals of each document and adds them up:

    SFS_i = alpha softmax(sim)_i + beta softmax(-nll)_i + gamma softmax(cont)_i

Two fusions are ours. Both add z-scores in place of softmax, of the signals that the models can
give. `calibrated` takes attention in two opposite orders and the likelihood of a question that is
announced; `reranked` takes similarity and a reranker's score, without a pass of the scorer. Given a
weight, the reranker's score is a fourth signal of the other fusions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from colligate.core.events import Event, pluralize
from colligate.core.prompts import build_attention_prompt, escape, render_body
from colligate.core.relevance import score_similarity
from colligate.core.run import Run, standardise
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ContextTooSmall, MissingCapability, ModelError
from colligate.models import Capability, Message, Role

AgentPrompt = tuple[list[Message], list[tuple[int, int]]]
"""An agent's prompt, and the span of each document in its last message."""

MIDDLE = (0.5, 0.67)
"""The layers that look for what is asked, as shares of the model's depth."""

_SPARE = 8  # tokens of the scorer's window for what a model adds: marks of beginning and end


class Signal(StrEnum):
    """A sign that a passage is relevant; more is better, for each."""

    SIMILARITY = "similarity"  # sim: cosine of the question and the passage (equation 1)
    LIKELIHOOD = "likelihood"  # -nll: mean log P of the question's tokens (equation 2)
    ATTENTION = "attention"  # cont: attention of the question compared with the neighbours
    RERANKER = "reranker"  # ours: the score of the run's reranker


class Fusion(StrEnum):
    """How signals become one score."""

    RERANKED = "reranked"  # ours: similarity and reranker
    CALIBRATED = "calibrated"  # ours: the given order of the passages plays no part
    SFS = "sfs"  # DuQUAD's Structural Fusion Score (equation 3)


Weights = Mapping[Signal, float]

WEIGHTS: Mapping[Fusion, Weights] = {
    # alpha, beta, gamma; Table 6 of the paper.
    Fusion.SFS: {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5},
    # Learned from development questions: docs/benchmarks.md. The reranker's weight is not yet: 0.
    Fusion.CALIBRATED: {Signal.SIMILARITY: 0.4, Signal.LIKELIHOOD: 0.6, Signal.ATTENTION: 0.6},
    Fusion.RERANKED: {Signal.SIMILARITY: 1.0, Signal.RERANKER: 1.0},
}

CAPABILITY = {
    Signal.LIKELIHOOD: Capability.LIKELIHOOD,
    Signal.ATTENTION: Capability.ATTENTION,
}
"""What a signal needs of the scorer."""


@dataclass(frozen=True)
class Weighted(Event):
    """Every passage has its signals and their fusion, in the order given.

    `signals` are numbers by name: "similarity" (cosine), "likelihood" (mean log-probability of the
    question's tokens), "attention" (mean of the question's last token, or of all its tokens in the
    middle layers), "attention in reverse" (of the same passages in reverse order), and "contrast"
    or "calibrated", which are computed from these. `weights` are those that counted, `missing` the
    signals that no model could give.
    """

    spans: tuple[Span, ...]
    fusion: Fusion
    signals: Mapping[str, tuple[float, ...]]
    weights: Weights
    scores: tuple[float, ...]
    missing: tuple[Signal, ...]

    def line(self) -> str:
        signals = ", ".join(self.weights) or "no signal"
        return f"fused {signals} of {pluralize(len(self.spans), 'text')}"


async def fuse_signals(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    fusion: Fusion = Fusion.CALIBRATED,
    weights: Weights | None = None,
    without: Collection[Signal] = (),
    agent_prompt: AgentPrompt | None = None,
) -> Weighted:
    """Score passages for a question, the better the higher.

    `weights` default to the fusion's. Signals in `without`, or without weight, are not asked for.
    A signal that the models cannot give, or whose call fails, is left out and the others share its
    weight; similarity alone is warned of. If scorer and reader are one model, SFS takes attention
    on `agent_prompt`, whose computation the agent's own call then reuses.
    """
    fusion = Fusion(fusion)  # a name is accepted too
    weights = WEIGHTS[fusion] if weights is None else weights
    wanted = [s for s in Signal if weights.get(s, 0.0) and s not in without] if passages else []
    one_model = run.model(Role.SCORER) is run.model(Role.READER)
    asking = _Asking(question, passages, run, fusion, agent_prompt if one_model else None)
    missing, scores = [], {}
    for signal in wanted:
        try:
            scores[signal] = await asking.ask(signal)
        except (ModelError, BudgetExceeded) as error:
            missing.append(signal)
            # What was never declared is reported before the run; a server may fail to give it.
            declared = CAPABILITY.get(signal) in run.model(Role.SCORER).capabilities
            if declared or not isinstance(error, MissingCapability):
                run.warn(f"{signal.value} is not used: {error}")
    if missing and list(scores) == [Signal.SIMILARITY]:
        run.warn("documents are ranked by similarity alone; a --scorer such as bundled gives more")
    counting = share_weights({signal: weights[signal] for signal in wanted}, missing)
    weighted = Weighted(
        tuple(passage.span for passage in passages),
        fusion,
        {name: tuple(values) for name, values in asking.found.items()},
        counting,
        tuple(add_up(fusion, scores, counting) or [0.0] * len(passages)),
        tuple(missing),
    )
    run.emit(weighted)
    return weighted


def add_up(
    fusion: Fusion, signals: Mapping[Signal, Sequence[float]], weights: Weights
) -> list[float]:
    """Return one score for each passage: the weighted sum of its signals on a common scale.

    The scale is a softmax over the passages for SFS (equation 3); z-scores for our fusions, because
    a softmax of cosines is nearly uniform and hardly counts.
    """
    scale = softmax if Fusion(fusion) is Fusion.SFS else standardise
    terms = [weights.get(signal, 0.0) * scale(values) for signal, values in signals.items()]
    return [float(score) for score in sum(terms[1:], terms[0])] if terms else []


def share_weights(weights: Weights, missing: Collection[Signal]) -> dict[Signal, float]:
    """Return the weights of the signals that are there, scaled so that the sum stays."""
    there = {signal: weight for signal, weight in weights.items() if signal not in missing}
    whole, left = sum(weights.values()), sum(there.values())
    return {signal: weight * (whole / left) for signal, weight in there.items()} if left else {}


def make_likelihood_pair(
    question: str, passage: Passage, *, introduced: bool = False
) -> tuple[str, str]:
    """Return prefix and continuation of equation 2: the passage D_i, then the question's tokens.

    `introduced` announces the question before it, as UPR does (Sachan et al. 2022).
    """
    between = "Please write a question that this passage answers.\n" if introduced else ""
    before = "Passage: " if introduced else ""
    return f"{before}{render_body(passage)}\n\n{between}Question: ", escape(question.strip())


def contrast(attention: Sequence[float]) -> list[float]:
    """Return cont_i: how much more attention a passage gets than its neighbours (Appendix H).

    With z the standardised attention, cont_i = z_i - (z_{i-1} + z_{i+1}) / 2; at either end the one
    neighbour counts, without padding. A passage alone has no contrast.
    """
    z = standardise(attention)
    if z.size < 2:
        return [0.0] * z.size
    neighbours = np.empty_like(z)
    neighbours[1:-1] = (z[:-2] + z[2:]) / 2
    neighbours[0], neighbours[-1] = z[1], z[-2]
    return [float(value) for value in z - neighbours]


def calibrate(forth: Sequence[float], back: Sequence[float]) -> list[float]:
    """Return the mean of the z-scores of attention in one order and in its reverse.

    What one order favours by place the other does not, as far as both ends are alike; for passages
    sorted by something else than their given order, that order plays no part at all. FiM (Hsieh et
    al. 2024) estimates the effect of a place with a dummy document instead.
    """
    return [float(mean) for mean in (standardise(forth) + standardise(back)) / 2]


def softmax(values: Sequence[float]) -> NDArray[np.float64]:
    """Return exponentials that sum to 1, at temperature 1."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return array
    exponentials = np.exp(array - array.max())
    shares: NDArray[np.float64] = exponentials / exponentials.sum()
    return shares


@dataclass
class _Asking:
    """Asks the run's models for signals; `found` are all numbers, raw and computed, by name."""

    question: str
    passages: Sequence[Passage]
    run: Run
    fusion: Fusion
    agent_prompt: AgentPrompt | None
    found: dict[str, list[float]] = field(default_factory=dict)

    async def ask(self, signal: Signal) -> list[float]:
        """Return the values of a signal that count."""
        question, passages = self.question, self.passages
        if signal is Signal.SIMILARITY:
            return self._keep("similarity", await score_similarity(question, passages, self.run))
        if signal is Signal.RERANKER:
            if not await self.run.suits_reranker(passages):
                raise MissingCapability(
                    "the run has no reranker for these documents", hint="name a --reranker"
                )
            return self._keep("reranker", await self.run.rerank(question, passages))
        if signal is Signal.LIKELIHOOD:
            try:
                tokens = await self.run.likelihoods([self._pair(each) for each in passages])
            except ContextTooSmall:
                cut = [await self._cut(each) for each in passages]
                tokens = await self.run.likelihoods([self._pair(each) for each in cut])
            return self._keep("likelihood", [sum(each) / max(1, len(each)) for each in tokens])
        if self.fusion is Fusion.SFS:
            attention = self._keep("attention", await self._attention(range(len(passages))))
            return self._keep("contrast", contrast(attention))
        order = self._order()
        forth = self._keep("attention", await self._attention(order))
        back = self._keep("attention in reverse", await self._attention(order[::-1]))
        return self._keep("calibrated", calibrate(forth, back))

    def _keep(self, name: str, values: list[float]) -> list[float]:
        self.found[name] = values
        return values

    def _pair(self, passage: Passage) -> tuple[str, str]:
        introduced = self.fusion is not Fusion.SFS
        return make_likelihood_pair(self.question, passage, introduced=introduced)

    async def _cut(self, passage: Passage) -> Passage:
        """Return a passage without what does not fit the scorer's window at its end."""
        model = self.run.model(Role.SCORER)
        while model.context_tokens is not None and passage.text:
            counts = [await model.count_tokens(text) for text in self._pair(passage)]
            over = sum(counts) + _SPARE - model.context_tokens
            if over <= 0:
                break
            starts = [start for start, _ in await model.token_spans(passage.text)]
            passage = replace(
                passage, text=passage.text[: starts[-over] if over < len(starts) else 0]
            )
        return passage

    def _order(self) -> list[int]:
        """Sort the passages from the least similar, or likely, to the most."""
        return sorted(range(len(self.passages)), key=self._likeness().__getitem__)

    def _likeness(self) -> list[float]:
        known = self.found.get("similarity") or self.found.get("likelihood")
        return known or [0.0] * len(self.passages)

    async def _attention(self, order: Sequence[int]) -> list[float]:
        """Return the attention to each passage, shown in this order.

        Those that do not fit the scorer's window beside more similar ones get the least of all.
        """
        try:
            found = await self._attend(order)
        except ContextTooSmall:
            kept = await self._fit()
            if not 0 < len(kept) < len(order):
                raise
            found = await self._attend([place for place in order if place in kept])
            left, name = len(order) - len(kept), self.run.model(Role.SCORER).name
            self.run.warn(
                f"no attention is taken to {left} of {pluralize(len(order), 'text')}: "
                f"they do not fit the window of {name}"
            )
        least = min(found.values())
        return [found.get(place, least) for place in range(len(order))]

    async def _attend(self, order: Sequence[int]) -> dict[int, float]:
        """Return the attention to the passages at these places: of the question's last token for
        SFS, otherwise of the whole question."""
        text, spans = self._show(order)
        if self.fusion is not Fusion.SFS:
            first = len(text) - len(escape(self.question.strip()))
            found = await self.run.attention(text, spans, query=first, layers=MIDDLE)
        elif self.agent_prompt and len(order) == len(self.passages):
            found = await self.run.attention(*self.agent_prompt)
        else:
            found = await self.run.attention(text, spans)
        return dict(zip(order, found, strict=True))

    def _show(self, order: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        shown = [self.passages[place] for place in order]
        return build_attention_prompt(self.question, shown, lead=self.fusion is Fusion.SFS)

    async def _fit(self) -> list[int]:
        """Return the places of the passages that the scorer's window holds, most similar first."""
        kept: list[int] = []
        likeness = self._likeness()
        for place in sorted(range(len(likeness)), key=lambda at: -likeness[at]):
            prompt = [Message("user", self._show([*kept, place])[0])]
            room = await self.run.room(Role.SCORER, prompt, 0)
            if room is None or room >= 0:
                kept.append(place)
        return kept
