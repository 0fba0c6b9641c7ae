"""What a GGUF header says, and headers that lie."""

import struct
from pathlib import Path

import pytest

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.gguf import read_header

UINT32, INT32, FLOAT, STRING, ARRAY = 4, 5, 6, 8, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def uint(value: int) -> bytes:
    return struct.pack("<II", UINT32, value)


def array(kind: int, *items: bytes, length: int | None = None) -> bytes:
    head = struct.pack("<IIQ", ARRAY, kind, len(items) if length is None else length)
    return head + b"".join(items)


def gguf(
    path: Path,
    values: dict[str, bytes],
    tensors: dict[str, tuple[int, ...]] | None = None,
    *,
    version: int = 3,
) -> Path:
    values = {"general.architecture": struct.pack("<I", STRING) + text("qwen2")} | values
    body = b"".join(text(key) + value for key, value in values.items())
    for name, shape in (tensors or {}).items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        body += text(name) + sizes + struct.pack("<IQ", 0, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, len(tensors or ()), len(values)) + body)
    return path


def test_the_facts(tmp_path):
    path = gguf(
        tmp_path / "model.gguf",
        {
            "qwen2.context_length": uint(32768),
            "qwen2.block_count": uint(28),
            "qwen2.embedding_length": uint(1536),
            "qwen2.attention.head_count": uint(12),
            "qwen2.attention.head_count_kv": array(UINT32, *[struct.pack("<I", 2)] * 28),
            "tokenizer.ggml.tokens": array(STRING, text("a"), text("b" * 5)),
            "tokenizer.ggml.scores": array(FLOAT, *[struct.pack("<f", 1.0)] * 2),
            "adapter.type": struct.pack("<I", STRING) + text("lora"),
        },
        {"a": (2, 3), "b": (4,)},
    )
    header = read_header(path)
    assert (header.context_tokens, header.kv_bytes_per_token) == (32768, 28 * 2 * (128 + 128) * 2)
    assert (header.weights, header.metadata["adapter.type"]) == (10, "lora")
    assert not [key for key in header.metadata if key.startswith("tokenizer.")]


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<If", FLOAT, float("inf")),
        struct.pack("<If", FLOAT, float("nan")),
        struct.pack("<Ii", INT32, -7),
        struct.pack("<I", STRING) + text("many"),
        struct.pack("<IQ", STRING, 1 << 62),
        struct.pack("<I", 99),
        array(UINT32),
        array(UINT32, length=1 << 60),
        array(STRING, text("x")),
        struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 5000,
        array(ARRAY, struct.pack("<IQ", UINT32, 1) + struct.pack("<I", 1)),
        b"",
    ],
)
def test_damaged_headers(tmp_path, value):
    path = gguf(tmp_path / "model.gguf", {"qwen2.context_length": value})
    with pytest.raises(WeightsUnavailable, match="its GGUF header is damaged"):
        read_header(path)


@pytest.mark.parametrize(
    ("vocabulary", "tensors"),
    [
        (array(STRING, length=1 << 60), {}),
        (array(STRING, struct.pack("<Q", 1 << 60)), {}),
        (struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 5000, {}),
        (array(STRING), {"a": (1,) * 5}),
    ],
)
def test_vocabularies_and_tensors_that_lie(tmp_path, vocabulary, tensors):
    path = gguf(tmp_path / "lies.gguf", {"tokenizer.ggml.tokens": vocabulary}, tensors)
    with pytest.raises(WeightsUnavailable, match="its GGUF header is damaged"):
        read_header(path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UnknownModel, match="the file does not exist"):
        read_header(tmp_path / "missing.gguf")
    with pytest.raises(WeightsUnavailable):
        read_header(tmp_path)
    (tmp_path / "text.gguf").write_text("not a model at all")
    with pytest.raises(WeightsUnavailable, match="it is not a GGUF file"):
        read_header(tmp_path / "text.gguf")
