"""Draw the rows of `signals.py`: attention, contrast and fused score by place, and recall.

    python benchmarks/signals_picture.py --rows rows.jsonl [--out docs/pictures/signals.svg]

Above, the mean of each number at each place among the 20 documents, for the gold document and for
the others, as in Figure 1 of the DuQUAD paper; below, how often the gold document is among the
best six by each score, by its place. Rows of several models or prompts are not combined: choose
with `--model` and `--prompt`. The same rows give the same file. It needs matplotlib:
`pip install 'colligate[bench]'`.
"""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evidence_measuring import Row
from signals import BEST, compute_recalls, compute_scores

OUT = Path(__file__).parent.parent / "docs" / "pictures" / "signals.svg"
GREY = "#808891"  # text and axes: as far from white as from black
GOLD, OTHERS = "#c8871e", "#5b8fd9"
STYLE: dict[Any, object] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "colligate",  # the same rows give the same ids
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # its widths are known; a page uses its own font
    "font.size": 8,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
}
ABOVE = {
    "attention": "attention, in thousandths",
    "contrast": "contrast",
    "sfs": "SFS, the paper's fusion",
    "calibrated": "calibrated fusion",
}
# Recall has a colour, a line and a mark: lines must differ in more than colour.
BELOW = {
    "similarity": ("similarity", "#5b8fd9", ":", "s"),
    "likelihood": ("likelihood", "#9a78c9", ":", "^"),
    "attention": ("attention", "#d0605e", "--", "v"),
    "contrast": ("contrast", "#c8871e", "--", "D"),
    "sfs": ("SFS", "#4c9a6a", "-", "o"),
    "calibrated": ("calibrated", "#2a9d9d", "-", "P"),
}


def average_by_place(
    rows: Sequence[Row], name: str, times: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Return a score's mean at each place from 1, of gold documents and of the others."""
    gold: dict[int, list[float]] = {}
    others: dict[int, list[float]] = {}
    for row in rows:
        for at, score in enumerate(compute_scores(row["signals"])[name]):
            (gold if at == row["gold"] else others).setdefault(at + 1, []).append(times * score)
    return _means(gold), _means(others)


def compute_recall_by_place(rows: Sequence[Row], name: str) -> dict[int, float]:
    """Return the share of gold documents among the best by a score, by place from 1."""
    found: dict[int, list[float]] = {}
    for row in compute_recalls(rows):
        found.setdefault(row["position"] + 1, []).append(row["measures"][name])
    return _means(found)


def _means(values: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {place: float(np.mean(values[place])) for place in sorted(values)}


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the picture of one model's rows."""
    figure, places = pyplot.subplot_mosaic(
        [list(ABOVE), ["recall"] * len(ABOVE)], figsize=(9, 4.6), layout="constrained"
    )
    for name, title in ABOVE.items():
        axes: Axes = places[name]
        gold, others = average_by_place(rows, name, 1000 if name == "attention" else 1)
        axes.plot(list(others), list(others.values()), "-", color=OTHERS, label="other documents")
        axes.plot(list(gold), list(gold.values()), "D--", color=GOLD, label="gold document")
        axes.set_title(title, fontsize=9)
        axes.set_xticks([1, 5, 10, 15, 20])
        axes.set_xlabel("place of the document")
    places["attention"].legend(frameon=False, fontsize=7)
    recall: Axes = places["recall"]
    for name, (label, colour, line, mark) in BELOW.items():
        values = compute_recall_by_place(rows, name)
        recall.plot(
            list(values), list(values.values()), line, marker=mark, color=colour, label=label
        )
    recall.set_xticks([1, 5, 10, 15, 20])
    recall.set_ylim(-0.03, 1.03)
    recall.set_xlabel("place of the gold document")
    questions = len({row["question"] for row in rows})
    recall.set_title(f"gold document among the best {BEST}, {questions} questions", fontsize=9)
    recall.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, required=True, help="file that signals.py wrote")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--model", help="rows of this model only")
    parser.add_argument("--prompt", help="rows of this prompt only")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.rows.read_text("utf-8").splitlines()]
    for key in ("model", "prompt"):
        if wanted := getattr(arguments, key):
            rows = [row for row in rows if row[key] == wanted]
        if (count := len({row[key] for row in rows})) != 1:
            parser.error(f"expected rows of one {key}, got {count}: choose one with --{key}")
    with pyplot.rc_context(STYLE):
        figure = draw(rows)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    # A hundredth of a point is enough, and half the file.
    shorter = re.sub(r"(\d\.\d\d)\d+", r"\1", svg.getvalue())
    arguments.out.write_text(shorter, encoding="utf-8")


if __name__ == "__main__":
    main()
