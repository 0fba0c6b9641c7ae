"""The data card: its sums, and what a person reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.errors import ColligateError, MissingPath
from colligate.models import Message
from colligate.training.card import FILE, README, Card, read_card, summed, write_card
from colligate.training.samples import CuratedItem, Sample


def sample(id_: str, task: str = "router", kind: str = "answer") -> Sample:
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
        "train": [sample("a"), sample("b", kind="refuse"), sample("c", "scope", "")],
        "held_out": [sample("d")],
    }

    found = summed(made, splits)

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


def test_dollars_are_unknown_where_one_price_is() -> None:
    found = summed([CuratedItem(usage={"cost_usd": cost}) for cost in (0.5, None)], {})

    assert found["usage"]["cost_usd"] is None


def test_a_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_card(tmp_path, CARD)

    assert read_card(tmp_path) == CARD
    assert json.loads((tmp_path / FILE).read_text("utf-8"))["complete"] is False
    assert {file.name for file in tmp_path.iterdir()} == {FILE, README}


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


def test_no_card_and_a_broken_one_are_said(tmp_path: Path) -> None:
    with pytest.raises(MissingPath, match=f"holds no samples: it has no {FILE}"):
        read_card(tmp_path)
    (tmp_path / FILE).write_text("{}", "utf-8")
    with pytest.raises(ColligateError, match=f"{FILE} cannot be read: TypeError"):
        read_card(tmp_path)
