"""Decompose: split a question into simple ones, look each up, fill the answers in."""

from colligate.strategies.decompose.method import Decompose, Planned, StepAnswered

__all__ = ["Decompose", "Planned", "StepAnswered"]
