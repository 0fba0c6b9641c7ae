"""`colligate bench run --workers ray`: a real cluster of one machine answers the questions."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.bench import lasting

pytest.importorskip("ray")

pytestmark = pytest.mark.real


def test_workers_give_the_rows_of_one_process_though_one_dies(
    bench: Any, data: Path, tmp_path: Path, keeper: Any
) -> None:
    # Over a corpus too, which the workers read together.
    records = [json.loads(line) for line in (data / "towers.jsonl").read_text().splitlines()]
    texts = {each["id"]: each for record in records for each in record["documents"]}
    (data / "corpus.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts.values()))
    suite = data / "towers.toml"
    own = '[[datasets]]\nname = "shared"\nfile = "towers.jsonl"\nover = "corpus"\n'
    own += 'corpus = "corpus.jsonl"\nmetrics = ["short", "evidence", "cost"]\n'
    suite.write_text(suite.read_text().replace("[[strategies]]", own + "[[strategies]]", 1))
    asked = ("--limit", "3", "--strategies", "best-one,nothing")
    here, there, killed = tmp_path / "here", tmp_path / "there", tmp_path / "killed"
    assert bench(*asked, out=here).returncode == 0
    keeper.answer = dying_once(keeper.answer, killed)

    done = bench(*asked, "--workers", "ray", "--concurrency", "2", out=there)

    assert done.returncode == 0, done.stderr
    assert killed.exists()
    assert lasting(there) == lasting(here)
    assert len(list((there / "traces").rglob("*.jsonl.gz"))) == 12
    assert "12 new rows" in done.stderr


def dying_once(answer: Any, marker: Path) -> Any:
    """The same answers, but the first one kills a worker that waits for it."""

    def kill_first(body: Any) -> str:
        if not marker.exists():
            marker.touch()
            os.kill(find_worker(), signal.SIGKILL)
        return str(answer(body))

    return kill_first


def find_worker() -> int:
    """The process of a worker of this machine's cluster."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"ray::_Worker.answer"):
                return int(folder.name)
    raise AssertionError("no worker answers a question")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--max-tokens-total", "9"], "--max-tokens-total cannot be used with workers on Ray"),
        (["--replies", "replies.db"], "--replies cannot be used with workers on Ray"),
    ],
)
def test_what_workers_cannot_share_is_refused(bench: Any, more: list[str], why: str) -> None:
    done = bench("--workers", "ray", *more)
    assert done.returncode == 2
    assert why in done.stderr


def test_other_workers_are_refused(bench: Any) -> None:
    done = bench("--workers", "4")
    assert done.returncode == 2
    assert "no workers '4'" in done.stderr
