"""A model behind the loopback server; small models of transformers, real and random."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from colligate.models.hf.model import HFModel
from colligate.models.llama.api import load_library
from colligate.models.llama.libraries import pull_libraries
from colligate.models.llama.model import LlamaCpp
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy
from support.gguf_models import find_float32, save_gguf
from support.hub import HubServer
from support.tiny_models import one_thread, tiny_folder  # noqa: F401


@pytest.fixture
async def model(openai_server: Any, policy: Policy) -> AsyncIterator[OpenAIChat]:
    """The model `m` of the loopback server."""
    model = OpenAIChat("m", openai_server.url, policy=policy)
    yield model
    await model.aclose()
    await model.aclose()


@pytest.fixture
def server() -> Iterator[HubServer]:
    """The hub and the package index, both empty."""
    with closing(HubServer()) as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_hf(smollm2_folder: Path) -> Iterator[HFModel]:
    """SmolLM2-135M-Instruct in float32, a window of 1,024 tokens. Shared: do not close it."""
    options = {"context_tokens": 1024, "dtype": "float32"}
    model = HFModel(str(smollm2_folder), name="hf:smollm2-135m", **options)
    yield model
    asyncio.run(model.aclose())


@pytest.fixture(scope="session")
def float32_gguf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2-135M-Instruct with the numbers that `smollm2_hf` computes with: 540 MB."""
    file = find_float32("smollm2-135m", tmp_path_factory.mktemp("float32"))
    yield file
    file.unlink()


@pytest.fixture(scope="session")
def smollm2_llama(float32_gguf: Path) -> Iterator[LlamaCpp]:
    """That file in llama.cpp, a window of 1,024 tokens. Shared: do not close it."""
    # One thread: other work on the machine then slows it down the least.
    model = LlamaCpp(float32_gguf, name="gguf:smollm2-135m", context_tokens=1024, threads=1)
    yield model
    asyncio.run(model.aclose())


@pytest.fixture(scope="session")
def tiny_gguf(tiny_folder: Callable[..., Path]) -> Callable[..., Path]:  # noqa: F811
    """`tiny_gguf("llama", **options of save_model)` is a file with a random model."""

    def make(architecture: str, **options: Any) -> Path:
        folder = tiny_folder(architecture, **options)
        file = folder / "tiny.gguf"
        return file if file.is_file() else save_gguf(folder, file)

    return make


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models loaded now keep keys and values, and attend, in float32: a thousand times closer."""
    library = load_library(pull_libraries())
    make_context = library.llama_init_from_model

    def widen(model: Any, params: Any) -> Any:
        params.type_k = params.type_v = 0  # GGML_TYPE_F32
        params.flash_attn_type = 0  # LLAMA_FLASH_ATTN_TYPE_DISABLED
        return make_context(model, params)

    monkeypatch.setattr(library, "llama_init_from_model", widen)
