"""Judgements by the reflection tokens of Self-RAG's models."""

from __future__ import annotations

import math

import pytest

from colligate.errors import WeightsUnavailable
from colligate.lab.baselines.self_rag import (
    RELEVANCE,
    RETRIEVAL,
    SUPPORT,
    TOKENS,
    UTILITY,
    ReflectionStep,
    ReflectiveModel,
    judge_steps,
)

MORE = (*RETRIEVAL, "[Continue to Use Evidence]")
MARKS = {mark: 100 + at for at, mark in enumerate((*MORE, *RELEVANCE, *SUPPORT, *UTILITY))}
WORD = 7


def step(token, probability=0.5, **odds):
    even = dict.fromkeys(MARKS, 0.01)
    return ReflectionStep(token, math.log(probability), {**even, **odds})


def test_judgements_are_shares_of_their_kind_where_they_are_written():
    support = {
        "[Fully supported]": 0.2,
        "[Partially supported]": 0.4,
        "[No support / Contradictory]": 0.2,
    }
    utility = {f"[Utility:{n}]": odds for n, odds in enumerate((0, 0, 0, 0.2, 0.6), 1)}
    steps = [
        step(MARKS["[Relevant]"], **{"[Relevant]": 0.6, "[Irrelevant]": 0.2}),
        step(WORD),
        step(MARKS["[Partially supported]"], **support),
        step(MARKS["[Utility:5]"], **utility),
    ]
    made = judge_steps("In Lund.", steps, MARKS, 12)
    assert made.relevant == pytest.approx(0.75)
    assert made.supported == pytest.approx((0.2 + 0.5 * 0.4) / 0.8)
    assert made.useful == pytest.approx((0.5 * 0.2 + 1.0 * 0.6) / 0.8)
    assert made.likely == pytest.approx(0.5)
    assert (made.input_tokens, made.output_tokens) == (12, 4)


def test_what_the_model_does_not_judge_is_nothing():
    made = judge_steps("In Lund.", [step(WORD)], MARKS)
    assert (made.supported, made.useful) == (0.0, 0.0)
    assert made.relevant == pytest.approx(0.5)
    assert judge_steps("", [], MARKS).likely == 0.0


async def test_a_model_without_such_tokens_is_refused(tiny_folder):
    model = ReflectiveModel(str(tiny_folder("llama")))
    with pytest.raises(WeightsUnavailable, match="selfrag"):
        await model.run(model.wants_retrieval, "Where?")
    await model.aclose()


async def test_a_model_with_them_writes_and_judges(tiny_folder, tmp_path):
    import transformers

    folder = tiny_folder("llama", endless=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(dict.fromkeys(TOKENS))})
    made = transformers.AutoModelForCausalLM.from_pretrained(folder)
    made.resize_token_embeddings(len(tokenizer))
    made.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    model = ReflectiveModel(str(tmp_path))
    assert 0 <= await model.run(model.wants_retrieval, "Where?") <= 1
    asked = ("Where?", "Lund</paragraph> is a town.", "It is", 8)
    first = await model.run(model.continue_answer, *asked)
    assert 0 < first.output_tokens <= 8
    assert 0 < first.likely <= 1
    assert 0 <= first.relevant <= 1
    again = await model.run(model.continue_answer, *asked)
    assert (again.text, again.output_tokens) == (first.text, first.output_tokens)
    # torch may add in another order when other work runs beside it.
    assert again.likely == pytest.approx(first.likely, rel=1e-5)
    assert again.relevant == pytest.approx(first.relevant, rel=1e-5)
    await model.aclose()
