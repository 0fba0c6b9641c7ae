from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import TinyModel, save_adapter, save_model


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models this small lose by sharing work, most of all on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_folder("llama", **options of save_model)` is a folder with a random model."""
    made: dict[str, Path] = {}

    def make(architecture: str, **options: Any) -> Path:
        key = repr((architecture, sorted(options.items())))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(architecture)
            save_model(made[key], architecture, **options)
        return made[key]

    return make


@pytest.fixture(scope="module")
def tiny_model(tiny_folder: Callable[..., Path]) -> Callable[[str], TinyModel]:
    """`tiny_model("llama")` is that model loaded, one for all tests of a file, without memory."""
    made: dict[str, TinyModel] = {}

    def get(architecture: str) -> TinyModel:
        if architecture not in made:
            made[architecture] = TinyModel(tiny_folder(architecture))
        made[architecture].reset()
        return made[architecture]

    return get


@pytest.fixture
def llama(tiny_model: Callable[[str], TinyModel]) -> TinyModel:
    return tiny_model("llama")


@pytest.fixture
def save(tiny_folder: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """`save("name", of=FOLDER, **options of save_adapter)` is a folder with a random adapter."""

    def make(name: str, *, of: Path | None = None, **settings: Any) -> Path:
        return save_adapter(of or tiny_folder("llama"), tmp_path / name, **settings)

    return make
