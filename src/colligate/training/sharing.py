"""Write a model without the weights that it shares with another: as the package carries them.

    python -m colligate.training.sharing OUT/model.onnx

writes a trained verifier into the package, beside the reranker. Both keep the first layers and the
word embeddings of MiniLM as they are: 17 of 24 MB. Needs the extra `train`.

The verifier points at bytes of the reranker's file. Before that file is replaced, write the
verifier whole (`onnx.save(onnx.load("verifier.onnx"), ...)`), and share it with the new one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

_LEAST = 1024  # bytes of a tensor that is worth a pointer

OWN = Path(__file__).parent.parent / "models" / "minilm"


def share_weights(model: Path, other: Path, out: Path) -> int:
    """Write `model` as `out`, which reads from `other` the tensors that are the same there.

    `out` and `other` are in one folder. Return the number of bytes that are shared.
    """
    whole, loaded = other.read_bytes(), onnx.load(model)
    shared = 0
    for tensor in loaded.graph.initializer:
        start = whole.find(tensor.raw_data) if len(tensor.raw_data) >= _LEAST else -1
        if start >= 0:
            length = len(tensor.raw_data)
            set_external_data(tensor, other.name, start, length)
            tensor.ClearField("raw_data")
            shared += length
    out.write_bytes(loaded.SerializeToString())
    return shared


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    share_weights(Path(sys.argv[1]), OWN / "reranker.onnx", OWN / "verifier.onnx")
