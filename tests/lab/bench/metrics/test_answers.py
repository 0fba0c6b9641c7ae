from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.bench.metrics.answers import (
    first_line,
    normalise_dual,
    normalise_squad,
    prepare_alce,
    remove_citation_marks,
)


def test_squad_deletes_and_does_not_split() -> None:
    # Worked by hand from the rule: lower case, punctuation deleted, articles, blanks.
    assert normalise_squad("The Anglo-Saxon  king's AN-swer, a.") == "anglosaxon kings answer"
    assert normalise_squad("U.S.A. and an_other") == "usa and another"
    assert normalise_squad("a\tthe\nAn") == ""


def test_dual_takes_letters_apart_from_their_accents() -> None:
    assert normalise_dual("Caf\u00e9") == normalise_dual("Cafe\u0301") == "cafe\u0301"
    assert normalise_squad("Caf\u00e9") != normalise_squad("Cafe\u0301")


def test_marks_of_citations_are_no_part_of_an_answer() -> None:
    assert (
        remove_citation_marks("In May [1][12]. Cold [uncited]. Both [1, 3].")
        == "In May. Cold. Both."
    )
    assert remove_citation_marks("x[0] looks like one") == "x looks like one"
    assert remove_citation_marks("[sic] and [1a] stay") == "[sic] and [1a] stay"


def test_an_answer_of_alce_is_one_line_without_citations() -> None:
    assert prepare_alce("\n\n Paris [1]. \nLondon") == "Paris."
    assert prepare_alce(remove_citation_marks("Paris is.\n[1] Lyon is larger.")) == "Paris is."
    assert first_line("\nParis") == ""


@given(st.text(max_size=60))
def test_squad_leaves_nothing_that_it_would_take_off(text: str) -> None:
    said = normalise_squad(text)
    assert not set(said) & set(string.punctuation)
    assert said == " ".join(said.split())
    assert normalise_squad(said) == said
