"""Comparing strategies: datasets, metrics, the bench runner, significance, the report."""
