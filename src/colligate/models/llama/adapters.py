"""LoRA adapters for llama.cpp: folders that peft saved become GGUF files, without torch."""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colligate.errors import MissingExtra
from colligate.models.gguf import read_metadata, read_shapes
from colligate.models.lora import (
    LoraFiles,
    find_lora,
    read_lora_settings,
    refuse_adapter,
    shorten_error,
)

Matrix = npt.NDArray[np.float32]

_VERSION = 1  # of the conversion: files of an earlier one are not used


def convert_adapter(adapter: str | Path, model: Path, folder: Path) -> Path:
    """Return the GGUF file of a LoRA adapter, for a base model that is a GGUF file.

    `adapter` is a folder that peft saved, a hub name of such files, or a GGUF adapter, which is
    used as it is. What is converted is kept in `folder`, by the content of the adapter's files and
    the shapes of the base's tensors.

    Raises:
        WeightsUnavailable: there is no such adapter, it is made for another model, or it is more
            than plain LoRA on the attention and feed-forward layers.
        MissingExtra: a folder must be converted, and the extra `adapters` is not installed.
    """
    metadata = read_metadata(model)
    architecture = str(metadata.get("general.architecture", ""))
    if str(adapter).endswith(".gguf"):
        return _check_gguf(adapter, architecture)
    files = find_lora(adapter)
    shapes = read_shapes(model)
    content = f"{_VERSION} {files.hash_content()} {architecture} {sorted(shapes.items())}"
    path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.gguf"
    if not path.is_file():
        try:
            tensors = _convert(files, metadata, shapes)
        except (ValueError, TypeError, AttributeError, re.error) as error:  # also of its settings
            raise refuse_adapter(
                adapter,
                shorten_error(error),
                "give a plain LoRA adapter that was trained on this model, or use an hf: model",
            ) from error
        _write(path, architecture, tensors, adapter)
    return path


def _check_gguf(adapter: str | Path, architecture: str) -> Path:
    path = Path(adapter).expanduser()
    if not path.is_file():
        raise refuse_adapter(adapter, "the file does not exist", "check the path")
    metadata = read_metadata(path)
    kind = (metadata.get("general.type"), metadata.get("adapter.type"))
    if kind != ("adapter", "lora") or "adapter.alora.invocation_tokens" in metadata:
        raise refuse_adapter(adapter, "it is not a plain LoRA adapter")
    if (made_for := metadata.get("general.architecture")) != architecture:
        raise refuse_adapter(adapter, f"it is for the architecture {made_for}, not {architecture}")
    return path


# Architectures whose tensors have the same rows as in transformers, and those where llama.cpp
# stores the rows of queries and keys in another order.
_SAME_ROWS = frozenset({"gemma2", "gemma3", "qwen2", "qwen3"})
_OTHER_ROWS = frozenset({"llama"})
# The layers that llama.cpp applies adapters to.
_LAYER = re.compile(
    r"blk\.\d+\.(attn_q|attn_k|attn_v|attn_qkv|attn_output|ffn_gate|ffn_up|ffn_down)\.weight"
)


def _convert(
    files: LoraFiles, metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> dict[str, Matrix]:
    """Return the tensors of the GGUF file by name; ValueError says what cannot be converted."""
    settings = read_lora_settings(files)
    if more := [name for name in ("use_dora", "lora_bias") if settings.get(name)]:
        raise ValueError(f"llama.cpp has no {' or '.join(more)}")
    architecture = str(metadata.get("general.architecture"))
    if architecture not in _SAME_ROWS | _OTHER_ROWS:
        raise ValueError(
            f"the layout of {architecture} models is not known: llama.cpp's own "
            "convert_lora_to_gguf.py may know it"
        )
    gguf = _import_gguf()
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    layers = int(metadata[f"{architecture}.block_count"])
    names = gguf.get_tensor_name_map(kinds[architecture], layers)
    pairs = _read_pairs(files)
    _check_targets(settings, pairs, layers)
    tensors: dict[str, Matrix] = {}
    for module, (a, b) in pairs.items():
        name = f"{names.get_name(module)}.weight"
        if name not in shapes:
            raise ValueError(f"the model has no {module}")
        if not _LAYER.fullmatch(name):
            raise ValueError(f"llama.cpp applies no adapter to {module}")
        if (a.shape[1], b.shape[0]) != shapes[name]:
            given, own = f"{b.shape[0]} x {a.shape[1]}", " x ".join(map(str, shapes[name][::-1]))
            raise ValueError(f"size mismatch: {module} is {given}, the model's {own}")
        heads = metadata[f"{architecture}.attention.head_count"]
        if ".attn_k." in name:
            heads = metadata.get(f"{architecture}.attention.head_count_kv", heads)
        if architecture in _OTHER_ROWS and (".attn_q." in name or ".attn_k." in name):
            b = _reorder_rows(b, int(heads))
        tensors[f"{name}.lora_a"] = a
        # llama.cpp multiplies by the file's alpha, which is 1 here, and divides by the rank.
        tensors[f"{name}.lora_b"] = b * np.float32(_factor(settings, module, len(a)))
    return tensors


def _check_targets(settings: dict[str, Any], modules: Collection[str], layers: int) -> None:
    """Refuse an adapter that lacks a target that it names, or some layers of one."""
    targets = settings.get("target_modules")
    last = {module.rpartition(".")[2] for module in modules}
    chosen = settings.get("exclude_modules") or settings.get("layers_to_transform") is not None
    for target in targets if isinstance(targets, list) else ():  # else a pattern
        count = sum(f".{module}".endswith(f".{target}") for module in modules)
        if not count or (count < layers and target in last and not chosen):
            raise ValueError(f"it has {target} in {count} of {layers} layers")


def _factor(settings: dict[str, Any], module: str, rank: int) -> float:
    """Return what the matrix product is multiplied by, times its rank."""
    patterns = (settings.get("alpha_pattern") or {}).items()
    own = (other for pattern, other in patterns if re.match(rf"(.*\.)?({pattern})$", module))
    alpha = float(next(own, settings.get("lora_alpha", 8)))
    return alpha * math.sqrt(rank) if settings.get("use_rslora") else alpha


def _reorder_rows(matrix: Matrix, heads: int) -> Matrix:
    """Put row i + half of each head after its row i: llama.cpp rotates neighbours together."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


_MATRIX = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)\.weight")


def _read_pairs(files: LoraFiles) -> dict[str, tuple[Matrix, Matrix]]:
    """Read the matrices [rank, in] and [out, rank] of each module, as float32."""
    if files.weights.suffix != ".safetensors":
        raise ValueError(f"its weights are in {files.weights.name}, which only torch reads")
    safetensors: Any = import_module("safetensors")
    try:
        tensors = safetensors.deserialize(files.weights.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"its {files.weights.name} is damaged ({error})") from error
    halves: dict[str, dict[str, Matrix]] = {}
    for name, tensor in tensors:
        if not (match := _MATRIX.fullmatch(name)) or len(tensor["shape"]) != 2:
            raise ValueError(f"it is more than plain LoRA: it holds {name}")
        halves.setdefault(match[1], {})[match[2]] = _read_matrix(tensor)
    if not halves:
        raise ValueError("it holds no matrices")
    pairs: dict[str, tuple[Matrix, Matrix]] = {}
    for module, half in halves.items():
        a, b = half.get("A"), half.get("B")
        if a is None or b is None or a.shape[0] != b.shape[1]:
            raise ValueError(f"its two matrices for {module} do not belong together")
        pairs[module] = (a, b)
    return pairs


def _read_matrix(tensor: dict[str, Any]) -> Matrix:
    kind, data = tensor["dtype"], tensor["data"]
    if kind == "BF16":  # the upper half of a float32
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif kind in ("F16", "F32", "F64"):
        values = np.frombuffer(data, f"<f{int(kind[1:]) // 8}").astype(np.float32)
    else:
        raise ValueError(f"a matrix of type {kind}")
    return values.reshape(tensor["shape"])


def _import_gguf() -> Any:
    try:
        return import_module("gguf")
    except ImportError as error:
        raise MissingExtra.of(error, "a LoRA folder cannot be converted", "adapters") from error


def _write(path: Path, architecture: str, tensors: dict[str, Matrix], adapter: str | Path) -> None:
    """Write the file elsewhere and move it: other processes see all of it or nothing."""
    gguf = _import_gguf()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as unfinished:
            writer = gguf.GGUFWriter(Path(unfinished) / path.name, architecture)
            writer.add_type(gguf.GGUFType.ADAPTER)
            writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
            writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 1.0)
            for name, tensor in tensors.items():
                writer.add_tensor(name, tensor)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            (Path(unfinished) / path.name).replace(path)
    except OSError as error:
        hint = "check the space and permissions of that folder"
        why = f"{path.parent}: {error.strerror or error}"
        raise refuse_adapter(adapter, why, hint) from error
