"""OpenTelemetry spans of a run, its searches, model calls and steps: only if COLLIGATE_TELEMETRY=1.

They have names, numbers and times, never the text of a question, prompt, reply or document. Where
they go, if anywhere, is for the SDK of the process to say.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from colligate.core.events import (
    Asked,
    Event,
    Measured,
    Noted,
    Opened,
    Progressed,
    Retrieved,
    Trace,
)
from colligate.errors import MissingExtra
from colligate.models.metering import Meter


@asynccontextmanager
async def record_spans(name: str, trace: Trace, meter: Meter) -> AsyncIterator[None]:
    """Make a span of the run inside and, in it, one of each search and call; the rest are events.

    MissingExtra if it is wanted, and opentelemetry-api is not installed.
    """
    if os.environ.get("COLLIGATE_TELEMETRY", "0") in ("", "0"):
        yield
        return
    try:
        from opentelemetry import trace as otel
    except ImportError as error:
        what, why = "COLLIGATE_TELEMETRY needs opentelemetry-api", "it is not installed"
        raise MissingExtra(what, why, "pip install 'colligate[telemetry]'") from error
    tracer = otel.get_tracer("colligate")
    with tracer.start_as_current_span(
        f"colligate {name}", record_exception=False, set_status_on_exception=False
    ) as run:
        inside = otel.set_span_in_context(run)

        def record(event: Event) -> None:
            kind, seconds = type(event).__name__.lower(), getattr(event, "seconds", None)
            about = _describe(event)
            if meter.current_step:
                about["colligate.step"] = meter.current_step
            if seconds is not None:
                now = time.time_ns()
                began = now - int(seconds * 1e9)
                tracer.start_span(kind, inside, attributes=about, start_time=began).end(now)
            elif not isinstance(event, Noted | Opened | Progressed):
                run.add_event(kind, about)

        trace.listen(record)
        try:
            yield
        except BaseException as error:
            run.set_status(otel.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            usage = meter.report()
            run.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
            run.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
            if usage.cost_usd is not None:
                run.set_attribute("colligate.cost_usd", usage.cost_usd)


def _describe(event: Event) -> dict[str, str | int | float]:
    """Return the numbers and names of an event, those of calls as OpenTelemetry names them."""
    about: dict[str, str | int | float] = {
        f"colligate.{name}": value for name, value in event.counts.items()
    }
    if isinstance(event, Retrieved):
        about |= {"colligate.mode": event.how, "colligate.passages": len(event.spans)}
    elif isinstance(event, Asked | Measured):
        about |= {
            "gen_ai.operation.name": "chat" if isinstance(event, Asked) else event.signal,
            "gen_ai.request.model": event.model,
            "gen_ai.usage.input_tokens": event.usage.input_tokens,
            "gen_ai.usage.output_tokens": event.usage.output_tokens,
            "colligate.role": str(event.role),
        }
    return about
