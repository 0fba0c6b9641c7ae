"""The report on a run: one page to look at, and the same as Markdown."""

from colligate.bench.report.writing import write_report

__all__ = ["write_report"]
