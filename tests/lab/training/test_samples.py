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
    CuratedItem,
    Sample,
    count_samples,
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


@SETTINGS
@given(made=samples())
def test_a_line_has_the_form_that_trainers_read(made):
    line = made.to_json()

    assert line["messages"][-1] == {"role": "assistant", "content": made.target}
    assert [set(turn) for turn in line["messages"]] == [{"role", "content"}] * len(made.messages)
    assert (*made.prompt, made.messages[-1]) == made.messages


def sample(id_: str, task: str = "router", reply: str = "Cannot answer") -> Sample:
    return Sample(id_, task, (Message("user", "Who?"), Message("assistant", reply)))


def test_samples_of_some_tasks_alone(tmp_path):
    path = tmp_path / "train.jsonl"
    write_samples(path, [sample("a"), sample("b", "scope"), sample("c", "selection")])

    found = read_samples(path, ["scope", "selection"])

    assert [each.id for each in found] == ["b", "c"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"messages": None}, "no list of messages"),
        ({"messages": []}, "a prompt and a reply"),
        ({"messages": [{"role": "user", "content": "q"}] * 2}, "not the assistant's"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "none of system, user, assistant"),
        ({"messages": [{"role": "user"}]}, "the message of the user has no text"),
        ({"id": ""}, "no id"),
        ({"id": 7}, "no id"),
        ({"task": None}, "no task"),
        ({"meta": []}, "its meta is not an object"),
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


def test_a_reply_of_blanks_teaches_nothing():
    with pytest.raises(ValueError, match="its reply is empty"):
        sample("a", reply=" \n")


# The data card.


def classed(id_: str, task: str = "router", kind: str = "answer") -> Sample:
    messages = (Message("user", "Who?"), Message("assistant", "Nobody."))
    return Sample(id_, task, messages, {"class": kind} if kind else {})


CARD = Card(
    system="rdr2",
    items={"asked": 10, "done": 8, "failed": 1},
    samples={"router": {"train": 1234, "held_out": 5}},
    classes={"router": {"answer": {"train": 1200, "held_out": 5}}},
    discarded={"every action breaks a rule": 3},
    counts={"subtrees shown": 1242},
    filters=("Actions are held to the rules.",),
    sources={"questions": "data/questions.jsonl"},
    made_with={"models": {"teacher": {"name": "a|b", "said": {}}}, "prompts": {"x.py": "0" * 64}},
    split={"held out": 0.1, "seed": 0},
    usage={"calls": 9, "input_tokens": 90, "output_tokens": 10, "cost_usd": 0.25},
    files={"train.jsonl": "0" * 64},
    versions={"python": "3.11"},
    sessions=({"began": "2026-01-01T00:00:00+00:00", "arguments": {"out": "`rm`"}},),
)


def test_samples_are_counted_by_task_class_and_split_and_the_rest_is_added_up() -> None:
    made = [
        CuratedItem((), {"too long": 2}, {"shown": 3}, {"calls": 2, "cost_usd": 0.5}),
        CuratedItem(discarded={"too long": 1, "empty": 1}, usage={"calls": 1, "input_tokens": 7}),
    ]
    splits = {
        "train": [classed("a"), classed("b", kind="refuse"), classed("c", "scope", "")],
        "held_out": [classed("d")],
    }

    found = count_samples(made, splits)

    assert found["samples"] == {
        "router": {"train": 2, "held_out": 1},
        "scope": {"train": 1, "held_out": 0},
    }
    assert found["classes"] == {
        "router": {
            "answer": {"train": 1, "held_out": 1},
            "refuse": {"train": 1, "held_out": 0},
        }
    }
    assert found["discarded"] == {"too long": 3, "empty": 1}
    assert found["counts"] == {"shown": 3}
    assert found["usage"] == {
        "calls": 3,
        "input_tokens": 7,
        "output_tokens": 0,
        "cost_usd": 0.5,
    }


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_card(tmp_path, CARD)

    written = json.loads((tmp_path / CARD_FILE).read_text("utf-8"))
    assert written["samples"] == CARD.samples
    assert written["complete"] is False
    assert {file.name for file in tmp_path.iterdir()} == {CARD_FILE, README_FILE}


def test_people_read_what_there_is_and_what_was_left_out() -> None:
    page = CARD.markdown()

    assert "1,234 samples to train on and 5 held out, of 8 of 10 items; 1 failed." in page
    assert "**Unfinished**" in page
    assert "| router | answer | 1,200 | 5 |" in page
    assert "| every action breaks a rule | 3 |" in page
    assert "- Actions are held to the rules." in page
    assert "0.2500 US dollars" in page
    assert "| models: teacher: name | a\\|b |" in page  # a bar ends no cell
    assert '{"out": "\'rm\'"}`' in page  # nor a backtick the code
    assert "x.py" not in page
    whole = replace(CARD, items={"asked": 8, "done": 8, "failed": 0}, usage={"cost_usd": None})
    assert "Unfinished" not in whole.markdown()
    assert "of unknown price" in whole.markdown()


def test_loaders_are_told_of_the_files_that_hold_something() -> None:
    assert "    path: held_out.jsonl\n" in CARD.markdown()
    none_held = replace(CARD, samples={"router": {"train": 1, "held_out": 0}})
    assert "    path: train.jsonl\n" in none_held.markdown()
    assert "held_out.jsonl" not in none_held.markdown()
