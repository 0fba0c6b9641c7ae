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
from colligate.models.local import read_question
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


def ask(
    model: TinyModel, prompt: Any, spans: Any = SPANS, query: Any = None, **options: Any
) -> list[float]:
    ids, first, average = read_question(model.prompts, prompt, spans, query)
    if "layers" in options:
        options["depths"] = options.pop("layers")
    return average(compute_row(model.runtime, ids, first, **options))


def naive(
    model: TinyModel,
    prompt: Any,
    spans: Sequence[tuple[int, int]] = SPANS,
    query: int | None = None,
    layers: slice = slice(None),
) -> list[float]:
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
    first = len(encoded.input_ids) - 1
    if query is not None:
        ends = [end for _, end in encoded.offset_mapping]
        first = next(i for i, end in enumerate(ends) if end > query + start)
    rows = [layer[0, :, first:].mean(dim=1) for layer in shown[layers]]
    row = torch.stack(rows).mean(dim=(0, 1))
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
@pytest.mark.parametrize("query", [None, TEXT.rindex("Who"), TEXT.index("[2]"), 0])
def test_it_is_what_the_whole_matrix_gives(tiny_model, architecture, prompt, query):
    """Of the last token or of several, over all layers or half of them."""
    model = tiny_model(architecture)
    depth = len(model.runtime.model.get_decoder().layers)
    for begin in (0.0, 0.5, 0.0):  # in the end the prompt is remembered
        expected = naive(model, prompt, SPANS, query, slice(round(depth * begin), None))
        found = ask(model, prompt, SPANS, query=query, layers=(begin, 1.0))
        assert found == pytest.approx(expected, abs=1e-6)
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
    ("prompt", "options", "why"),
    [
        *((prompt, {"spans": [(0, 1), span]}, "no span")
          for prompt in (TEXT, MESSAGES)
          for span in ((-1, 2), (3, 2), (0, len(TEXT) + 1))),
        *((TEXT, {"query": query}, "no query") for query in (-1, len(TEXT), len(TEXT) + 9)),
        (TEXT, {"layers": (0.5, 0.5)}, "between the depths"),
        *((prompt, {"spans": []}, "no text") for prompt in ("", [], [Message("user", "")])),
    ],
)  # fmt: skip
def test_what_is_not_in_the_text_or_model_is_refused(llama, prompt, options, why):
    with pytest.raises(ValueError, match=why):
        ask(llama, prompt, **options)
