"""Compute the attention of a GGUF model's last token to all tokens before it.

llama.cpp's fast kernel gives no probabilities. They are computed here from what it was given:
the query and keys of the last token's own step, and its mask. The query is rotated and the keys
come from the cache, so a row costs little more than one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colligate.errors import MissingCapability, ServerFailed
from colligate.models.decoding import Request
from colligate.models.llama.api import (
    BATCH_TOKENS,
    Context,
    LlamaLibrary,
    Model,
    Tensor,
    read_tensor,
)
from colligate.models.local import count_shared


@dataclass(eq=False)
class AttentionRequest(Request[list[float]]):
    """A text of which the attention of the last token is wanted.

    The outcome has a value for each token, the mean of layers and heads; they sum to 1.
    """

    ids: list[int]


class AttentionContext:
    """A context of one sequence that shows the attention of its last token.

    It is not that of the answers: llama.cpp asks about each of a thousand nodes, which costs time
    and, beside other threads of Python, much of it.
    """

    def __init__(self, model: Model, cells: int, threads: int) -> None:
        self.context = Context(
            model, cells=cells, sequences=1, outputs=1, threads=threads, on_tensor=self._on_tensor
        )
        self._model = model
        self._ids: list[int] = []  # what is in the cells, in this order
        self._adapter = ""
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._looks = False  # at what is computed

    def attend(self, request: AttentionRequest, adapter: int | None) -> Iterator[None]:
        """Compute a request batch by batch; its outcome is set at the end."""
        if request.adapter != self._adapter:  # keys and values of another one do not fit
            self._ids, self._adapter = [], request.adapter
        self.context.use_adapter(adapter)
        last = len(request.ids) - 1
        computed = self._keep(request.ids)
        while computed < last:
            computed = self._read(request.ids, computed, min(computed + BATCH_TOKENS, last))
            yield
        request.outcome = self._read_row(request.ids).tolist()

    def _keep(self, ids: Sequence[int]) -> int:
        """Keep what the last text and this one share before its last token; return how many."""
        shared = count_shared(self._ids, ids[:-1])
        if not self.context.cut(0, shared):
            shared = 0
            self.context.cut(0)
        self._ids = list(ids[:shared])
        return shared

    def _read(self, ids: Sequence[int], start: int, end: int) -> int:
        """Compute some tokens; return the end."""
        count = end - start
        slots, outputs = [0] * count, [False] * count
        if not self.context.decode(ids[start:end], range(start, end), slots, outputs):
            raise ServerFailed("llama.cpp has no room for the prompt", f"{end} tokens")
        self._ids += ids[start:end]
        return end

    def _read_row(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Compute the last token; return its row, the mean of layers and heads."""
        self._rows, self._looks = {}, True
        try:
            self._read(ids, len(ids) - 1, len(ids))
        finally:
            self._looks = False
        rows = [row[: len(ids)] for row in self._rows.values()]
        # The other layers of a recurrent model have no attention. A sum of less than 1 would mean
        # that the cells are not in the order of the tokens.
        expected = 1 if self._model.recurrent else self._model.layers
        if len(rows) < expected or any(abs(row.sum() - 1) > 0.01 for row in rows):
            what, hint = f"{self._model.path.name} gives no attention", "use another model"
            raise MissingCapability(what, "its layers do not attend to all tokens as usual", hint)
        mean: NDArray[np.float32] = np.mean(rows, axis=0)
        return mean

    def _on_tensor(self, address: int, ask: bool) -> bool:
        if not self._looks:
            return False
        tensor = Tensor.from_address(address)
        if not (tensor.src[1] and tensor.src[2]):
            return False
        found = _KEYS.match(Tensor.from_address(tensor.src[1]).name)
        if found is None:
            return False
        if not ask:
            self._rows[int(found[1])] = _attention_row(self._model.library, tensor)
        return True


_KEYS = re.compile(rb"cache_k_l(\d+)")  # llama.cpp's name of the keys of a layer


def _attention_row(library: LlamaLibrary, tensor: Tensor) -> NDArray[np.float32]:
    """Return the attention [cells] of a fused node of one query, keys, values and a mask.

    It is the mean over the heads of softmax(scale * q k + mask). The cells are in the order of the
    tokens.
    """
    query, key = (read_tensor(library, tensor.src[i])[0] for i in (0, 1))  # [heads, 1, width]
    mask = read_tensor(library, tensor.src[3])[0, 0, 0]  # [cells]; -inf for what is not seen
    scale, bias, cap = np.array(tensor.op_params[:3], np.int32).view(np.float32)
    if bias or tensor.src[4]:
        why = "its layers add to the scores what is not computed here"
        raise MissingCapability("this model gives no attention", why, "use another model")
    # Heads that share keys are computed together: [kv heads, group, width].
    grouped = query.reshape(len(key), len(query) // len(key), -1)
    scores = grouped @ key.transpose(0, 2, 1) * scale
    if cap:
        scores = np.tanh(scores / cap) * cap
    scores = scores.reshape(len(query), -1) + mask
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    mean: NDArray[np.float32] = scores.mean(axis=0)
    return mean
