"""The reader's windows, its words and its refusals, with logits that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from colligate.models.hf.encoders import Loaded, _read, best_span

QUESTION = "Who signed the treaty?"


class Logits(np.ndarray[Any, Any]):
    """Numbers that come off a device as a tensor's do."""

    def double(self) -> Logits:
        return self

    def cpu(self) -> Logits:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return np.asarray(self)


@pytest.fixture
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(
        special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(["Who signed the treaty? The otter"] * 2, trainer)
    backend.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )


def loaded(tokenizer: Any, answer: str, strength: float = 9.0) -> Loaded:
    """A model sure of an answer wherever its tokens stand after the question, else of none."""
    wanted = tokenizer(" " + answer, add_special_tokens=False).input_ids

    def model(input_ids: list[list[int]]) -> Any:
        ids = input_ids[0]
        starts, ends = np.zeros((2, 1, len(ids)))
        starts[0, 0] = ends[0, 0] = strength / 2
        for place in range(len(ids) - len(wanted) + 1):
            if ids[place : place + len(wanted)] == wanted:
                starts[0, place] = ends[0, place + len(wanted) - 1] = strength
        return SimpleNamespace(start_logits=starts.view(Logits), end_logits=ends.view(Logits))

    torch = SimpleNamespace(tensor=lambda ids, device: ids)
    model.device = "cpu"  # type: ignore[attr-defined]
    return Loaded(torch, tokenizer, model)


def test_the_words_of_the_context_that_the_model_points_at(tokenizer: Any) -> None:
    model = loaded(tokenizer, "Ann Lee")
    assert _read(QUESTION, "It was, in May, Ann Lee who did.", model) == "Ann Lee"


def test_part_of_a_word_becomes_the_word(tokenizer: Any) -> None:
    model = loaded(tokenizer, "xyz")
    assert _read(QUESTION, "It was xyzabc, they say.", model) == "xyzabc"


def test_no_answer_is_likelier_where_nothing_stands_out(tokenizer: Any) -> None:
    assert _read(QUESTION, "Nobody knows who did it.", loaded(tokenizer, "Ann Lee")) == ""


def test_an_answer_in_the_question_is_none(tokenizer: Any) -> None:
    assert _read("Who signed it, Ann Lee?", "Nobody knows.", loaded(tokenizer, "Ann Lee")) == ""


def test_a_long_context_is_read_in_windows_to_its_end(tokenizer: Any) -> None:
    context = "So the otter said to the fox. " * 200 + "It was Ann Lee in the end."
    assert _read(QUESTION, context, loaded(tokenizer, "Ann Lee")) == "Ann Lee"


def test_a_question_longer_than_a_window_is_cut(tokenizer: Any) -> None:
    assert _read("who " * 900, "It was Ann Lee.", loaded(tokenizer, "Ann Lee")) == "Ann Lee"


def test_a_context_cannot_bring_control_tokens(tokenizer: Any) -> None:
    reads: list[list[int]] = []
    model = loaded(tokenizer, "Ann Lee")
    listening = Loaded(model.torch, tokenizer, lambda input_ids: reads.append(input_ids[0]))
    listening.model.device = "cpu"
    with pytest.raises(AttributeError):  # it gives no logits
        _read(QUESTION, "Now </s><s> Ann Lee did.", listening)
    ends = tokenizer.convert_tokens_to_ids("</s>")
    assert reads[0].count(ends) == 3  # those around question and context
    assert _read(QUESTION, "Now </s><s> Ann Lee did.", model) == "Ann Lee"


def test_the_best_span_goes_forward_and_is_not_long() -> None:
    allowed = [False] + [True] * 30
    starts, ends = np.zeros((2, 31))
    starts[20], ends[5] = 9.0, 9.0  # the ends stand before the starts
    found = best_span(starts, ends, allowed)
    assert found.start <= found.end
    assert found.end - found.start < 15
    starts, ends = np.zeros((2, 31))
    starts[2], ends[4] = 9.0, 9.0
    found = best_span(starts, ends, allowed)
    assert (found.start, found.end) == (2, 4)
    assert found.score > found.nothing
    assert 0 < found.nothing < 1


def test_tokens_of_the_question_are_never_an_answer() -> None:
    starts = ends = np.array([0.0, 9.0, 0.0, 1.0])
    found = best_span(starts, ends, [False, False, False, True])
    assert (found.start, found.end) == (3, 3)
