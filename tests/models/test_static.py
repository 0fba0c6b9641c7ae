"""The fast embedder, with its real weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from colligate.errors import WeightsUnavailable
from colligate.models.embedders import STATIC_NAME, StaticEmbedder
from colligate.models.weights import pull

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return pull(STATIC_NAME)


@pytest.fixture
def embedder(files: dict[str, Path]) -> StaticEmbedder:
    return StaticEmbedder()


def test_what_libraries_record(embedder: StaticEmbedder) -> None:
    assert (embedder.name, embedder.dimension) == ("wordllama-256", 256)


async def test_a_vector_is_the_mean_of_its_tokens(
    embedder: StaticEmbedder, files: dict[str, Path]
) -> None:
    raw = files["model"].read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header["embedding.weight"]["dtype"] == "F16"
    table = np.frombuffer(raw[-32000 * 256 * 2 :], "<f2").reshape(32000, 256)
    text = "The bridge was opened in 1932."
    tokenizer = Tokenizer.from_file(str(files["tokenizer"]))
    rows = [table[i] for i in tokenizer.encode(text, add_special_tokens=False).ids]
    mean = np.mean(np.array(rows, np.float64), axis=0)
    (vector,) = await embedder.embed([text])
    assert vector == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


async def test_numbers_of_the_wordllama_library(embedder: StaticEmbedder) -> None:
    """What wordllama 0.4.0 itself gives: its first three components, and its cosine."""
    bridge, otter = await embedder.embed(["The bridge was opened in 1932.", "Otters eat fish."])
    assert bridge[:3] == pytest.approx([0.084915, 0.089101, 0.072316], abs=1e-5)
    assert bridge @ otter == pytest.approx(-0.016771, abs=1e-5)


async def test_shared_words_are_near(embedder: StaticEmbedder) -> None:
    query, same, other = await embedder.embed(
        [
            "Who may grant a patent licence?",
            "Each contributor grants a patent licence.",
            "Otters eat fish.",
        ]
    )
    assert query @ same > 0.4 > query @ other


def test_missing_weights_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    with pytest.raises(WeightsUnavailable, match="run colligate models pull wordllama-256"):
        StaticEmbedder()


async def test_damaged_weights_are_one_line(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    folder = tmp_path / "models" / STATIC_NAME
    folder.mkdir(parents=True)
    (folder / files["tokenizer"].name).write_bytes(files["tokenizer"].read_bytes())
    (folder / files["model"].name).write_bytes(bytes(files["model"].stat().st_size))
    with pytest.raises(WeightsUnavailable, match="cannot be loaded") as caught:
        await StaticEmbedder().embed(["text"])
    assert "\n" not in str(caught.value)
