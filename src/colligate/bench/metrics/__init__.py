"""Metrics, each by the rule of the paper or library that it is named after."""

from colligate.bench.metrics.catalogue import (
    GROUPS,
    all_groups,
    higher_is_better,
    measure,
    require_groups,
)
from colligate.bench.metrics.groups import Backends, Measures, MetricGroup

__all__ = [
    "GROUPS",
    "Backends",
    "Measures",
    "MetricGroup",
    "all_groups",
    "higher_is_better",
    "measure",
    "require_groups",
]
