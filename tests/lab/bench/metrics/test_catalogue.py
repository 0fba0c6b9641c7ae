from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.lab.bench.metrics import Backends
from colligate.lab.bench.metrics.catalogue import GROUPS, higher_is_better, measure, require_groups
from colligate.lab.bench.metrics.groups import MissingBackend
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question
from colligate.testing import ScriptedModel
from support.bench import ANSWERED, QUESTIONS, backends

DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"

WITHOUT_ANSWER = (Outcome(usage={"retrieval_rounds": 1}), Outcome(error="ServerFailed: gone"))
COSTS_AND_REFUSALS = {"abstention", "cost", "verdict"}


@pytest.fixture(autouse=True)
def _needs_the_extra() -> None:
    pytest.importorskip("pytrec_eval")
    pytest.importorskip("rouge_score")


async def every(question: Question, outcome: Outcome) -> dict[str, float]:
    return await measure(list(GROUPS), question, outcome, backends())


@pytest.mark.parametrize("kind", QUESTIONS)
async def test_a_refusal_or_a_failure_has_every_measure_of_an_answer_and_scores_nothing(
    kind: str,
) -> None:
    question = QUESTIONS[kind]
    answer_groups = [name for name in GROUPS if name not in COSTS_AND_REFUSALS]
    answered = await measure(answer_groups, question, ANSWERED, backends())
    # What only a judge's reply or the strategy's own stages bring is not known of a refusal.
    known = {
        name
        for name in answered
        if not re.search("_kept$|_success$|^compression$|^evidence_words$|^gold_precision", name)
    }
    for outcome in WITHOUT_ANSWER:
        found = await measure(answer_groups, question, outcome, backends())
        assert known <= set(found)
        assert set(found.values()) <= {0.0}


async def test_unanswerable_questions_are_measured_by_refusals_alone() -> None:
    found = await every(QUESTIONS["unanswerable"], ANSWERED)
    cost = await measure(["cost"], QUESTIONS["unanswerable"], ANSWERED)
    assert set(found) - set(cost) == {
        *("right_refusal", "failed"),
        *("right", "refused", "wrong_cited", "answer_words"),
    }


async def test_what_was_said_is_scored_whatever_the_checks_dropped() -> None:
    refused = Outcome(said="Ann Lee wrote it.", said_short="Ann Lee")
    found = await measure(["said", "short"], QUESTIONS["short"], refused)
    assert (found["em"], found["said_em"]) == (0, 1)
    assert (found["containment_raw"], found["said_containment_raw"]) == (0, 1)
    readings = await measure(["said"], QUESTIONS["readings"], refused)
    assert readings["said_str_em"] == 0.5
    failed = await measure(["said"], QUESTIONS["short"], replace(refused, error="broke"))
    assert set(failed.values()) == {0}


async def test_missing_models_and_unknown_groups_are_told_before_anything_is_asked() -> None:
    judge = ScriptedModel(lambda call: "Yes")
    question = QUESTIONS["short"]
    with pytest.raises(MissingBackend, match=r"eli5.*nli"):
        await measure(["judge_dual", "eli5"], question, ANSWERED, Backends(judge=judge))
    with pytest.raises(MissingBackend, match="--judge"):
        require_groups(["loong_spd"], Backends())
    with pytest.raises(UsageError, match=r"no metrics rogue.*short"):
        await measure(["judge_dual", "rogue"], question, ANSWERED, Backends(judge=judge))
    assert not judge.calls


@pytest.mark.parametrize(
    ("better", "names"),
    [
        (True, ("em", "recall", "recall_at_5", "right_refusal", "citation_recall", "p_score")),
        (False, ("calls", "tokens", "output_tokens_worker", "usd", "seconds", "p_len")),
        (False, ("wrong_refusal", "failed", "rounds", "scoring_passes", "evidence_words")),
        (False, ("searches", "chat_tokens", "scoring_tokens", "rounds_dual", "offline_seconds")),
        (None, ("length", "answer_words", "answer_words_dual_max", "no_rounds")),
        (True, ("loong_spd/usd",)),
        (False, ("input_tokens over retrieve-read", "skeleton_tokens/structured_tokens")),
    ],
)
def test_less_cost_is_better_and_more_of_the_rest(
    better: bool | None, names: Sequence[str]
) -> None:
    assert {higher_is_better(name) for name in names} == {better}


async def test_the_guide_names_every_group_and_every_measure() -> None:
    text = DOCS.read_text("utf-8")
    named = set(re.findall(r"`([^`\s]+)`", text))
    assert set(GROUPS) <= named
    for question in QUESTIONS.values():
        for name in await every(question, ANSWERED):
            general = re.sub(r"(?<=_at_)\d+$", "K", name)
            general = re.sub(r"_(raw|short|max|kept)$", "", general)
            general = re.sub(r"_(retrieved|evidence)$", "_STAGE", general)
            if general.startswith("gold_") and not general.endswith("_STAGE"):
                general += "_STAGE"
            assert {name, general} & named, f"{name} is not in docs/metrics.md"
