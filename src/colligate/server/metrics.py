"""Numbers for Prometheus. No text of questions, documents or names of files is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: Any = {"registry": self.registry, "namespace": "colligate"}
        self.requests = Counter(
            "http_requests", "Requests by route and status.", ("method", "route", "status"), **made
        )
        self.request_seconds = Histogram(
            "http_request_seconds",
            "Seconds until a response had been sent.",
            ("route",),
            buckets=_SECONDS,
            **made,
        )
        self.runs = Counter("runs", "Runs that ended.", ("strategy", "state"), **made)
        self.run_seconds = Histogram(
            "run_seconds",
            "Seconds of runs, without waiting.",
            ("strategy",),
            buckets=_SECONDS,
            **made,
        )
        self.running = Gauge("runs_running", "Runs under way.", **made)
        self.waiting = Gauge("runs_waiting", "Runs waiting for their turn.", **made)
        self.streams = Gauge("streams_open", "Event streams open.", **made)
        self.tokens = Counter("tokens", "Tokens of models by role.", ("role", "direction"), **made)
        self.cost = Counter("cost_usd", "Dollars that models cost, where known.", **made)
        self.jobs = Counter("jobs", "Sets of files that were read.", ("state",), **made)
        self.uploaded = Counter("uploaded_bytes", "Bytes of files stored.", **made)

    def spent(self, usage: Mapping[str, Any]) -> None:
        """Count what a run cost; `usage` is that of its answer."""
        for role, sums in usage["by_role"].items():
            self.tokens.labels(role, "input").inc(sums["input_tokens"])
            self.tokens.labels(role, "output").inc(sums["output_tokens"])
        self.cost.inc(usage["cost_usd"] or 0.0)

    def shown(self) -> bytes:
        """All of them in Prometheus's text form."""
        return generate_latest(self.registry)
