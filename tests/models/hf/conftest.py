from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.tiny_models import TinyModel, save_adapter


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
