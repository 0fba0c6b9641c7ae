"""GGUF models in this process, through llama.cpp."""

from colligate.models.llama.model import LlamaCpp, LlamaEngine, find_token_spans

__all__ = ["LlamaCpp", "LlamaEngine", "find_token_spans"]
