"""Numbers that answers compute from what they cite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.computing import (
    check_comparison,
    find_count,
    find_larger,
    find_numbers,
    recompute,
    remove_computed,
)

ROSE = ["In 2015 revenue was $6,779 million.", "In 2014 revenue was $5,504 million."]


@pytest.mark.parametrize(
    ("sentence", "sources", "missing", "operation"),
    [
        ("Two of the films are British.", ["A is British.", "B is British."], ["2"], "count"),
        (
            "It opened 17 years earlier.",
            ["It opened in 1904.", "Founded 1921."],
            ["17"],
            "difference",
        ),
        ("Revenue rose by $1,275 million.", ROSE, ["1275"], "difference"),
        ("Revenue rose by $1.3 billion.", ROSE, ["1.3"], "difference"),
        ("Revenue rose by 23%.", ROSE, ["23"], "change"),
        ("Together that is $12,283 million.", ROSE, ["12283"], "sum"),
        (
            "Together they have 18,000 people.",
            ["A has 5,000 people.", "B has 7,000 people.", "In 1990 C had 6,000 people."],
            ["18000"],
            "sum",
        ),
        ("That is 1.23 times as much.", ROSE, ["1.23"], "ratio"),
        (
            "He was 42 years older.",
            ["born on 30 December 1910", "born on January 2, 1953"],
            ["42"],
            "difference",
        ),
        ("It ended 32 days later.", ["1 January 2020", "2020-02-02"], ["32"], "difference"),
        ("Two hundred more people.", ["A has 500 people.", "B 300 people."], ["200"], "difference"),
        ("Revenue rose by 25%.", ["It was $8m in 2021.", "It was $10m in 2022."], ["25"], "change"),
        ("Sales fell by 20%.", ["It was $10m in 2021.", "It was $8m in 2022."], ["20"], "change"),
        ("Sales fell by 20%, costs rose.", ["Sales: $10m.", "Sales: $8m."], ["20"], "change"),
        (
            "Revenue rose by 25%, less than hoped.",
            ["In 2021 $8m.", "In 2022 $10m."],
            ["25"],
            "change",
        ),
        ("17 years later sales fell.", ["It opened in 1904.", "In 1921."], ["17"], "difference"),
        ("A has 20% less than B.", ["In 2022 A: $8m.", "In 2021 B: $10m."], ["20"], "change"),
        ("Together $5.84m.", ["One is $5.2M.", "One is $640k."], ["5.84"], "sum"),
        ("Together $3,350.", ["One is US$1,850.", "One is 1,500 dollars."], ["3350"], "sum"),
        ("It differs by 0.266.", ["It was 1.234.", "It was 1.500."], ["0.266"], "difference"),
        ("Sales declined by 5% owing to higher prices.", ["2011: $20m.", "$19m."], ["5"], "change"),
        ("Growth was 3 points lower.", ["8 points in 2011.", "5 points."], ["3"], "difference"),
        ("It fell by 3 points as growth rose.", ["8 points.", "5 points."], ["3"], "difference"),
        ("It dropped $2m more than B.", ["It dropped $5m.", "B lost $3m."], ["2"], "difference"),
    ],
)
def test_a_number_follows_from_cited_numbers(sentence, sources, missing, operation):
    (computed,) = recompute(sentence, sources, missing)
    assert computed.operation == operation


@pytest.mark.parametrize(
    ("sentence", "sources", "missing"),
    [
        ("Revenue rose by $1,276 million.", ROSE, ["1276"]),  # wrong
        ("Revenue was $1,275 million.", ROSE, ["1275"]),  # names no operation
        ("Three of the films are British.", ["A is British.", "B is British."], ["3"]),
        ("It took 2 years.", ["A is British.", "B is British."], ["2"]),  # a duration, no count
        ("Together 3,829.", ["In 1904.", "In 1925."], ["3829"]),  # years have no sum
        ("It grew by 1,275 people.", ROSE, ["1275"]),  # money is not people
        ("He was 43 years older.", ["30 December 1910", "January 2, 1953"], ["43"]),
        ("17 years later, 9 of them closed.", ["In 1904.", "In 1921."], ["17", "9"]),
        ("Revenue rose by 20%.", ["It was $10m in 2021.", "It was $8m in 2022."], ["20"]),
        ("Revenue rose by $2m.", ["It was $10m in 2021.", "It was $8m on 1 May 2022."], ["2"]),
        ("Revenue fell by $2m.", ["It was $8m in 2021.", "It was $10m in 2022."], ["2"]),
        ("Revenue rose by 20%.", ["It was $8m in 2021.", "It was $10m in 2022."], ["20"]),
        ("Revenue rose by 20%, less than hoped.", ["In 2021 $10m.", "In 2022 $8m."], ["20"]),
        ("Revenue rose and fell by 20% more.", ["In 2021 $10m.", "In 2022 $8m."], ["20"]),
        ("Revenue rose by 20%.", ["A year: $10m.", "A year: $8m."], ["20"]),
        ("Together that is $300.", ["C$100 a month.", "US$200 a month."], ["300"]),
        ("Together that is 641.85 euros.", ["It is 1.850 euros.", "It is 640 euros."], ["641.85"]),
        ("It differs by 0.266.", ["Es waren 1.234.", "Es waren 1.500."], ["0.266"]),
        ("Sales grew by 5% owing to lower prices.", ["In 2011 $20m.", "In 2012 $19m."], ["5"]),
    ],
)
def test_a_number_that_does_not_follow_is_not_accepted(sentence, sources, missing):
    assert recompute(sentence, sources, missing) == []


@given(st.integers(3000, 10**9), st.integers(3000, 10**9), st.integers(-3, 3))
def test_only_the_exact_sum_is_accepted(a, b, off):
    sources = [f"The first had {a:,} people.", f"The second had {b:,} people."]
    total = a + b + off
    found = recompute(f"Together they had {total:,} people.", sources, [str(total)])
    assert bool(found) == (off == 0)


@given(st.text(max_size=200))
def test_numbers_of_any_text_have_places(text):
    for number in find_numbers(text):
        assert 0 <= number.start < number.end <= len(text)
        assert number.step > 0


def test_what_is_left_of_a_sentence_has_no_computed_number():
    sentence = "The museum opened 17 years earlier than the zoo."
    computed = recompute(sentence, ["1904", "1921"], ["17"])
    assert remove_computed(sentence, computed).split() == "The museum opened than the zoo.".split()


@pytest.mark.parametrize(
    ("first", "second", "larger"),
    [
        ("3 May 1921", "1934", ("date", 1)),
        ("born in 1935", "June 2, 1934", ("date", 0)),
        ("$2 million", "$3", ("$", 0)),
        ("$640,000", "$5.2M", ("$", 1)),
        ("-$12 million", "$3 million", ("$", 1)),
        ("($12 million)", "$3 million", ("$", 1)),
        ("−12 °C", "3 °C", ("", 1)),
        ("(1921)", "1934", ("date", 1)),
        ("a loss of -$12 million", "$3 million", None),
        ("$5 million", "¥900 million", None),
        ("C$5", "US$7", None),
        ("C$5", "7 dollars", None),
        ("$5 million", "US$4 million", ("$", 0)),
        ("5 GBP", "£7", ("£", 1)),
        ("7 pounds", "£5", None),
        ("5 EUR", "7 CHF", None),
        ("5 €", "7 £", None),
        ("1.850 euros", "900 euros", None),
        ("1.850", "900", None),
        ("1.234", "2.345", ("", 1)),
        ("The error was 1.234.", "3", ("", 1)),
        ("Es waren 1.234.", "3", None),
        ("12 %", "9 percent", ("percent", 0)),
        ("1850 euros", "900 euros", ("€", 0)),
        ("In 1990 people left", "1985", ("date", 0)),
        ("1934", "3 May 1934", None),
        ("1934", "900", None),
        ("1921 to 1934", "1940", None),
        ("Lund", "1940", None),
    ],
)
def test_the_larger_of_two_answers_is_known_if_they_are_of_one_kind(first, second, larger):
    assert find_larger(first, second) == larger


@pytest.mark.parametrize(
    ("sentence", "agrees"),
    [
        ("Alta has fewer people than Bern.", True),
        ("Bern has more people than Alta.", True),
        ("Alta has more people than Bern.", False),
        ("Alta does not have more people than Bern.", None),
        ("Alta is ranked higher than Bern.", None),
        ("Alta has people before Bern.", None),
        ("It has more people than others.", None),
        ("Alta and Bern have more people.", None),
    ],
)
def test_two_cited_numbers_are_compared_as_a_sentence_says(sentence, agrees):
    alta, bern = ("Alta has 5,000 people.",) * 2, ("Bern has 7,000 people.",) * 2
    assert check_comparison(sentence, alta, bern) is agrees
    assert check_comparison(sentence, bern, alta) is agrees


@pytest.mark.parametrize(
    ("short", "question", "sentence", "expected"),
    [
        (
            "seven",
            "How many episodes ...?",
            "Of ten episodes each, the last of only seven.",
            "seven",
        ),
        (
            "three",
            "How many days has the tenant?",
            "The tenant has thirty (30) days; the landlord may enter three (3) times.",
            "30",
        ),
        ("Three", "How many letters came?", "We invite three, and seven letters came.", "seven"),
        ("2019", "How many employees had it?", "It had 120 employees in 2019.", "120"),
    ],
)
def test_the_number_is_that_of_what_is_asked(short, question, sentence, expected):
    assert find_count(short, question, sentence) == expected
