"""What a model makes of whole texts: the state of the last layer at their last token."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from colligate.models.hf.loading import find, load_model, load_tokenizer
from colligate.models.text import blunt, encodable


def last_token_features(name: str, texts: Sequence[str], *, most: int) -> NDArray[np.float64]:
    """A row for each text, [texts, width]; texts are cut after `most` tokens. Blocks.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such model, or it cannot be loaded.
    """
    source = find(name)
    tokenizer = load_tokenizer(source)
    model = load_model(source, dtype="float32", kind="AutoModel")
    rows = []
    with import_module("torch").inference_mode():
        for text in texts:
            harmless = blunt(encodable(text), tokenizer.all_special_tokens)
            read = tokenizer(harmless, truncation=True, max_length=most, return_tensors="pt")
            state = model(**read.to(model.device)).last_hidden_state[0, -1]
            rows.append(state.float().cpu().numpy())
    return np.asarray(rows, np.float64)
