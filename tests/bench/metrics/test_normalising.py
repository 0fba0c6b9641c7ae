from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from colligate.bench.metrics.short_answers import alce_output, dual, first_line, squad, unmarked


def test_squad_deletes_and_does_not_split() -> None:
    # Worked by hand from the rule: lower case, punctuation deleted, articles, blanks.
    assert squad("The Anglo-Saxon  king's AN-swer, a.") == "anglosaxon kings answer"
    assert squad("U.S.A. and an_other") == "usa and another"
    assert squad("a\tthe\nAn") == ""


def test_punctuation_outside_ascii_stays() -> None:
    assert squad("“Rock ’n’ roll” – 1955") == "“rock ’n’ roll” – 1955"


def test_articles_go_only_as_whole_words_after_punctuation_went() -> None:
    # "a." is an article once its full stop is deleted; "theatre" is none.
    assert squad("a. Theatre, anthem") == "theatre anthem"


def test_dual_takes_letters_apart_from_their_accents() -> None:
    assert dual("Caf\u00e9") == dual("Cafe\u0301") == "cafe\u0301"
    assert squad("Caf\u00e9") != squad("Cafe\u0301")


def test_marks_of_citations_are_no_part_of_an_answer() -> None:
    assert unmarked("In May [1][12]. Cold [uncited]. Both [1, 3].") == "In May. Cold. Both."
    assert unmarked("x[0] looks like one") == "x looks like one"
    assert unmarked("[sic] and [1a] stay") == "[sic] and [1a] stay"


def test_an_answer_of_alce_is_one_line_without_citations() -> None:
    assert alce_output("\n\n Paris [1]. \nLondon") == "Paris."
    assert first_line("\nParis") == ""


@given(st.text(max_size=60))
def test_squad_leaves_nothing_that_it_would_take_off(text: str) -> None:
    said = squad(text)
    assert not set(said) & set(string.punctuation)
    assert said == " ".join(said.split())
    assert squad(said) == said
