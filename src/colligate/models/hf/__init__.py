"""Models in this process through transformers and torch (extra `local`).

`model.py` is the backend. Its parts: `loading` finds and loads weights and tokenizers, `adapters`
the LoRA adapters, `runtime` runs forward passes with prefixes, `generate` decodes answers together,
`score` computes likelihoods. Nothing is exported here: names such as `hf:NAME` open a model.
"""
