"""Write a trained LoRA adapter as a GGUF file, which llama.cpp reads, beside the files of peft."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

gguf: Any = import_module("gguf")

# The architecture in GGUF by that of transformers: those whose layers are known to be alike.
_ARCHITECTURES = {
    **{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"},
    **{"gemma2": "gemma2", "gemma3_text": "gemma3"},
}
_MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)\.weight")
# The layers that llama.cpp applies adapters to.
_LAYER = re.compile(
    r"blk\.\d+\.(attn_q|attn_k|attn_v|attn_qkv|attn_output|ffn_gate|ffn_up|ffn_down)"
)


def write_adapter_gguf(folder: Path, config: Any, target: Path) -> None:
    """Write the LoRA adapter in a folder of peft; ValueError if llama.cpp cannot apply it."""
    if config.model_type not in _ARCHITECTURES:
        raise ValueError(f"how llama.cpp stores {config.model_type} models is not known")
    architecture = _ARCHITECTURES[config.model_type]
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    settings = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    weights = import_module("safetensors.torch").load_file(folder / "adapter_model.safetensors")
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(settings["lora_alpha"]))
    for name, tensor in weights.items():
        found = _MATRIX.fullmatch(name)
        layer = names.get_name(found[1]) if found else None
        if not (found and layer and _LAYER.fullmatch(layer)):
            raise ValueError(f"llama.cpp applies no adapter to {name}")
        matrix = tensor.float().numpy()
        if architecture == "llama" and found[2] == "B" and layer.endswith(("attn_q", "attn_k")):
            query = layer.endswith("attn_q")
            heads = config.num_attention_heads if query else config.num_key_value_heads
            matrix = _reorder_rows(matrix, heads)
        writer.add_tensor(f"{layer}.weight.lora_{found[2].lower()}", matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _reorder_rows(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Put row i + half of each head after its row i: llama.cpp rotates neighbours together."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
