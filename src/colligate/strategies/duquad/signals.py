"""What a model's numbers say about each of some passages for a question: DuQUAD's signals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from colligate.core.events import Event, counted
from colligate.core.prompts import _body, attention_prompt, escape
from colligate.core.relevance import similarities
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.errors import ColligateError, ContextTooSmall, MissingCapability
from colligate.models import Capability, Message, Prompt, Role

MIDDLE = (0.5, 0.67)
"""The depths of the layers that look for what is asked, as shares of all."""


class Signal(StrEnum):
    """What speaks for a passage; more is better, of each."""

    SIMILARITY = "similarity"  # cosine of the question and the passage
    LIKELIHOOD = "likelihood"  # mean log-probability of the question's tokens after the passage
    ATTENTION = "attention"  # what the question's tokens pay, less what place alone explains


def likelihood_pair(question: str, passage: Passage, *, told: bool = False) -> tuple[str, str]:
    """Prefix and continuation whose likelihood is asked: the passage, then the question.

    `told` says before the question what it is, as UPR does (Sachan et al. 2022).
    """
    between = "Please write a question that this passage answers.\n" if told else ""
    before = "Passage: " if told else ""
    return f"{before}{_body(passage)}\n\n{between}Question: ", escape(question.strip())


def standardised(values: Sequence[float]) -> NDArray[np.float64]:
    """z-scores by the population's deviation; zeros where all values are the same."""
    array = np.asarray(values, np.float64)
    deviation = array.std() if array.size else 0.0
    if deviation <= 1e-12 * max(1.0, float(np.abs(array).max(initial=0.0))):
        return np.zeros_like(array)
    standard: NDArray[np.float64] = (array - array.mean()) / deviation
    return standard


def contrast(attention: Sequence[float]) -> list[float]:
    """How much more attention each passage gets than its neighbours, in standard deviations.

    The mean of both neighbours in between, the one neighbour at either end: DuQUAD's appendix H,
    which pads nothing. A passage alone has no contrast.
    """
    z = standardised(attention)
    if z.size < 2:
        return [0.0] * z.size
    beside = np.empty_like(z)
    beside[1:-1] = (z[:-2] + z[2:]) / 2
    beside[0], beside[-1] = z[1], z[-2]
    return [float(value) for value in z - beside]


def calibrated(forth: Sequence[float], back: Sequence[float]) -> list[float]:
    """The attention that passages get in one order and in its reverse: the mean of the z-scores.

    What one order favours by place the other does not, as far as both ends are alike. Of passages
    ordered by something else than where they were given, that place plays no part at all. FiM
    (Hsieh et al. 2024) estimates what a place gets with a dummy document instead.
    """
    return [float(mean) for mean in (standardised(forth) + standardised(back)) / 2]


# Several signals about the same passages as one score.


class Fusion(StrEnum):
    """How signals become one score."""

    SFS = "sfs"  # DuQUAD's Structural Fusion Score
    CALIBRATED = "calibrated"  # ours: the order in which passages are given plays no part


Weights = Mapping[Signal, float]

WEIGHTS: Mapping[Fusion, Weights] = {
    # Table 6 of the paper.
    Fusion.SFS: {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5},
    # Learned from development questions: docs/benchmarks.md.
    Fusion.CALIBRATED: {Signal.SIMILARITY: 0.4, Signal.LIKELIHOOD: 0.6, Signal.ATTENTION: 0.6},
}


def softmax(values: Sequence[float]) -> NDArray[np.float64]:
    """Exponentials that sum to 1, of temperature 1."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return array
    exponentials = np.exp(array - array.max())
    shares: NDArray[np.float64] = exponentials / exponentials.sum()
    return shares


def reweighted(weights: Weights, missing: Collection[Signal]) -> dict[Signal, float]:
    """The weights of the signals there are, raised alike so that their sum stays."""
    there = {signal: weight for signal, weight in weights.items() if signal not in missing}
    whole, left = sum(weights.values()), sum(there.values())
    return {signal: weight * (whole / left) for signal, weight in there.items()} if left else {}


def fused(
    fusion: Fusion, signals: Mapping[Signal, Sequence[float]], weights: Weights
) -> list[float]:
    """One score a passage: a weighted sum of its signals, each put on a common scale first.

    By softmax over the passages for the Structural Fusion Score (DuQUAD's equation 3, whose
    likelihood is the negative of its loss and whose attention is the contrast); by z-scores for
    the calibrated one, since a softmax of cosines is nearly flat and hardly counts.
    """
    scale = softmax if Fusion(fusion) is Fusion.SFS else standardised
    terms = [weights.get(signal, 0.0) * scale(values) for signal, values in signals.items()]
    return [float(score) for score in sum(terms[1:], terms[0])] if terms else []


# DuQUAD's signals, asked of the run's models, and their fusion.

CAPABILITY = {
    Signal.LIKELIHOOD: Capability.LIKELIHOOD,
    Signal.ATTENTION: Capability.ATTENTION,
}
"""What the scorer must be able to do for a signal; similarity is the embedder's."""


@dataclass(frozen=True)
class Shared:
    """Messages that a reader will be sent anyway, and where each passage stands in the last one.

    Its content ends where the question does. A scorer that is the reader takes the attention for
    the paper's fusion on them, and the reader then goes on from there without reading them again.
    """

    messages: Sequence[Message]
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Fused:
    """The fused score of each passage, in their order, and what it was made of.

    `signals` are the numbers by name: "similarity" (cosine), "likelihood" (mean log-probability of
    the question's tokens), "attention" (mean of the question's last token, or of all its tokens in
    the middle layers), "attention in reverse" (of the same passages, the last first), and what is
    made of these, "contrast" or "calibrated". `weights` are those that counted, `missing` the
    signals that nobody could give.
    """

    scores: tuple[float, ...]
    signals: Mapping[str, tuple[float, ...]]
    weights: Weights
    missing: tuple[Signal, ...] = ()


@dataclass(frozen=True)
class Weighted(Event):
    """Every passage has its signals and their fusion (`Fused`), in the order given."""

    spans: tuple[Span, ...]
    fusion: Fusion
    signals: Mapping[str, tuple[float, ...]]
    weights: Weights
    scores: tuple[float, ...]
    missing: tuple[Signal, ...]

    def line(self) -> str:
        return f"fused {', '.join(self.weights)} of {counted(len(self.spans), 'text')}"


async def fused_scores(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    fusion: Fusion = Fusion.SFS,
    weights: Weights | None = None,
    without: Collection[Signal] = (),
    shared: Shared | None = None,
) -> Fused:
    """Score passages for a question, the better the higher; `weights` default to the fusion's.

    Signals in `without`, or of no weight, are not asked for. One that the models cannot give, or
    for which a prompt does not fit the scorer's window, is left out, and the others share its
    weight.
    """
    fusion = Fusion(fusion)  # its name will do
    weights = WEIGHTS[fusion] if weights is None else weights
    wanted = [s for s in Signal if weights.get(s, 0.0) and s not in without] if passages else []
    asking = _Asking(question, passages, run, fusion, shared)
    missing, scores = [], {}
    for signal in wanted:
        try:
            scores[signal] = await asking.of(signal)
        except (MissingCapability, ContextTooSmall) as error:
            missing.append(signal)
            _say_missing(signal, error, run)
    counting = reweighted({signal: weights[signal] for signal in wanted}, missing)
    result = Fused(
        tuple(fused(fusion, scores, counting) or [0.0] * len(passages)),
        {name: tuple(values) for name, values in asking.found.items()},
        counting,
        tuple(missing),
    )
    spans = tuple(passage.span for passage in passages)
    run.emit(Weighted(spans, fusion, result.signals, counting, result.scores, result.missing))
    return result


def _say_missing(signal: Signal, error: ColligateError, run: Run) -> None:
    """What was not declared is said before the run begins; a server may turn out not to."""
    if CAPABILITY.get(signal) in run.model(Role.SCORER).capabilities:
        run.warn(f"done without {signal.value}: {error}")


@dataclass
class _Asking:
    """Asks for signals; `found` are all numbers, raw and made, by name."""

    question: str
    passages: Sequence[Passage]
    run: Run
    fusion: Fusion
    shared: Shared | None
    found: dict[str, list[float]] = field(default_factory=dict)

    async def of(self, signal: Signal) -> list[float]:
        """What counts of a signal.

        Raises:
            MissingCapability: nobody can give it.
        """
        if signal is Signal.SIMILARITY:
            self.found["similarity"] = await similarities(self.question, self.passages, self.run)
            return self.found["similarity"]
        if signal is Signal.LIKELIHOOD:
            told = self.fusion is not Fusion.SFS
            pairs = [likelihood_pair(self.question, each, told=told) for each in self.passages]
            tokens = await self.run.likelihoods(pairs)
            self.found["likelihood"] = [sum(each) / max(1, len(each)) for each in tokens]
            return self.found["likelihood"]
        if self.fusion is Fusion.SFS:
            self.found["attention"] = await self.run.attention(*self._prompt())
            self.found["contrast"] = contrast(self.found["attention"])
            return self.found["contrast"]
        order = self._order()
        self.found["attention"] = await self._attention(order)
        self.found["attention in reverse"] = await self._attention(order[::-1])
        self.found["calibrated"] = calibrated(
            self.found["attention"], self.found["attention in reverse"]
        )
        return self.found["calibrated"]

    def _order(self) -> list[int]:
        """The passages from the least similar, or likely, to the most: not as they were given."""
        known = self.found.get("similarity") or self.found.get("likelihood")
        if known is None:
            return list(range(len(self.passages)))
        return sorted(range(len(known)), key=known.__getitem__)

    async def _attention(self, order: Sequence[int]) -> list[float]:
        """The attention of the whole question to each passage, shown in this order before it."""
        shown_so = [self.passages[place] for place in order]
        text, spans = attention_prompt(self.question, shown_so, lead=False)
        asked = len(text) - len(escape(self.question.strip()))
        found = await self.run.attention(text, spans, query=asked, layers=MIDDLE)
        by_place = dict(zip(order, found, strict=True))
        return [by_place[place] for place in range(len(order))]

    def _prompt(self) -> tuple[Prompt, Sequence[tuple[int, int]]]:
        scorer, reader = self.run.model(Role.SCORER), self.run.model(Role.READER)
        if self.shared is not None and scorer is reader:
            return self.shared.messages, self.shared.spans
        return attention_prompt(self.question, self.passages)
