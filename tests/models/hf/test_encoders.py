from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.hf.encoders import (
    DualEncoder,
    TokenClassifier,
    dual_encoder,
    pieces,
    token_classifier,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Otters eat fish. Bridges cross rivers.\nWho signed it? Anna Keller signed the treaty."


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT of random weights with a head for two labels; its words are those of TEXT."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    place = tmp_path_factory.mktemp("bert")
    words = sorted(set(TEXT.lower().replace(".", " . ").replace("?", " ? ").split()))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (place / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(
        vocab={word: number for number, word in enumerate(vocabulary)}, do_lower_case=True
    )
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=2,
        initializer_range=0.5,
    )
    transformers.BertForTokenClassification(config).save_pretrained(place)
    return place


async def test_every_token_has_its_place_and_the_probability_of_its_label(folder: Path) -> None:
    import torch
    import transformers

    classifier = TokenClassifier(str(folder))
    try:
        [[scored], []] = await classifier.probabilities([TEXT, ""])
    finally:
        await classifier.aclose()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0]
    expected = logits.softmax(-1)[1:-1, 1].tolist()
    assert [TEXT[a:b] for a, b, _ in scored][:4] == ["Otters", "eat", "fish", "."]
    assert [p for *_, p in scored] == pytest.approx(expected, abs=1e-5)
    assert len({round(p, 4) for *_, p in scored}) > 5


async def test_a_long_text_is_read_in_pieces_that_end_with_sentences(folder: Path) -> None:
    classifier = TokenClassifier(str(folder), window=12)  # 10 of them the text's
    try:
        [found] = await classifier.probabilities([TEXT])
    finally:
        await classifier.aclose()
    assert [TEXT[piece[0][0] : piece[-1][1]] for piece in found] == [
        "Otters eat fish. Bridges cross rivers.",
        "Who signed it? Anna Keller signed the treaty.",
    ]


async def test_no_more_is_read_at_once_than_a_model_has_places_for(folder: Path) -> None:
    classifier, encoder = TokenClassifier(str(folder)), DualEncoder(str(folder))
    try:
        [found] = await classifier.probabilities([TEXT * 9])
        vectors = await encoder.embed([TEXT * 9])
    finally:
        await classifier.aclose()
        await encoder.aclose()
    assert max(map(len, found)) <= 62 < sum(map(len, found))
    assert np.isfinite(vectors).all()


def test_a_sentence_longer_than_a_piece_is_cut_in_the_middle() -> None:
    text = "one two three four. five six"
    offsets = [(0, 3), (4, 7), (8, 13), (14, 18), (18, 19), (20, 24), (25, 28)]
    assert pieces(text, offsets, 3) == [(0, 3), (3, 5), (5, 7)]
    assert pieces("", [], 3) == []


async def test_a_text_has_the_mean_of_its_tokens_whatever_comes_with_it(folder: Path) -> None:
    import torch
    import transformers

    encoder = DualEncoder(str(folder))
    texts = ["Otters eat fish.", TEXT, "Bridges"]
    try:
        together = await encoder.embed(texts)
        alone = np.concatenate([await encoder.embed([text]) for text in texts])
        scores = await encoder.scores("Who signed it?", texts)
        query = (await encoder.embed(["Who signed it?"]))[0]
        assert await encoder.scores("Who?", []) == []
    finally:
        await encoder.aclose()
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert scores == pytest.approx((together @ query).tolist(), rel=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = model(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(together[1], states.mean(0).numpy(), atol=1e-5)


async def test_only_so_many_tokens_of_a_text_are_read(folder: Path) -> None:
    encoder = DualEncoder(str(folder), window=6)
    try:
        vectors = await encoder.embed(["Otters eat fish.", "Otters eat fish. Bridges cross"])
    finally:
        await encoder.aclose()
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)


async def test_the_marks_of_a_model_are_plain_text_in_a_document(folder: Path) -> None:
    classifier = TokenClassifier(str(folder))
    text = "Otters [SEP] eat"
    try:
        [[scored]] = await classifier.probabilities([text])
    finally:
        await classifier.aclose()
    assert [text[a:b] for a, b, _ in scored] == ["Otters", "[", "SEP", "]", "eat"]


async def test_a_name_that_is_nothing_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="no model at"):
        TokenClassifier(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsUnavailable, match=r"no config\.json"):
        DualEncoder(str(tmp_path / "empty"))


def test_a_name_is_opened_once(folder: Path) -> None:
    assert token_classifier(str(folder)) is token_classifier(str(folder))
    assert dual_encoder(str(folder)) is dual_encoder(str(folder))
