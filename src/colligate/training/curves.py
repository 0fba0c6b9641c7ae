"""The curve of a training: a line of `curve.jsonl` as it is measured, and the picture of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from colligate.evaluation.report.charts import Axis, Line, Point, lines
from colligate.evaluation.safe_files import Lines, json_line, write_whole

FILE, PICTURE = "curve.jsonl", "curve.svg"
_DRAWN = 60  # points of a line


@dataclass(frozen=True)
class Measured:
    """What was measured after a step.

    `loss` is the mean negative log-likelihood (nats) of the replies' tokens learnt from since the
    last line, `held_out_loss` that of the samples kept aside; a line has one of them or both. `lr`
    is the learning rate, `tokens` and `seconds` are counted from the beginning, over all sessions.
    """

    step: int
    epoch: float
    tokens: int
    seconds: float
    loss: float | None = None
    lr: float | None = None
    held_out_loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The line, without what was not measured."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class Curve:
    """The lines of a training on disk, and where more are put down.

    Lines after `step` are forgotten: the training goes on from there.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self._file = folder / FILE
        kept = [m for m in read_curve(self._file) if step and m.step <= step]
        self.measured = kept
        write_whole(self._file, (json_line(each.to_json()) for each in kept))

    @property
    def seconds(self) -> float:
        """How long the training took so far."""
        return self.measured[-1].seconds if self.measured else 0.0

    def add(self, measured: Measured) -> None:
        """Put a line down."""
        self.measured.append(measured)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json_line(measured.to_json()))


def read_curve(file: Path) -> list[Measured]:
    """The lines of a curve; none where there is no file. A last line that is not whole is no line.

    Raises:
        FaultyRecord: a line is none.
    """
    return list(_LINES.read(file)) if file.is_file() else []


_LINES = Lines(lambda line: Measured(**line), "none of a curve", "take it out, or delete the file")


def picture(measured: Sequence[Measured], title: str) -> str:
    """The losses against the steps, as an SVG that stands alone.

    Of many steps neighbours are drawn as their mean.
    """
    learnt = [(m.step, m.loss) for m in measured if m.loss is not None]
    kept = [(m.step, m.held_out_loss) for m in measured if m.held_out_loss is not None]
    drawn = lines(
        [
            Line("training", _points(_thinned(learnt), "training"), 0),
            Line("held out", _points(kept, "held out"), 1),
        ],
        Axis("step", floor=0.0),
        Axis("loss (nats a token)", floor=0.0),
        title=title,
    )
    head, _, rest = drawn.partition(">")
    return f"{head}><style>{_STYLE}</style>{rest}\n"


def _points(values: Sequence[tuple[float, float]], label: str) -> tuple[Point, ...]:
    return tuple(Point(x, y, title=f"{label}, step {x:g}: {y:.3f}") for x, y in values)


def _thinned(values: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    size = max(1, math.ceil(len(values) / _DRAWN))
    groups = (values[at : at + size] for at in range(0, len(values), size))
    return [
        (sum(step for step, _ in group) / len(group), sum(loss for _, loss in group) / len(group))
        for group in groups
    ]


_STYLE = """
svg { background: #fff; font-family: sans-serif; --ink: #1c1c1c; --soft: #666; --rule: #e3e3e3;
--c0: #1b5ea6; --c1: #b3541e; }
@media (prefers-color-scheme: dark) { svg { background: #16181b; --ink: #eee; --soft: #aaa;
--rule: #34383e; --c0: #82b6f2; --c1: #f0a172; } }
text { font-size: 12.5px; fill: var(--ink); } .tick, .quiet, .name { fill: var(--soft); }
line, polyline { fill: none; stroke: var(--soft); } .grid { stroke: var(--rule); }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .lead { stroke-width: .75; }
.series .stroke { stroke: var(--c); stroke-width: 2; } .mark { fill: var(--c); }
""".replace("\n", " ")
