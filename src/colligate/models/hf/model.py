"""Models in this process through transformers: every capability there is."""
