"""Reading passages of which a compressor left only some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.documents import Span
from colligate.evidence.citing import Evidence
from colligate.evidence.compression import Compressed
from colligate.evidence.reader import Form
from colligate.strategies.answer import Answer
from colligate.strategies.reading import fitting, read
from colligate.strategies.run import Run
from colligate.strategies.trace import Event


@dataclass(frozen=True)
class Shortened(Event):
    """Passages were shortened: what is left of each, and its share of the passage's characters."""

    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    shares: tuple[float, ...]


async def read_shortened(
    question: str,
    passages: Sequence[Compressed],
    scores: Sequence[float],
    run: Run,
    *,
    strategy: str,
    form: Form = Form.SHORT,
) -> Answer:
    """Read what is left of some passages, in the order given; those with nothing are left out.

    The evidence is each passage whole, with the share of it that was shown as the reason: what
    was kept are hundreds of stretches.
    """
    left = [(each, score) for each, score in zip(passages, scores, strict=True) if each.kept]
    if passages and not left:
        run.warn("nothing is left of the passages: less must be dropped for an answer")
    run.emit(
        Shortened(
            tuple(each.span for each, _ in left),
            tuple(each.text for each, _ in left),
            tuple(each.share for each, _ in left),
        )
    )
    shown = await fitting(question, [each for each, _ in left], run, form)
    evidence = [
        Evidence(each.span, score, f"{each.share:.0%} of its characters were shown")
        for each, score in sorted(left[: len(shown)], key=lambda pair: -pair[1])
    ]
    return await read(question, shown, run, strategy=strategy, evidence=evidence, form=form)
