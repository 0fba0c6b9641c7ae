"""The estimate of tokens, under its former name."""

from colligate.token_estimate import estimate_tokens

__all__ = ["estimate_tokens"]
