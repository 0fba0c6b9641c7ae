"""LoRA adapters over one base model, through peft.

Only plain LoRA is taken: matrices that are added beside the base's own. What else peft can do
(train biases or whole layers, begin from the base's singular vectors) writes into the base, which
other adapters and the base alone share.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.fetching import digest
from colligate.models.hf.loading import transformers

_CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

# What the forward pass of plain LoRA is made of.
_FORWARD = frozenset(
    "r lora_alpha target_modules exclude_modules layers_to_transform layers_pattern rank_pattern"
    " alpha_pattern fan_in_fan_out use_rslora use_dora lora_bias".split()
)
# What matters for training alone, or not at all.
_ELSEWHERE = frozenset(
    "peft_type peft_version task_type auto_mapping base_model_name_or_path revision inference_mode"
    " lora_dropout init_lora_weights loftq_config eva_config corda_config lora_ga_config"
    " megatron_config megatron_core runtime_config qalora_group_size".split()
)
# Ways to begin training that leave the base as it is.
_BEGINNINGS = (None, True, False, "gaussian", "orthogonal", "eva")
_MATRIX = re.compile(r"\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.weight|\.bias)?$")


class Adapters:
    """The adapters loaded into a model; one, or none, is in force at a time.

    For the model's thread alone. Nothing is ever merged: the base computes the same bits before,
    between and after.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._loaded: set[str] = set()
        self._layers: list[Any] = []
        self._used = ""

    def load(self, adapter: str | Path) -> str:
        """Load a folder, or what a hub name stands for, and say by which key to `use` it.

        The key is made from the files' content: one adapter is loaded once, wherever it lies,
        and results kept under its key are its own.

        Raises:
            MissingExtra: peft is not installed.
            WeightsUnavailable: there is no such adapter, its files are damaged, it is not plain
                LoRA, or it is made for another model.
        """
        transformers()  # quiet from here on
        peft = _peft()
        folder = _folder(adapter)
        config, weights = _files(folder, adapter)
        try:
            content = f"{digest(config)} {digest(weights)}"
        except OSError as error:
            raise _unavailable(adapter, str(error), "check the files") from error
        key = hashlib.sha256(content.encode()).hexdigest()[:16]
        if key not in self._loaded:
            settings = _settings(config, adapter)
            matrices = _matrices(weights, adapter)
            try:
                self._inject(peft, key, settings, matrices, adapter)
            finally:
                kind = import_module("peft.tuners.tuners_utils").BaseTunerLayer
                self._layers = [m for m in self._model.modules() if isinstance(m, kind)]
                self._apply()
            self._loaded.add(key)
        return key

    def use(self, adapter: str = "") -> None:
        """Compute with the adapter of this key from now on; "" is the base model alone."""
        if adapter == self._used:
            return
        if adapter and adapter not in self._loaded:
            raise WeightsUnavailable(f"no adapter {adapter} in {self._name}", "it was not loaded")
        self._used = adapter
        self._apply()

    def _inject(
        self, peft: Any, key: str, settings: dict[str, Any], matrices: dict[str, Any], adapter: Any
    ) -> None:
        """Put the matrices beside the base's own, or leave nothing of them behind."""
        model = self._model
        cast = {name: matrix.to(model.dtype) for name, matrix in matrices.items()}
        with warnings.catch_warnings():
            # peft warns of several adapters in one model; what matters is checked below.
            warnings.simplefilter("ignore")
            try:
                config = peft.LoraConfig(**settings)
                peft.inject_adapter_in_model(config, model, key, low_cpu_mem_usage=True)
                found = peft.set_peft_model_state_dict(
                    model, cast, adapter_name=key, low_cpu_mem_usage=True
                )
                lacking = [name for name in found.missing_keys if f".{key}" in name]
                if lacking or found.unexpected_keys:
                    example = [*lacking, *found.unexpected_keys][0].replace(f".{key}", "")
                    raise ValueError(f"they differ in {example}")
            except Exception as error:  # peft and torch raise as they like.
                peft.functional.delete_adapter(model, key, prefix="lora_")
                getattr(model, "peft_config", {}).pop(key, None)
                raise WeightsUnavailable(
                    f"the adapter {adapter} does not fit {self._name}",
                    _reason(error),
                    "give one that was trained on this model",
                ) from error
        model.eval()  # new modules come in training mode, where dropout is at work

    def _apply(self) -> None:
        # What set_adapter and enable_adapters do, less which parameters are trained: none is, and
        # seeing to it takes a third of the time of a decoding step, to be spent at each switch.
        for layer in self._layers:
            layer._active_adapter = [self._used] if self._used else []
            layer._disable_adapters = not self._used


def _peft() -> Any:
    try:
        import_module("peft.functional")
        return import_module("peft")
    except ImportError as error:
        raise MissingExtra(
            "adapters need peft",
            f"{error.name or 'it'} is not installed",
            "pip install 'colligate[local]'",
        ) from error


def _folder(adapter: str | Path) -> Path:
    """Where its files are: as they are here, else fetched from the hub."""
    path, name = Path(adapter).expanduser(), str(adapter)
    if path.is_dir():
        return path
    if isinstance(adapter, Path) or name.count("/") != 1 or name[:1] in "./~":
        raise _unavailable(adapter, "there is no such folder", "check the path")
    hub = import_module("huggingface_hub")
    for local in (True, False):
        try:
            found = Path(
                hub.snapshot_download(
                    name, allow_patterns=[_CONFIG, *_WEIGHTS], local_files_only=local
                )
            )
        except Exception as error:  # The hub raises as it likes.
            if not local:
                mend = "check the name and the connection, or give a folder"
                raise _unavailable(adapter, _reason(error), mend) from error
        else:
            if not local or any((found / weights).is_file() for weights in _WEIGHTS):
                return found
    raise AssertionError  # the second turn returns or raises


def _files(folder: Path, adapter: str | Path) -> tuple[Path, Path]:
    """Its configuration and its weights; safetensors where there are both forms."""
    config = folder / _CONFIG
    weights = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    if not config.is_file() or not weights:
        missing = " or ".join(_WEIGHTS) if config.is_file() else _CONFIG
        raise _unavailable(adapter, f"it has no {missing}", "give a folder that peft wrote")
    return config, weights[0]


def _settings(config: Path, adapter: str | Path) -> dict[str, Any]:
    """What peft has to know of it."""
    try:
        said = json.loads(config.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = f"its {_CONFIG} is damaged ({error})"
        raise _unavailable(adapter, why, "fetch or save it again") from error
    if not isinstance(said, Mapping) or said.get("peft_type") != "LORA":
        kind = said.get("peft_type") if isinstance(said, Mapping) else None
        raise _unavailable(adapter, f"its type is {kind or 'unknown'}", "give a LoRA adapter")
    more = [
        name
        for name, value in said.items()
        if name not in _FORWARD | _ELSEWHERE and value and (name, value) != ("bias", "none")
    ]
    if said.get("init_lora_weights") not in _BEGINNINGS:
        more.append(f"init_lora_weights={said['init_lora_weights']}")
    if more:
        raise _unavailable(
            adapter, f"it is more than plain LoRA: {', '.join(more)}", "convert it with peft"
        )
    return {name: said[name] for name in _FORWARD if name in said}


def _matrices(weights: Path, adapter: str | Path) -> dict[str, Any]:
    """Its tensors by name, on the processor. Nothing in the file is run."""
    try:
        if weights.suffix == ".safetensors":
            read = import_module("safetensors.torch").load_file(weights)
        else:
            read = import_module("torch").load(weights, map_location="cpu", weights_only=True)
        matrices = dict(read)
    except Exception as error:  # safetensors and torch raise as they like.
        why = f"its {weights.name} is damaged ({_reason(error)})"
        raise _unavailable(adapter, why, "fetch or save it again") from error
    if other := [name for name in matrices if not _MATRIX.search(name)]:
        # They would be written over the base's own.
        why = f"it is more than plain LoRA: it holds {other[0]}"
        raise _unavailable(adapter, why, "save it without the base's weights")
    return matrices


def _unavailable(adapter: str | Path, why: str, mend: str) -> WeightsUnavailable:
    return WeightsUnavailable(f"cannot load the adapter {adapter}", why, mend)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
