"""Adapters on the small real model: asked at once, each gives its own answers."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from colligate.models import Message
from colligate.models.hf.loading import import_transformers
from colligate.models.hf.model import HFModel
from support.models import ask

pytestmark = pytest.mark.model

PROMPT = [Message("user", "What does a lighthouse keeper do all day?")]


@pytest.fixture
def adapter(smollm2_folder: Path, tmp_path: Path) -> Callable[[int], Path]:
    """`adapter(seed)` is a folder that peft wrote: a small random LoRA that fits the model."""

    def make(seed: int) -> Path:
        import peft
        import torch

        library = import_transformers()
        config = library.AutoConfig.from_pretrained(smollm2_folder)
        # Its adapters are as wide as the layers they are put on: the rest may be small.
        config.vocab_size, config.intermediate_size = 8, 8
        config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
        torch.manual_seed(seed)
        lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        with warnings.catch_warnings(action="ignore"):  # peft's own, about transformers
            model = peft.get_peft_model(library.AutoModelForCausalLM.from_config(config), lora)
            for name, matrix in model.named_parameters():
                if "lora_" in name:
                    torch.nn.init.normal_(matrix, std=0.1)
            # peft would add the embeddings: there are fewer words than in the base's folder.
            model.save_pretrained(tmp_path / str(seed), save_embedding_layers=False)
        return tmp_path / str(seed)

    return make


async def text(model: HFModel) -> str:
    return (await ask(model, PROMPT, max_tokens=6)).text


async def odds(model: HFModel) -> float:
    return (await model.labels(PROMPT, ("Local", "Global"), forced="[")).odds["Local"]


@pytest.mark.parametrize("measure", [text, odds])
async def test_two_adapters_and_the_base_asked_at_once_answer_as_each_does_alone(
    smollm2_hf, adapter, measure
):
    forms = [smollm2_hf, *[await smollm2_hf.with_adapter(adapter(seed)) for seed in (1, 2)]]
    alone = [await measure(form) for form in forms]
    assert len({each if measure is text else round(each, 3) for each in alone}) == 3, alone
    together = await asyncio.gather(*map(measure, forms * 2))
    assert together == (alone * 2 if measure is text else pytest.approx(alone * 2, abs=1e-4))
