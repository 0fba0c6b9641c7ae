"""A model behind the loopback server, and the small real model through transformers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from colligate.models.hf.model import HFModel
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy
from colligate.models.weights import pull


@pytest.fixture
async def model(openai_server: Any, policy: Policy) -> AsyncIterator[OpenAIChat]:
    """The model `m` of the loopback server."""
    model = OpenAIChat("m", openai_server.url, policy=policy)
    yield model
    await model.aclose()
    await model.aclose()


@pytest.fixture(scope="session")
def smollm2_hf() -> Iterator[HFModel]:
    """SmolLM2-135M-Instruct in float32, a window of 1,024 tokens. Shared: do not close it."""
    path = pull("smollm2-135m")["model"]
    model = HFModel(str(path), name="hf:smollm2-135m", context_tokens=1024, dtype="float32")
    yield model
    asyncio.run(model.aclose())
