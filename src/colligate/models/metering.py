"""Metering: calls, tokens, seconds and dollars of a run, by role."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypedDict

from colligate.errors import UsageError
from colligate.models.base import Price, Usage
from colligate.models.structured import STAGES, Stage

Kind = Literal["chat", "scoring"]

_NOTHING = Usage()

_DATED = re.compile(r"-20\d\d-?[01]\d-?[0-3]\d$")


@dataclass(frozen=True)
class Call:
    """One call to a model. `usd` is None when its price is not known.

    `passes` counts scores: likelihoods, labels, attention, rerankings. An answer from colligate's
    own cache is `cached` and costs nothing. `step` is the step of the method (`Meter.step`).
    """

    role: str
    model: str
    kind: Kind
    usage: Usage
    seconds: float
    usd: float | None
    passes: int = 0
    cached: bool = False
    step: str = ""


class Sums(TypedDict):
    """The cost of some calls together."""

    calls: int
    input_tokens: int
    output_tokens: int
    scoring_passes: int
    seconds: float
    cost_usd: float | None


@dataclass(frozen=True)
class UsageReport:
    """The cost of a run, in total and by role. `cost_usd` is None when a price is not known.

    `calls` and tokens leave out what the cache answered; `remembered` counts that: calls, and
    passes of scoring. `structured` counts the answers that had to be JSON, cached ones too, by
    their result (`structured.Stage`). `by_step` are the steps that a method names (`Meter.step`).
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    scoring_passes: int = 0
    retrieval_rounds: int = 0
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    by_role: Mapping[str, Sums] = field(default_factory=dict)
    structured: Mapping[Stage, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    remembered: int = 0
    by_step: Mapping[str, Sums] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the usage as `ask --json` prints it."""
        return {
            **vars(self),
            "seconds": round(self.seconds, 3),
            "by_role": {role: dict(sums) for role, sums in self.by_role.items()},
            "by_step": {step: dict(sums) for step, sums in self.by_step.items()},
            "structured": dict(self.structured),
        }


class Prices:
    """A price table: patterns of model names, of which the first match counts."""

    def __init__(self, rows: Iterable[tuple[str, Price]]) -> None:
        self._rows = list(rows)

    @classmethod
    def load(cls, path: str | Path | None = None) -> Prices:
        """Load the table in `path`, or in the file `COLLIGATE_PRICES`, before the built-in one.

        Raises:
            UsageError: the file cannot be read, or is not a price table.
        """
        built_in = resources.files(__package__).joinpath("prices.toml").read_text("utf-8")
        rows = _rows(tomllib.loads(built_in))
        path = path or os.environ.get("COLLIGATE_PRICES")
        if path:
            try:
                rows = _rows(tomllib.loads(Path(path).read_text("utf-8"))) + rows
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise UsageError(
                    f"the price table {path} cannot be used",
                    f"{type(error).__name__}: {error}",
                    "write [[price]] tables with names, input, output (see docs/models.md)",
                ) from None
        return cls(rows)

    def of(self, model: str) -> Price | None:
        """Return the model's price, or None if the table has none."""
        undated = _DATED.sub("", model)
        for pattern, price in self._rows:
            if fnmatchcase(model, pattern) or fnmatchcase(undated, pattern):
                return price
        return None


def _rows(table: Mapping[str, Any]) -> list[tuple[str, Price]]:
    rows = []
    for entry in table["price"]:
        cached = entry.get("cached")
        price = Price(
            input=float(entry["input"]),
            output=float(entry["output"]),
            cached=None if cached is None else float(cached),
            source=str(entry.get("source", "")),
        )
        rows += [(str(name), price) for name in entry["names"]]
    return rows


_STEP: ContextVar[str] = ContextVar("step", default="")


@dataclass
class Meter:
    """Records every call of a run."""

    prices: Prices = field(default_factory=Prices.load)
    calls: list[Call] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    retrieval_rounds: int = 0
    stages: dict[Stage, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    tokens: int = field(default=0, init=False)
    """Tokens in and out of all calls so far, without those that the cache answered."""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the calls inside, and of tasks begun inside, as a step of the method."""
        token = _STEP.set(name)
        try:
            yield
        finally:
            _STEP.reset(token)

    def chat(
        self, role: str, model: str, usage: Usage, *, seconds: float, cached: bool = False
    ) -> Call:
        """Record a chat call."""
        return self.record(role, model, "chat", usage, seconds=seconds, cached=cached)

    def scoring(
        self,
        role: str,
        model: str,
        *,
        passes: int,
        seconds: float,
        usage: Usage = _NOTHING,
        cached: bool = False,
    ) -> Call:
        """Record likelihoods, labels, attention or rerankings, `passes` of them."""
        return self.record(
            role, model, "scoring", usage, seconds=seconds, passes=passes, cached=cached
        )

    def retrieval(self) -> None:
        """Record a search."""
        self.retrieval_rounds += 1

    def structured(self, stage: Stage) -> None:
        """Record the result of an answer that had to be JSON."""
        self.stages[stage] += 1

    def record(
        self,
        role: str,
        model: str,
        kind: Kind,
        usage: Usage,
        *,
        seconds: float,
        passes: int = 0,
        cached: bool = False,
    ) -> Call:
        """Record one call; warn once about a model without a price."""
        usd: float | None = 0.0
        if not cached:
            self.tokens += usage.input_tokens + usage.output_tokens
            price = self.prices.of(model)
            usd = None if price is None else price.of(usage)
            warning = f"the price of {model} is not known; give one with COLLIGATE_PRICES"
            if price is None and warning not in self.warnings:
                self.warnings.append(warning)
        call = Call(str(role), model, kind, usage, seconds, usd, passes, cached, _STEP.get())
        self.calls.append(call)
        return call

    def report(self, *, seconds: float | None = None) -> UsageReport:
        """Return the sums; `seconds` is the run's own time, by default the sum over its calls."""
        sums = _sums(self.calls)
        roles = dict.fromkeys(call.role for call in self.calls)
        by_role = {role: _sums(c for c in self.calls if c.role == role) for role in roles}
        steps = dict.fromkeys(call.step for call in self.calls if call.step)
        if seconds is not None:
            sums["seconds"] = seconds
        return UsageReport(
            **sums,
            retrieval_rounds=self.retrieval_rounds,
            by_role=by_role,
            structured=dict(self.stages),
            remembered=sum(call.passes or 1 for call in self.calls if call.cached),
            by_step={step: _sums(c for c in self.calls if c.step == step) for step in steps},
        )


def _sums(calls: Iterable[Call]) -> Sums:
    every = list(calls)
    fresh = [call for call in every if not call.cached]
    prices = [call.usd for call in fresh if call.usd is not None]
    return {
        "calls": sum(call.kind == "chat" for call in fresh),
        "input_tokens": sum(call.usage.input_tokens for call in fresh),
        "output_tokens": sum(call.usage.output_tokens for call in fresh),
        "scoring_passes": sum(call.passes for call in fresh),
        "seconds": sum(call.seconds for call in every),
        "cost_usd": sum(prices) if len(prices) == len(fresh) else None,
    }
