"""Metering: calls, tokens, seconds and dollars of a run, by role."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, TypedDict

from colligate.models.base import OPENAI_URL, Usage
from colligate.models.names import split_address, split_name

Kind = Literal["chat", "scoring"]

_NOTHING = Usage()


@dataclass(frozen=True)
class Call:
    """One call to a model. `usd` is None when its price is not known.

    `passes` counts scores: likelihoods, labels, attention, rerankings. An answer from colligate's
    own cache is `cached` and costs nothing. `offline` work is about the documents alone and could
    have been done before the question (`Meter.offline`); `step` is that of the method.
    """

    role: str
    model: str
    kind: Kind
    usage: Usage
    seconds: float
    usd: float | None
    passes: int = 0
    cached: bool = False
    offline: bool = False
    step: str = ""


class Sums(TypedDict):
    """The cost of some calls together."""

    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    scoring_passes: int
    scoring_tokens: int
    seconds: float
    cost_usd: float | None


@dataclass(frozen=True)
class UsageReport:
    """The cost of a run, in total and by role. `cost_usd` is None when a price is not known.

    `calls` counts chat calls; tokens are of these and of scoring (`scoring_tokens`) together, and
    `cached_tokens` those of the input that the model had read before. What our own cache answered
    is left out and counted as `remembered`: calls, and passes of scoring. `offline` is the part of
    the whole that is about the documents alone; its `seconds` are those during which any such work
    was under way. `by_step` are the steps that a method names (`Meter.step`). `split` are the
    seconds of reading files, of searching and of models, each counted once where calls overlap;
    what is left of `seconds` is other work.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    scoring_passes: int = 0
    scoring_tokens: int = 0
    retrieval_rounds: int = 0
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    by_role: Mapping[str, Sums] = field(default_factory=dict)
    remembered: int = 0
    offline: Sums = field(default_factory=lambda: _sums(()))
    by_step: Mapping[str, Sums] = field(default_factory=dict)
    split: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the usage as `ask --json` prints it."""
        return {
            **vars(self),
            "seconds": round(self.seconds, 3),
            "by_role": {role: dict(sums) for role, sums in self.by_role.items()},
            "by_step": {step: dict(sums) for step, sums in self.by_step.items()},
            "split": {what: round(seconds, 3) for what, seconds in self.split.items()},
            "offline": {**self.offline, "seconds": round(self.offline["seconds"], 3)},
        }


_HERE = (
    "bundled bundled+* gguf:* hf:* st:* minilm* static wordllama-* scripted"
    " cross-encoder:* onnx:* *@http*://localhost *@http*://localhost[:/]* *@http*://127.[0-9]*"
    " *@http*://[[]::1]*"
).split()
# Models that a proxy at such an address, as LiteLLM is, only passes on to their provider.
_HOSTED = re.compile(
    r"(?:openai|http):(?:(?:anthropic|azure(?:_ai)?|bedrock|cohere(?:_chat)?|fireworks_ai|gemini|groq"
    r"|mistral|openrouter|perplexity|replicate|sagemaker|together_ai|vertex_ai|xai)/"
    r"|deepseek/deepseek-(?:chat|reasoner)|openai/(?!gpt-oss))"
)


def find_cost(model: str, usage: Usage) -> float | None:
    """Return the cost of a call in US dollars, or None if the model's price is not known.

    Models on this machine cost nothing. The published prices are those of the package genai-prices.
    """
    if any(fnmatchcase(model, pattern) for pattern in _HERE):
        return None if _HOSTED.match(model) else 0.0
    kind, name = split_name(model)
    return _published_cost(*split_address(name), usage) if kind == "openai" else None


def _published_cost(model: str, url: str | None, usage: Usage) -> float | None:
    import genai_prices  # 0.1 s, for models behind an endpoint only

    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=min(usage.cached_tokens, usage.input_tokens),
        output_tokens=usage.output_tokens,
    )
    try:
        price = genai_prices.calc_price(counted, model, provider_api_url=url or OPENAI_URL)
        return float(price.total_price)
    except LookupError:
        return None


_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)
_STEP: ContextVar[str] = ContextVar("step", default="")


@dataclass
class Meter:
    """Records every call of a run."""

    calls: list[Call] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    retrieval_rounds: int = 0
    reading_seconds: float = 0.0
    """Seconds of reading files before the method began."""
    tokens: int = field(default=0, init=False)
    """Tokens in and out of all calls so far, without those that the cache answered."""
    _times: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {"search": [], "model": [], "offline": []}, init=False, repr=False
    )

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Record calls inside, and of tasks begun inside, as work about the documents alone.

        Examples are structuring a document and indexing with a model: the result serves every
        question. Blocks that overlap, of several documents, count their time once.
        """
        began, token = time.perf_counter(), _OFFLINE.set(True)
        try:
            yield
        finally:
            _OFFLINE.reset(token)
            self._note_time("offline", time.perf_counter() - began)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the calls inside, and of tasks begun inside, as a step of the method."""
        token = _STEP.set(name)
        try:
            yield
        finally:
            _STEP.reset(token)

    @property
    def current_step(self) -> str:
        """The step of the method that this task is in; empty outside of all."""
        return _STEP.get()

    def chat(
        self, role: str, model: str, usage: Usage, *, seconds: float, cached: bool = False
    ) -> Call:
        return self.record(Call(str(role), model, "chat", usage, seconds, None, cached=cached))

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
        return self.record(Call(str(role), model, "scoring", usage, seconds, None, passes, cached))

    @property
    def paid(self) -> int:
        """How many calls took tokens; the carried reranker takes none."""
        return sum(call.usage != _NOTHING for call in self.calls)

    def retrieval(self, seconds: float = 0.0) -> None:
        """Record a search that has just ended."""
        self.retrieval_rounds += 1
        self._note_time("search", seconds)

    def record(self, call: Call) -> Call:
        """Record one call at its price; warn once about a model without one."""
        usd: float | None = 0.0
        if not call.cached:
            self.tokens += call.usage.input_tokens + call.usage.output_tokens
            usd = find_cost(call.model, call.usage)
        if usd is None:
            warning = f"the price of {call.model} is not known, the cost is not counted"
            if warning not in self.warnings:
                self.warnings.append(warning)
        call = replace(call, usd=usd, offline=_OFFLINE.get(), step=_STEP.get())
        self.calls.append(call)
        self._note_time("model", call.seconds)
        return call

    def _note_time(self, what: str, seconds: float) -> None:
        now = time.perf_counter()
        self._times[what].append((now - seconds, now))

    def report(self, *, seconds: float | None = None) -> UsageReport:
        """Return the sums; `seconds` is the run's own time, by default the sum over its calls."""
        sums, offline = _sums(self.calls), _sums(call for call in self.calls if call.offline)
        split = {what: _covered(times) for what, times in self._times.items()}
        offline["seconds"] = split.pop("offline")
        if seconds is not None:
            sums["seconds"] = seconds
        return UsageReport(
            **sums,
            retrieval_rounds=self.retrieval_rounds,
            by_role=_sums_by(self.calls, "role"),
            remembered=sum(call.passes or 1 for call in self.calls if call.cached),
            offline=offline,
            by_step=_sums_by([call for call in self.calls if call.step], "step"),
            split={"files": self.reading_seconds, **split},
        )


def _sums_by(calls: Sequence[Call], what: Literal["role", "step"]) -> dict[str, Sums]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(getattr(call, what), []).append(call)
    return {name: _sums(group) for name, group in groups.items()}


def _covered(times: Iterable[tuple[float, float]]) -> float:
    """Return the seconds that intervals cover together; what overlaps counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(times):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _sums(calls: Iterable[Call]) -> Sums:
    every = list(calls)
    fresh = [call for call in every if not call.cached]
    prices = [call.usd for call in fresh if call.usd is not None]
    scored = [call.usage for call in fresh if call.kind == "scoring"]
    return {
        "calls": sum(call.kind == "chat" for call in fresh),
        "input_tokens": sum(call.usage.input_tokens for call in fresh),
        "cached_tokens": sum(call.usage.cached_tokens for call in fresh),
        "output_tokens": sum(call.usage.output_tokens for call in fresh),
        "scoring_passes": sum(call.passes for call in fresh),
        "scoring_tokens": sum(usage.input_tokens + usage.output_tokens for usage in scored),
        "seconds": sum(call.seconds for call in every),
        "cost_usd": sum(prices) if len(prices) == len(fresh) else None,
    }
