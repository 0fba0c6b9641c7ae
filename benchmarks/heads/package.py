"""Put a trained verifier, or sorter of questions, into the package, beside the reranker.

    python benchmarks/heads/package.py VERIFIER/model.onnx verifier
    python benchmarks/heads/package.py KINDS/model.onnx kinds

The first layers and word embeddings, 17 MB, are in the reranker's file: the other files point at
its bytes. Before that file is replaced, write them whole
(`onnx.save(onnx.load("verifier.onnx"), ...)`), and share them with the new one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

import colligate.models.pairs

LEAST = 1024  # bytes of a tensor that is worth a pointer


def save_sharing(model: Path, other: Path, out: Path) -> int:
    """Write `model` as `out`, which reads from `other` the tensors that are the same there.

    `out` and `other` are in one folder. Return the number of bytes that are shared.
    """
    whole, loaded = other.read_bytes(), onnx.load(model)
    shared = 0
    for tensor in loaded.graph.initializer:
        start = whole.find(tensor.raw_data) if len(tensor.raw_data) >= LEAST else -1
        if start >= 0:
            length = len(tensor.raw_data)
            set_external_data(tensor, other.name, start, length)
            tensor.ClearField("raw_data")
            shared += length
    out.write_bytes(loaded.SerializeToString())
    return shared


if __name__ == "__main__":
    folder = Path(colligate.models.pairs.__file__).parent / "minilm"
    print(save_sharing(Path(sys.argv[1]), folder / "reranker.onnx", folder / f"{sys.argv[2]}.onnx"))
