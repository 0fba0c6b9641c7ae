"""A classifier of tokens: how surely each token of a text is of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from colligate.models.hf.encoder import Encoder, Loaded
from colligate.models.text import encodable

Scored = tuple[int, int, float]
"""A token's half-open range of characters, and its probability."""

_STOPS = ".\n。！？"  # what a piece of text should end with


class TokenClassifier:
    """A model with a head for token classification.

    What is asked is the probability of the label `label`. A text longer than the model's window
    is read in pieces of at most `window` tokens, cut after a full stop or a line's end.
    """

    def __init__(self, name_or_path: str, *, label: int = 1, window: int = 512) -> None:
        self._encoder = Encoder(name_or_path, "AutoModelForTokenClassification")
        self._label = label
        self._window = window

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def probabilities(self, texts: Sequence[str]) -> list[list[list[Scored]]]:
        """The tokens of each text with the label's probability in [0, 1], piece by piece."""
        return await self._encoder.run(
            lambda loaded: [self._of(encodable(text), loaded) for text in texts]
        )

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()

    def _of(self, text: str, loaded: Loaded) -> list[list[Scored]]:
        encoding = loaded.tokens(text)
        before, after = loaded.around()
        scored = []
        for start, stop in pieces(text, encoding.offsets, loaded.room(self._window)):
            ids = [*before, *encoding.ids[start:stop], *after]
            given = loaded.torch.tensor([ids], device=loaded.device)
            logits = loaded.model(input_ids=given).logits[0, len(before) :]
            of_label = logits.float().softmax(-1)[: stop - start, self._label].tolist()
            tokens = zip(encoding.offsets[start:stop], of_label, strict=True)
            scored.append([(a, b, p) for (a, b), p in tokens])
        return scored


def pieces(text: str, offsets: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Runs of at most `most` tokens, each cut after the last token that ends a sentence."""
    found, start = [], 0
    while start < len(offsets):
        stop = min(start + most, len(offsets))
        if stop < len(offsets):
            ends = (i for i in range(stop, start, -1) if _ends(text, offsets, i - 1))
            stop = next(ends, stop)
        found.append((start, stop))
        start = stop
    return found


def _ends(text: str, offsets: Sequence[tuple[int, int]], token: int) -> bool:
    start, end = offsets[token]
    after = offsets[token + 1][0] if token + 1 < len(offsets) else len(text)
    # Line breaks are in no token of many tokenizers.
    return text[start:end].endswith(tuple(_STOPS)) or "\n" in text[end:after]


@lru_cache(maxsize=2)
def token_classifier(name_or_path: str) -> TokenClassifier:
    """The classifier of this name, the same one for the whole process: it loads once."""
    return TokenClassifier(name_or_path)
