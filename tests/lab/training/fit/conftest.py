"""A model small enough to be trained in a test, and samples that it can learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.models import Message
from support.tiny_models import CHATML, make_tokenizer, save_model, tiny_folder  # noqa: F401

TEXT = """How many otters are there? Be brief. Answer 1, 2, 3, 4, 5, 6, 7, 8, 9 or none at all.
{"facts": ["fish"], "thought": "fish swim", "need_retrieve": true} [Local] [Global]"""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """A model this small loses by sharing work, most of all on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny()` is the folder of a random llama with a tokenizer; `template=` is its own."""
    made: dict[str | None, Path] = {}

    def make(template: str | None = CHATML) -> Path:
        if template not in made:
            made[template] = tmp_path_factory.mktemp("tiny")
            tokenizer = make_tokenizer(TEXT, 350, template)
            options = {"pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.2}
            save_model(made[template], "llama", tokenizer=tokenizer, **options)
        return made[template]

    return make


def _sample(number: int, name: str) -> Sample:
    asked = f"How many otters are there? {'fish ' * (number % 5)}"
    turns = (Message("system", "Be brief."), Message("user", asked), Message("assistant", "none"))
    return Sample(f"{name}-{number}", "router", turns)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 samples of the router to train on, 6 kept aside, and one of another task."""
    folder = tmp_path_factory.mktemp("data")
    other = Sample("other", "scope", (Message("user", "Why?"), Message("assistant", "[Local]")))
    write_samples(folder / TRAIN, [*(_sample(n, "train") for n in range(24)), other])
    write_samples(folder / HELD_OUT, (_sample(n, "held-out") for n in range(6)))
    return folder
