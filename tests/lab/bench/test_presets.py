"""The papers' settings: what `preset=paper` sets, and what the rows of a table have in common."""

from __future__ import annotations

from typing import Any

import pytest

from colligate.core.parameters import paper_settings
from colligate.core.strategy import list_strategies, load_strategy
from colligate.errors import UsageError
from colligate.lab.bench.plan import SuiteEntry, configure_entries
from colligate.lab.bench.question import Question, QuestionTask
from colligate.lab.bench.suites import Suite, list_suites, parse_suite, read_suite

METHODS = {"duquad", "dualrag", "spd-rag", "rdr2", "longrefiner"}

strategies = pytest.mark.parametrize("name", list_strategies())
suites = pytest.mark.parametrize("name", list_suites())


def rows(suite: Suite, *settings: str) -> tuple[SuiteEntry, ...]:
    return configure_entries(suite, [each.name for each in suite.strategies], settings)


def test_the_methods_of_the_papers_have_a_preset() -> None:
    assert [name for name in METHODS if not paper_settings(load_strategy(name))] == []


@suites
def test_the_rows_of_a_papers_method_have_its_settings(name: str) -> None:
    suite = read_suite(name)
    ours = [each.name for each in suite.strategies if "default" in each.label]
    for method in suite.strategies:
        if suite.paper and method.strategy in METHODS:
            assert ("preset=paper" in method.set) == (method.name not in ours), method.name
    assert {each.reader for each in suite.strategies} - {"plain"} == {
        "quoting" if suite.paper else "auto"
    }


@suites
def test_the_rows_of_a_table_answer_in_one_form_and_search_alike(name: str) -> None:
    """Those that are told apart by how they search excepted."""
    suite = read_suite(name)
    entries: Any = rows(suite)
    for dataset in suite.datasets:
        for task in QuestionTask:
            question = Question("q", "?", task=task)
            assert len({each.for_question(question, dataset).form for each in entries}) == 1
    if suite.paper and any(each.over != "candidates" for each in suite.datasets):
        searching = {
            entry.method.name: entry.strategy.mode
            for entry in entries
            if "default" not in entry.method.label
            and not any(
                each.startswith("mode=") and "dense" not in each for each in entry.method.set
            )
            and hasattr(entry.strategy, "mode")
        }
        assert len(set(searching.values())) <= 1 or name == "rdr2-figure6", searching


# The command line and the suite


def suite(*methods: str) -> Suite:
    text = f"""
title = "Small"
datasets = [{{ name = "d", file = "d.jsonl" }}, {{ name = "e", file = "e", form = "long" }}]
strategies = [{", ".join(methods)}]
"""
    return parse_suite(text, "small", "small.toml")


def row(name: str, *settings: str, strategy: str = "retrieve-read") -> str:
    listed = ", ".join(f'"{each}"' for each in settings)
    return f'{{ name = "{name}", strategy = "{strategy}", set = [{listed}] }}'


def test_the_command_line_replaces_what_the_suite_sets() -> None:
    small = suite(row("a", "preset=paper", "k=3"), row("b", "k=3", "pool=7"))
    entries: Any = rows(small, "k=4", "mode=sparse")
    assert [(each.strategy.k, each.strategy.mode) for each in entries] == [(4, "sparse")] * 2
    alone: Any = configure_entries(small, ["b"], ["preset=paper"])[0]
    assert (alone.strategy.mode, alone.strategy.k) == ("dense", 3)


def test_what_tells_the_rows_of_a_table_apart_is_not_replaced() -> None:
    small = suite(row("one", "k=1"), row("two", "k=2"), row("other", "k=9", strategy="two-hop"))
    with pytest.raises(UsageError, match="--set k=4: k=1 is what the row one measures; leave that"):
        rows(small, "k=4")
    entries: Any = configure_entries(small, ["other"], ["k=4"])
    assert [each.strategy.k for each in entries] == [4]


def test_an_ablation_that_takes_a_setting_away_stays_without_it() -> None:
    adapted = suite(
        row("whole", strategy="dualrag"),
        row("without", "reasoner_adapter=none", strategy="dualrag"),
    )
    entries: Any = rows(adapted, "reasoner_adapter=adapter")
    assert [each.strategy.reasoner_adapter for each in entries] == ["adapter", None]


def test_adapters_are_those_of_the_row_that_the_paper_trained() -> None:
    table = read_suite("dualrag-table2")
    entries: Any = configure_entries(table, ["dualrag", "dualrag-ft"], ["reasoner_adapter=mine"])
    assert [each.strategy.reasoner_adapter for each in entries] == [None, "mine"]
    assert "dualrag-ft" not in [each.method.name for each in configure_entries(table)]


def test_a_form_is_that_of_the_data_set_or_of_the_command_line() -> None:
    small = suite(row("a"))
    short, long = small.datasets
    question = Question("q", "?", task=QuestionTask.SET)
    for settings, forms in (((), ["list", "long"]), (("form=short",), ["short", "short"])):
        [entry] = rows(small, *settings)
        asked: list[Any] = [entry.for_question(question, each) for each in (short, long)]
        assert [each.form for each in asked] == forms
    with pytest.raises(UsageError, match="a sets its form: all rows of a table answer in one form"):
        rows(suite(row("a", "form=list")))
