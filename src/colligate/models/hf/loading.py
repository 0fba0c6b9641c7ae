"""Find a model by folder, GGUF file or hub name, and load it. Blocks.

Files on this machine are used as they are, without asking the hub; only a hub name without local
files is downloaded. Code that comes with weights is never run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

from colligate.concurrency import wait_without_spinning
from colligate.errors import MissingExtra, UnknownModel, UsageError, WeightsUnavailable
from colligate.models.gguf import read_header


@dataclass(frozen=True)
class ModelSource:
    """Where the weights are: a folder or a hub name; for a GGUF file its folder and its name."""

    place: str
    gguf_file: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of every `from_pretrained`."""
        gguf = {"gguf_file": self.gguf_file} if self.gguf_file else {}
        return {"pretrained_model_name_or_path": self.place, "trust_remote_code": False, **gguf}

    @property
    def version(self) -> str:
        """A text that changes with the files' sizes and times; empty for a hub name."""
        folder = Path(self.place)
        if not folder.is_dir():
            return ""
        files = [folder / self.gguf_file] if self.gguf_file else sorted(folder.iterdir())
        stats = [file.stat() for file in files if file.is_file()]
        return f"{sum(s.st_size for s in stats)}-{max((s.st_mtime_ns for s in stats), default=0)}"


def find_source(target: str) -> ModelSource:
    """Return the source that a name means: a folder, a .gguf file, otherwise a hub name."""
    path = Path(target).expanduser()
    if path.is_file():
        read_header(path)  # reports what is wrong with it
        return ModelSource(str(path.parent), path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            hint = "give a folder that save_pretrained wrote, or a .gguf file"
            raise WeightsUnavailable(f"cannot load {target}", "the folder has no config.json", hint)
        return ModelSource(str(path))
    if target.count("/") > 1 or target.startswith((".", "/", "~")) or target.endswith(".gguf"):
        what = f"no model at {target}"
        raise UnknownModel(what, "the file or folder does not exist", "check the path after hf:")
    return ModelSource(target)


def read_sizes(source: ModelSource) -> tuple[int | None, int | None, int | None]:
    """Return the trained context, the bytes of a token's keys and values in 16 bits, and the size.

    The size is about how many weights there are. None if the model does not state it. The config of
    a hub name is downloaded if necessary.
    """
    if source.gguf_file:
        header = read_header(Path(source.place) / source.gguf_file)
        return header.context_tokens, header.kv_bytes_per_token, header.weights
    config = load_pretrained(import_transformers().AutoConfig, source).get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    heads = getattr(config, "num_attention_heads", 0)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0)
    hidden, layers = getattr(config, "hidden_size", 0), getattr(config, "num_hidden_layers", 0)
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    weights = getattr(config, "vocab_size", 0) * hidden
    weights += layers * (4 * hidden * hidden + 3 * hidden * inner)
    return length, 4 * layers * kv_heads * width or None, weights or None


def load_tokenizer(source: ModelSource) -> Any:
    """Load the fast tokenizer."""
    tokenizer = load_pretrained(import_transformers().AutoTokenizer, source)
    if not getattr(tokenizer, "is_fast", False):
        what = f"cannot load the tokenizer of {source.place}"
        raise WeightsUnavailable(what, "it has no tokenizer.json", "convert it to a fast tokenizer")
    return tokenizer


class HFTokenizer:
    """A fast tokenizer and its chat template, a `PromptTokenizer`. Several threads may use it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()  # encoding literal text changes a setting of the tokenizer meanwhile
        added = tokenizer.added_tokens_decoder.values()
        self.controls = frozenset(token.content for token in added if token.special)
        begun = tokenizer("", add_special_tokens=True).input_ids
        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.beginning: list[int] = [i for i in begun[:1] if i == bos]
        self.first: int = eos if bos is None else bos

    @property
    def has_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def apply_template(self, turns: list[dict[str, str]], *, answer: bool, think: bool) -> str:
        options = {} if think else {"enable_thinking": False}
        rendered: str = self._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=answer, **options
        )
        return rendered

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(self._encode(text, special).ids)

    def spans(self, text: str) -> list[tuple[int, int]]:
        return list(self._encode(text, special=False).offsets)

    def _encode(self, text: str, special: bool) -> Any:
        backend = self._tokenizer.backend_tokenizer
        with self._lock:
            backend.encode_special_tokens = not special
            try:
                return backend.encode(text, add_special_tokens=False)
            finally:
                backend.encode_special_tokens = False


DTYPES = ("auto", "float32", "bfloat16", "float16")


def load_model(
    source: ModelSource,
    *,
    device: str = "auto",
    dtype: str = "auto",
    kind: str = "AutoModelForCausalLM",
) -> Any:
    """Load the causal language model, or another `kind` of model, ready for inference.

    `device` is a name that torch knows ("cpu", "cuda:1", "mps") or "auto": all GPUs together if
    there are any, otherwise the processor. `dtype` "auto" is the checkpoint's 16-bit type on a
    GPU, otherwise bfloat16 if the hardware computes in it, otherwise float32.
    """
    library, torch = import_transformers(), import_module("torch")
    if dtype not in DTYPES:
        raise UsageError(f"no dtype {dtype!r}", f"there are {', '.join(DTYPES)}")
    place = _choose_device(torch, device)
    options: dict[str, Any] = {"dtype": _choose_dtype(torch, place, dtype)}
    if device == "auto" and place == "cuda":
        options["device_map"] = "auto"
    if source.gguf_file:
        # transformers shows this progress bar whatever its settings are.
        bars: Any = import_module("transformers.modeling_gguf_pytorch_utils")
        bars.tqdm = lambda tensors, **_: tensors
    model = load_pretrained(getattr(library, kind), source, **options)
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if model._is_stateful or kinds - _ATTENTION:
        what = f"cannot use {source.place}"
        why = "it keeps a recurrent state, which cannot be cut back to a shared prefix"
        raise WeightsUnavailable(what, why, "use a model with attention in every layer")
    return (model if "device_map" in options else model.to(place)).eval()


# Of layers whose keys and values can be cut back to a shared prefix.
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


def _choose_device(torch: Any, named: str) -> str:
    if named == "auto":
        there = torch.accelerator.is_available()
        return torch.accelerator.current_accelerator().type if there else "cpu"
    try:
        torch.empty(0, device=named)
    except Exception as error:  # torch has no common class: RuntimeError, AssertionError, ...
        raise UsageError(f"no device {named!r}", _first_line(error), "use cpu, or auto") from error
    return named


def _choose_dtype(torch: Any, place: str, named: str) -> Any:
    if named != "auto":
        return getattr(torch, named)
    if place.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if place == "cpu":
        return torch.bfloat16 if cpu_has_bfloat16(torch) else torch.float32
    return torch.float16


def cpu_has_bfloat16(torch: Any) -> bool:
    """Whether the processor computes in bfloat16, which is then faster than float32."""
    can: Mapping[str, Any] = torch.cpu.get_capabilities()
    return bool(can.get("avx512_bf16") or can.get("amx_bf16"))


def import_transformers() -> Any:
    """Import the transformers library and turn its progress bars and messages off."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no line for each of its retries
    wait_without_spinning()
    try:
        import_module("torch")
        library = import_module("transformers")
    except ImportError as error:
        what = "hf: models need torch and transformers"
        raise MissingExtra.of(error, what, "local") from error
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def load_pretrained(kind: Any, source: ModelSource, **options: Any) -> Any:
    """Load an object of an Auto class from local files, otherwise from the hub."""
    arguments = {**source.arguments, **options}
    local = Path(source.place).is_dir()
    try:
        if not local:
            with suppress(OSError):
                return kind.from_pretrained(**arguments, local_files_only=True)
        return kind.from_pretrained(**arguments, local_files_only=local)
    except Exception as error:  # transformers, torch, safetensors and the hub share no class.
        hint = "check the files" if local else "check the name and the connection, or give a folder"
        what = f"cannot load {source.place}" + (f"/{source.gguf_file}" if source.gguf_file else "")
        raise WeightsUnavailable(what, _reason(error), hint) from error


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return "there is not enough memory for it"
    if isinstance(error, json.JSONDecodeError):
        return f"one of its JSON files is damaged ({error})"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300].rstrip(".") if lines else type(error).__name__
