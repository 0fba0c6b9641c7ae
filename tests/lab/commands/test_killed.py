"""A run that is killed, at whatever moment, is gone on with as if it had not been."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.bench import lasting

Running = Callable[..., list[str | Path]]

TIMES = 5


def asked(requests: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> Counter[Any]:
    chats = [each for each in requests if each["path"].endswith("/chat/completions")]
    return Counter(map(key, chats))


def key_of(body: dict[str, Any]) -> tuple[str, str, str]:
    prompt = body["messages"][-1]["content"]
    tower = prompt.partition("the tower of ")[2].partition(" ")[0]
    return "towers", f"q-{tower}", "full-context" if "passage" in prompt else "nothing"


@pytest.mark.real
def test_killed_again_and_again_it_gives_the_rows_of_a_run_that_was_not(
    bench: Any, colligate: Any, running: Running, keeper: Any, tmp_path: Path, out: Path
) -> None:
    bench(out=tmp_path / "whole")
    whole = lasting(tmp_path / "whole")
    chance = random.Random(20261121)
    begun, answer = len(keeper.requests), keeper.answer

    # So that not all is answered before the last kill, however slow the one who kills is.
    most, killed_now = 0, threading.Event()

    def within_bounds(body: dict[str, Any]) -> Any:
        if len(keeper.requests) > most:
            killed_now.wait(60)
        return answer(body)

    keeper.answer = within_bounds
    for time in range(TIMES):
        there = lasting(out)
        before = len(keeper.requests)
        # Killed when it has asked this much, and a moment later: while a row is written, or read.
        until, moment = before + chance.randint(1, 3), chance.random() * 0.12
        most, killed_now = until, threading.Event()
        with colligate.start(
            *running(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            keeper.until(lambda: len(keeper.requests) >= until or process.poll() is not None)  # noqa: B023
            threading.Event().wait(moment)
            while time == TIMES - 1 and not lasting(out) and process.poll() is None:
                threading.Event().wait(0.02)  # on a busy machine no row is there yet
            process.send_signal(signal.SIGKILL)
            killed_now.set()
        again = asked(keeper.requests[before:], key_of)
        assert not set(again) & set(there), "what had a row was asked again"
    killed = len(lasting(out))
    keeper.answer = answer
    done = bench()

    assert done.returncode == 0, done.stderr
    assert lasting(out) == whole
    assert 0 < killed < len(whole)
    # What was under way at a kill, and nothing else, was asked twice.
    times = asked(keeper.requests[begun:], key_of)
    assert sum(times.values()) <= len(whole) + TIMES
    assert set(times) == set(whole)


def test_interrupted_it_says_how_to_go_on(
    bench: Any, colligate: Any, running: Running, keeper: Any, out: Path
) -> None:
    answer, fifth = keeper.answer, threading.Event()

    def until_the_fifth(body: dict[str, Any]) -> Any:
        if len([r for r in keeper.requests if r["path"].endswith("completions")]) >= 5:
            fifth.set()
            keeper.closing.wait(60)
        return answer(body)

    keeper.answer = until_the_fifth
    with colligate.start(*running(out)) as process:
        assert fifth.wait(60)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"stopped; what is finished is in " in said
    assert b"the same command resumes" in said
    assert len(lasting(out)) == 4
    run = json.loads((out / "run.json").read_text("utf-8"))
    assert run["sessions"][0]["ended"]
    keeper.answer = answer
    assert bench().returncode == 0
    assert len(lasting(out)) == 16
