"""Training heads: rerankers, verifiers and sorters learn, resume, and their exports score alike."""

from __future__ import annotations

import json

import pytest

from colligate.errors import FaultyRecord, MissingPath, UsageError
from colligate.models.names import open_head, open_reranker
from support.cli import colligate  # noqa: F401
from support.tiny_models import save_bert

pytest.importorskip("onnx")

TOWNS = [f"{a}{b}" for a in ("ald", "bren", "cor", "dun", "esk", "fal") for b in ("ton", "wick")]
PASSAGES = [f"{name}\nthe bridge of {name} was built in {1800 + i}" for i, name in enumerate(TOWNS)]
GROUPS = [
    {
        "question": f"when was the bridge of {name} built",
        "right": [PASSAGES[i]],
        "wrong": [*PASSAGES[:i], *PASSAGES[i + 1 :]],
        "answer": [len(PASSAGES[i]) - 4, len(PASSAGES[i])],
        "weight": 1 + i % 2 / 2,
    }
    for i, name in enumerate(TOWNS)
]
CLAIMS = [
    {
        "claim": f"the bridge was built in {year}",
        "evidence": PASSAGES[i],
        "label": "supports" if year == 1800 + i else "contradicts",
    }
    for i in range(len(TOWNS))
    for year in (1800 + i, 1811 - i)
]
QUESTIONS = [
    {"question": f"when was the bridge of {name} built" if at % 2 else name, "kind": kind}
    for at, name in enumerate(TOWNS)
    for kind in [("overview", "fact")[at % 2]]
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
def claims(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    write(folder, "held_out.jsonl", CLAIMS[20:])
    return write(folder, "train.jsonl", CLAIMS[:20])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT of six small layers that knows the words of the data."""
    words = " ".join(["when was the bridge of built in", *TOWNS, *map(str, range(1800, 1812))])
    sizes = {"hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4}
    folder = tmp_path_factory.mktemp("bert")
    return save_bert(folder, words, intermediate_size=64, **sizes)


SETTINGS = ("steps=6", "batch=2", "save_every=2", "distractors=3", "head_rate=0.01")


def train(data, base, out, settings=SETTINGS, stop_at=None, kind="reranker"):
    from colligate.lab.training.heads import train_head

    said = []

    def see(event):
        if getattr(event, "phase", "") == "training" and event.done == stop_at:
            raise KeyboardInterrupt
        said.append(getattr(event, "text", ""))

    train_head(kind, data, out, settings, see, base=base)
    return " ".join(said)


def weights(out):
    from safetensors.torch import load_file

    return load_file(out / "checkpoints" / "checkpoint-6" / "model.safetensors")


def score(kind, base, out, pairs):
    """Return what the trained network itself gives."""
    import torch

    from colligate.lab.training.heads import StateStore, load_head
    from colligate.models.pairs import read_tokenizer

    head = load_head(base, kind)
    head.load_state_dict(weights(out))
    with torch.no_grad():
        return StateStore(head.eval(), read_tokenizer(base / "tokenizer.json")).score(pairs)


@pytest.fixture(scope="module")
def trained(data, base, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    assert "of 2 held-out questions" in train(data, base, out)
    return out


@pytest.mark.real
def test_a_stopped_training_ends_as_if_it_had_not_been_stopped(data, base, trained, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(data, base, tmp_path, stop_at=5)
    train(data, base, tmp_path)
    once, again = weights(trained), weights(tmp_path)
    for name, value in once.items():
        assert again[name].allclose(value, atol=1e-5), name
    lines = (tmp_path / "curve.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]


@pytest.mark.real
def test_another_training_is_refused_in_the_same_folder(data, base, trained):
    with pytest.raises(UsageError, match="steps"):
        train(data, base, trained, (*SETTINGS, "steps=7"))


@pytest.mark.parametrize("setting", ["warmup=1", "opening=1.5", "unanswered=1", "batch=0"])
def test_a_number_that_none_can_be_is_refused(data, base, tmp_path, setting):
    with pytest.raises(UsageError, match=setting.partition("=")[0]):
        train(data, base, tmp_path, (*SETTINGS, setting))


@pytest.mark.parametrize("name", ["distractors", "unanswered"])
def test_the_command_takes_for_each_head_its_own_numbers(colligate, claims, tmp_path, name):  # noqa: F811
    given = ("--data", claims, "--out", tmp_path / "out", "--set", f"{name}=1")
    done = colligate.here("train", "head", "verifier", *given)
    assert done.returncode == 2
    assert f"verifier has no parameter '{name}'" in done.stderr


def test_the_numbers_of_either_are_checked(claims, base, tmp_path):
    from colligate.lab.training.heads import RerankerFit, VerifierFit

    assert RerankerFit(opening=1).opening == VerifierFit(opening=1).opening == 1
    with pytest.raises(UsageError, match="opening"):
        train(claims, base, tmp_path, ("opening=1.1",), kind="verifier")


def test_a_line_that_is_no_pair_is_named(base, tmp_path):
    with pytest.raises(MissingPath, match=r"train\.jsonl"):
        train(tmp_path, base, tmp_path / "out")
    write(tmp_path, "train.jsonl", [GROUPS[0], {**GROUPS[1], "wrong": []}])
    with pytest.raises(FaultyRecord, match=r"line 2 of .*: field 'wrong'"):
        train(tmp_path, base, tmp_path / "out")
    write(tmp_path, "train.jsonl", [CLAIMS[0], {**CLAIMS[1], "label": "perhaps"}])
    with pytest.raises(FaultyRecord, match=r"line 2 of .*: field 'label'"):
        train(tmp_path, base, tmp_path / "out", (), kind="verifier")


def test_groups_are_no_claims(data, base, tmp_path):
    with pytest.raises(FaultyRecord, match=r"line 1 of .*: field 'claim'"):
        train(data, base, tmp_path, (), kind="verifier")


def test_too_few_records_are_an_error(base, tmp_path):
    data = write(tmp_path / "few", "train.jsonl", GROUPS[:1])
    with pytest.raises(UsageError, match="too few"):
        train(data, base, tmp_path / "out")


@pytest.mark.real
async def test_a_reranker_is_exported_and_opened_by_name(base, trained):
    import torch

    question = GROUPS[4]["question"]
    logits = score("reranker", base, trained, [(question, text) for text in PASSAGES])
    wanted, ends = logits[:, 0, 0], logits[:, 1:]
    reranker = open_reranker(f"onnx:{trained}")
    scores = torch.tensor(await reranker.score(question, PASSAGES))
    found = await reranker.find(question, PASSAGES)
    await reranker.aclose()
    for each, wanted_ends, text in zip(found, ends, PASSAGES, strict=True):
        assert each.ends == pytest.approx(
            wanted_ends[1 : len(each.ends) + 1].log_softmax(0), abs=0.3
        )
        start, end = each.best()
        assert text[start:end].strip() == text[start:end] != ""
    # int8 against bfloat16: the order is what counts, so up to a constant.
    apart = (scores - scores.mean()) - (wanted - wanted.mean())
    assert apart.abs().max() < 0.1 * (wanted.max() - wanted.min())


@pytest.mark.real
def test_a_verifier_is_trained_and_opened_by_name(claims, base, tmp_path):
    settings = ("steps=6", "batch=4", "head_rate=0.01", "save_every=3")
    assert "of 4 held-out claims" in train(claims, base, tmp_path, settings, kind="verifier")
    told, evidence = CLAIMS[2]["claim"], CLAIMS[2]["evidence"]
    [wanted] = score("verifier", base, tmp_path, [(told, evidence)]).softmax(-1).tolist()
    found = open_head(f"onnx:{tmp_path}").score(told, *evidence.split("\n"))
    assert found == pytest.approx(wanted, abs=0.1)


@pytest.mark.real
def test_a_sorter_of_questions_is_trained_and_exported(base, tmp_path):
    from colligate.models.pairs import MiniLMKinds

    write(tmp_path / "data", "train.jsonl", QUESTIONS)
    data = write(tmp_path / "data", "held_out.jsonl", QUESTIONS[:4])
    settings = ("steps=6", "batch=8", "head_rate=0.05", "save_every=3")
    said = train(data, base, tmp_path / "out", settings, kind="kinds")
    assert "of 4 held-out questions are told rightly: fact 1.00, overview 1.00" in said
    asked = QUESTIONS[1]["question"]
    [wanted] = score("kinds", base, tmp_path / "out", [(asked, "")]).softmax(-1).tolist()
    assert MiniLMKinds(tmp_path / "out").score(asked) == pytest.approx(wanted, abs=0.1)
