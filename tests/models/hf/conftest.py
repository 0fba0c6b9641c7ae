"""Models small enough to be made in each test: real architectures, random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """The quick brown fox jumps over the lazy dog. Otters eat fish, and bridges cross rivers.
Who signed the treaty of 1932? {"found": true, "answer": "yes"} Numbers: 0 1 2 3 4 5 6 7 8 9."""


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
    """`tiny_folder("llama")` is a folder with a random model of that architecture, with tokenizer.

    Architectures: llama, mistral (sliding window of 16), qwen2, qwen3, gemma2 (sliding window in
    every other layer, capped scores), gemma3 (sliding window in five layers of six).
    With `endless=True` it hardly ever ends an answer by itself; other keyword arguments go to its
    configuration. float32, two or more layers, grouped-query attention, a window of 512 tokens,
    the template of ChatML.
    """
    made: dict[str, Path] = {}

    def make(architecture: str, *, endless: bool = False, **options: Any) -> Path:
        key = repr((architecture, endless, sorted(options.items())))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(architecture)
            _make(architecture, made[key], endless, options)
        return made[key]

    return make


def _make(architecture: str, folder: Path, endless: bool, options: dict[str, Any]) -> None:
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    names = {
        "llama": "Llama",
        "mistral": "Mistral",
        "qwen2": "Qwen2",
        "qwen3": "Qwen3",
        "gemma2": "Gemma2",
        "gemma3": "Gemma3Text",
    }
    tokenizer = _tokenizer()
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id,
        "initializer_range": 0.3,  # far from uniform, so that a wrong mask or position shows
    }
    if architecture in ("mistral", "gemma2", "gemma3"):
        sizes["sliding_window"] = 16
    if architecture == "gemma3":
        sizes["num_hidden_layers"] = 6
    config = getattr(transformers, f"{names[architecture]}Config")(**{**sizes, **options})
    torch.manual_seed(7)
    kind = "Gemma3" if architecture == "gemma3" else names[architecture]
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    if endless:  # the control tokens come first, and are now as likely as any on average
        model.lm_head.weight.data[:3] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer() -> Any:
    import tokenizers
    import transformers

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([TEXT] * 4, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
