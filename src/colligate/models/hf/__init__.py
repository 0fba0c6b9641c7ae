"""Models in this process through transformers and torch (extra `local`).

`model.py` is the whole backend; the rest are its parts: finding and loading weights, prompts,
forward passes and what they leave behind, generation, grammars, scoring, attention, adapters.
"""
