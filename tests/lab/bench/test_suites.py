"""Reading a suite: what a file says, and what it cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.lab.bench.suites import (
    Picture,
    Published,
    list_suites,
    make_own_suite,
    parse_suite,
    read_suite,
)

SMALL = """
title = "Small"
datasets = [{ name = "a", file = "a.jsonl" }, { name = "b", file = "b.jsonl", default = false }]
strategies = [{ name = "direct" }, { name = "dq", strategy = "duquad", set = ["alpha=1"] }]
groups = [{ name = "both", datasets = ["a", "b"] }]
columns = [{ dataset = "a", metric = "em" }, { dataset = "both", metric = "f1", scale = 100 }]
"""


def test_a_printed_line_is_a_number_a_column() -> None:
    line = '{ row = "DuQUAD", model = "Llama", note = "n", values = ["-", 76.1] }'
    single = '{ row = "FiM", dataset = "a", metric = "em", value = 3 }'
    suite = parse_suite(f"{SMALL}published = [{line}, {single}]", "small", "small.toml")

    assert suite.published == (
        Published("DuQUAD", "both", "f1", 76.1, "Llama", "n"),
        Published("FiM", "a", "em", 3.0),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "s.toml is not valid TOML"),
        ("title = 'x'", "s.toml: datasets: field required"),
        (SMALL.replace("title", "titel"), "s.toml: titel: unknown key"),
        (SMALL.replace("file = ", "fiel = "), "fiel: unknown key"),
        (SMALL + 'text = "x"', "s.toml: text: unknown key"),
        (SMALL.replace('"em"', "3"), "s.toml: columns.1.metric: input should be a valid string"),
        (
            SMALL.replace('dataset = "a"', 'dataset = "c"'),
            "columns.1.dataset: unknown data set 'c'",
        ),
        (SMALL.replace('["a", "b"]', '["a", "c"]'), "groups.1.datasets: a, c is not among"),
        (SMALL.replace('name = "both"', 'name = "b"'), "groups.name: 'b' comes twice"),
        (SMALL.replace('name = "dq"', 'name = "direct"'), "strategies.name: 'direct' comes twice"),
        (SMALL.replace('{ name = "direct" }, { name = "dq", strategy = "duquad", ', "#"), "TOML"),
        (
            SMALL + 'published = [{ row = "r", values = [1] }]',
            "expected 2 values, one a column (r)",
        ),
        (
            SMALL + 'published = [{ row = "r", values = [1, "x"] }]',
            "value: input should be a valid",
        ),
        (SMALL + 'pictures = [{ kind = "pie" }]', "pictures.1.kind: input should be 'recall-at-k'"),
        (SMALL + 'pictures = [{ kind = "pareto", dataset = "c" }]', "unknown data set 'c'"),
        (SMALL.replace('"a.jsonl"', '"a.jsonl", over = "corpus"'), "a is asked over its corpus"),
        (
            SMALL.replace('"em"', '"em over dual"'),
            "columns.1.metric: no strategy 'dual'; there are direct, dq",
        ),
        (SMALL + 'chunker = "lines"', "s.toml: chunker: no chunker 'lines'"),
        (SMALL.replace('"a.jsonl"', '"a.jsonl", questions = 0'), "a needs at least 1 question"),
    ],
)
def test_what_a_file_cannot_mean_is_said_with_its_key(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_suite(text, "s", "s.toml")

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_suite_is_found_by_name_or_by_path(tmp_path: Path) -> None:
    assert "duquad-table1" in list_suites()
    assert read_suite("duquad-table1").name == "duquad-table1"
    (tmp_path / "mine.toml").write_text(SMALL, "utf-8")
    assert read_suite(str(tmp_path / "mine.toml")).name == "mine"
    with pytest.raises(UsageError, match="there is no suite"):
        read_suite("duquad-tabel1")
    with pytest.raises(UsageError, match="cannot read the suite"):
        read_suite(str(tmp_path / "none.toml"))


def test_own_questions_are_a_suite_whatever_their_file_is_called(tmp_path: Path) -> None:
    questions = tmp_path / 'odd "name" ü.csv'
    suite = make_own_suite(questions, tmp_path)

    [dataset] = suite.datasets
    assert dataset.file == str(questions)
    assert (dataset.over, dataset.corpus) == ("documents", str(tmp_path))
    assert make_own_suite(questions, None).datasets[0].over == "candidates"
    assert suite.pictures == (Picture("pareto"),)
    assert parse_suite(suite.text, "own", "run.json") == suite
