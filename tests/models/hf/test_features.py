"""Features of whole texts, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colligate.errors import UnknownModel
from colligate.models.hf.encoders import last_token_features


def test_a_text_is_its_last_token_and_no_more_of_it_than_asked(
    tiny_folder: Callable[..., Path],
) -> None:
    folder = str(tiny_folder("llama"))
    rows = last_token_features(folder, ["otters eat", "otters eat fish", "rivers"], most=2)
    assert rows.shape == (3, 32)
    assert np.isfinite(rows).all()
    again = last_token_features(folder, ["otters eat"], most=2)
    np.testing.assert_allclose(rows[0], again[0], rtol=1e-5)
    assert not np.allclose(rows[0], rows[2])
    whole = last_token_features(folder, ["otters eat", "otters eat fish"], most=50)
    assert not np.allclose(whole[0], whole[1])


def test_no_such_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel):
        last_token_features(str(tmp_path / "nothing"), ["a"], most=2)
