"""`auto`: the right amount of work for each question."""

from colligate.strategies.auto.method import Auto

__all__ = ["Auto"]
