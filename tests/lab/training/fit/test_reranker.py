"""Training rerankers: they learn, resume, and their exports score alike."""

from __future__ import annotations

import json

import pytest

from colligate.errors import FaultyRecord, MissingPath, UsageError
from colligate.models.names import open_reranker
from support.tiny_models import save_bert

pytest.importorskip("onnx")

TOWNS = [f"{a}{b}" for a in ("ald", "bren", "cor", "dun", "esk", "fal") for b in ("ton", "wick")]
PASSAGES = [f"{name}\nthe bridge of {name} was built in {1800 + i}" for i, name in enumerate(TOWNS)]
GROUPS = [
    {
        "question": f"when was the bridge of {name} built",
        "right": [PASSAGES[i]],
        "wrong": [*PASSAGES[:i], *PASSAGES[i + 1 :]],
        "weight": 1 + i % 2 / 2,
    }
    for i, name in enumerate(TOWNS)
]


def write(folder, name, records):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write(folder, "held_out.jsonl", GROUPS[10:])
    return write(folder, "train.jsonl", GROUPS[:10])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT of six small layers that knows the words of the data."""
    words = " ".join(["when was the bridge of built in", *TOWNS, *map(str, range(1800, 1812))])
    sizes = {"hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4}
    folder = tmp_path_factory.mktemp("bert")
    return save_bert(folder, words, intermediate_size=64, **sizes)


SETTINGS = ("steps=6", "batch=2", "save_every=2", "distractors=3", "head_rate=0.01")


def train(data, base, out, settings=SETTINGS, stop_at=None):
    from colligate.lab.training.reranker import train_reranker

    said = []

    def see(event):
        if getattr(event, "phase", "") == "training" and event.done == stop_at:
            raise KeyboardInterrupt
        said.append(getattr(event, "text", ""))

    train_reranker(data, out, settings, see, base=base)
    return " ".join(said)


def weights(out):
    from safetensors.torch import load_file

    return load_file(out / "checkpoints" / "checkpoint-6" / "model.safetensors")


def score(base, out, pairs):
    """Return what the trained network itself gives."""
    import torch

    from colligate.lab.training.reranker import StateStore, load_head, read_tokenizer

    head = load_head(base)
    head.load_state_dict(weights(out))
    with torch.no_grad():
        return StateStore(head.eval(), read_tokenizer(base)).score(pairs)


@pytest.fixture(scope="module")
def trained(data, base, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    assert "of 2 held-out questions" in train(data, base, out)
    return out


def test_a_stopped_training_ends_as_if_it_had_not_been_stopped(data, base, trained, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(data, base, tmp_path, stop_at=5)
    train(data, base, tmp_path)
    once, again = weights(trained), weights(tmp_path)
    for name, value in once.items():
        assert again[name].allclose(value, atol=1e-5), name
    lines = (tmp_path / "curve.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]


def test_another_training_is_refused_in_the_same_folder(data, base, trained):
    with pytest.raises(UsageError, match="steps"):
        train(data, base, trained, (*SETTINGS, "steps=7"))


@pytest.mark.parametrize("setting", ["warmup=1", "opening=1.5", "unanswered=1", "batch=0"])
def test_a_number_that_none_can_be_is_refused(data, base, tmp_path, setting):
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        train(data, base, tmp_path, (*SETTINGS, setting))


def test_a_line_that_is_no_pair_is_named(base, tmp_path):
    with pytest.raises(MissingPath, match=r"train\.jsonl"):
        train(tmp_path, base, tmp_path / "out")
    write(tmp_path, "train.jsonl", [GROUPS[0], {**GROUPS[1], "wrong": []}])
    with pytest.raises(FaultyRecord, match=r"line 2 of .*: field 'wrong'"):
        train(tmp_path, base, tmp_path / "out")


def test_too_few_records_are_an_error(base, tmp_path):
    data = write(tmp_path / "few", "train.jsonl", GROUPS[:1])
    with pytest.raises(UsageError, match="too few"):
        train(data, base, tmp_path / "out")


@pytest.mark.real
async def test_a_reranker_is_exported_and_opened_by_name(base, trained):
    import torch

    question = GROUPS[4]["question"]
    wanted = score(base, trained, [(question, text) for text in PASSAGES])
    reranker = open_reranker(f"onnx:{trained}")
    scores = torch.tensor(await reranker.score(question, PASSAGES))
    await reranker.aclose()
    # int8 against bfloat16: the order is what counts, so up to a constant.
    apart = (scores - scores.mean()) - (wanted - wanted.mean())
    assert apart.abs().max() < 0.1 * (wanted.max() - wanted.min())
