"""Find the files of LoRA adapters, and read the settings of those of peft, without torch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from colligate.errors import WeightsUnavailable
from colligate.models.gguf import read_header
from colligate.models.weights import hash_file

GGUF = "adapter.gguf"
"""The file for llama.cpp that `colligate train fit` writes beside those of peft."""

_CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True)
class LoraFiles:
    """The two files of an adapter, and the name or path that it was given by."""

    adapter: str | Path
    config: Path
    weights: Path

    def hash_content(self) -> str:
        """Return a digest of both files: the same wherever they are."""
        try:
            content = f"{hash_file(self.config)} {hash_file(self.weights)}"
        except OSError as error:
            raise refuse_adapter(self.adapter, str(error)) from error
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def find_lora(adapter: str | Path) -> LoraFiles:
    """Find the files of an adapter given by folder or hub name; safetensors if both forms exist.

    What is not on this machine is downloaded from the hub. WeightsUnavailable if there is none.
    """
    folder = _find_folder(adapter)
    config = folder / _CONFIG
    weights = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    if not config.is_file() or not weights:
        missing = " or ".join(_WEIGHTS) if config.is_file() else _CONFIG
        raise refuse_adapter(adapter, f"it has no {missing}")
    return LoraFiles(adapter, config, weights[0])


def _find_folder(adapter: str | Path) -> Path:
    path, name = Path(adapter).expanduser(), str(adapter)
    if path.is_dir():
        return path
    if isinstance(adapter, Path) or name.count("/") != 1 or name[:1] in "./~":
        raise refuse_adapter(adapter, "there is no such folder")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no line for each of its retries
    download = import_module("huggingface_hub").snapshot_download
    files = [_CONFIG, *_WEIGHTS]
    with suppress(Exception):  # The hub's errors have no common class.
        local = Path(download(name, allow_patterns=files, local_files_only=True))
        if any((local / weights).is_file() for weights in _WEIGHTS):
            return local
    try:
        return Path(download(name, allow_patterns=files))
    except Exception as error:
        hint = "check the name and the connection, or give a folder"
        raise refuse_adapter(adapter, shorten_error(error), hint) from error


def find_gguf_lora(adapter: str | Path) -> Path:
    """Find an adapter for llama.cpp, given by path or by the folder that holds `adapter.gguf`."""
    path = Path(adapter).expanduser()
    file = path / GGUF if path.is_dir() else path
    if not file.is_file():
        raise refuse_adapter(
            adapter,
            f"it holds no {GGUF}" if path.is_dir() else "the file does not exist",
            "colligate train fit writes one, and llama.cpp's convert_lora_to_gguf.py; or use hf:",
        )
    if "adapter.alora.invocation_tokens" in read_header(file).metadata:
        raise refuse_adapter(adapter, "it is not a plain LoRA adapter", "use another one")
    return file


# The settings that the forward pass of plain LoRA depends on.
_FORWARD = frozenset(
    "r lora_alpha target_modules exclude_modules layers_to_transform layers_pattern rank_pattern"
    " alpha_pattern fan_in_fan_out use_rslora use_dora lora_bias".split()
)
# Settings that matter for training only, or not at all.
_IGNORED = frozenset(
    "peft_type peft_version task_type auto_mapping base_model_name_or_path revision inference_mode"
    " lora_dropout init_lora_weights loftq_config eva_config corda_config lora_ga_config"
    " megatron_config megatron_core runtime_config qalora_group_size".split()
)
# Initialisations that leave the base unchanged.
_INITIALISATIONS = (None, True, False, "gaussian", "orthogonal", "eva")


def read_lora_settings(files: LoraFiles) -> dict[str, Any]:
    """Read the settings that the forward pass depends on; refuse more than plain LoRA."""
    try:
        settings = json.loads(files.config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise refuse_adapter(files.adapter, f"its {_CONFIG} is damaged ({error})") from error
    kind = settings.get("peft_type") if isinstance(settings, Mapping) else None
    if kind != "LORA":
        raise refuse_adapter(files.adapter, f"its type is {kind or 'unknown'}")
    more = [
        name
        for name, value in settings.items()
        if name not in _FORWARD | _IGNORED and value and (name, value) != ("bias", "none")
    ]
    if settings.get("init_lora_weights") not in _INITIALISATIONS:
        more.append(f"init_lora_weights={settings['init_lora_weights']}")
    if more:
        raise refuse_adapter(files.adapter, f"it is more than plain LoRA: {', '.join(more)}")
    return {name: settings[name] for name in _FORWARD if name in settings}


def refuse_adapter(
    adapter: str | Path, why: str, hint: str = "give the folder of a plain LoRA adapter of peft"
) -> WeightsUnavailable:
    """Return the error for an adapter that cannot be loaded."""
    return WeightsUnavailable(f"cannot load the adapter {adapter}", why, hint)


def shorten_error(error: Exception) -> str:
    """Return another library's message in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__
