"""Which documents are meant: conditions on them, and the names that they are given."""

from dataclasses import replace

import pytest

from colligate.errors import UnknownDocument, UsageError
from colligate.library.sources import (
    DocumentInfo,
    find_document,
    parse_conditions,
    tell_apart,
)

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


NAMED = [
    DocumentInfo("ab12", "Report", "/a/2023/report.pdf", 9, 1, 1, "en"),
    DocumentInfo("ab34", "Report", "/a/2024/report.pdf", 9, 1, 1, "en"),
    DocumentInfo("cd56", "Rules", "/b/rules.pdf", 9, 1, 1, "en"),
]


@pytest.mark.parametrize("given", ["cd56", "/b/rules.pdf", "rules.pdf", "rules", "cd"])
def test_a_document_is_named_by_its_id_file_title_or_the_start_of_its_id(given):
    assert find_document(given, NAMED) == "cd56"


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ("report", UsageError, "may be one of 2 documents: ab12, ab34"),
        ("ab", UsageError, "may be one of 2 documents: ab12, ab34"),
        ("", UnknownDocument, "no document ''"),
        ("rule", UnknownDocument, "no document 'rule'"),
    ],
)
def test_a_name_of_several_documents_or_of_none_is_refused(given, error, why):
    with pytest.raises(error, match=why):
        find_document(given, NAMED)


def test_documents_of_one_title_are_told_apart_by_their_folders():
    assert [info.folder for info in tell_apart(NAMED)] == ["2023", "2024", ""]
