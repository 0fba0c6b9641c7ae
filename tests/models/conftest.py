"""The small real model through transformers: loading it takes a while, so it is shared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from colligate.models.hf.model import HFModel
from colligate.models.weights import pull


@pytest.fixture(scope="session")
def smollm2_hf() -> Iterator[HFModel]:
    """SmolLM2-135M-Instruct in float32, a window of 1,024 tokens. Not to be closed by a test."""
    path = pull("smollm2-135m")["model"]
    model = HFModel(str(path), name="hf:smollm2-135m", context_tokens=1024, dtype="float32")
    yield model
    asyncio.run(model.aclose())
