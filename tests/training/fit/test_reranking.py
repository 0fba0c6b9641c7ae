"""Training the reranker and the verifier: both learn, resume, and their exports score alike."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil

import pytest

from colligate.errors import UsageError
from colligate.models.pairs import MiniLMReranker, MiniLMVerifier, join_title

pytest.importorskip("onnx")

TOWNS = [f"{a}{b}" for a in ("ald", "bren", "cor", "dun", "esk", "fal") for b in ("ton", "wick")]


def write(path, records):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    documents = [
        {"id": f"d{name}", "title": name, "text": f"the bridge of {name} was built in {1800 + i}"}
        for i, name in enumerate(TOWNS)
    ]
    records = [
        {
            "id": f"q{i}",
            "question": f"when was the bridge of {name} built",
            "answers": [str(1800 + i)],
            "documents": documents,
            "gold_document_ids": [f"d{name}"],
            "meta": {},
        }
        for i, name in enumerate(TOWNS)
    ]
    write(folder / "towns.jsonl.gz", records)
    write(folder / "towns.corpus.jsonl.gz", documents)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT of six small layers that knows the words of the data."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"when was the bridge of built in".split()]
    words += [*TOWNS, *(str(1800 + i) for i in range(len(TOWNS)))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder


SETTINGS = ("sets=towns", "steps=6", "save_every=2", "wrong=3", "head_rate=0.01")


async def train(data, base, out, settings=SETTINGS, stop_at=None):
    from colligate.training.reranking import train_reranker

    def see(event):
        if getattr(event, "phase", "") == "training" and event.done == stop_at:
            raise KeyboardInterrupt

    return await train_reranker(data, out, settings, see, base=base)


def weights(out):
    import torch

    return torch.load(out / "checkpoint.pt")["parts"][0]


@pytest.fixture(scope="module")
def trained(data, base, tmp_path_factory):
    return asyncio.run(train(data, base, tmp_path_factory.mktemp("trained")))


async def test_a_stopped_training_ends_as_if_it_had_not_been_stopped(data, base, trained, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        await train(data, base, tmp_path, stop_at=5)
    await train(data, base, tmp_path)
    once, again = weights(trained), weights(tmp_path)
    for name, value in once.items():
        assert again[name].allclose(value, atol=1e-5), name


async def test_another_training_is_refused_in_the_same_folder(data, base, trained):
    with pytest.raises(UsageError, match="steps"):
        await train(data, base, trained, (*SETTINGS, "steps=7"))


@pytest.mark.parametrize("setting", ["warmup=1", "warmup=-0.1", "opening=1.5", "opening=-1"])
async def test_a_share_of_the_steps_that_none_can_be_is_refused(data, base, tmp_path, setting):
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        await train(data, base, tmp_path, (*SETTINGS, setting))


async def test_what_is_exported_scores_like_what_was_trained(base, trained):
    import torch

    from colligate.training.pair_head import PairHead, StateStore, load_head, read_tokenizer

    head = load_head(base, PairHead)
    head.load_state_dict(weights(trained))
    texts = [
        f"{name}\nthe bridge of {name} was built in {1800 + i}" for i, name in enumerate(TOWNS)
    ]
    question = f"when was the bridge of {TOWNS[4]} built"
    with torch.no_grad():
        store = StateStore(head.eval(), read_tokenizer(base))
        wanted = store.score([(question, text) for text in texts])
    reranker = MiniLMReranker(trained, threads=1)
    scores = torch.tensor(await reranker.score(question, texts))
    await reranker.aclose()
    # int8 against bfloat16: the order is what counts, so up to a constant.
    apart = (scores - scores.mean()) - (wanted - wanted.mean())
    assert apart.abs().max() < 0.1 * (wanted.max() - wanted.min())


async def test_a_verifier_is_trained_without_the_documents_to_judge_by(base, trained, tmp_path):
    import torch

    from colligate.training.pair_head import ClaimHead, StateStore, load_head, read_tokenizer
    from colligate.training.verifying import save_sharing, train_verifier

    facts = [
        {"id": name, "title": name, "text": f"The old bridge of {name} was built in {1800 + i}."}
        for i, name in enumerate(TOWNS)
    ]
    write(tmp_path / "facts.corpus.jsonl.gz", facts)
    apart = {"set": "facts", "document": TOWNS[0], "start": 0, "end": 9, "claims": []}
    (tmp_path / "apart.jsonl").write_text(json.dumps(apart) + "\n", "utf-8")
    settings = ("sets=facts", "steps=3", "pairs=4", "head_rate=0.01", "save_every=1")
    made = await train_verifier(
        tmp_path,
        tmp_path / "made",
        settings,
        lambda event: None,
        without=tmp_path / "apart.jsonl",
        base=base,
    )
    claims = [json.loads(line) for line in (made / "claims.jsonl").read_text("utf-8").splitlines()]
    assert {each["document"] for each in claims} == set(TOWNS[1:])
    for again in (None, tmp_path / "facts.jsonl"):
        (tmp_path / "facts.jsonl").write_text(json.dumps({**apart, "end": 5}) + "\n", "utf-8")
        with pytest.raises(UsageError, match="without"):
            await train_verifier(
                tmp_path, made, settings, lambda event: None, without=again, base=base
            )
    head = load_head(base, ClaimHead)
    head.load_state_dict(weights(made))
    claim, source = f"The bridge was built in {1801}.", facts[1]["text"]
    with torch.no_grad():
        store = StateStore(head.eval(), read_tokenizer(base))
        [wanted] = store.score([(claim, join_title(TOWNS[1], source))]).softmax(-1).tolist()
    found = MiniLMVerifier(made).score(claim, TOWNS[1], source)
    assert found == pytest.approx(wanted, abs=0.1)

    # Beside the reranker of the same base it needs no first layers of its own.
    beside = tmp_path / "beside"
    beside.mkdir()
    shutil.copyfile(trained / "model.onnx", beside / "reranker.onnx")
    shutil.copyfile(made / "tokenizer.json", beside / "tokenizer.json")
    shared = save_sharing(made / "model.onnx", beside / "reranker.onnx", beside / "model.onnx")
    sizes = [(folder / "model.onnx").stat().st_size for folder in (made, beside)]
    assert shared > 0
    assert sizes[1] < sizes[0] - 0.9 * shared
    assert MiniLMVerifier(beside).score(claim, TOWNS[1], source) == found
