"""Models in this process through transformers and torch (extra `local`).

`model.py` is the backend. Its parts: `loading` finds and loads weights, `runtime` runs forward
passes with prefixes and adapters, `tokenizer` makes token ids, `generate` decodes answers
together, `score` computes likelihoods. `encoders` and `reflection` are models for single baselines
and metrics. Nothing is exported here: names such as `hf:NAME` open a model, and importing
`encoders` must not import the backend.
"""
