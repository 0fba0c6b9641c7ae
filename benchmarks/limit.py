"""Measure how much of the processor's int8 speed reading a prompt reaches.

    python benchmarks/limit.py [--model bundled] [--read 512] [--threads N] [--batch 256 512]

The multiply-adds of a prompt are those of the layers' matrices: a token times all of their numbers.
(Attention itself is left out: at 512 tokens it is a hundredth.) They are compared with plain int8
products of the same shapes, of `--batch` tokens with each matrix of one layer: onnxruntime's
MatMulInteger and, where torch is installed, its `_int_mm`; the faster one is the limit. llama.cpp
also multiplies blocks by their scales and unpacks 4-bit weights, which a plain product does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

from colligate.concurrency import physical_cores
from colligate.models.gguf import read_shapes
from colligate.models.llama import engine as engine_module
from pairs import Table, add_options, alternate, divide, find_gguf
from speed import Ours, list_pieces

SECONDS = 1.0  # of each measurement of a plain product

Shape = tuple[int, int]


def list_matrices(path: Path) -> list[Shape]:
    """Return the shapes (inputs, outputs) of the matrices of one layer."""
    shapes = read_shapes(path)
    return [
        (shape[0], shape[1])
        for name, shape in shapes.items()
        if name.startswith("blk.0.") and len(shape) == 2
    ]


def count_layers(path: Path) -> int:
    return len({name.split(".")[1] for name in read_shapes(path) if name.startswith("blk.")})


def make_product(matrices: list[Shape], tokens: int, threads: int) -> Callable[[], None]:
    """Return onnxruntime's products of one layer."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    random = np.random.default_rng(1)
    calls = []
    for inputs, outputs in matrices:
        weights = random.integers(-127, 127, (inputs, outputs), np.int8)
        session = onnxruntime.InferenceSession(
            make_model(weights), options, providers=["CPUExecutionProvider"]
        )
        values = random.integers(0, 255, (tokens, inputs), np.uint8)
        calls.append((session, values))

    def multiply() -> None:
        for session, values in calls:
            session.run(None, {"a": values})

    return multiply


def make_torch_product(matrices: list[Shape], tokens: int, threads: int) -> Callable[[], None]:
    """Return torch's products of one layer."""
    import torch

    torch.set_num_threads(threads)
    pairs = [
        (
            torch.randint(-127, 127, (tokens, inputs), dtype=torch.int8),
            torch.randint(-127, 127, (outputs, inputs), dtype=torch.int8).t(),
        )
        for inputs, outputs in matrices
    ]

    def multiply() -> None:
        for values, weights in pairs:
            torch._int_mm(values, weights)

    return multiply


def make_model(weights: np.ndarray) -> bytes:
    """Return an ONNX model that multiplies bytes `a` by constant weights [inputs, outputs].

    It is written by hand, as protocol buffers, so that the package onnx is not needed.
    """
    uint8, int8, int32 = 2, 3, 6
    constant = b"".join(_number(1, size) for size in weights.shape)
    constant += _number(2, int8) + _bytes(8, b"b") + _bytes(9, weights.tobytes())
    node = _bytes(1, b"a") + _bytes(1, b"b") + _bytes(2, b"c") + _bytes(4, b"MatMulInteger")
    graph = _bytes(1, node) + _bytes(2, b"g") + _bytes(5, constant)
    graph += _bytes(11, _declare(b"a", uint8)) + _bytes(12, _declare(b"c", int32))
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, b"") + _number(2, 10))


def _declare(name: bytes, kind: int) -> bytes:
    """Return a ValueInfoProto of a matrix of any size."""
    shape = b"".join(_bytes(1, _bytes(2, size)) for size in (name + b"0", name + b"1"))
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def measure_calls(call: Callable[[], None], seconds: float) -> float:
    """Return calls a second."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - began)


def measure(arguments: argparse.Namespace) -> None:
    path = find_gguf(arguments.model)
    threads = arguments.threads or physical_cores()
    read, rounds, seconds = arguments.read, arguments.rounds, SECONDS
    if arguments.quick:
        read, rounds, seconds = 128, 2, 0.2
    table = Table(arguments.json)
    matrices = list_matrices(path)
    layer = sum(inputs * outputs for inputs, outputs in matrices)
    model = layer * count_layers(path)
    products = {"onnxruntime": make_product}
    try:
        make_torch_product(matrices[:1], 32, threads)()
        products["torch"] = make_torch_product
    except (ImportError, RuntimeError) as error:
        print(f"torch has no such product here: {error}")
    for batch in arguments.batch:
        engine_module._BATCH_TOKENS = batch
        ours = Ours(path, threads)
        pieces = list_pieces(ours.engine, rounds + 1, read)
        ways = {
            "new": lambda n, ours=ours, pieces=pieces: (
                ours.complete(pieces[n], 1, draft=0).reading * model
            )
        }
        for name, make in products.items():
            multiply = make(matrices, batch, threads)
            size = layer * batch
            ways[name] = lambda n, m=multiply, size=size: measure_calls(m, seconds) * size
        found = alternate(ways, rounds)
        best = max(products, key=lambda name: sum(found[name]))
        about = f"{read} tokens, {batch} at once"
        for name, values in found.items():
            table.say(f"multiply-adds, {name}", [v / 1e9 for v in values], "10^9/s", about)
        table.say("share of a plain int8 product", divide(found["new"], found[best]), "x", best)
        ours.engine.close()
    table.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, rounds=5)
    parser.add_argument("--read", type=int, default=512)
    parser.add_argument("--batch", type=int, nargs="+", default=[256], help="tokens at once")
    measure(parser.parse_args())
