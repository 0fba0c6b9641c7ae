"""Numbers for Prometheus. They hold no text of questions or documents and no names of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import Scope

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)
_PLAIN = frozenset({"/mcp"})  # paths of routes that FastAPI does not name
_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: Any = {"registry": self.registry, "namespace": "colligate"}
        timed = {**made, "buckets": _SECONDS}
        self.requests = Counter(
            "http_requests", "Requests by route and status.", ("method", "route", "status"), **made
        )
        self.request_seconds = Histogram(
            "http_request_seconds", "Seconds until a response had been sent.", ("route",), **timed
        )
        self.runs = Counter("runs", "Runs that ended.", ("strategy", "state"), **made)
        self.run_seconds = Histogram(
            "run_seconds", "Seconds of runs, without waiting.", ("strategy",), **timed
        )
        self.running = Gauge("runs_running", "Runs under way.", **made)
        self.waiting = Gauge("runs_waiting", "Runs waiting for their turn.", **made)
        self.tokens = Counter("tokens", "Tokens of models by role.", ("role", "direction"), **made)
        self.cost = Counter("cost_usd", "Dollars that models cost, where known.", **made)
        self.jobs = Counter("jobs", "Sets of files that were read.", ("state",), **made)
        self.uploaded = Counter("uploaded_bytes", "Bytes of files stored.", **made)

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request by its route: the path would hold names of documents."""
        route = route_of(scope) or "other"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.requests.labels(method, route, str(status)).inc()
        self.request_seconds.labels(route).observe(seconds)

    def count_usage(self, usage: Mapping[str, Any]) -> None:
        """Count what a run cost; `usage` is that of its answer."""
        for role, sums in usage["by_role"].items():
            self.tokens.labels(role, "input").inc(sums["input_tokens"])
            self.tokens.labels(role, "output").inc(sums["output_tokens"])
        self.cost.inc(usage["cost_usd"] or 0.0)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)


def route_of(scope: Scope) -> str:
    """Return the path as it was declared, such as `/api/jobs/{job_id}`; "" if it is none."""
    declared = getattr(scope.get("route"), "path_format", None)
    if isinstance(declared, str):
        return declared
    return scope["path"] if scope["path"] in _PLAIN else ""
