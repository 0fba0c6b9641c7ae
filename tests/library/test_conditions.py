"""Conditions on documents: how texts are read, and what they hold for."""

from dataclasses import replace

import pytest

from colligate.errors import UsageError
from colligate.library.sources import DocumentInfo, parse_conditions

REPORT = DocumentInfo(
    "r",
    "Annual Report",
    "/a/b/r.pdf",
    9,
    1,
    1,
    "en",
    {"date": "2024-03-01", "pages": "12", "title": "Untitled"},
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("date>=2024", True),
        ("date <= 2024", True),
        ("date>2024", False),
        ("date<2024-03", False),
        ("date=2024-03", True),
        ("title~ANNUAL", True),
        ("title=annual", False),
        ("file=r.pdf", True),
        ("file~/a/", False),
        ("language!=de", True),
        ("pages<100", True),
        ("author=x", False),
        ("author!=x", True),
    ],
)
def test_what_a_condition_holds_for(text, holds):
    [condition] = parse_conditions([text])
    assert condition.holds(REPORT) is holds


@pytest.mark.parametrize(
    ("date", "text", "holds"),
    [
        ("2024", "date>=2024-01-01", True),
        ("2024", "date<=2024-01-01", True),
        ("2024", "date<2024-03-01", False),
        ("2024", "date>2024-03", False),
        ("2024", "date>2023-12-31", True),
        ("2024", "date=2024-03", False),
        ("2024", "date!=2024-03", True),
        ("2024-03", "date>=2024-03-15", True),
        ("2024-03", "date<2024-03-15", False),
        ("2024-03", "date<2024-04-01", True),
    ],
)
def test_a_date_that_is_less_exact_compares_as_far_as_it_goes(date, text, holds):
    [condition] = parse_conditions([text])
    assert condition.holds(replace(REPORT, metadata={"date": date})) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "date",
        "date>=",
        ">=2024",
        "date is 2024",
        "my date=2024",
        "date<2024/06",
        "date>=2024-9",
    ],
)
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(UsageError, match="is not a condition"):
        parse_conditions([text])
