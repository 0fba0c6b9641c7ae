"""Metrics, each by the rule of the paper or library that it is named after."""

from colligate.lab.bench.metrics.groups import Backends, Measures, MetricGroup

__all__ = ["Backends", "Measures", "MetricGroup"]
