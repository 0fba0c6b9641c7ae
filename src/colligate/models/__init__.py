"""What can be asked of a model, and the backends that answer."""

from colligate.models.base import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    Completion,
    Embedder,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Price,
    Prompt,
    Reranker,
    Role,
    Usage,
)

__all__ = [
    "AdapterModel",
    "AttentionModel",
    "Capability",
    "ChatModel",
    "Completion",
    "Embedder",
    "LabelModel",
    "LabelOdds",
    "LikelihoodModel",
    "Message",
    "OnToken",
    "Price",
    "Prompt",
    "Reranker",
    "Role",
    "Usage",
]
