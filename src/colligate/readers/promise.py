"""The promise: how probable it is that an answer is right, and how sure one must be for a risk.

A logistic regression over what the small models say of an answer gives the probability. It was
fitted on questions of training sets, with passages that a search found; for a part of them those
that answer were taken away (`benchmarks/pointwise.py`, which wrote `promise.json`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal

from colligate.core.answer import NOT_FOUND, Answer
from colligate.core.events import Answered, Noted
from colligate.core.run import RISKS, Run

_USUAL = RISKS["eager"]  # of a reader without a risk

Way = Literal["read", "found", "cell", "row"]
"""What an answer comes from: read by a small reader, or found without it; and cells of tables.

A cell is read from a passage, or it is a row whose label is like its column.
"""

FOUND: Way = "found"
"""How the place of an answer was found that no reader has read."""


@dataclass(frozen=True)
class Promise:
    """The probability of one way to answer, and the answers that it was fitted on.

    `weights` are those of the signs, after the constant. `curve` has the probability of each
    answer, falling, and whether it was right: its risk by coverage.
    """

    weights: tuple[float, ...]
    curve: tuple[tuple[float, bool], ...]

    def probability(self, signs: Sequence[float]) -> float:
        """Return the probability that an answer with these signs is right."""
        weighed = zip(self.weights, (1.0, *signs), strict=True)
        return 1 / (1 + math.exp(-sum(weight * sign for weight, sign in weighed)))

    def limit(self, risk: float) -> float:
        """Return the least probability of answers of which at most this share is wrong.

        It is the conformal limit: among the fitted answers from it on, with one wrong answer more,
        the share of wrong ones is at most `risk`. For new questions like those this holds about on
        average (Jin and Candès 2023). Infinite where no answer is sure enough.
        """
        least, wrong = math.inf, 1
        for given, (probability, right) in enumerate(self.curve, 2):
            wrong += not right
            rest = self.curve[given - 1 : given]
            tied = bool(rest) and rest[0][0] == probability
            if not tied and wrong / given <= risk:
                least = probability
        return least


def is_likely(answer: Answer, run: Run) -> bool:
    """Return whether an answer is likely enough for a reader to give it, or to go on from it.

    A smaller risk than the usual one is kept by the whole answer alone (`keep_promise`).
    """
    limit = load_promise("read").limit(max(_USUAL, run.risk or 0.0))
    if answer.probability is None or answer.probability >= limit:
        return True
    run.emit(Noted(_say_left_out(answer)))
    return False


@cache
def load_promise(way: Way) -> Promise:
    """Return what is carried for a way to answer."""
    file = resources.files(__package__) / "promise.json"
    fitted = json.loads(file.read_text("utf-8"))[way]
    curve = tuple((float(p), bool(right)) for p, right in fitted["curve"])
    return Promise(tuple(fitted["weights"]), curve)


def logit(odds: float) -> float:
    """Return the logarithm of odds against their rest, within about 14."""
    odds = min(max(odds, 1e-6), 1 - 1e-6)
    return math.log(odds / (1 - odds))


def keep_promise(answer: Answer, run: Run) -> Answer:
    """Return the answer, or a refusal if it is less sure than the run's risk allows.

    The refusal keeps what was read, and a warning says what was left out.
    """
    if run.risk is None or not answer.found:
        return answer
    if answer.probability is None:
        run.warn("no probability is known for this answer, so --risk says nothing about it")
        return answer
    without = any(each.how == FOUND for each in answer.citations)
    if answer.probability >= load_promise(FOUND if without else "read").limit(run.risk):
        return answer
    run.warn(f"{_say_left_out(answer)}; --risk {run.risk:g} asks for more")
    run.emit(Answered(False, "", ()))
    left = replace(answer, text=NOT_FOUND, short=None, found=False, citations=())
    return replace(left, probability=None)


def _say_left_out(answer: Answer) -> str:
    said = answer.short or answer.text
    return f"“{said}” is left out: it is right with a probability of {answer.probability:.2f}"
