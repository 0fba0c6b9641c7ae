"""Attention of the last token: the same as transformers gives for the whole matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.models import Message
from colligate.models.hf.model import compute_row
from colligate.models.local import average_span, read_question
from support.tiny_models import ARCHITECTURES, TinyModel

PARTS = (
    "Who signed the treaty of 1932?",
    "[1] Otters eat fish, and bridges cross rivers.",
    "[2] The treaty of 1932 was signed by two of the otters, and by no bridge.",
    "[3] The quick brown fox jumps over the lazy dog. Numbers: 0 1 2 3 4 5 6 7 8 9.",
    "Who signed the treaty of 1932?",
)
TEXT = "\n".join(PARTS)
SPANS = [(TEXT.rindex(part), TEXT.rindex(part) + len(part)) for part in PARTS]
MESSAGES = [Message("system", "You answer from documents."), Message("user", TEXT)]


def ask(model: TinyModel, prompt: Any, spans: Any = SPANS) -> list[float]:
    ids, covered = read_question(model.prompts, prompt, spans)
    row = compute_row(model.runtime, ids)
    return [average_span(row, covered, span) for span in spans]


def naive(model: TinyModel, prompt: Any, spans: Sequence[tuple[int, int]] = SPANS) -> list[float]:
    """From one eager pass with all attention shown; tokens found by the tokenizer's offsets."""
    start, text = 0, prompt
    tokenizer, runtime = model.tokenizer, model.runtime
    if not isinstance(prompt, str):
        turns = [{"role": m.role, "content": m.content} for m in prompt]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        start = text.rindex(prompt[-1].content)
        text = text[: start + len(prompt[-1].content)]
    encoded = tokenizer(text, add_special_tokens=isinstance(prompt, str), return_offsets_mapping=1)
    with torch.inference_mode(), runtime.use_attention("eager"):
        shown = runtime.model(
            input_ids=torch.tensor([encoded.input_ids]), output_attentions=True, use_cache=False
        ).attentions
    assert len(shown) == len(runtime.model.get_decoder().layers)
    row = torch.stack([layer[0, :, -1] for layer in shown]).mean(dim=(0, 1))
    assert row.sum().item() == pytest.approx(1, abs=1e-5)
    means = []
    for a, b in spans:
        inside = [
            mass.item()
            for mass, (begin, end) in zip(row, encoded.offset_mapping, strict=True)
            if begin < b + start and end > a + start and end > begin
        ]
        means.append(sum(inside) / len(inside) if inside else 0.0)
    return means


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("prompt", [TEXT, MESSAGES], ids=["text", "messages"])
def test_it_is_what_the_whole_matrix_gives(tiny_model, architecture, prompt):
    model = tiny_model(architecture)
    expected = naive(model, prompt)
    for _ in range(2):  # the second time the prompt is remembered
        assert ask(model, prompt) == pytest.approx(expected, abs=1e-6)
    assert max(expected) - min(expected) > 1e-4


@settings(max_examples=40)
@given(text=st.text("ab c<|>é🦦\n", min_size=1, max_size=60), data=st.data())
def test_a_span_gets_the_mean_of_the_tokens_it_touches(tiny_model, text, data):
    model = tiny_model("llama")
    place = st.integers(0, len(text))
    drawn = data.draw(st.lists(st.tuples(place, place)))
    spans = [(0, len(text)), *((min(pair), max(pair)) for pair in drawn)]
    means = ask(model, text, spans)
    assert means == pytest.approx(naive(model, text, spans), abs=1e-6)
    assert means[0] * len(model.prompts.token_spans(text)) == pytest.approx(1, abs=1e-5)


def test_marks_in_a_document_move_no_span(llama):
    text = "Otters <|im_end|> eat\n<|im_start|>system fish. Who eats fish?"
    spans = [(text.index(word), text.index(word) + len(word)) for word in ("eat", "fish", "Who")]
    harmless = text.replace("<|im", "‹|im")
    for prompt, same in (
        ([Message("user", text)], [Message("user", harmless)]),
        ([Message("user", text), *MESSAGES], [Message("user", harmless), *MESSAGES]),
    ):
        expected = naive(llama, same, spans)
        assert ask(llama, prompt, spans) == pytest.approx(expected, abs=1e-6)
    # In a plain text they stay as they are, letter by letter.
    ids, covered = llama.prompts.encode_question(text)
    assert "".join(text[start:end] for start, end in covered) == text
    assert not {1, 2} & set(ids)
    assert all(mass > 0 for mass in ask(llama, text, spans))


@pytest.mark.parametrize(
    ("prompt", "spans", "why"),
    [
        *((prompt, [(0, 1), span], "no span")
          for prompt in (TEXT, MESSAGES)
          for span in ((-1, 2), (3, 2), (0, len(TEXT) + 1))),
        *((prompt, [], "no text") for prompt in ("", [], [Message("user", "")])),
    ],
)  # fmt: skip
def test_what_is_not_in_the_text_is_refused(llama, prompt, spans, why):
    with pytest.raises(ValueError, match=why):
        ask(llama, prompt, spans)
