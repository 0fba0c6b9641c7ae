"""GGUF files with float32 weights, so that llama.cpp and transformers read the same numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from colligate.models.weights import pull
from support.tiny_models import make_tokenizer


def find_float32(name: str, folder: Path) -> Path:
    """Return a pinned model's file with float32 weights; the first caller writes it to `folder`."""
    target = folder / f"{name}-float32.gguf"
    with FileLock(folder / f"{name}.lock"):
        if not target.is_file():
            (source,) = pull(name).values()
            save_float32(source, target.with_suffix(".part")).replace(target)
    return target


def save_float32(source: Path, target: Path) -> Path:
    """Write a GGUF file again with all its weights as float32: SmolLM2-135M takes 540 MB."""
    import gguf

    reader = gguf.GGUFReader(source)
    fields = dict(reader.fields)
    architecture = fields.pop("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in fields.items():
        if name == "general.file_type":
            writer.add_file_type(gguf.LlamaFileType.ALL_F32)
        elif not name.startswith("GGUF."):
            item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=item)
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, weights)
    return finish(writer, target)


def save_gguf(folder: Path, target: Path) -> Path:
    """Write a model of `save_model` as a GGUF file, with its tokenizer and template.

    Architectures: llama, mistral with sliding_window=None, qwen2, qwen3 (transformers cannot read
    the file), gemma2 and gemma3 with query_pre_attn_scalar=8, the width of a head (llama.cpp takes
    no other; transformers takes 256 for the file, so compare with the folder, to 1e-2: llama.cpp
    looks the activation up in a table of half precision), lfm2.
    """
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    architecture = config["model_type"].removesuffix("_text").replace("mistral", "llama")
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_name("tiny")
    _add_sizes(writer, config, architecture)
    _add_tokenizer(writer, folder)
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config["num_hidden_layers"])
    for name, weights in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            query = stem.endswith("q_proj")
            heads = config["num_attention_heads" if query else "num_key_value_heads"]
            halves = weights.reshape(heads, 2, -1, weights.shape[1])
            weights = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))
        if architecture.startswith("gemma") and stem.endswith("norm"):
            weights = weights + 1
        if stem.endswith("conv.conv"):
            weights = weights.squeeze(1)
        writer.add_tensor(f"{names.get_name(stem)}.{kind}", weights.astype(np.float32))
    return finish(writer, target)


def save_mamba(target: Path) -> Any:
    """Write a random recurrent model, as `save_model` makes others; return it in transformers."""
    import gguf
    import torch
    import transformers

    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(target.parent)
    torch.manual_seed(7)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2}
    sizes |= {"time_step_rank": 2, "initializer_range": 0.3}
    config = transformers.MambaConfig(**sizes, tie_word_embeddings=False)
    model = transformers.MambaForCausalLM(config).eval()
    writer = gguf.GGUFWriter(target, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_vocab_size(config.vocab_size)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    _add_tokenizer(writer, target.parent)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MAMBA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, _, kind = name.rpartition(".")
        whole = kind not in ("weight", "bias")
        weights = tensor.numpy().squeeze(1) if name.endswith("conv1d.weight") else tensor.numpy()
        writer.add_tensor(
            names.get_name(name) if whole else f"{names.get_name(stem)}.{kind}",
            -np.exp(weights) if kind == "A_log" else np.ascontiguousarray(weights),
        )
    finish(writer, target)
    return model


def _add_sizes(writer: Any, config: dict[str, Any], architecture: str) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    heads = config["num_key_value_heads"]
    if architecture == "lfm2":
        heads = [heads * (kind == "full_attention") for kind in config["layer_types"]]
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if architecture.startswith("gemma"):
        assert config["query_pre_attn_scalar"] == width
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _add_tokenizer(writer: Any, folder: Path) -> None:
    import gguf
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    special = set(tokenizer.all_special_tokens) | {"<|im_start|>"}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in special else normal for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def finish(writer: Any, target: Path) -> Path:
    """Write all that was added, and return the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
