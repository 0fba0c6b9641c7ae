"""A folder of samples: what is written is read again, and the data card."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.errors import FaultyRecord
from colligate.lab.training.samples import (
    CARD_FILE,
    README_FILE,
    Card,
    Sample,
    read_samples,
    write_card,
    write_samples,
)
from colligate.models import Message

SETTINGS = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
REPLIES = TEXTS.filter(lambda text: text.strip())
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    asked = draw(
        st.lists(
            st.builds(Message, st.sampled_from(("system", "user", "assistant")), TEXTS),
            min_size=1,
            max_size=3,
        )
    )
    reply = Message("assistant", draw(REPLIES))
    return Sample(
        id=draw(st.text(string.ascii_letters, min_size=1)),
        task=draw(st.sampled_from(("router", "scope", "reasoner"))),
        messages=(*asked, reply),
        meta=draw(st.dictionaries(TEXTS, PLAIN_JSON, max_size=3)),
    )


@SETTINGS
@given(made=st.lists(samples(), unique_by=lambda sample: sample.id, max_size=5))
def test_what_is_written_is_read_again(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("samples") / "train.jsonl"

    write_samples(path, made)

    assert list(read_samples(path)) == made
    assert path.read_bytes().count(b"\n") == len(made)  # a line each, whatever is in them


def sample(id_: str, task: str = "router", reply: str = "Cannot answer") -> Sample:
    return Sample(id_, task, (Message("user", "Who?"), Message("assistant", reply)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"messages": None}, "field 'messages'"),
        ({"messages": []}, "a prompt and a reply"),
        ({"messages": [{"role": "user", "content": "q"}] * 2}, "not the assistant's"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "field 'messages.0.role': .*'user'"),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant"}]}, "1.content'"),
        (
            {"messages": [{"role": r, "content": " \n"} for r in ("user", "assistant")]},
            "its reply is empty",
        ),
        ({"id": ""}, "field 'id'"),
        ({"task": None}, "field 'task'"),
    ],
)
def test_a_line_that_is_no_sample_is_said_with_file_line_and_reason(tmp_path, changed, reason):
    path = tmp_path / "train.jsonl"
    good = sample("a").to_json()
    path.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'id': 'b', **changed})}\n")

    with pytest.raises(FaultyRecord, match=rf"line 2 of {path}: .*{reason}"):
        list(read_samples(path))


def test_an_id_that_comes_twice_is_said(tmp_path):
    path = tmp_path / "train.jsonl"
    line = json.dumps(sample("a").to_json())
    path.write_text(f"{line}\n\n{line}\n")

    with pytest.raises(FaultyRecord, match=r"line 3 .*'a' came before"):
        list(read_samples(path))


# The data card.


CARD = Card(
    system="rdr2",
    items={"asked": 10, "done": 8, "failed": 1},
    samples={"router": {"train": 1234, "held_out": 5}},
    classes={"router": {"answer": {"train": 1200, "held_out": 5}}},
    discarded={"every action breaks a rule": 3},
    sources={"questions": "data/questions.jsonl"},
    made_with={"models": {"teacher": {"name": "a|b", "digest": ""}}, "prompts": {"x.py": "0" * 64}},
    split={"held out": 0.1, "seed": 0},
    usage={"calls": 9, "input_tokens": 90, "output_tokens": 10, "cost_usd": 0.25},
    files={"train.jsonl": "0" * 64},
    versions={"python": "3.11"},
    sessions=({"began": "2026-01-01T00:00:00+00:00", "arguments": {"out": "`rm`"}},),
)


def test_people_read_what_there_is_and_what_was_left_out(tmp_path: Path) -> None:
    write_card(tmp_path, CARD)
    page = (tmp_path / README_FILE).read_text("utf-8")
    assert json.loads((tmp_path / CARD_FILE).read_text("utf-8"))["complete"] is False

    for part in (
        "1,234 samples to train on and 5 held out, of 8 of 10 items; 1 failed.",
        "**Unfinished**",
        "| router | answer | 1,200 | 5 |",
        "| every action breaks a rule | 3 |",
        "0.2500 US dollars",
        "| models: teacher: name | a\\|b |",  # a bar ends no cell
        '{"out": "\'rm\'"}`',  # nor a backtick the code
        "    path: held_out.jsonl\n",  # for loaders: the files that hold something
    ):
        assert part in page
    assert "x.py" not in page
    whole = replace(
        CARD,
        items={"asked": 8, "done": 8, "failed": 0},
        usage={"cost_usd": None},
        samples={"router": {"train": 1, "held_out": 0}},
    ).markdown()
    assert "Unfinished" not in whole
    assert "of unknown price" in whole
    assert "    path: train.jsonl\n" in whole
    assert "held_out.jsonl" not in whole
