"""Samples on disk: what is written is read again, and what is wrong is said with its place."""

import json
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.errors import FaultyRecord, MissingPath
from colligate.models import Message
from colligate.training.samples import Sample, read_samples, write_samples

SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
        ({"meta": []}, "its meta is no object"),
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


def test_no_file_of_samples(tmp_path):
    with pytest.raises(MissingPath, match="there is no such file"):
        list(read_samples(tmp_path / "train.jsonl"))


def test_what_stood_there_stays_if_writing_breaks_off(tmp_path):
    path = tmp_path / "train.jsonl"
    write_samples(path, [sample("a")])

    def breaking():
        yield sample("b")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_samples(path, breaking())

    assert [each.id for each in read_samples(path)] == ["a"]


def test_half_a_surrogate_pair_can_be_written(tmp_path):
    path = tmp_path / "train.jsonl"

    write_samples(path, [sample("a", reply="b\ud83d")])

    assert [each.target for each in read_samples(path)] == ["b?"]
