"""LoRA adapters for models of transformers: find their files, check them, and apply them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.download import hash_file
from colligate.models.hf.loading import import_transformers

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class Adapters:
    """The LoRA adapters loaded into a model, through peft; at most one is in use at a time.

    For the model's thread only. Only plain LoRA is accepted: matrices that are added to the base's
    own. Other features of peft (trained biases or whole layers, initialisation from the base's
    singular vectors) write into the base, which other adapters and the base alone share. Nothing
    is ever merged: the base computes the same bits before, between and after.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._loaded: set[str] = set()
        self._layers: list[Any] = []
        self._used = ""

    def load(self, adapter: str | Path) -> str:
        """Load a folder or hub name, and return the key by which to `use` it.

        The key is made from the files' content: an adapter is loaded once wherever its files are,
        and results stored under its key belong to it.
        """
        import_transformers()  # turns its messages off
        try:
            import_module("peft.functional")
            peft = import_module("peft")
        except ImportError as error:
            raise MissingExtra.of(error, "adapters need peft", "local") from error
        folder = _find_folder(adapter)
        try:
            content = f"{hash_file(folder / _CONFIG)} {hash_file(folder / _WEIGHTS)}"
        except OSError as error:
            raise _refuse(adapter, str(error)) from error
        key = hashlib.sha256(content.encode()).hexdigest()[:16]
        if key not in self._loaded:
            settings = _read_settings(folder, adapter)
            matrices = _read_matrices(folder, adapter)
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
        self._used = adapter
        self._apply()

    def _inject(
        self, peft: Any, key: str, settings: dict[str, Any], matrices: dict[str, Any], adapter: Any
    ) -> None:
        """Add the matrices to the model's layers, or leave the model unchanged on failure."""
        model = self._model
        cast = {name: matrix.to(model.dtype) for name, matrix in matrices.items()}
        with warnings.catch_warnings():
            # peft warns of several adapters in one model; what matters is checked below.
            warnings.simplefilter("ignore")
            try:
                config = peft.LoraConfig(**settings)
                peft.inject_adapter_in_model(config, model, key, low_cpu_mem_usage=True)
                result = peft.set_peft_model_state_dict(
                    model, cast, adapter_name=key, low_cpu_mem_usage=True
                )
                missing = [name for name in result.missing_keys if f".{key}" in name]
                if missing or result.unexpected_keys:
                    example = [*missing, *result.unexpected_keys][0].replace(f".{key}", "")
                    raise ValueError(f"they differ in {example}")
            except Exception as error:  # peft and torch have no common class of errors.
                peft.functional.delete_adapter(model, key, prefix="lora_")
                getattr(model, "peft_config", {}).pop(key, None)
                what = f"the adapter {adapter} does not fit {self._name}"
                hint = "give one that was trained on this model"
                raise WeightsUnavailable(what, _shorten(error), hint) from error
        model.eval()  # new modules are in training mode, where dropout is active

    def _apply(self) -> None:
        # As set_adapter and enable_adapters do, without updating which parameters are trained:
        # none is, and that update takes a third of a decoding step at each switch.
        for layer in self._layers:
            layer._active_adapter = [self._used] if self._used else []
            layer._disable_adapters = not self._used


def _find_folder(adapter: str | Path) -> Path:
    """Find the folder of an adapter given by path or hub name, with both its files.

    What is not on this machine is downloaded from the hub.
    """
    path, name = Path(adapter).expanduser(), str(adapter)
    if not path.is_dir():
        if isinstance(adapter, Path) or name.count("/") != 1 or name[:1] in "./~":
            raise _refuse(adapter, "there is no such folder")
        path = _download(name)
    for file in (_CONFIG, _WEIGHTS):
        if not (path / file).is_file():
            raise _refuse(adapter, f"it has no {file}")
    return path


def _download(name: str) -> Path:
    """Return the local copy of a repository's adapter; download it if there is none."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # no line for each of its retries
    download = import_module("huggingface_hub").snapshot_download
    files = [_CONFIG, _WEIGHTS]
    with suppress(Exception):  # The hub's errors have no common class.
        local = Path(download(name, allow_patterns=files, local_files_only=True))
        if (local / _WEIGHTS).is_file():
            return local
    try:
        return Path(download(name, allow_patterns=files))
    except Exception as error:
        hint = "check the name and the connection, or give a folder"
        raise _refuse(name, _shorten(error), hint) from error


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


def _read_settings(folder: Path, adapter: str | Path) -> dict[str, Any]:
    """Read the settings that the forward pass depends on; refuse more than plain LoRA."""
    try:
        settings = json.loads((folder / _CONFIG).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _refuse(adapter, f"its {_CONFIG} is damaged ({error})") from error
    kind = settings.get("peft_type") if isinstance(settings, Mapping) else None
    if kind != "LORA":
        raise _refuse(adapter, f"its type is {kind or 'unknown'}")
    more = [
        name
        for name, value in settings.items()
        if name not in _FORWARD | _IGNORED and value and (name, value) != ("bias", "none")
    ]
    if settings.get("init_lora_weights") not in _INITIALISATIONS:
        more.append(f"init_lora_weights={settings['init_lora_weights']}")
    if more:
        raise _refuse(adapter, f"it is more than plain LoRA: {', '.join(more)}")
    return {name: settings[name] for name in _FORWARD if name in settings}


_MATRIX = re.compile(r"\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.weight|\.bias)?$")


def _read_matrices(folder: Path, adapter: str | Path) -> dict[str, Any]:
    """Read the tensors by name, on the processor."""
    try:
        # Not `load_file`: below safetensors 0.8 the matrices change with the file.
        data = (folder / _WEIGHTS).read_bytes()
        matrices = dict(import_module("safetensors.torch").load(data))
    except Exception as error:  # safetensors and torch have no common class of errors.
        raise _refuse(adapter, f"its {_WEIGHTS} is damaged ({_shorten(error)})") from error
    if other := [name for name in matrices if not _MATRIX.search(name)]:
        # They would overwrite the base's own.
        raise _refuse(adapter, f"it is more than plain LoRA: it holds {other[0]}")
    return matrices


def _refuse(
    adapter: str | Path, why: str, hint: str = "give the folder of a plain LoRA adapter of peft"
) -> WeightsUnavailable:
    return WeightsUnavailable(f"cannot load the adapter {adapter}", why, hint)


def _shorten(error: Exception) -> str:
    """Return another library's message in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__
