"""Compare strategies: data sets, metrics, runs, significance, the report."""
