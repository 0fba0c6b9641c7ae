import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents.tokens import estimate_tokens
from colligate.strategies.longrefiner.selection import (
    find_unknown_titles,
    list_titles,
    parse_titles,
    render_outline,
)
from colligate.strategies.longrefiner.structuring import build_article
from support.documents import make

LIFE = """# Ada

Ada was a mathematician.

## Early life

She was born in London.

### School

She had tutors.

## Work

She wrote notes.

### School

Notes for schools.

## Death

She died in 1852.
"""


ADA = build_article(make(LIFE, "Ada"))


def test_the_outline_counts_subsections_anew_in_each_section():
    lines = "Title: Ada|Section1: Early life|Subsection1: School|Section2: Work|Subsection1: School"
    assert render_outline(ADA).split("\n") == [*lines.split("|"), "Section3: Death"]


def test_a_long_outline_loses_subsections_first_then_sections():
    most = estimate_tokens(render_outline(ADA)) - 1
    shorter = render_outline(ADA, most_tokens=most)
    assert "Section3: Death" in shorter
    assert shorter.count("Subsection") < 2
    tiny = render_outline(ADA, most_tokens=8)
    assert tiny.splitlines()[0] == "Title: Ada"
    assert "Subsection" not in tiny


@pytest.mark.parametrize(
    ("reply", "titles"),
    [
        ("['Work']", ("Work",)),
        ('["work", "ABSTRACT"]', ("abstract", "Work")),
        ("[Work, Death]", ("Work", "Death")),
        ("[“Work”, “Early life”]", ("Early life", "Work")),
        ("Titles: [Work]", ("Work",)),
        ("Titles: ['Section3: Death'].", ("Death",)),
        ('{"selected_titles": ["Death"]}', ("Death",)),
        ('[{"selected_titles": ["Death"]}, {"selected_titles": []}]', ("Death",)),
        ("['School']", ("School", "School")),
        ("['Early lfie']", ("Early life",)),  # a slip
        ("- Work\n- Death", ("Work", "Death")),
        ("['Childhood', 'Work', 3]", ("Work",)),
        ("[]", ()),
        ("['Work', 'Dea", ("Work",)),  # cut off
        ("I would read all of it.", ()),
        ("", ()),
    ],
)
def test_titles_are_found_whatever_form_the_reply_has(reply, titles):
    assert list_titles(ADA, parse_titles(reply, ADA)) == titles


@given(st.text(max_size=200))
def test_no_reply_selects_what_is_not_there(reply):
    chosen = parse_titles(reply, ADA)
    assert all(ADA.nodes[i].children for i in chosen)
    assert list(chosen) == sorted(set(chosen))


FIRM = """# Acme

Intro.

## The company's history

a

## Directors' pay

b

## The 'good' years

c

## Risks [2023]

d

## 1. Overview

e

## Career

f
"""


@pytest.mark.parametrize(
    ("reply", "titles"),
    [
        ("['The company's history', 'Career']", ("The company's history", "Career")),
        ("['Section2: Directors' pay', 'Career']", ("Directors' pay", "Career")),
        (
            "['The company\\'s history', \"Directors' pay\"]",
            ("The company's history", "Directors' pay"),
        ),
        ("{'selected_titles': ['Directors' pay']}", ("Directors' pay",)),
        ("['The 'good' years', 'Career']", ("The 'good' years", "Career")),
        ("- Career\n- Risks [2023]", ("Risks [2023]", "Career")),
        ("1. Career\n2) The company's history", ("The company's history", "Career")),
        ("['1. Overview', '2. Career']", ("1. Overview", "Career")),
        ("1. Overview", ("1. Overview",)),
        ("Nothing in this outline helps: []", ()),
        ("['Career']\nDirectors' pay does not help.", ("Career",)),
    ],
)
def test_titles_with_marks_and_in_lists_of_lines_are_found(reply, titles):
    firm = build_article(make(FIRM, "Acme"))
    assert list_titles(firm, parse_titles(reply, firm)) == titles
    assert find_unknown_titles(reply, firm) == ()


def test_names_that_are_not_titles_are_found():
    named = "['Section2: work', 'Sources', 'abstract', 'Deaths', '']"
    assert find_unknown_titles(named, ADA) == ("Sources",)
    assert find_unknown_titles("[]", ADA) == ()
    assert find_unknown_titles("None of it helps.", ADA) == ("None of it helps.",)
