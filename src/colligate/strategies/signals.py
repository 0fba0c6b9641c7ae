"""DuQUAD's signals, asked of the run's models, and their fusion."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from colligate.documents import Passage, Span
from colligate.errors import ColligateError, ContextTooSmall, MissingCapability
from colligate.evidence.fusion import WEIGHTS, Fusion, Weights, fused, reweighted
from colligate.evidence.material import material
from colligate.evidence.signals import (
    MIDDLE,
    Signal,
    attention_prompt,
    calibrated,
    contrast,
    likelihood_pair,
)
from colligate.models import Capability, Message, Prompt, Role
from colligate.strategies.run import Run, shown
from colligate.strategies.trace import Event

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
        asked = len(text) - len(material(self.question.strip()))
        found = await self.run.attention(text, spans, query=asked, layers=MIDDLE)
        by_place = dict(zip(order, found, strict=True))
        return [by_place[place] for place in range(len(order))]

    def _prompt(self) -> tuple[Prompt, Sequence[tuple[int, int]]]:
        scorer, reader = self.run.model(Role.SCORER), self.run.model(Role.READER)
        if self.shared is not None and scorer is reader:
            return self.shared.messages, self.shared.spans
        return attention_prompt(self.question, self.passages)


async def similarities(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    """Cosine of the question and each passage with its title and headings; 0 for a blank one."""
    query = (await run.embed([question], kind="query"))[0]
    vectors = await run.embed([shown(passage) for passage in passages])
    cosines = (vectors @ query).tolist()
    return [
        float(cosine) if passage.text.strip() else 0.0
        for cosine, passage in zip(cosines, passages, strict=True)
    ]
