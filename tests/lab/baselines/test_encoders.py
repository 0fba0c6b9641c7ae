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

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.lab.baselines.encoders import (
    DualEncoder,
    LoadedModel,
    Seq2Seq,
    TokenClassifier,
    compute_last_token_features,
    extract_answer,
    find_best_span,
    get_dual_encoder,
    get_seq2seq,
    get_token_classifier,
    split_tokens,
)

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "Otters eat fish. Bridges cross rivers.\nWho signed it? Anna Keller signed the treaty."


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT of random weights with a head for two labels; its words are those of TEXT."""
    transformers.utils.logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("bert")
    words = sorted(set(TEXT.lower().replace(".", " . ").replace("?", " ? ").split()))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    transformers.BertTokenizerFast(
        vocab={word: number for number, word in enumerate(vocabulary)}, do_lower_case=True
    ).save_pretrained(folder)
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
    transformers.BertForTokenClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[Any], Any]]:
    """`opened(model)` is the model, closed after the test."""
    async with AsyncExitStack() as stack:

        def enter(model: Any) -> Any:
            stack.push_async_callback(model.aclose)
            return model

        yield enter


async def test_every_token_has_its_place_and_the_probability_of_its_label(bert, opened):
    [[scored], []] = await opened(TokenClassifier(str(bert))).probabilities([TEXT, ""])
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    model = transformers.AutoModelForTokenClassification.from_pretrained(bert).eval()
    with torch.inference_mode():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0]
    expected = logits.softmax(-1)[1:-1, 1].tolist()
    assert [TEXT[a:b] for a, b, _ in scored][:4] == ["Otters", "eat", "fish", "."]
    assert [p for *_, p in scored] == pytest.approx(expected, abs=1e-5)
    assert len({round(p, 4) for *_, p in scored}) > 5


async def test_a_long_text_is_read_in_pieces_that_end_with_sentences(bert, opened):
    # 10 tokens of a piece are the text's.
    [pieces] = await opened(TokenClassifier(str(bert), window=12)).probabilities([TEXT])
    assert [TEXT[piece[0][0] : piece[-1][1]] for piece in pieces] == [
        "Otters eat fish. Bridges cross rivers.",
        "Who signed it? Anna Keller signed the treaty.",
    ]


def test_a_sentence_longer_than_a_piece_is_cut_in_the_middle():
    text = "one two three four. five six"
    offsets = [(0, 3), (4, 7), (8, 13), (14, 18), (18, 19), (20, 24), (25, 28)]
    assert split_tokens(text, offsets, 3) == [(0, 3), (3, 5), (5, 7)]
    assert split_tokens("", [], 3) == []


async def test_no_more_is_read_at_once_than_a_model_has_positions(bert, opened):
    [found] = await opened(TokenClassifier(str(bert))).probabilities([TEXT * 9])
    assert max(map(len, found)) <= 62 < sum(map(len, found))
    assert np.isfinite(await opened(DualEncoder(str(bert))).embed([TEXT * 9])).all()


async def test_a_text_has_the_mean_of_its_tokens_whatever_comes_with_it(bert, opened):
    encoder = opened(DualEncoder(str(bert)))
    texts = ["Otters eat fish.", TEXT, "Bridges"]
    together = await encoder.embed(texts)
    alone = np.concatenate([await encoder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    query = (await encoder.embed(["Who signed it?"]))[0]
    scores = await encoder.scores("Who signed it?", texts)
    assert scores == pytest.approx((together @ query).tolist(), rel=1e-4)
    assert await encoder.scores("Who?", []) == []
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    model = transformers.AutoModel.from_pretrained(bert).eval()
    with torch.inference_mode():
        states = model(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(together[1], states.mean(0).numpy(), atol=1e-5)


async def test_only_so_many_tokens_of_a_text_are_read(bert, opened):
    encoder = opened(DualEncoder(str(bert), window=6))
    vectors = await encoder.embed(["Otters eat fish.", "Otters eat fish. Bridges cross"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)


async def test_the_marks_of_a_model_are_plain_text_in_a_document(bert, opened):
    text = "Otters [SEP] eat"
    [[scored]] = await opened(TokenClassifier(str(bert))).probabilities([text])
    assert [text[a:b] for a, b, _ in scored] == ["Otters", "[", "SEP", "]", "eat"]


@pytest.mark.parametrize("kind", [TokenClassifier, DualEncoder, Seq2Seq])
def test_a_name_that_is_nothing_is_reported(tmp_path, kind):
    with pytest.raises(UnknownModel, match="no model at"):
        kind(str(tmp_path / "nowhere"))
    with pytest.raises(WeightsUnavailable, match=r"no config\.json"):
        kind(str(tmp_path))


@pytest.mark.parametrize("get", [get_token_classifier, get_dual_encoder, get_seq2seq])
def test_a_name_is_opened_once(bert, get):
    assert get(str(bert)) is get(str(bert))


# Readers, with given logits

QUESTION = "Who signed the treaty?"


@pytest.fixture
def tokenizer() -> Any:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["Who signed the treaty? The otter"] * 2, trainer)
    backend.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )


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
    model = LoadedModel(torch, tokenizer, Pointer(tokenizer, pointed))
    assert extract_answer(question, context, model) == answer


def test_a_context_cannot_bring_control_tokens(tokenizer):
    pointer = Pointer(tokenizer, "Ann Lee")
    model = LoadedModel(torch, tokenizer, pointer)
    assert extract_answer(QUESTION, "Now </s><s> Ann Lee did.", model) == "Ann Lee"
    # Those around question and context.
    assert pointer.read[0].count(tokenizer.convert_tokens_to_ids("</s>")) == 3


def test_the_best_span_goes_forward_and_is_not_long():
    allowed = [False] + [True] * 30
    starts, ends = np.zeros((2, 31))
    starts[20], ends[5] = 9.0, 9.0  # the ends come before the starts
    found = find_best_span(starts, ends, allowed)
    assert found.start <= found.end < found.start + 15
    starts, ends = np.zeros((2, 31))
    starts[2], ends[4] = 9.0, 9.0
    found = find_best_span(starts, ends, allowed)
    assert (found.start, found.end) == (2, 4)
    assert 0 < found.no_answer < found.probability < 1


def test_tokens_of_the_question_are_never_an_answer():
    starts = ends = np.array([0.0, 9.0, 0.0, 1.0])
    found = find_best_span(starts, ends, [False, False, False, True])
    assert (found.start, found.end) == (3, 3)


# Encoder-decoder models


@pytest.fixture
def t5(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_folder("llama"))
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


async def test_it_writes_the_same_for_the_same_text(t5, opened):
    model = opened(Seq2Seq(str(t5)))
    first = await model.write("Who signed the treaty?", max_tokens=5)
    assert isinstance(first, str)
    assert await model.write("Who signed the treaty?", max_tokens=5) == first
    # Text after what is read has no effect.
    short = await model.write("Who signed", read_tokens=2, max_tokens=5)
    assert await model.write("Who signed the treaty of 1932?", read_tokens=2, max_tokens=5) == short


async def test_the_end_of_a_text_is_read_however_long_the_text(t5, opened):
    model = opened(Seq2Seq(str(t5)))
    read: list[str] = []

    def listen(loaded: LoadedModel) -> None:
        def note(_: Any, __: Any, options: dict[str, Any]) -> None:
            read.append(loaded.tokenizer.decode(options["input_ids"][0]))

        loaded.model.get_encoder().register_forward_pre_hook(note, with_kwargs=True)

    await model.run(listen)
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
    with pytest.raises(UnknownModel):
        compute_last_token_features(str(tmp_path / "nothing"), ["a"], most=2)
