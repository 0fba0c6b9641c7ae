"""The suites that come with colligate: what each asks can be run, and its parts fit each other."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import cache
from itertools import chain

import pytest

from colligate.lab.bench.metrics.catalogue import GROUPS, measure
from colligate.lab.bench.plan import configure_entries
from colligate.lab.bench.question import QuestionTask
from colligate.lab.bench.suites import Dataset, list_suites, read_suite
from support.bench import ANSWERED, QUESTIONS, backends

OF_A_RUN = {"mauve"}  # metrics of all answers together, taken where a file asks for them
STAGES = ("local", "named", "kept")  # DuQUAD's, as the bench observes them
RATINGS = {"docscore": {"g": 0.9, "x": 0.1}}
STEPS = ("reasoner", "identifier", "summarizer", "answer")  # DualRAG's
# RDR2's, DualRAG's and LongRefiner's
COUNTS = ("subtrees", "queries", "redundant_queries", "skeleton_tokens", "structured_tokens")


suites = pytest.mark.parametrize("name", list_suites())


@suites
def test_it_can_be_run(name: str) -> None:
    """Its strategies are registered and have its parameters; by default it asks few questions."""
    suite = read_suite(name)
    assert len(configure_entries(suite, [each.name for each in suite.strategies])) > 0
    sizes = [dataset.questions for dataset in suite.datasets if dataset.default]
    strategies = [method for method in suite.strategies if method.default]
    assert strategies
    assert 0 < sum(size or 1000 for size in sizes) * len(strategies) <= 180


@suites
def test_its_metrics_are_known_and_measured(name: str) -> None:
    """Groups are of the catalogue, and each column is measured by a group of its own data set."""
    suite = read_suite(name)
    for group in {g for each in suite.datasets for g in (*each.metrics, *each.optional)}:
        for module in GROUPS[group].modules:
            pytest.importorskip(module)
    groups = {group.name: group.datasets for group in suite.groups}
    known = {dataset.name: _metrics_of(dataset) for dataset in suite.datasets}
    for column in suite.columns:
        for member in groups.get(column.dataset, (column.dataset,)):
            measured = re.split(r"/| over .*", column.metric)
            assert {*filter(None, measured)} <= known[member], f"{column.metric} of {member}"
    for picture in suite.pictures:
        if picture.metric:
            there = [picture.dataset] if picture.dataset else list(known)
            assert all(picture.metric in known[dataset] for dataset in there)


@suites
def test_labels_columns_and_published_numbers_fit_each_other(name: str) -> None:
    """Each is there once, each number has its column, and a share is no more than all of it."""
    suite = read_suite(name)
    labels = [method.label for method in suite.strategies]
    columns = {(column.dataset, column.metric): column for column in suite.columns}
    seen = [
        (each.row, each.model, each.note, each.dataset, each.metric) for each in suite.published
    ]
    assert len(set(labels)) == len(labels)
    assert len(columns) == len(suite.columns)
    assert len(set(seen)) == len(seen)
    for each in suite.published:
        most = 100 if columns[each.dataset, each.metric].scale == 100 else float("inf")
        assert 0 <= each.value <= most


@suites
def test_documents_are_cut_as_the_paper_cuts_them(name: str) -> None:
    suite = read_suite(name)
    assert suite.chunker == {"RDR2": "words:100", "SPD-RAG": "tokens:1000/250"}.get(suite.paper)


# Which metrics a group gives for a kind of question: measured once on a made-up answer.

TASKS = {
    "asqa": QuestionTask.READINGS,
    "qampari": QuestionTask.SET,
    "eli5": QuestionTask.LONG,
    "loong_en": QuestionTask.JUDGED,
}


def _metrics_of(dataset: Dataset) -> frozenset[str]:
    """The metrics that a suite measures of a data set, and those of a whole run."""
    task = TASKS.get(dataset.file.partition(".")[0], QuestionTask.SHORT)
    groups = (*dataset.metrics, *dataset.optional)
    return frozenset(chain.from_iterable(_metrics(group, task) for group in groups)) | OF_A_RUN


@cache
def _metrics(group: str, task: QuestionTask) -> frozenset[str]:
    gold_texts = (("g", "Ann Lee wrote it in 1932."),)
    question = replace(QUESTIONS[task.value], gold=("g",), gold_texts=gold_texts)
    if task is QuestionTask.JUDGED:  # words decide only those that are a figure
        question = replace(question, answers=("41",))
    outcome = replace(
        ANSWERED,
        stages=dict.fromkeys(STAGES, ("g",)),
        ratings=RATINGS,
        usage={
            **ANSWERED.usage,
            "cost_usd": 0.1,
            "by_step": {key: {"output_tokens": 1} for key in STEPS},
        },
        counts=dict.fromkeys(COUNTS, 1.0),
    )
    given = backends()
    sizes = zip((2, 3, 5, 2, 2), (1_000, 3_000, 7_000, 15_000, 30_000), strict=True)
    measured = [
        asyncio.run(measure([group], question, replace(outcome, depth=d, view_tokens=n), given))
        for d, n in (sizes if group.startswith("by_") else [(0, 0)])
    ]
    return frozenset(chain.from_iterable(measured))
