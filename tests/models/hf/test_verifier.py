"""An entailment model by name as verifier: its labels are found by their names."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.names import open_head
from colligate.models.weights import pull

NLI = ("contradiction", "entailment", "neutral")


@pytest.fixture
def name(tmp_path):
    """`name(labels, sure)` names a tiny model that is sure of one of its labels."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(pull("minilm-l6-v2-int8")["tokenizer"]), pad_token="[PAD]"
    )

    def made(labels, sure):
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            id2label=dict(enumerate(labels)),
            label2id={label: at for at, label in enumerate(labels)},
        )
        model = BertForSequenceClassification(config)
        with torch.no_grad():
            model.classifier.weight.zero_()
            model.classifier.bias.zero_()
            model.classifier.bias[labels.index(sure)] = 9
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
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


def test_a_name_that_is_nearly_one_gets_it_as_a_hint():
    with pytest.raises(UnknownModel, match="did you mean odds"):
        open_head("odd")


@pytest.mark.parametrize("wrong", ["onnx:", "hf:", "minilm:x"])
def test_other_names_are_unknown(wrong):
    with pytest.raises(UnknownModel, match=r"none.*odds.*hf:NAME.*onnx:FOLDER"):
        open_head(wrong)
