"""What can be asked of a model, and the backends that answer."""

from colligate.models.protocols import (
    Capability,
    ChatModel,
    Completion,
    Embedder,
    LabelModel,
    LikelihoodModel,
    Message,
    OnToken,
    Price,
    Reranker,
    Role,
    Usage,
)

__all__ = [
    "Capability",
    "ChatModel",
    "Completion",
    "Embedder",
    "LabelModel",
    "LikelihoodModel",
    "Message",
    "OnToken",
    "Price",
    "Reranker",
    "Role",
    "Usage",
]
