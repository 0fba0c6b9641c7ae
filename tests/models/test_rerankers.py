"""Rerankers give one score a text, in the order of the texts."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification

from colligate.errors import MalformedOutput, UnknownModel, WeightsUnavailable
from colligate.models import Reranker, pairs
from colligate.models.names import open_head, open_reranker
from colligate.models.pairs import MiniLMReranker
from colligate.models.rerankers import HTTPReranker
from support.tiny_models import save_bert

TEXTS = ["about cats", "nothing", "about big cats and dogs"]


@pytest.mark.parametrize("ending", ["", "/rerank"])
async def test_http(openai_server, policy, ending):
    reranker = HTTPReranker(openai_server.url + ending, "r", "key", policy=policy)
    assert isinstance(reranker, Reranker)
    assert await reranker.score("big cats", TEXTS) == [1.0, 0.0, 2.0]
    sent = openai_server.requests[0]
    assert sent["path"] == "/rerank"
    assert (sent["model"], sent["query"], sent["documents"]) == ("r", "big cats", TEXTS)
    assert sent["headers"]["authorization"] == "Bearer key"
    assert reranker.name == f"http:r@{openai_server.url}"
    assert await reranker.score("big cats", []) == []
    await reranker.aclose()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"results": [{"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "score": 1}, {"index": 1, "score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": "x"}]}',
        b'{"results": [{"index": Infinity, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": NaN}]}',
    ],
)
async def test_http_wrong_answers(openai_server, policy, body):
    openai_server.garble(body, times=3)
    reranker = HTTPReranker(openai_server.url, "r", policy=policy)
    with pytest.raises(MalformedOutput):
        await reranker.score("q", ["a", "b"])
    await reranker.aclose()


# The reranker and the verifier that come in the package

QUESTION = "When did the lighthouse on Skerry Rock begin to shine?"
RIGHT = "Skerry Rock\nThe lighthouse was lit for the first time in March 1851."
OTHERS = (
    "Skerry Rock\nThe lighthouse on the rock is 42 metres high and made of granite.",
    "Lighthouse\nA lighthouse is a tower that shines a light to guide ships.",
    "Rock music\nRock began in the United States and shone in the sixties.",
    "Herring\nHerring is a fish that is eaten smoked or salted.",
)


@pytest.fixture
async def reranker():
    opened = open_reranker("minilm")
    yield opened
    await opened.aclose()


async def test_the_passage_that_answers_is_first(reranker):
    scores = await reranker.score(QUESTION, [*OTHERS, RIGHT])
    assert max(scores) == scores[-1]
    assert scores[-2] < scores[0]  # of another subject altogether


async def test_a_score_is_the_same_in_any_company(reranker):
    together = await reranker.score(QUESTION, [*OTHERS, RIGHT] * 3)
    [alone] = await reranker.score(QUESTION, [RIGHT])
    assert together[len(OTHERS)] == together[-1] == alone


async def test_a_damaged_file_is_reported(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    reranker = MiniLMReranker(tmp_path)
    with pytest.raises(WeightsUnavailable, match=str(tmp_path)):
        await reranker.score("what", ["this"])
    await reranker.aclose()


async def test_another_head_is_no_reranker(tmp_path):
    heads = tmp_path / "heads"
    shutil.copytree(Path(pairs.__file__).parent / "minilm", heads)
    (heads / "verifier.onnx").rename(heads / "model.onnx")
    with pytest.raises(WeightsUnavailable, match="train head reranker"):
        await MiniLMReranker(heads).score("what", ["this"])


LIT = "The lighthouse was lit for the first time in March 1851, after the harbour had been closed."


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("The lighthouse was first lit in March 1851.", "supports"),
        ("The lighthouse was not lit in March 1851.", "contradicts"),
        ("The lighthouse was lit for the last time in March 1851.", "contradicts"),
        (LIT.replace("after", "before"), "contradicts"),
        ("Herring is a fish that is eaten smoked or salted.", "neither"),
    ],
)
async def test_the_verifier_tells_what_a_sentence_does_with_a_claim(claim, verdict):
    verifier = open_head("head")
    assert verifier.name == "head"
    found = verifier.score(claim, "Skerry Rock", LIT)
    await verifier.aclose()
    likely = dict(zip(("supports", "contradicts", "neither"), found, strict=True))
    assert max(likely, key=likely.__getitem__) == verdict
    assert (likely["contradicts"] >= verifier.limit) == (verdict == "contradicts")


# An entailment model by name as verifier: its labels are found by their names

NLI = ("contradiction", "entailment", "neutral")


@pytest.fixture
def name(tmp_path):
    """`name(labels, sure)` names a tiny model that is sure of one of its labels."""

    def made(labels, sure):
        numbered = dict(enumerate(labels))
        named = {"id2label": numbered, "label2id": {label: at for at, label in numbered.items()}}
        words = "ada mercer lived died in 1904 ."
        save_bert(tmp_path, words, "BertForSequenceClassification", **named)
        model = BertForSequenceClassification.from_pretrained(tmp_path)
        with torch.no_grad():
            model.classifier.weight.zero_()
            model.classifier.bias.zero_()
            model.classifier.bias[labels.index(sure)] = 9
        model.save_pretrained(tmp_path)
        return f"hf:{tmp_path}"

    return made


@pytest.mark.parametrize(
    ("labels", "sure", "expected"),
    [
        (NLI, "entailment", (1, 0, 0)),
        (NLI, "contradiction", (0, 1, 0)),
        (NLI[::-1], "contradiction", (0, 1, 0)),
        (NLI, "neutral", (0, 0, 1)),
        (("LABEL_0", "LABEL_1"), "LABEL_1", (1, 0, 0)),
        (("LABEL_0", "LABEL_1"), "LABEL_0", (0, 0, 1)),
    ],
)
async def test_its_labels_are_read_by_name(name, labels, sure, expected):
    verifier = open_head(name(labels, sure))
    found = verifier.score("Ada lived.", "Ada", "Ada Mercer died in 1904.\udce9")
    assert found == pytest.approx(expected, abs=1e-3)
    await verifier.aclose()


def test_a_model_with_one_label_is_refused(name):
    with pytest.raises(WeightsUnavailable, match="not an entailment model"):
        open_head(name(("LABEL_0",), "LABEL_0"))


@pytest.mark.parametrize("wrong", ["onnx:", "hf:", "minilm:x"])
def test_other_names_are_unknown(wrong):
    with pytest.raises(UnknownModel, match=r"none.*odds.*hf:NAME.*onnx:FOLDER"):
        open_head(wrong)
