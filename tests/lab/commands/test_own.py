"""`colligate bench run own`: one's own questions over a folder; and corpora of passages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.bench import rows_of

TOWERS = {"Ard": 1800, "Brack": 1807, "Corrin": 1814}


def by_question(out: Path) -> dict[str, Any]:
    return {row["question"]: row for row in rows_of(out)}


@pytest.fixture
def towers(tmp_path: Path) -> Path:
    """A folder of files, one of them in a folder below."""
    folder = tmp_path / "towers"
    (folder / "north").mkdir(parents=True)
    for name, year in TOWERS.items():
        below = folder / "north" if name == "Corrin" else folder
        text = f"# {name}\n\nThe tower of {name} was built in {year} by its fishermen.\n"
        (below / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def own(colligate: Any, keeper: Any, towers: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(text: str, *more: str, name: str = "questions.csv") -> Any:
        questions = tmp_path / name
        questions.write_text(text, encoding="utf-8")
        model = f"openai:keeper@{keeper.url}"
        return colligate.here(
            *("bench", "run", "own", "--questions", questions, "--documents", towers),
            *("--out", tmp_path / "out", "--model", model, "--embedder", "static"),
            *("--strategies", "retrieve-read", *more),
        )

    return run


def test_a_question_is_asked_over_the_files_it_names_else_over_the_whole_folder(
    own: Callable[..., Any], tmp_path: Path
) -> None:
    done = own(
        "id,question,answer,documents,gold\n"
        "1,When was the tower of Ard built?,1800,Ard.md|north/Corrin.md,Ard.md\n"
        "2,When was the tower of Brack built?,1807,Ard|Corrin,\n"
        "3,When was the tower of Corrin built?,1814,,Corrin.md\n"
    )

    assert done.returncode == 0, done.stderr
    rows = by_question(tmp_path / "out")
    assert [rows[n]["metrics"]["containment"] for n in "123"] == [1.0, 0.0, 1.0]
    seen = {n: {p["document"] for p in rows[n]["outcome"]["retrieved"]} for n in "123"}
    assert [len(seen[n]) for n in "123"] == [2, 2, 3]
    assert rows["1"]["metrics"]["gold_all_retrieved"] == 1.0
    assert rows["3"]["metrics"]["gold_all_evidence"] == 1.0
    assert rows["2"]["outcome"]["found"] is False


def test_a_file_that_is_not_there_is_named_before_anything_is_asked(
    own: Callable[..., Any], keeper: Any, towers: Path
) -> None:
    (towers / "Brack.pdf").write_bytes(b"no PDF")
    ard = "When was the tower of Ard built?"
    for name in ("Arb.md", "Brack.pdf"):
        done = own(f"question,documents\n{ard},\n{ard},{name}\n")

        assert done.returncode == 1
        assert f"it names '{name}'" in done.stderr
        assert "no readable file has this name" in done.stderr
    assert not [each for each in keeper.requests if each["path"].endswith("completions")]


def test_a_run_among_its_own_documents_is_refused(
    own: Callable[..., Any], towers: Path, keeper: Any, tmp_path: Path
) -> None:
    question = "question\nWhen was the tower of Ard built?\n"
    out = own(question, "--out", str(towers / "runs"))
    indexes = own(question, "--indexes", str(towers / "kept"))

    for done, place in ((out, "runs"), (indexes, "kept")):
        assert done.returncode == 2
        assert f"{towers / place} lies in {towers}" in done.stderr
        assert "name a folder outside it" in done.stderr
        assert not (towers / place).exists()
    assert keeper.requests == []


def test_a_shared_index_has_no_file_that_was_taken_out(
    own: Callable[..., Any], towers: Path, tmp_path: Path
) -> None:
    question = "id,question\n1,When was the tower of Brack built?\n"
    shared = ("--indexes", str(tmp_path / "indexes"))
    assert own(question, *shared).returncode == 0
    (towers / "Brack.md").unlink()
    assert own(question, *shared, "--out", str(tmp_path / "other")).returncode == 0

    kept = [by_question(tmp_path / out)["1"]["outcome"] for out in ("out", "other")]
    assert [outcome["short"] for outcome in kept] == ["1807", ""]
    assert [len(outcome["retrieved"]) for outcome in kept] == [3, 2]


def test_what_own_needs_is_said(colligate: Any, tmp_path: Path) -> None:
    without = colligate.here("bench", "run", "own", "--out", tmp_path / "out")
    assert (without.returncode, "give --questions FILE" in without.stderr) == (2, True)
    nowhere = colligate.here(
        *("bench", "run", "own", "--questions", tmp_path / "none.csv", "--out", tmp_path / "out")
    )
    assert (nowhere.returncode, "does not exist" in nowhere.stderr) == (2, True)
    no_data = colligate.here("bench", "run", "duquad-table1", "--out", tmp_path / "out")
    assert (no_data.returncode, "give --data DIR" in no_data.stderr) == (2, True)


def test_a_corpus_of_passages_is_indexed_once(
    colligate: Any, running: Callable[..., list[str | Path]], data: Path, tmp_path: Path
) -> None:
    passages = [
        {"id": f"p-{name}", "title": name, "text": f"The tower of {name} was built in {year} by"
         " its fishermen."}
        for name, year in TOWERS.items()
    ]  # fmt: skip
    lines = "".join(json.dumps(passage) + "\n" for passage in passages)
    (data / "towers.corpus.jsonl").write_text(lines, encoding="utf-8")
    suite = (data / "towers.toml").read_text("utf-8")
    over = 'file = "towers.jsonl"\nover = "corpus"\ncorpus = "towers.corpus.jsonl"'
    (data / "towers.toml").write_text(suite.replace('file = "towers.jsonl"', over))
    indexes = tmp_path / "indexes"
    more = ("--indexes", indexes, "--strategies", "best-one")

    first = colligate.here(*running(tmp_path / "one", *more))
    second = colligate.here(*running(tmp_path / "two", *more, "--limit", "2"))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "embedding" in first.stderr
    assert "embedding" not in second.stderr
    rows = by_question(tmp_path / "one")
    assert rows["q-Brack"]["outcome"]["retrieved"][0]["document"] == "p-Brack"
    assert rows["q-Brack"]["outcome"]["short"] == "1807"
