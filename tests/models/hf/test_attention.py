"""Attention of the last token: the same as transformers gives for the whole matrix."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.models.hf.model import compute_row
from colligate.models.local import average_span, check_spans
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


def ask(model: TinyModel, text: str, spans: Any = SPANS) -> list[float]:
    ids, covered = model.prompts.encode_whole(text)
    row = compute_row(model.runtime, ids)
    return [average_span(row, covered, span) for span in spans]


def naive(model: TinyModel, text: str, spans: Sequence[tuple[int, int]] = SPANS) -> list[float]:
    """From one eager pass with all attention shown; tokens found by the tokenizer's offsets."""
    tokenizer, runtime = model.tokenizer, model.runtime
    encoded = tokenizer(text, add_special_tokens=True, return_offsets_mapping=1)
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
            if begin < b and end > a and end > begin
        ]
        means.append(sum(inside) / len(inside) if inside else 0.0)
    return means


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_what_the_whole_matrix_gives(tiny_model, architecture):
    model = tiny_model(architecture)
    expected = naive(model, TEXT)
    assert ask(model, TEXT) == pytest.approx(expected, abs=1e-6)
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
    ids, covered = llama.prompts.encode_whole(text)  # as they are, letter by letter
    assert "".join(text[start:end] for start, end in covered) == text
    assert not {1, 2} & set(ids)
    assert all(mass > 0 for mass in ask(llama, text, spans))


@pytest.mark.parametrize(
    ("text", "spans", "why"),
    [
        *((TEXT, [(0, 1), span], "no span") for span in ((-1, 2), (3, 2), (0, len(TEXT) + 1))),
        ("", [], "no text"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_text_is_refused(text, spans, why):
    with pytest.raises(ValueError, match=why):
        check_spans(text, spans)
