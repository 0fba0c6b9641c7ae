"""Groups of passages for the reranker, made from data sets."""

from __future__ import annotations

import gzip
import json

import pytest

from colligate.errors import MissingPath
from colligate.training.pairs import TEST, TRAIN, make_groups, read_groups, write_groups

TOWNS = [f"{a}{b}" for a in ("Ald", "Bren", "Cor", "Dun", "Esk", "Fal") for b in ("ton", "wick")]


def write(path, records):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def town(name, year):
    text = f"{name} is a town on a river. Its bridge was built in {year}."
    return {"id": f"d{name}", "title": name, "text": text}


@pytest.fixture
def data(tmp_path):
    """Questions about towns. Two of them have the year 1800, so each holds the other's answer."""
    documents = [town(name, 1800 + max(0, i - 1)) for i, name in enumerate(TOWNS)]
    records = [
        {
            "id": f"q{i}",
            "question": f"When was the bridge of {name} built?",
            "answers": [str(1800 + max(0, i - 1))],
            "documents": [documents[i], documents[(i + 1) % len(TOWNS)]],
            "gold_document_ids": [f"d{name}"],
            "meta": {"evidences": [[name, "bridge", str(1800 + max(0, i - 1))]]},
        }
        for i, name in enumerate(TOWNS)
    ]
    records.append(
        {**records[3], "id": "again", "question": "A bridge of which year has Brenwick?"}
    )
    for name in ("towns", "nq20"):
        write(tmp_path / f"{name}.jsonl.gz", records)
        write(tmp_path / f"{name}.corpus.jsonl.gz", documents)
    return tmp_path


async def groups_of(data, *sets):
    return await make_groups(data, sets, lambda event: None)


async def test_wrong_passages_hold_no_answer_and_are_not_gold(data):
    groups = await groups_of(data, "towns")
    first = next(each for each in groups if "Aldton" in each.question)
    assert first.gold == ("Aldton\nAldton is a town on a river. Its bridge was built in 1800.",)
    assert len(first.others) > 4
    assert not any("1800" in text for text in first.others)
    for each in groups:
        assert not set(each.gold) & set(each.others)


async def test_questions_that_share_gold_are_on_one_side(data):
    groups = await groups_of(data, "towns", "nq20")
    sides = {}
    for each in groups:
        for text in each.gold:
            sides.setdefault(text, set()).add(each.split)
    assert all(len(splits) == 1 for splits in sides.values())


async def test_no_training_question_has_a_gold_passage_of_a_judged_one(data):
    file, mill = data / "nq20.jsonl.gz", town("Zill", 1700)
    records = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    for each in records:
        each["documents"].append(mill)
        each["gold_document_ids"].append(mill["id"])
    write(file, records)
    groups = await groups_of(data, "nq20")
    judged = {text for each in groups if each.split != TRAIN for text in each.gold}
    assert judged
    assert not judged & {text for each in groups if each.split == TRAIN for text in each.gold}


async def test_a_set_is_trained_on_and_judged_by_different_questions(data):
    groups = await groups_of(data, "nq20")
    assert {each.split for each in groups} >= {TRAIN, TEST}
    asked = [each.question for each in groups]
    assert len(asked) == len(set(asked))
    made = [each for each in groups if each.kind == "evidence"]
    assert made
    assert all(each.split == TRAIN for each in made)


async def test_groups_are_drawn_alike_and_can_be_read_back(data, tmp_path):
    groups = await groups_of(data, "towns")
    assert await groups_of(data, "towns") == groups
    write_groups(tmp_path / "groups.jsonl", groups)
    assert read_groups(tmp_path / "groups.jsonl") == groups


async def test_a_set_that_is_not_there_is_named(data):
    with pytest.raises(MissingPath, match="villages"):
        await groups_of(data, "villages")
