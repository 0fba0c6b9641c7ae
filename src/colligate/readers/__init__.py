"""Readers and checks: from passages to a checked answer.

`quoting` suits any model, `pointwise` small models, `plain` measurements. A session chooses one
for the run, and a strategy that calls `Run.read` cannot tell which it has.
"""

from __future__ import annotations

from typing import Literal, get_args

from colligate.core.run import Reader
from colligate.errors import UsageError, closest
from colligate.models import ChatModel

ReaderName = Literal["auto", "quoting", "pointwise", "plain"]
READER_NAMES: tuple[ReaderName, ...] = get_args(ReaderName)

SMALL = 7_000_000_000
"""Weights below which a model of this process is read pointwise: the size of the papers' readers.

The bundled model of 1.5 billion weights alone was measured (docs/benchmarks.md).
"""


def is_small(model: ChatModel) -> bool:
    """Return whether a model runs in this process and declares fewer than `SMALL` weights."""
    weights: int | None = getattr(model, "weights", None)
    return weights is not None and weights < SMALL


def make_reader(name: str, model: ChatModel) -> Reader:
    """Return the reader of a name; `auto` is `pointwise` for a small model, else `quoting`."""
    from colligate.readers.plain import PlainReader
    from colligate.readers.pointwise import SMALL_FORMS, PointwiseReader
    from colligate.readers.quoting import QuotingReader

    if name == "auto":
        name = "pointwise" if is_small(model) else "quoting"
    if name == "pointwise":
        return PointwiseReader()
    if name == "plain":
        return PlainReader()
    if name == "quoting":
        return QuotingReader(SMALL_FORMS) if is_small(model) else QuotingReader()
    near = closest(name, READER_NAMES)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(READER_NAMES)}"
    raise UsageError(f"there is no reader {name!r}", hint=hint)
