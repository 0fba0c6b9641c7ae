"""The processes of a training: where one stands, what others are started with, how they stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from colligate.training.launch import Place, any_of, configurations, place, stopping, wait_for_all

VARIABLES = ("RANK", "WORLD_SIZE", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")


def test_where_a_process_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert place() == Place(0, 1, False)
    assert place().first
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert place() == Place(3, 4, True)
    assert not place().first


def test_one_process_waits_for_nobody() -> None:
    wait_for_all(1)
    assert [any_of(flag, 1, "cpu") for flag in (True, False)] == [True, False]


def test_what_accelerate_is_given() -> None:
    yaml = pytest.importorskip("yaml")
    found = configurations()
    assert set(found) == {"multi-gpu", "fsdp", "deepspeed-zero3"}
    kinds = {}
    for name, file in found.items():
        table = yaml.safe_load(file.read_text("utf-8"))
        kinds[name] = table["distributed_type"]
        assert table["mixed_precision"] == "bf16"
        assert table["num_processes"] > 1
    assert kinds == {"multi-gpu": "MULTI_GPU", "fsdp": "FSDP", "deepspeed-zero3": "DEEPSPEED"}


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number: int) -> None:
    before = signal.getsignal(number)
    told: list[int] = []
    with stopping(lambda: told.append(1), Place()) as asked:
        assert not asked.is_set()
        interrupt(number)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            interrupt(number)
    assert told == [1]
    assert signal.getsignal(number) is before


def test_the_echo_of_a_launcher_is_none() -> None:
    with stopping(lambda: None, Place(0, 2)) as asked:
        interrupt()
        interrupt(signal.SIGTERM)
        assert asked.is_set()


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with stopping(lambda: None, Place()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_nothing_heavy_is_imported_before_it_trains() -> None:
    code = (
        "import sys, colligate.training.fit, colligate.training.export\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'peft', 'datasets', 'accelerate')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
