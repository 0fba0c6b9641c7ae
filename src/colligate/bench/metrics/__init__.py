"""Metrics, each by the rule of the paper or library that it is named after."""
