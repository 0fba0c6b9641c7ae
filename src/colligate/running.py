"""One run over one question: opened, held to its limits, and what it cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from colligate.errors import BudgetExceeded, UsageError
from colligate.ingesting import look_for
from colligate.models import Role
from colligate.models.metering import Meter, UsageReport
from colligate.resources import Resources
from colligate.strategies.run import Budget, Run
from colligate.strategies.strategy import Needs
from colligate.strategies.trace import Trace

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What a run may take: tokens of all calls together, in and out, and seconds."""

    tokens: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Cost:
    """What a run took, what it warned of, and the names of its models."""

    usage: UsageReport
    warnings: tuple[str, ...]
    models: Mapping[Role, str]

    def model(self, role: Role) -> str:
        """The name of a role's model; the reader fills roles that have none of their own."""
        return self.models.get(role, self.models[Role.READER])


async def carried_out(
    work: Callable[[str, Run], Awaitable[T]],
    question: str,
    paths: Sequence[str | Path] | str | Path,
    resources: Resources,
    *,
    name: str,
    needs: Needs,
    trace: Trace,
    limits: Limits,
    documents: Sequence[str] | None = None,
) -> tuple[T, Cost]:
    """Open what `needs` says, do the work, and say what it cost; errors call it `name`.

    In view are the files of `paths`, or of the library the `documents` with these ids, or all.

    Raises:
        UsageError: an empty question, a path that does not exist.
        BudgetExceeded: tokens or time are spent.
        ColligateError: what could not be opened, or what the work raises.
    """
    if not question.strip():
        raise UsageError("the question is empty", mend="write a question")
    paths = [paths] if isinstance(paths, str | Path) else paths
    meter = Meter()
    began = time.perf_counter()
    try:
        async with asyncio.timeout(limits.seconds) as deadline:
            # A wrong path must not cost a download, nor a wrong model an ingestion.
            if paths and needs.reads:
                await asyncio.to_thread(look_for, paths)
            models = await resources.open_models(name, needs, trace)
            sources = await resources.sources(paths, needs, trace, documents)
            models = await resources.remembering(models, sources)
            run = Run(
                sources=sources,
                models=models,
                meter=meter,
                trace=trace,
                budget=Budget(limits.tokens),
                reranker=await resources.open_reranker(models) if needs.searches else None,
                embedder=await resources.library() if needs.searches else None,
                kept=await resources.kept(needs),
            )
            said = len(resources.warnings)
            result = await work(question, run)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        why = f"no answer within {limits.seconds:g} seconds"
        raise BudgetExceeded(why, "", "raise --timeout") from error
    usage = meter.report(seconds=time.perf_counter() - began)
    warnings = dict.fromkeys((*run.warnings, *meter.warnings, *resources.warnings[said:]))
    names = {role: model.name for role, model in models.items()}
    return result, Cost(usage, tuple(warnings), names)
