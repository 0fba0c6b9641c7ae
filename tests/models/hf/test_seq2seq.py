"""Encoder-decoder models, with random weights."""

from __future__ import annotations

import pytest

from colligate.errors import UnknownModel
from colligate.models.hf.encoders import Seq2Seq


@pytest.fixture
def folder(tiny_folder, tmp_path):
    import torch
    import transformers

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


async def test_it_writes_the_same_for_the_same_text(folder):
    model = Seq2Seq(str(folder))
    first = await model.write("Who signed the treaty?", max_tokens=5)
    assert isinstance(first, str)
    assert await model.write("Who signed the treaty?", max_tokens=5) == first
    # What lies beyond what is read plays no part.
    short = await model.write("Who signed", read_tokens=2, max_tokens=5)
    assert await model.write("Who signed the treaty of 1932?", read_tokens=2, max_tokens=5) == short
    await model.aclose()


async def test_the_end_of_a_text_is_read_however_long_the_text(folder):
    model = Seq2Seq(str(folder))
    await model.write("Who?")
    tokenizer = model._loaded[0]
    read = []

    def noting(text, **options):
        found = tokenizer(text, **options)
        if "return_tensors" in options:
            read.append(tokenizer.decode(found["input_ids"][0], skip_special_tokens=True))
        return found

    noting.all_special_tokens, noting.decode = tokenizer.all_special_tokens, tokenizer.decode
    model._loaded = noting, model._loaded[1]
    for text in ("treaty ", "treaty " * 400, ""):
        await model.write(text, end="\nCurrent Answer: ", read_tokens=64, max_tokens=2)
        assert read[-1].strip().endswith("Current Answer:")
    assert read[-2].count("treaty") > 5
    await model.aclose()


async def test_no_such_folder_is_said(tmp_path):
    model = Seq2Seq(str(tmp_path / "nothing"))
    with pytest.raises(UnknownModel):
        await model.write("Who?")
    await model.aclose()
