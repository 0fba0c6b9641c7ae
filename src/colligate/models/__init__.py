"""The protocols of models, and the backends that implement them."""

from colligate.models.base import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    ChatRequest,
    Completion,
    Embedder,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Reranker,
    Role,
    Usage,
    Verifier,
)
from colligate.models.prompts import keep_beginning

__all__ = [
    "AdapterModel",
    "AttentionModel",
    "Capability",
    "ChatModel",
    "ChatRequest",
    "Completion",
    "Embedder",
    "LabelModel",
    "LabelOdds",
    "LikelihoodModel",
    "Message",
    "OnToken",
    "Reranker",
    "Role",
    "Usage",
    "Verifier",
    "keep_beginning",
]
