"""Which documents are meant: conditions on them, and the names that they are given."""

from dataclasses import replace

import pytest

from colligate.errors import UnknownDocument, UsageError
from colligate.library.sources import (
    DocumentInfo,
    find_document,
    find_named,
    parse_conditions,
    tell_apart,
)

FACTS = {"date": "2024-03-01", "pages": "12", "title": "Untitled"}
REPORT = DocumentInfo("r", "Annual Report", "/a/b/r.pdf", 9, 1, 1, "en", FACTS)


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
    ["", "date", "date>=", ">=2024", "date is 2024", "a date=2024", "date<2024/06", "date>=2024-9"],
)
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(UsageError, match="is not a condition"):
        parse_conditions([text])


NAMED = [
    DocumentInfo("ab12", "Report", "/a/2023/report.pdf", 9, 1, 1, "en"),
    DocumentInfo("ab34", "Report", "/a/2024/report.pdf", 9, 1, 1, "en"),
    DocumentInfo("cd56", "Rules", "/b/rules.pdf", 9, 1, 1, "en"),
    DocumentInfo("ef78", "Pru\u0308fung", "/c/50% off #1?/U\u0308bung 1.md", 9, 1, 1, "de"),
]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *((given, "cd56") for given in ("cd56", "/b/rules.pdf", "rules.pdf", "rules", "cd")),
        ("2024/report.pdf", "ab34"),
        *((given, "ef78") for given in ("U\u0308bung 1.md", "\u00dcbung 1.md", "pr\u00fcfung")),
        ("/c/50% off #1?/\u00dcbung 1.md", "ef78"),
    ],
)
def test_a_document_is_named_by_its_id_file_title_or_the_start_of_its_id(given, found):
    assert find_document(given, NAMED) == found


def test_a_condition_does_not_see_how_letters_are_composed():
    (condition,) = parse_conditions(["file=\u00fcbung 1.md"])
    assert condition.holds(NAMED[-1])


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ("report", UsageError, r"of 2 documents: ab12: Report \(2023\); ab34: Report \(2024\)"),
        ("ab", UsageError, "may be one of 2 documents: ab12: "),
        ("", UnknownDocument, "no document ''"),
        ("rule", UnknownDocument, "no document 'rule'"),
    ],
)
def test_a_name_of_several_documents_or_of_none_is_refused(given, error, why):
    with pytest.raises(error, match=why):
        find_document(given, NAMED)


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (["/a/2023/report.pdf", "/a/2024/report.pdf"], ["2023", "2024"]),
        (["/a/x/leeds.pdf", "/a/y/hull.pdf"], ["x", "y"]),
        (["/a/leeds.pdf", "/a/hull.pdf"], ["leeds", "hull"]),
        (["", ""], ["", ""]),
    ],
)
def test_documents_of_one_title_are_told_apart_by_their_folders_or_files(sources, told):
    alike = [DocumentInfo(f"ab{n}", "Stock", each, 9, 1, 1, "en") for n, each in enumerate(sources)]
    assert [info.folder for info in tell_apart([*alike, NAMED[2]])] == [*told, ""]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("What does Heat-Pump_v2.TXT say of noise?", ["pump"]),
        ("Is heat-pump_v2 louder than plan.md?", ["pump", "plan"]),
        ("What is the plan?", []),  # a plain word
        ("What do the plan and the notes say?", ["plan", "notes"]),
        ("What happened in 2023?", []),
        ("Read cafe\u0301 1.md.", ["cafe"]),  # composed in another way
        ("Read my-heat-pump_v2.txt2", []),
    ],
)
def test_a_question_names_files_as_they_are_written(question, named):
    names = {"pump": "/d/heat-pump_v2.txt", "plan": "/d/plan.md", "notes": "/d/notes.md"}
    names |= {"year": "/d/2023.md", "cafe": "/d/Caf\u00e9 1.md", "none": ""}
    infos = [DocumentInfo(key, "T", source, 9, 1, 1, "en") for key, source in names.items()]
    assert find_named(question, infos) == named
