"""What a run was made with: on record, and held to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.bench.identity import path_digest, prompt_digests, server_says, weights_digest
from colligate.bench.provenance import (
    FILE,
    Invocation,
    ModelRecord,
    Provenance,
    going_on,
    read_provenance,
    write_provenance,
)
from colligate.bench.suites import parse_suite
from colligate.errors import ColligateError, MissingPath, UsageError
from colligate.models.weights import PINNED
from colligate.strategies.duquad.method import DuQUAD

SUITE = 'title = "T"\ndatasets = [{name = "d", file = "f"}]\nstrategies = [{name = "direct"}]\n'
RUN = Provenance(
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
    write_provenance(tmp_path, RUN)

    assert read_provenance(tmp_path) == RUN
    assert read_provenance(tmp_path).parsed_suite().title == "T"
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_a_folder_without_one_is_no_run_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPath, match=r"is no run: it has no run.json"):
        read_provenance(tmp_path)
    (tmp_path / FILE).write_text('{"suite": ', "utf-8")
    with pytest.raises(ColligateError, match=r"run.json cannot be read"):
        read_provenance(tmp_path)


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(MissingPath, match=r"is no run: it has no run.json"):
        read_provenance(tmp_path / "file")


def test_what_another_version_put_down_is_passed_over(tmp_path: Path) -> None:
    text = (
        SUITE.replace('file = "f"', 'file = "f", shuffled = true')
        + "colour = 'red'\npictures = [{ kind = 'pareto' }, { kind = 'in-oil' }]\n"
    )
    write_provenance(tmp_path, replace(RUN, suite_text=text))
    whole = json.loads((tmp_path / FILE).read_text("utf-8"))
    whole["weather"] = whole["sessions"][0]["weather"] = whole["models"]["reader"]["weather"] = (
        "wet"
    )
    (tmp_path / FILE).write_text(json.dumps(whole), "utf-8")

    read = read_provenance(tmp_path)

    assert read == replace(RUN, suite_text=text)
    assert [each.file for each in read.parsed_suite().datasets] == ["f"]
    assert [each.kind for each in read.parsed_suite().pictures] == ["pareto"]
    with pytest.raises(UsageError, match="unknown key"):
        parse_suite(text, "t", "t.toml")


def test_more_questions_data_sets_and_strategies_may_be_asked_for(tmp_path: Path) -> None:
    later = Invocation("2026-11-22T10:00:00+00:00")
    now = replace(
        RUN,
        questions={"d": 9, "e": 2},
        datasets=("e",),
        strategies=("duquad", "direct"),
        models={**RUN.models, "embedder": ModelRecord("minilm", "3")},
        data={"g": "4"},
        prompts={"evidence/views.py": "5"},
        sessions=(later,),
    )

    run = going_on(RUN, now, tmp_path)

    assert (run.datasets, run.strategies) == (("d", "e"), ("direct", "duquad"))
    assert run.questions == {"d": 9, "e": 2}
    assert run.data == {"f": "2", "g": "4"}
    assert set(run.models) == {"reader", "embedder"}
    assert run.sessions == (*RUN.sessions, later)
    assert run.began == "2026-11-21T10:00:00+00:00"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"suite": "u"}, "the suite was t and is u"),
        ({"suite_text": SUITE + "#"}, "the suite t reads otherwise now"),
        ({"seed": 2}, "the seed was 1 and is 2"),
        ({"questions": {"d": 4}}, "5 questions of d were asked and now 4: they may only grow"),
        (
            {"models": {"reader": ModelRecord("gguf:a", "1" * 64)}},
            "the reader was gguf:a (000000000000) and is gguf:a (111111111111)",
        ),
        (
            {"models": {**RUN.models, "scorer": ModelRecord("hf:b")}},
            "the scorer was the reader and is hf:b",
        ),
        (
            {"models": {**RUN.models, "judge": ModelRecord("hf:b")}},
            "the judge was none and is hf:b",
        ),
        (
            {"suite_text": SUITE.replace('file = "f"', 'file = "g"')},
            """said 'datasets = [{name = "d", file = "f"}]' and says""",
        ),
        ({"suite_text": SUITE + "paper = 'P'"}, """said '' and says "paper = 'P'\""""),
        ({"settings": {"timeout": 3.0}}, "timeout was None and is 3.0"),
        (
            {"prompts": {"core/reader.py": "9"}},
            "the prompts of core/reader.py have changed",
        ),
        ({"data": {"f": "9"}}, "f has changed"),
    ],
)
def test_what_is_otherwise_is_refused_and_named(
    tmp_path: Path, other: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        going_on(RUN, replace(RUN, **other), tmp_path)  # type: ignore[arg-type]

    assert said in str(refused.value)
    assert "name another --out" in str(refused.value)


def test_pinned_weights_are_known_by_their_digest_and_files_by_theirs(tmp_path: Path) -> None:
    pinned = PINNED["smollm2-135m"].files["model"].sha256
    assert weights_digest("gguf:smollm2-135m") == pinned
    assert weights_digest("hf:smollm2-135m") == pinned
    assert len(weights_digest("bundled")) == 64
    (tmp_path / "a.gguf").write_bytes(b"weights")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"lora")
    base = weights_digest(f"gguf:{tmp_path}/a.gguf")
    assert len(base) == 64
    with_adapter = weights_digest(f"hf:{tmp_path}/a.gguf+{adapter}")
    assert with_adapter.startswith(f"{base}+")
    assert weights_digest("openai:gpt@http://localhost/v1") == ""


async def test_what_a_server_says_anew_each_time_is_left_out() -> None:
    class Served:
        async def listed(self) -> dict[str, object]:
            return {"id": "m", "created": 17, "max_model_len": 4096}

    class Silent:
        async def listed(self) -> dict[str, object]:
            raise ColligateError("it lists nothing")

    assert await server_says(Served()) == {"id": "m", "max_model_len": 4096}
    assert await server_says(Silent()) == {}
    assert await server_says(object()) == {}


def test_prompts_are_those_of_the_evidence_and_of_the_strategies() -> None:
    digests = prompt_digests([DuQUAD])

    assert "core/reader.py" in digests
    assert "duquad/prompts.py" in digests
    assert digests == prompt_digests([DuQUAD])


def test_a_folder_has_another_digest_when_a_file_in_it_is_renamed(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.md").write_text("one", "utf-8")
    before = path_digest(folder)
    (folder / "a.md").rename(folder / "b.md")

    assert path_digest(folder) != before


def test_hidden_files_of_a_folder_are_none_of_its_documents(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one", "utf-8")
    before = path_digest(tmp_path)
    (tmp_path / ".DS_Store").write_bytes(b"icons")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"")

    assert path_digest(tmp_path) == before
