"""The default embedder, with its real weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from colligate.errors import WeightsUnavailable
from colligate.models.embedders import MINILM_NAME, MiniLM
from colligate.models.weights import pull

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def embedder() -> Iterator[MiniLM]:
    pull(MINILM_NAME)
    embedder = MiniLM()
    yield embedder
    asyncio.run(embedder.aclose())


PARAPHRASES = {
    "Patents are licensed to everyone who receives the software.": (
        "Each recipient of the program is granted a patent licence."
    ),
    "The doctor told him to rest for a week.": "His physician prescribed seven days in bed.",
    "Interest rates were raised by the central bank.": "The monetary authority made borrowing dear",
    "Otters eat fish.": "The diet of otters is mostly trout and salmon.",
    "The bridge was opened in 1932.": "Traffic first crossed the viaduct nearly a century ago.",
}


def test_what_libraries_record(embedder: MiniLM) -> None:
    assert (embedder.name, embedder.dimension) == ("minilm-l6-v2-int8", 384)


async def test_a_paraphrase_is_the_nearest(embedder: MiniLM) -> None:
    queries = await embedder.embed(list(PARAPHRASES), kind="query")
    passages = await embedder.embed(list(PARAPHRASES.values()))
    assert (queries @ passages.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]


async def test_cosines_are_those_of_the_model(embedder: MiniLM) -> None:
    """Cosines that the float32 model gives through sentence-transformers."""
    a, b, c = await embedder.embed(
        ["That is a happy person", "That is a happy dog", "Today is a sunny day"]
    )
    assert a @ b == pytest.approx(0.695, abs=0.03)
    assert a @ c == pytest.approx(0.257, abs=0.05)


async def test_a_vector_does_not_depend_on_its_company(embedder: MiniLM) -> None:
    texts = [
        "short",
        "a text of middling length about bridges " * 6,
        "",
        "x " * 300,
        "東京の橋",
    ] * 9
    together = await embedder.embed(texts)
    alone = np.vstack([await embedder.embed([text]) for text in texts])
    assert np.array_equal(together, alone)


async def test_only_the_first_256_tokens_are_read(embedder: MiniLM) -> None:
    # "bridge" is one token, and two mark beginning and end.
    full, longer, shorter = await embedder.embed(
        ["bridge " * 254, "bridge " * 254 + "otters", "bridge " * 253 + "otters"]
    )
    assert np.array_equal(full, longer)
    assert not np.array_equal(full, shorter)


def test_missing_weights_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    with pytest.raises(WeightsUnavailable, match="run colligate models pull minilm-l6-v2-int8"):
        MiniLM()


async def test_damaged_weights_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = pull(MINILM_NAME)
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    folder = tmp_path / "models" / MINILM_NAME
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_bytes(whole["tokenizer"].read_bytes())
    (folder / "model.onnx").write_bytes(bytes(whole["model"].stat().st_size))
    embedder = MiniLM()
    with pytest.raises(WeightsUnavailable, match="cannot be loaded") as caught:
        await embedder.embed(["text"])
    await embedder.aclose()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
