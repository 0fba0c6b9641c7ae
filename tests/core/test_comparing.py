"""Documents that a question asks for by comparing a figure or a date of each."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.comparing import (
    CitedFigure,
    contradict,
    depends_on_today,
    find_extreme,
    find_total,
    find_within,
)

HIGHEST, LOWEST = "Which company has the highest sales?", "Which company has the lowest profit?"
THOUSANDS = CitedFigure("$5,000", "| Sales | $5,000 |", "in thousands")
PROFIT = CitedFigure("700", "| Profit | 700 |")
LOSS = CitedFigure("5,000", "| Profit | (5,000) |")
ASIDE = CitedFigure("5,000", "their profit (5,000)")
PER_SHARE = CitedFigure("2.1", "| Earnings | 2.1 |", "in thousands, except per share data")


@pytest.mark.parametrize(
    ("question", "figures", "found"),
    [
        (HIGHEST, ["$5", "$7", "$6.50"], (1, "largest")),
        (HIGHEST, [THOUSANDS, "$700,000", "$1 million"], (0, "largest")),
        (HIGHEST, ["5", "7 employees"], None),
        (HIGHEST, ["$5", "€7"], None),
        (HIGHEST, ["$5.2M", "$640,000", "$4.9 million"], (0, "largest")),
        (
            HIGHEST,
            [CitedFigure("$5.2M", "| Sales | $5.2M |", "in thousands"), "$6m"],
            (1, "largest"),
        ),
        (HIGHEST, ["5.2M", "640,000"], None),
        (HIGHEST, ["EUR 1,850", "CHF 640"], None),
        (HIGHEST, ["1.850 euros", "640 euros"], None),
        (HIGHEST, ["640 euros", CitedFigure("3 euros", "3 euros, before 1.850 euros")], None),
        (HIGHEST, ["$5", "between $6 and $7"], None),
        (HIGHEST, ["$5", "5"], None),
        (HIGHEST, ["$5", "in 1999"], None),
        (HIGHEST, ["$5"], None),
        (HIGHEST, ["$5 a month", "$50 per year"], None),
        (HIGHEST, ["$5 a month", "a monthly rent of $7"], (1, "largest")),
        (LOWEST, [PROFIT, LOSS], (1, "smallest")),
        (LOWEST, [PROFIT, ASIDE], None),
        (LOWEST, [PROFIT, CitedFigure("5", "Profit 5, before 7")], None),
        (LOWEST, [PROFIT, CitedFigure("$5", "a profit of $5, compared to $9 in 2019")], None),
        ("Which has the lowest earnings per share?", [PER_SHARE, "$2.2"], (0, "smallest")),
        ("Which has the second highest sales?", ["$5", "$7"], None),
        ("Which companies have at most 50 employees?", ["5", "70"], None),
        ("Which does not have the highest sales?", ["$5", "$7"], None),
        ("What was the highest price?", ["$5", "$7"], None),
        ("Which of these flats is the cheapest?", ["900 euros", "850 euros"], (1, "smallest")),
        ("Which lease ends last?", ["31 May 2027", "2026"], (0, "latest")),
        ("Which of these was signed first?", ["May 1, 2020", "June 2019"], (1, "earliest")),
        ("Which is the most recent?", ["2020-05-01", "2 May 2020"], (1, "latest")),
        ("Which of these leases ended last year?", ["31 May 2025", "30 June 2026"], None),
        ("Which had more than 500 employees last year?", ["700", "900"], None),
        ("Which had the lowest sales last year?", ["$5", "$7"], (0, "smallest")),
        ("Which of these people is the oldest?", ["80 years", "75 years"], (0, "largest")),
        ("Which is the oldest?", ["12,000 years", "2026"], None),
    ],
)
def test_the_largest_or_latest_of_cited_figures_is_found_where_they_can_be_compared(
    question, figures, found
):
    cited = [each if isinstance(each, CitedFigure) else CitedFigure(each, each) for each in figures]
    assert find_extreme(question, cited) == found
    if found:
        assert find_extreme(question, cited[::-1]) == (len(cited) - 1 - found[0], found[1])


TODAY = date(2026, 11, 26)
LEASES = ["31 May 2026", "30 November 2026", "31 December 2027", "2031", "June 30, 2024"]


@pytest.mark.parametrize(
    ("asked", "held", "text"),
    [
        ("end this year", [0, 1], "between 1 January 2026 and 31 December 2026"),
        ("end next year", [2], "between 1 January 2027 and 31 December 2027"),
        ("end this month", [1], "between 1 November 2026 and 30 November 2026"),
        ("ended last quarter", [], "between 1 July 2026 and 30 September 2026"),
        ("end in the next 90 days", [1], "between 26 November 2026 and 24 February 2027"),
        ("end within two months", [1], "between 26 November 2026 and 26 January 2027"),
        ("ended in the past three years", [0, 4], "between 26 November 2023 and 26 November 2026"),
        ("end in 2026", [0, 1], "between 1 January 2026 and 31 December 2026"),
        ("end in November 2026", [1], "between 1 November 2026 and 30 November 2026"),
        ("end on 31 May 2026", [0], "on 31 May 2026"),
        ("end before 31 May 2026", [4], "on or before 30 May 2026"),
        ("end by the end of 2027", [0, 1, 2, 4], "on or before 31 December 2027"),
        ("end after 2026", [2, 3], "on or after 1 January 2027"),
        ("end after May 2031", None, None),  # of 2031 no day is known
        ("end from 2026 to 2027", None, None),
        ("end in 2026 or 2031", None, None),
        ("do not end this year", None, None),
        ("end", None, None),
    ],
)
def test_dates_within_the_days_of_a_question_are_found(asked, held, text):
    cited = [CitedFigure(each, f"It ends on {each}.") for each in LEASES]
    found = find_within(f"Which of these leases {asked}?", cited, TODAY)
    assert found == (None if held is None else (held, text, []))


def test_figures_of_another_kind_are_told_apart_from_the_dates_of_most():
    cited = [CitedFigure(each, each) for each in ("31 May 2026", "24 months", "2031")]
    found = find_within("Which of these leases end before 2027?", cited, TODAY)
    assert found == ([0], "on or before 31 December 2026", [1])
    assert find_within("Which of these leases end before 2027?", cited[:2], TODAY) is None


@pytest.mark.parametrize(
    ("asked", "figures", "held"),
    [
        ("with sales exceeding $1,000,000", [THOUSANDS, "$700,000", "$1,000,000"], [0]),
        ("with sales of at least $1 million", [THOUSANDS, "$700,000", "$1,000,000"], [0, 2]),
        ("with sales below $1,000,000 in 2019", [THOUSANDS, "$700,000"], [1]),
        ("with sales above $1M", ["$700,000", "$1.5 million", "$640k"], [1]),
        ("with a notice of more than 30 days", ["30 days", "60 days"], [1]),
        ("with a notice of more than 30 days", ["30 days", "two months"], None),
        (
            "with a rent below 2,000 euros a month",
            ["1,850 euros a month", "900 euros monthly"],
            [0, 1],
        ),
        ("with a rent above 1900 euros a month", ["1850 euros a month", "2050 euros monthly"], [1]),
        (
            "with a rent below 2,000 euros a year",
            ["1,850 euros a month", "900 euros monthly"],
            None,
        ),
        ("with a rent of more than 2,000 euros", ["€2,500", "EUR 1,000"], [0]),
        ("with a time below 2 seconds", ["It was 1.234 seconds", "It was 2.345 seconds"], [0]),
        ("with a time below 2 seconds", ["Es waren 1.234 seconds", "3 seconds"], None),
        ("with more than 1 and less than 5 owners", ["2", "7"], None),
        ("founded over 100 years ago", ["1904", "2001"], None),
    ],
)
def test_figures_within_the_limit_of_a_question_are_found(asked, figures, held):
    cited = [each if isinstance(each, CitedFigure) else CitedFigure(each, each) for each in figures]
    found = find_within(f"Which of these are firms {asked}?", cited, TODAY)
    assert (found and found[0]) == held


@pytest.mark.parametrize(
    ("question", "figures", "total"),
    [
        (
            "What do they cost altogether?",
            ["$1,850 a month", "$640.50 monthly"],
            "$2,490.5 per month",
        ),
        ("What do they cost altogether?", ["$1,850 a month", "$640.50"], None),
        ("What are their sales in total?", [THOUSANDS, "$1.5 million"], "$6,500,000"),
        ("What is the sum of their staff?", ["12 employees", "3 employees"], "15 employees"),
        (
            "What is their rent in total?",
            [CitedFigure("12", "It is 12 euros."), "3 euros"],
            "15 euros",
        ),
        ("What is their profit in total?", [PROFIT, LOSS], "-4,300"),
        ("What do they cost in total?", ["$5", "€7"], None),
        ("What do they cost in total?", ["$5.2M", "$640,000"], "$5,840,000"),
        ("What do they cost in total?", ["C$100 a month", "US$200 a month"], None),
        ("What do they cost in total?", ["EUR 1,850", "CHF 640"], None),
        ("What do they cost in total?", ["EUR 1,850", "EUR 640"], "EUR 2,490"),
        ("What do they cost in total?", ["1.850 Euro", "640 Euro"], None),
        ("What is their staff in total?", ["It has 1.850 people", "It has 640 people"], None),
        ("What do they cost in total?", ["$2.5m", "US$0.5m", "$3m"], "$6,000,000"),
        ("What do they cost in total?", ["5 USD", "US$7"], "12 USD"),
        ("What do they cost in total?", ["€1,850 a month", "€640 a month"], "€2,490 per month"),
        ("What do they cost in total?", ["$5"], None),
        ("When were they built in total?", ["1904", "1921"], None),
        ("What did each cost in total?", ["$5", "$7"], None),
        ("What are the total assets?", ["$5", "$7"], None),
    ],
)
def test_figures_are_added_where_the_question_asks_for_the_sum(question, figures, total):
    cited = [each if isinstance(each, CitedFigure) else CitedFigure(each, each) for each in figures]
    assert find_total(question, cited) == total


@given(st.dates(date(1900, 1, 1), date(2100, 12, 31)), st.text(max_size=40))
def test_any_question_on_any_day_is_read(today, text):
    for words in ("this year", "next month", "last quarter", "the next 18 months", text):
        found = [CitedFigure("2026", text), CitedFigure(text, "2026", text)]
        find_within(f"Which end {words} {text}?", found, today)
        find_total(f"altogether {text}", found)
        find_extreme(f"Which is the latest {text}?", found)


@pytest.mark.parametrize("short", ["12,000 years", "zero years", "5 euros from 31 June 2020"])
def test_figures_that_look_like_dates_are_read(short):
    found = [CitedFigure(short, short), CitedFigure("7 years", "7 years")]
    assert find_within("Which of these are from before 2027?", found, TODAY) is None
    find_extreme("Which is the oldest?", found)
    find_total("How long are they altogether?", found)


def test_what_depends_on_the_date_is_told():
    assert depends_on_today("Which leases end this year?")
    assert not depends_on_today("Which leases end in 2026?")


DAYS = "In how many days may the tenant appeal?"
DIRECTOR = "Who directed Silver Harbour?"
BORN = "When was the director of Silver Harbour born?"


@pytest.mark.parametrize(
    ("one", "other", "question", "differ"),
    [
        ("180 days", "within 270 days", DAYS, True),
        ("180", "270 days", DAYS, True),
        ("180", "180 days", DAYS, False),
        ("180 days", "180 days of the notice", DAYS, False),
        ("six months", "180 days", DAYS, False),
        ("3 May 1921", "in 1922", BORN, True),
        ("3 May 1921", "in 1921", BORN, False),
        ("in 1921", "3", BORN, False),
        ("Ada Mercer", "Otto Lind", DIRECTOR, True),
        ("Ada Mercer", "Mercer", DIRECTOR, False),
        ("London", "England", "Where was she born?", False),
        ("may be terminated", "may not be terminated", "What is the rule?", True),
        ("Yes", "No", "May the tenant appeal?", True),
        ("Yes", "Yes", "May the tenant appeal?", False),
        ("a boat", "for fishing", "What is it for?", False),
        ("", "Otto Lind", DIRECTOR, False),
        ("more than 300", "312", "How many members?", False),
        ("more than 300", "280", "How many members?", True),
        ("no more than 300", "312", "How many members?", True),
        ("at least 30 days", "at least 60 days", DAYS, True),
        ("about 3.5 million", "3,487,000", "How many people live there?", False),
        ("about 3.5 million", "4,100,000", "How many people live there?", True),
        ("nearly 10%", "9.8%", "What is the share?", False),
        ("1.5 m", "150 cm", "How tall is it?", False),
        ("180", "270 calendar days", DAYS, True),
        ("180 calendar days", "270 days", DAYS, True),
        ("the 1920s", "1921", BORN, False),
        ("the 1920s", "1931", BORN, True),
        ("about 1921", "1923", BORN, False),
        ("about 1921", "1951", BORN, True),
        ("after 1920", "3 May 1921", BORN, False),
        ("Landlord", "Norvik Properties Ltd", "Who pays?", False),
        ("The Landlord", "Norvik", "Who pays?", False),
        ("Board of Directors", "Ada Mercer", "Who pays?", False),
        ("The Landlord", "The Tenant", "Who pays?", True),
        ("Siemens", "Bosch", "Who supplies the turbines?", True),
        ("Merkel", "Olaf Scholz", "Who was chancellor?", True),
        ("60 working days", "30 calendar days", DAYS, True),
        ("180 calendar days", "six months", DAYS, False),
        ("2 rooms", "4 bedrooms", "How many rooms are there?", True),
        ("300 employees", "350 staff", "How many work there?", True),
        ("3 litres", "5 liters", "How much does it hold?", True),
        ("$30", "€40", "What is the fee?", True),
        ("$30", "10%", "What is the fee?", False),
        ("2 kg", "1500 g", "How heavy is it?", False),
    ],
)
def test_which_short_answers_contradict_each_other(
    one: str, other: str, question: str, differ: bool
) -> None:
    assert contradict(one, other, question) is differ
    assert contradict(other, one, question) is differ
