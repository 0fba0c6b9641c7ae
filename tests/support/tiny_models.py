"""Models small enough to be made in each test: real architectures, random weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from colligate.models.decoding import GeneratedText, GenerationRequest
    from colligate.models.hf.generate import BatchGenerator

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
ARCHITECTURES |= {"gemma2": "Gemma2", "gemma3": "Gemma3"}
HYBRID = {"lfm2": "Lfm2"}  # not read by hf:
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
    """`tiny_folder("llama", **options of save_model)` is a folder with a random model."""
    made: dict[str, Path] = {}

    def make(architecture: str, **options: Any) -> Path:
        key = repr((architecture, sorted(options.items())))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(architecture)
            save_model(made[key], architecture, **options)
        return made[key]

    return make


def save_model(
    folder: Path, architecture: str, *, endless: bool = False, tokenizer: Any = None, **options: Any
) -> None:
    """Save a random model with a tokenizer, one of its own by default.

    Architectures: llama, mistral (sliding window of 16), qwen2, qwen3, gemma2 (sliding window in
    every other layer, capped scores), gemma3 (sliding window in five layers of six), lfm2 (short
    convolutions in every other layer). An `endless` one hardly ever ends an answer; other keyword
    arguments go to its configuration. float32, two or more layers, grouped-query attention, a
    window of 512 tokens, the template of ChatML.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokenizer = tokenizer or make_tokenizer()
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 6 if architecture == "gemma3" else 2,
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
    if architecture == "lfm2":
        sizes |= {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    name = (ARCHITECTURES | HYBRID)[architecture]
    config_name = "Gemma3TextConfig" if architecture == "gemma3" else f"{name}Config"
    config = getattr(transformers, config_name)(**{**sizes, **options})
    torch.manual_seed(7)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    if endless:  # the control tokens come first, and are now as likely as any on average
        model.lm_head.weight.data[:3] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_bert(folder: Path, text: str, head: str = "BertModel", **options: Any) -> Path:
    """Save a random BERT whose words are those of a text; options go to its configuration."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(text.lower().split()))]
    vocabulary = {word: number for number, word in enumerate(words)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    sizes |= {"vocab_size": len(words), "intermediate_size": 32}
    config = transformers.BertConfig(**{**sizes, **options})
    getattr(transformers, head)(config).save_pretrained(folder)
    return folder


def make_tokenizer(text: str = TEXT, size: int = 400, template: str | None = CHATML) -> Any:
    """A tokenizer of `size` tokens learnt from a text, with a chat template."""
    import tokenizers
    import transformers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([text] * 4, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template
    return tokenizer


def save_adapter(base: Path, folder: Path, *, seed: int = 1, **settings: Any) -> Path:
    """Save a random LoRA adapter for a saved model, with these settings of LoRA."""
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(seed)
    settings = {"r": 4, "target_modules": ["q_proj"], "init_lora_weights": False, **settings}
    with warnings.catch_warnings(action="ignore"):  # of peft itself
        peft.get_peft_model(model, peft.LoraConfig(**settings)).save_pretrained(folder)
    return folder


class TinyModel:
    """A loaded model with its prompts; a `mute` one never writes a control token."""

    def __init__(
        self, folder: Path, *, context: int = 512, dtype: str = "float32", mute: bool = False
    ) -> None:
        from colligate.models.hf.loading import HFTokenizer, find_source, load_tokenizer
        from colligate.models.hf.runtime import Runtime
        from colligate.models.prompts import Prompts

        source = find_source(str(folder))
        self.runtime = Runtime(source, "hf:tiny", context=context, dtype=dtype)
        self.tokenizer = load_tokenizer(source)
        self.prompts = Prompts(HFTokenizer(self.tokenizer), "hf:tiny")
        self.read: list[int] = []
        """Tokens of each pass."""
        self.runtime.model.get_input_embeddings().register_forward_pre_hook(
            lambda _, given: self.read.append(given[0].numel())
        )
        if mute:
            self._on_logits(lambda logits: logits[..., :3].fill_(-1e9))

    def reset(self) -> None:
        self.runtime.prefixes.clear()
        self.read.clear()

    @contextmanager
    def changing_logits(self, change: Callable[[Any], object]) -> Iterator[None]:
        """Let `change` have the logits of every pass, to change in place."""

        handle = self._on_logits(change)
        try:
            yield
        finally:
            handle.remove()

    def _on_logits(self, change: Callable[[Any], object]) -> Any:
        def hook(_module: Any, _inputs: Any, logits: Any) -> None:
            change(logits)

        return self.runtime.model.get_output_embeddings().register_forward_hook(hook)


def finish(generator: BatchGenerator, request: GenerationRequest) -> GeneratedText:
    """Decode until a submitted request is answered; raise what it failed by."""
    while request.outcome is None:
        generator.advance()
    if isinstance(request.outcome, Exception):
        raise request.outcome
    return request.outcome
