"""llama.cpp over tiny models."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.models.llama import api
from colligate.models.llama.model import LlamaCpp


@pytest.fixture
async def open_model(tiny_gguf: Callable[..., Path]) -> AsyncIterator[Callable[..., LlamaCpp]]:
    """`open_model(path, **options)` is a model of one thread; by default it writes on and on."""
    models: list[LlamaCpp] = []

    def make(path: Path | None = None, *, name: str = "tiny", **options: Any) -> LlamaCpp:
        options = {"context_tokens": 512, "threads": 1, **options}
        models.append(LlamaCpp(path or tiny_gguf("llama", endless=True), name=name, **options))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tokens in the batches that llama.cpp computed."""
    sizes: list[int] = []
    decode = api.Context.decode

    def note(context: api.Context, tokens: Any, *rest: Any) -> bool:
        sizes.append(len(tokens))
        return decode(context, tokens, *rest)

    monkeypatch.setattr(api.Context, "decode", note)
    return sizes
