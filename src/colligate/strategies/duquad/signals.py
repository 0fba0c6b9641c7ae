"""The Structural Fusion Score (section 3.1, Appendices H and I; equations 1 to 3).

Phi_i = alpha softmax(Phi_sim)_i + beta softmax(-Phi_ppl)_i + gamma softmax(Phi_cont)_i
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from colligate.core.events import Event, pluralize
from colligate.core.prompts import build_attention_prompt, escape, render_body
from colligate.core.relevance import score_similarity
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ContextTooSmall, MissingCapability, ModelError
from colligate.library.ranking import standardise
from colligate.models import Capability, Message, Role

_SPARE = 12  # tokens beside a document: our words around it, and marks that a model adds


class Signal(StrEnum):
    """A sign that a document is relevant; more is better, for each."""

    SIMILARITY = "similarity"  # Phi_sim: cosine of the question and the document (equation 1)
    LIKELIHOOD = "likelihood"  # -Phi_ppl: mean log P of the question's tokens (equation 2)
    ATTENTION = "attention"  # Phi_cont: attention compared with that to the neighbours


Weights = Mapping[Signal, float]

CAPABILITY = {Signal.LIKELIHOOD: Capability.LIKELIHOOD, Signal.ATTENTION: Capability.ATTENTION}
"""What a signal needs of the scorer."""


@dataclass(frozen=True)
class Weighted(Event):
    """Every document has its signals and their fusion, in the order given.

    `signals` are numbers by name: "similarity" (cosine), "likelihood" (mean log-probability of the
    question's tokens), "attention" (a_i, of the question's last token) and "contrast" (Phi_cont).
    `weights` are those that counted, `missing` the signals that no model could give.
    """

    spans: tuple[Span, ...]
    signals: Mapping[str, tuple[float, ...]]
    weights: Weights
    scores: tuple[float, ...]
    missing: tuple[Signal, ...]

    def line(self) -> str:
        signals = ", ".join(self.weights) or "no signal"
        return f"fused {signals} of {pluralize(len(self.spans), 'text')}"


async def fuse_signals(
    question: str, passages: Sequence[Passage], run: Run, weights: Weights
) -> Weighted:
    """Score documents for a question, the better the higher (equation 3).

    A signal without weight is not asked for. One that the models cannot give, or whose call fails,
    is left out and the others share its weight; similarity alone is warned of.
    """
    wanted = {signal: weights[signal] for signal in Signal if weights.get(signal) and passages}
    found: dict[str, list[float]] = {}
    phi: dict[Signal, list[float]] = {}
    missing = []
    for signal in wanted:
        try:
            if signal is Signal.SIMILARITY:
                phi[signal] = found["similarity"] = await score_similarity(question, passages, run)
            elif signal is Signal.LIKELIHOOD:
                phi[signal] = found["likelihood"] = await score_likelihood(question, passages, run)
            else:
                likeness = found.get("similarity") or found.get("likelihood") or [0] * len(passages)
                found["attention"] = await score_attention(question, passages, likeness, run)
                phi[signal] = found["contrast"] = contrast(found["attention"])
        except (ModelError, BudgetExceeded) as error:
            missing.append(signal)
            # What the scorer never declared is reported before the run; a server may fail to give
            # what it declares.
            declared = CAPABILITY.get(signal) in {None, *run.model(Role.SCORER).capabilities}
            if declared or not isinstance(error, MissingCapability):
                run.warn(f"{signal.value} is not used: {error}")
    if missing and list(phi) == [Signal.SIMILARITY]:
        run.warn("documents are ranked by similarity alone; a --scorer such as bundled gives more")
    counting = share_weights(wanted, missing)
    weighted = Weighted(
        tuple(passage.span for passage in passages),
        {name: tuple(values) for name, values in found.items()},
        counting,
        tuple(add_up(phi, counting) or [0.0] * len(passages)),
        tuple(missing),
    )
    run.emit(weighted)
    return weighted


def add_up(signals: Mapping[Signal, Sequence[float]], weights: Weights) -> list[float]:
    """Return the weighted sum of a softmax of each signal over the documents (equation 3)."""
    terms = [weights.get(signal, 0.0) * softmax(values) for signal, values in signals.items()]
    return [float(score) for score in sum(terms[1:], terms[0])] if terms else []


def share_weights(weights: Weights, missing: Collection[Signal]) -> dict[Signal, float]:
    """Return the weights of the signals that are there, scaled so that the sum stays."""
    there = {signal: weight for signal, weight in weights.items() if signal not in missing}
    whole, left = sum(weights.values()), sum(there.values())
    return {signal: weight * (whole / left) for signal, weight in there.items()} if left else {}


def softmax(values: Sequence[float]) -> NDArray[np.float64]:
    """Return exponentials that sum to 1, at temperature 1."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return array
    exponentials = np.exp(array - array.max())
    shares: NDArray[np.float64] = exponentials / exponentials.sum()
    return shares


# Structural inference (section 3.1.2)


async def score_likelihood(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    """Return -Phi_ppl of each document: the mean log P(q_t | D_i, q_<t) (equation 2)."""
    try:
        tokens = await run.likelihoods([likelihood_pair(question, each) for each in passages])
    except ContextTooSmall:
        model = run.model(Role.SCORER)
        if model.context_tokens is None:  # nothing tells how much to cut
            raise
        most = model.context_tokens - await model.count_tokens(question) - _SPARE
        cut = [await _cut(each, most, run) for each in passages]
        tokens = await run.likelihoods([likelihood_pair(question, each) for each in cut])
    return [sum(each) / max(1, len(each)) for each in tokens]


def likelihood_pair(question: str, passage: Passage) -> tuple[str, str]:
    """Return prefix and continuation of equation 2: the document D_i, then the question."""
    return f"{render_body(passage)}\n\nQuestion: ", escape(question.strip())


async def _cut(passage: Passage, most: int, run: Run) -> Passage:
    """Return a document without its end, if it has more than `most` tokens with its title."""
    model = run.model(Role.SCORER)
    over = await model.count_tokens(render_body(passage)) - most
    starts = [start for start, _ in await model.token_spans(passage.text)]
    if over <= 0:
        return passage
    return replace(passage, text=passage.text[: starts[-over] if over < len(starts) else 0])


# Attention contrast (section 3.1.3, Appendices H and I)


async def score_attention(
    question: str, passages: Sequence[Passage], likeness: Sequence[float], run: Run
) -> list[float]:
    """Return a_i: the mean attention of the last token of [Q; D_1; ...; D_N; Q] to each document.

    Documents that do not fit the scorer's window beside those with more `likeness` get the least of
    all.
    """
    places = list(range(len(passages)))
    try:
        values = await run.attention(*build_attention_prompt(question, passages))
    except ContextTooSmall:
        places = sorted(await _fit(question, passages, likeness, run))
        if not 0 < len(places) < len(passages):
            raise
        kept = [passages[at] for at in places]
        values = await run.attention(*build_attention_prompt(question, kept))
        run.warn(
            f"no attention is taken to {len(passages) - len(kept)} of "
            f"{pluralize(len(passages), 'text')}: they do not fit the window of "
            f"{run.model(Role.SCORER).name}"
        )
    found = dict(zip(places, values, strict=True))
    return [found.get(at, min(values)) for at in range(len(passages))]


async def _fit(
    question: str, passages: Sequence[Passage], likeness: Sequence[float], run: Run
) -> list[int]:
    """Return the places of the documents that the scorer's window holds, the likest first."""
    kept: list[int] = []
    for place in sorted(range(len(passages)), key=lambda at: -likeness[at]):
        text, _ = build_attention_prompt(question, [passages[at] for at in (*kept, place)])
        room = await run.room(Role.SCORER, [Message("user", text)], 0)
        if room is None or room >= 0:
            kept.append(place)
    return kept


def contrast(attention: Sequence[float]) -> list[float]:
    """Return Phi_cont: how much more attention a document gets than its neighbours.

    With z the standardised attention, Phi_cont_i = z_i - (z_{i-1} + z_{i+1}) / 2; at either end the
    one neighbour counts, without padding (Appendix H). A document alone has no contrast.
    """
    z = standardise(attention)
    if z.size < 2:
        return [0.0] * z.size
    neighbours = np.empty_like(z)
    neighbours[1:-1] = (z[:-2] + z[2:]) / 2
    neighbours[0], neighbours[-1] = z[1], z[-2]
    return [float(value) for value in z - neighbours]
