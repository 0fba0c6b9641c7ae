"""Holding a strategy's numbers to what they can mean."""

from __future__ import annotations

from colligate.errors import UsageError


def at_least(strategy: object, **least: float) -> None:
    """Check fields, each by its name and the smallest value it may have; None is no number.

    Raises:
        UsageError: one is smaller.
    """
    for name, smallest in least.items():
        value = getattr(strategy, name)
        if value is not None and value < smallest:
            raise UsageError(f"{name} is {value}", f"it must be {smallest} or more")
