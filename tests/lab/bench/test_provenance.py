"""What a run was made with is recorded, and a run is resumed only with the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.errors import MissingPath, UsageError
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.bench.suites import parse_suite
from colligate.lab.jobs.identity import ModelRecord
from colligate.lab.jobs.job import Invocation

SUITE = 'title = "T"\ndatasets = [{name = "d", file = "f"}]\nstrategies = [{name = "direct"}]\n'
BEGUN = Provenance(
    suite="t",
    suite_text=SUITE,
    seed=1,
    models={"reader": ModelRecord("gguf:a", "0" * 64)},
    datasets=("d",),
    strategies=("direct",),
    questions={"d": 5},
    settings={"timeout": None},
    prompts={"core/reader.py": "1"},
    data={"f": "2"},
    versions={"python": "3.11"},
    sessions=(Invocation("2026-11-21T10:00:00+00:00", arguments={"limit": 5}),),
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    with pytest.raises(MissingPath, match=r"is not a run: it has no run.json"):
        RUN.read(tmp_path)
    RUN.write(tmp_path, BEGUN)

    assert RUN.read(tmp_path) == BEGUN
    assert RUN.read(tmp_path).parsed_suite().title == "T"
    assert [file.name for file in tmp_path.iterdir()] == [RUN.name]


def test_what_another_version_wrote_is_left_out(tmp_path: Path) -> None:
    text = (
        SUITE.replace('file = "f"', 'file = "f", shuffled = true')
        + "colour = 'red'\npictures = [{ kind = 'pareto' }, { kind = 'in-oil' }]\n"
    )
    RUN.write(tmp_path, replace(BEGUN, suite_text=text))
    whole = json.loads((tmp_path / RUN.name).read_text("utf-8"))
    whole["weather"] = whole["sessions"][0]["weather"] = whole["models"]["reader"]["weather"] = (
        "wet"
    )
    (tmp_path / RUN.name).write_text(json.dumps(whole), "utf-8")

    read = RUN.read(tmp_path)

    assert read == replace(BEGUN, suite_text=text)
    assert [each.file for each in read.parsed_suite().datasets] == ["f"]
    assert [each.kind for each in read.parsed_suite().pictures] == ["pareto"]
    with pytest.raises(UsageError, match="unknown key"):
        parse_suite(text, "t", "t.toml")


def test_more_questions_data_sets_and_strategies_may_be_asked_for(tmp_path: Path) -> None:
    now = replace(
        BEGUN,
        questions={"d": 9, "e": 2},
        datasets=("e",),
        strategies=("duquad", "direct"),
        models={**BEGUN.models, "embedder": ModelRecord("minilm", "3")},
        data={"g": "4"},
        prompts={"core/reader.py": "1", "duquad/prompts.py": "5"},
    )

    run = BEGUN.resume(now, tmp_path)

    assert (run.datasets, run.strategies) == (("d", "e"), ("direct", "duquad"))
    assert run.questions == {"d": 9, "e": 2}
    assert run.data == {"f": "2", "g": "4"}
    assert set(run.models) == {"reader", "embedder"}
    assert run.prompts == now.prompts
    assert (run.sessions, run.began) == (BEGUN.sessions, "2026-11-21T10:00:00+00:00")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"suite": "u"}, "the suite was t and is u"),
        ({"suite_text": SUITE + "#"}, "the text of the suite has changed"),
        ({"seed": 2}, "the seed was 1 and is 2"),
        ({"questions": {"d": 4}}, "5 questions of d were asked and now 4: they may only grow"),
        (
            {"models": {"reader": ModelRecord("gguf:a", "1" * 64)}},
            "the reader was gguf:a (000000000000) and is gguf:a (111111111111)",
        ),
        (
            {"models": {**BEGUN.models, "scorer": ModelRecord("hf:b")}},
            "the scorer was none and is hf:b",
        ),
        ({"settings": {"timeout": 3.0}}, "timeout was none and is 3.0"),
        ({"prompts": {"core/reader.py": "9"}}, "the prompts of core/reader.py have changed"),
        ({"prompts": {"core/other.py": "1"}}, "another version of colligate"),
        ({"data": {"f": "9"}}, "f was 2 and is 9"),
    ],
)
def test_what_differs_is_refused_and_named(
    tmp_path: Path, other: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        BEGUN.resume(replace(BEGUN, **other), tmp_path)  # type: ignore[arg-type]

    assert said in str(refused.value)
    assert "name another --out" in str(refused.value)
