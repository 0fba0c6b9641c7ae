"""Claims for the verifier: made from sentences, and read from what was written by hand."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.errors import FaultyRecord
from colligate.training.claims import (
    CONTRADICTS,
    NEITHER,
    SUPPORTS,
    Sentence,
    change,
    make_claims,
    read_claims,
    read_sentences,
    read_written,
    reword,
    write_claims,
)

TEXT = "The old bridge was built in 1850 by Ada Lund. It is probably the longest of all bridges."
OTHER = "In 1900 the town of Brenwick was sold to Carl Moe."


@pytest.fixture
def data(tmp_path):
    records = [
        {"id": "bridge", "title": "Bridge", "text": TEXT},
        {"id": "town", "title": "Brenwick", "text": OTHER},
    ]
    with gzip.open(tmp_path / "towns.corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return tmp_path


def written(tmp_path, **line):
    file = tmp_path / "written.jsonl"
    file.write_text(json.dumps({"set": "towns", "document": "bridge", **line}) + "\n", "utf-8")
    return file


def test_what_was_written_is_read_with_its_sentence(data, tmp_path):
    claims = [
        {"kind": "paraphrased", "text": "Ada Lund built the bridge."},
        {"kind": "number", "replace": ["1850", "1950"]},
    ]
    [(sentence, [true, wrong])] = read_written(
        written(tmp_path, start=0, end=45, claims=claims), data
    )
    assert sentence.text == "The old bridge was built in 1850 by Ada Lund."
    assert (true.claim, true.label) == ("Ada Lund built the bridge.", SUPPORTS)
    assert wrong.claim == "The old bridge was built in 1950 by Ada Lund."
    assert wrong.label == CONTRADICTS


def test_a_document_that_is_not_in_the_corpus_is_named(data, tmp_path):
    file = written(tmp_path, document="tower", start=0, end=9, claims=[])
    with pytest.raises(FaultyRecord, match="document tower is not in the corpus of towns"):
        read_written(file, data)


@pytest.mark.parametrize(
    ("kind", "text", "changed"),
    [
        ("negated", "The bridge was not sold.", "The bridge was sold."),
        ("order", "It closed before dawn.", "It closed after dawn."),
        ("hedge", "It is probably old.", "It is old."),
        ("scope", "It has all rights.", "It has few rights."),
        ("role", "Hans Lund defeated Carl Moe.", "Carl Moe defeated Hans Lund."),
        ("number", "It has 2 million doors.", "It has 2 billion doors."),
    ],
)
def test_one_thing_is_changed(kind, text, changed):
    found = {change(text, kind, OTHER, random.Random(seed)) for seed in range(40)}
    assert changed in found


@given(st.integers(0, 500))
def test_a_changed_text_is_another_one_or_none(seed):
    drawn = random.Random(seed)
    for kind in ("negated", "number", "name", "role", "order", "hedge", "scope"):
        assert change(TEXT, kind, OTHER, drawn) != TEXT


def test_rewording_puts_the_title_in_the_place_of_a_pronoun():
    sentence = Sentence("towns", "m", "Carl Moe (painter)", "He was born in Brenwick.")
    found = {reword(sentence, random.Random(seed)) for seed in range(60)}
    assert "Carl Moe was born in Brenwick." in found


def test_rewording_puts_a_pronoun_or_the_last_name_in_the_place_of_the_title():
    text = "Carl Moe was born in Brenwick."
    sentence = Sentence("towns", "m", "Carl Moe (painter)", text, "He died in 1850.")
    found = {reword(sentence, random.Random(seed)) for seed in range(200)}
    assert found >= {"He was born in Brenwick.", "Moe was born in Brenwick."}


def test_another_person_is_not_taken_for_the_one_of_the_title():
    text = "Ada Lund said that he was born in Brenwick."
    sentence = Sentence("towns", "m", "Carl Moe", text)
    found = {reword(sentence, random.Random(seed)) for seed in range(200)}
    assert not [each for each in found if "Carl Moe was" in each]


def reworded(text):
    sentence = Sentence("towns", "m", "Harbour", text)
    return {reword(sentence, random.Random(seed)) for seed in range(300)}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Harbour is a film directed by Cirio H. Santiago.", "Santiago. directed"),
        ("Harbour is a film directed by Cirio H. Santiago.", "Santiago.."),
        ("Harbour is a film written by Anna Lind and directed by Otto Berg.", "the Lind"),
        ("Harbour is a film about a general defeated by Otto Berg.", "defeated Harbour"),
        ("Harbour is a game published by Dutch developer Otto Berg.", "Dutch published"),
        ("The sequel was written by John Smith and Mary Jones.", "sequel and Mary"),
        ("The bridge was designed by Smith's brother.", "bridge brother"),
        ("The film was directed by Otto Berg and starred Anna Lind.", "film and starred"),
        ("He wrote Silent Harbour and left in 1990.", "by He"),
        ("Otto Berg wrote Silent Harbour and left in 1990.", "was written"),
        ("Anna Berg (née Lind, 5 May 1902 – 18 April 1989) was a judge.", "on née"),
        ("The bird has not been seen alive in the country since 1950.", "alive."),
        ("The museum of the town is open to the public only on Sundays.", "only."),
        ("It was for many years the largest city in France.", "city."),
        ("Neither mayor nor council was informed and was dismissed at once.", "Neither was"),
    ],
)
def test_what_is_reworded_stays_true_and_whole(text, wrong):
    assert not [each for each in reworded(text) if wrong in each]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Harbour is a film directed by Cirio H. Santiago.", "Cirio H. Santiago directed Harbour."),
        ("The old bridge was designed by Ada Lund in 1850.", "Ada Lund designed the old bridge"),
        ("Otto Berg wrote Silent Harbour.", "Silent Harbour was written by Otto Berg."),
        ("The old bird was seen alive in the country in 1950.", "The old bird was seen alive."),
    ],
)
def test_what_is_certain_is_turned_and_cut(text, right):
    assert any(each.startswith(right) for each in reworded(text))


def test_documents_to_judge_by_need_no_claims(data, tmp_path):
    [(sentence, claims)] = read_written(written(tmp_path, start=0, end=45), data)
    assert (sentence.title, claims) == ("Bridge", [])


@pytest.mark.parametrize("apart", ["bridge", "BRIDGE!"])
def test_what_was_written_about_documents_to_judge_by_is_left_out(data, tmp_path, apart):
    file = written(tmp_path, start=0, end=45, claims=[])
    assert read_written(file, data, without=[apart]) == []
    assert read_written(file, data, without=["tower"])


def test_documents_to_judge_by_are_left_out_by_id_and_title(data):
    documents = lambda without: {  # noqa: E731
        each.document for each in read_sentences(data, ["towns"], without, 10, 0)
    }
    assert documents([]) == {"bridge", "town"}
    assert documents(["bridge"]) == {"town"}
    assert documents(["BRENWICK"]) == {"bridge"}


def test_claims_survive_the_file(data, tmp_path):
    claims = make_claims(read_sentences(data, ["towns"], [], 10, 0), [], seed=3)
    assert {each.label for each in claims} >= {SUPPORTS, CONTRADICTS}
    write_claims(tmp_path / "claims.jsonl", claims)
    assert read_claims(tmp_path / "claims.jsonl") == claims


def test_a_claim_of_two_sentences_is_true_only_beside_both():
    first, then = "Ada Lund built the old bridge of Brenwick.", "She died there in the year 1850."
    sentence = Sentence("towns", "bridge", "Ada Lund", first, then)
    other = Sentence("towns", "town", "Brenwick", "The town was sold in 1900.")
    made = [each for seed in range(200) for each in make_claims([sentence, other], [], seed=seed)]
    joined = [each for each in made if "built" in each.claim and "1850" in each.claim]
    true = [each for each in joined if each.label == SUPPORTS]
    assert true
    assert all(then in each.source for each in true)
    alone = [each for each in joined if then not in each.source]
    assert alone
    assert all(each.label in (CONTRADICTS, NEITHER) for each in alone)


@pytest.mark.parametrize(
    ("title", "text", "wrong"),
    [
        ("Carl Moe", "It is believed that he was born there.", "Carl Moe is believed"),
        ("Ada", "Adaline met Ada in 1900.", '"Ada"line'),
        ("Catherine of Aragon", "Catherine of Aragon was a queen.", "Aragon was"),
    ],
)
def test_a_title_is_put_where_it_is_meant_alone(title, text, wrong):
    sentence = Sentence("towns", "m", title, text, "She died in 1850.")
    found = {reword(sentence, random.Random(seed)) for seed in range(200)}
    assert not [each for each in found if each.startswith(wrong)]
