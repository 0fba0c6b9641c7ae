"""Decompose: split a question into simple ones, look each up, fill the answers in."""

from colligate.strategies.decompose.method import Decompose, QuestionSplit, StepAnswered

__all__ = ["Decompose", "QuestionSplit", "StepAnswered"]
