"""Encoders, readers and encoder-decoder models, with random weights or given logits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.lab.baselines.encoders import (
    DualEncoder,
    Seq2Seq,
    TokenClassifier,
    compute_last_token_features,
    extract_answer,
    split_tokens,
)
from support.tiny_models import make_tokenizer, save_bert

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Otters eat fish. Bridges cross rivers.\nWho signed it? Anna Keller signed the treaty."


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT of random weights with a head for two labels; its words are those of TEXT."""
    return save_bert(
        tmp_path_factory.mktemp("bert"),
        TEXT.replace(".", " . ").replace("?", " ? "),
        "BertForTokenClassification",
        max_position_embeddings=64,
        num_labels=2,
        initializer_range=0.5,
    )


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Any]]:
    """`opened(kind, folder)` is a model, closed after the test."""
    async with AsyncExitStack() as stack:

        def enter(kind: Any, folder: Path, window: int | None = None) -> Any:
            model = kind(str(folder))
            model.window = window or getattr(model, "window", 0)
            stack.push_async_callback(model.aclose)
            return model

        yield enter


async def test_every_token_has_its_place_and_the_probability_of_its_label(bert, opened):
    [[scored], []] = await opened(TokenClassifier, bert).probabilities([TEXT, ""])
    model = AutoModelForTokenClassification.from_pretrained(bert).eval()
    with torch.inference_mode():
        read = AutoTokenizer.from_pretrained(bert)(TEXT, return_tensors="pt")
        expected = model(**read).logits[0].softmax(-1)[1:-1, 1].tolist()
    assert [TEXT[a:b] for a, b, _ in scored][:4] == ["Otters", "eat", "fish", "."]
    assert [p for *_, p in scored] == pytest.approx(expected, abs=1e-5)
    assert len({round(p, 4) for *_, p in scored}) > 5


async def test_a_long_text_is_read_in_pieces_that_end_with_sentences(bert, opened):
    # 10 tokens of a piece are the text's.
    [pieces] = await opened(TokenClassifier, bert, window=12).probabilities([TEXT])
    assert [TEXT[piece[0][0] : piece[-1][1]] for piece in pieces] == [
        "Otters eat fish. Bridges cross rivers.",
        "Who signed it? Anna Keller signed the treaty.",
    ]
    text = "one two three four. five six"  # a sentence longer than a piece is cut in the middle
    offsets = [(0, 3), (4, 7), (8, 13), (14, 18), (18, 19), (20, 24), (25, 28)]
    assert split_tokens(text, offsets, 3) == [(0, 3), (3, 5), (5, 7)]


async def test_pieces_of_a_long_word_have_all_its_characters(bert, opened):
    model = opened(TokenClassifier, bert, window=6)
    # As SentencePiece, which puts a blank before a text.
    scores = [("?", 0.0), ("\u2581", -1.0), ("a", -1.0)]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, 0))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    model.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    [pieces] = await model.probabilities(["a" * 20])
    found = {at for piece in pieces for start, end, _ in piece for at in range(start, end)}
    assert found == set(range(20))


async def test_no_more_is_read_at_once_than_a_model_has_positions(bert, opened):
    [found] = await opened(TokenClassifier, bert).probabilities([TEXT * 9])
    assert max(map(len, found)) <= 62 < sum(map(len, found))
    assert np.isfinite(await opened(DualEncoder, bert).embed([TEXT * 9])).all()


async def test_a_text_has_the_mean_of_its_tokens(bert, opened):
    encoder = opened(DualEncoder, bert)
    query, vector = await encoder.embed(["Who signed it?", TEXT])
    scores = await encoder.scores("Who signed it?", [TEXT])
    assert scores == pytest.approx([float(vector @ query)], rel=1e-4)
    assert await encoder.scores("Who?", []) == []
    with torch.inference_mode():
        read = AutoTokenizer.from_pretrained(bert)(TEXT, return_tensors="pt")
        states = AutoModel.from_pretrained(bert).eval()(**read).last_hidden_state[0]
    np.testing.assert_allclose(vector, states.mean(0).numpy(), atol=1e-5)
    few = opened(DualEncoder, bert, window=6)
    first, second = await few.embed(["Otters eat fish.", "Otters eat fish. Bridges cross"])
    np.testing.assert_allclose(first, second, atol=1e-5)


async def test_the_marks_of_a_model_are_plain_text_in_a_document(bert, opened):
    text = "Otters [SEP] eat"
    [[scored]] = await opened(TokenClassifier, bert).probabilities([text])
    assert [text[a:b] for a, b, _ in scored] == ["Otters", "[", "SEP", "]", "eat"]


def test_a_name_that_is_nothing_is_reported(tmp_path):
    with pytest.raises(UnknownModel, match="no model at"):
        Seq2Seq(str(tmp_path / "nowhere"))
    with pytest.raises(WeightsUnavailable, match=r"no config\.json"):
        Seq2Seq(str(tmp_path))


# Readers, with given logits

QUESTION = "Who signed the treaty?"


@pytest.fixture
def tokenizer() -> Any:
    made = make_tokenizer("Who signed the treaty? The otter", 300)
    ends = (("<|im_end|>", 2), ("<|im_start|>", 1))
    made.backend_tokenizer.post_processor = tokenizers.processors.RobertaProcessing(*ends)
    return made


class Pointer:
    """A model sure of an answer wherever its tokens come after the question, else of none."""

    device = "cpu"

    def __init__(self, tokenizer: Any, answer: str) -> None:
        self._wanted = tokenizer(" " + answer, add_special_tokens=False).input_ids
        self.read: list[list[int]] = []

    def __call__(self, input_ids: Any) -> Any:
        ids = input_ids[0].tolist()
        self.read.append(ids)
        starts, ends = torch.zeros((2, 1, len(ids)))
        starts[0, 0] = ends[0, 0] = 4.5
        for place in range(len(ids) - len(self._wanted) + 1):
            if ids[place : place + len(self._wanted)] == self._wanted:
                starts[0, place] = ends[0, place + len(self._wanted) - 1] = 9.0
        return SimpleNamespace(start_logits=starts, end_logits=ends)


@pytest.mark.parametrize(
    ("question", "context", "pointed", "answer"),
    [
        (QUESTION, "It was, in May, Ann Lee who did.", "Ann Lee", "Ann Lee"),
        (QUESTION, "It was xyzabc, they say.", "xyz", "xyzabc"),  # the whole word
        (QUESTION, "Nobody knows who did it.", "Ann Lee", ""),
        ("Who signed it, Ann Lee?", "Nobody knows.", "Ann Lee", ""),
        (QUESTION, "So the otter said. " * 300 + "It was Ann Lee.", "Ann Lee", "Ann Lee"),
        ("who " * 900, "It was Ann Lee.", "Ann Lee", "Ann Lee"),
    ],
    ids=["words", "part of a word", "none", "in the question", "long context", "long question"],
)
def test_the_answer_is_in_the_words_of_the_context(tokenizer, question, context, pointed, answer):
    assert extract_answer(question, context, tokenizer, Pointer(tokenizer, pointed)) == answer


# Encoder-decoder models


@pytest.fixture
def t5(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder("llama"))
    torch.manual_seed(3)
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


async def test_the_end_of_a_text_is_read_however_long_the_text(t5, opened):
    model = opened(Seq2Seq, t5)
    read: list[str] = []

    def note(_: Any, __: Any, options: dict[str, Any]) -> None:
        read.append(model.tokenizer.decode(options["input_ids"][0]))

    model.model.get_encoder().register_forward_pre_hook(note, with_kwargs=True)
    for text in ("treaty ", "treaty " * 400, ""):
        await model.write(text, end="\nCurrent Answer: ", read_tokens=64, max_tokens=2)
        assert read[-1].strip().endswith("Current Answer:")
    assert read[-2].count("treaty") > 5


# Features


def test_a_text_is_its_last_token_and_no_more_of_it_than_asked(tiny_folder, tmp_path):
    folder = str(tiny_folder("llama"))
    texts = ["otters eat", "otters eat fish", "rivers"]
    rows = compute_last_token_features(folder, texts, most=2)
    assert rows.shape == (3, 32)
    assert np.isfinite(rows).all()
    again = compute_last_token_features(folder, texts[:1], most=2)
    np.testing.assert_allclose(rows[0], again[0], rtol=1e-5)
    assert not np.allclose(rows[0], rows[2])
    whole = compute_last_token_features(folder, texts[:2], most=50)
    assert not np.allclose(whole[0], whole[1])
