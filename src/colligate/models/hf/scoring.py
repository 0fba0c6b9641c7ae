"""Log-probabilities of given tokens: many at once, what they share computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from typing import Any

from colligate.models.hf.forest import ATTENTION, Forest, Unfit, attend, fits
from colligate.models.hf.prefix_cache import common
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime

_TOKENS = 2048  # in one forward pass: enough for fast products, few enough for their memory
_LOGITS = 1 << 28  # bytes of one pass's logits in float32
_SLICE = 1 << 25  # bytes of logits turned into log-probabilities at a time
_WORTH = 64  # tokens: a shared beginning from here on is remembered for other calls

Ids = Sequence[int]


@dataclass(frozen=True, order=True)
class _Scored:
    """A sequence, and where the continuation to be scored begins in it."""

    ids: tuple[int, ...]
    first: int


class Scorer:
    """Scores continuations; to be called in the model's thread."""

    def __init__(self, runtime: Runtime, prompts: Prompts) -> None:
        self._runtime = runtime
        self._prompts = prompts
        self._packs = fits(runtime.model)
        vocabulary = runtime.model.config.get_text_config().vocab_size
        self._rows = max(1, _LOGITS // (4 * vocabulary))
        self._slice = max(1, _SLICE // (4 * vocabulary))
        self._torch = runtime.torch
        import_module("transformers").AttentionInterface.register(ATTENTION, attend)

    def likelihoods(
        self, pairs: Sequence[tuple[str, str]], *, adapter: str = "", stop: Event | None = None
    ) -> list[list[float]]:
        """Natural log-probability of each token of each (prefix, continuation), in their order.

        Raises:
            ContextTooSmall: one of them does not fit; nothing was computed.
            Stopped: `stop` was set.
        """
        return self._score(
            [
                (self._prompts.literal(prefix, beginning=True), self._prompts.literal(continuation))
                for prefix, continuation in pairs
            ],
            adapter,
            stop,
        )

    def continuations(
        self,
        prefix_ids: Ids,
        continuations_ids: Sequence[Ids],
        *,
        adapter: str = "",
        stop: Event | None = None,
    ) -> list[list[float]]:
        """Natural log-probability of each token of each continuation of one prefix.

        Raises:
            ValueError: the prefix is empty.
            ContextTooSmall, Stopped: as `likelihoods`.
        """
        if not prefix_ids:
            raise ValueError("something must come before a continuation")
        return self._score([(prefix_ids, ids) for ids in continuations_ids], adapter, stop)

    def _score(
        self, pairs: Sequence[tuple[Ids, Ids]], adapter: str, stop: Event | None
    ) -> list[list[float]]:
        scored = [_Scored((*prefix, *continuation), len(prefix)) for prefix, continuation in pairs]
        for one in scored:
            self._runtime.must_fit(len(one.ids))
        asked = sorted({one for one in scored if one.first < len(one.ids)})
        found: dict[_Scored, list[float]] = {}
        with self._runtime.working(stop, adapter):
            if self._packs and asked:
                try:
                    self._together(asked, adapter, found)
                except Unfit:  # its first such layer tells; known from then on
                    self._packs = False
            for one in asked:
                if one not in found:
                    found[one] = self._alone(one, adapter)
        return [list(found.get(one, ())) for one in scored]

    def _together(
        self, asked: Sequence[_Scored], adapter: str, found: dict[_Scored, list[float]]
    ) -> None:
        """Score sorted sequences in one pass; in several if that would be too large a one."""
        shared = min(common(asked[0].ids, asked[-1].ids), *(one.first - 1 for one in asked))
        beginning = asked[0].ids[:shared] if shared >= _WORTH else ()
        forest = Forest([one.ids[:-1] for one in asked], len(beginning))
        # Each token is predicted at the one before it.
        where = [
            forest.positions(i, one.first - 1, len(one.ids) - 1) for i, one in enumerate(asked)
        ]
        row = {position: i for i, position in enumerate(sorted({p for ps in where for p in ps}))}
        if len(forest.ids) > _TOKENS or len(row) > self._rows:
            if len(asked) == 1:
                found[asked[0]] = self._alone(asked[0], adapter)
            else:
                half = len(asked) // 2
                self._together(asked[:half], adapter, found)
                self._together(asked[half:], adapter, found)
            return
        cache = self._cache(beginning, adapter) if beginning else None
        there = {"device": self._runtime.model.device}
        with self._runtime.attending(ATTENTION):
            logits = self._runtime.forward(
                forest.ids,
                cache,
                forest=forest,
                position_ids=self._torch.tensor([forest.depths], **there),
                logits_to_keep=self._torch.tensor([p - forest.known for p in row], **there),
            ).logits[0]
        values = self._log_probabilities(
            logits,
            [row[p] for positions in where for p in positions],
            [token for one in asked for token in one.ids[one.first :]],
        )
        for one in asked:
            count = len(one.ids) - one.first
            found[one], values = values[:count], values[count:]

    def _alone(self, one: _Scored, adapter: str) -> list[float]:
        """Score one sequence with the model's own attention, in as many passes as it takes."""
        start = one.first - 1  # what predicts the first token
        cache = self._cache(one.ids[:start], adapter)
        values: list[float] = []
        while start < len(one.ids) - 1:
            piece = one.ids[start : min(start + self._rows, start + _TOKENS, len(one.ids) - 1)]
            logits = self._runtime.forward(piece, cache, logits_to_keep=0).logits[0]
            following = one.ids[start + 1 : start + 1 + len(piece)]
            values += self._log_probabilities(logits, range(len(piece)), following)
            start += len(piece)
        return values

    def _cache(self, beginning: Ids, adapter: str) -> Any:
        if not beginning:
            return self._runtime.cache()
        layers, known = self._runtime.remembered.longest(beginning, adapter)
        if known == len(beginning):
            return self._runtime.cache(layers)
        return self._runtime.prefill(beginning, adapter=adapter)[0]

    def _log_probabilities(self, logits: Any, rows: Ids, tokens: Ids) -> list[float]:
        """Of a token each, by a row of logits each; without a copy of all logits in float32."""
        sums = [part.float().logsumexp(-1) for part in logits.split(self._slice)]
        there = {"device": logits.device}
        index = self._torch.tensor(list(rows), **there)
        chosen = logits[index, self._torch.tensor(list(tokens), **there)].float()
        values: list[float] = (chosen - self._torch.cat(sums)[index]).tolist()
        return values
