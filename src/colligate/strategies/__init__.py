"""One paper, one file; baselines beside them."""
