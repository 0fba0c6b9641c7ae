"""Training: what comes of it is loaded as any model is, and it goes on where it was stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.core.events import Event, Noted, Progressed
from colligate.errors import UsageError
from colligate.lab.training.fitting import Fitted, catch_signals, fit
from colligate.lab.training.samples import HELD_OUT, TRAIN
from colligate.lab.training.trainer import (
    read_curve,
)
from colligate.models import Message
from colligate.session import Session
from colligate.settings import Named, Settings
from support.gguf_models import save_gguf
from support.models import ask

ASK = (Message("system", "Be brief."), Message("user", "How many otters are there? fish "))

# Twelve steps of four samples, twice over: with dropout, so that chance must be gone on with too.
QUICK = (
    *("global_batch=4", "epochs=2", "learning_rate=0.05", "dropout=0.1", "warmup=0.1"),
    *("save_every=4", "evaluate_every=4", "precision=float32", "schedule=cosine"),
)
STEPS = 12


@pytest.fixture
def base(tiny: Callable[..., Path]) -> str:
    return f"hf:{tiny()}"


@pytest.fixture
def train(base: str, data: Path, tmp_path: Path) -> Callable[..., Fitted]:
    """`train(*settings, out=..., listener=..., recipe=...)` fits the tiny model quickly."""

    def run(
        *settings: str,
        out: Path = tmp_path,
        listener: Callable[[Event], None] = lambda event: None,
        recipe: str = "rdr2-router-small",
    ) -> Fitted:
        return fit(recipe, data, base, out, (*QUICK, *settings), listener)

    return run


@pytest.fixture(scope="session")
def whole(tiny: Callable[..., Path], data: Path, tmp_path_factory: Any) -> Fitted:
    """A training that nobody stopped."""
    out = tmp_path_factory.mktemp("whole")
    return fit("rdr2-router-small", data, f"hf:{tiny()}", out, QUICK)


class Listening:
    """Keeps what it is told, and does something once a step is done."""

    def __init__(self, step: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.events: list[Event] = []
        self._step, self._act = step, act

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Progressed) and event.done == self._step:
            self._step = 0
            self._act()

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Noted))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def killed() -> None:
    raise KeyboardInterrupt  # as when the process goes, without the code's being asked


def weights(folder: Path, name: str = "adapter_model.safetensors") -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / name)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    import torch

    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def losses(folder: Path) -> list[tuple[Any, ...]]:
    named = ("step", "loss", "held_out_loss", "tokens")
    return [tuple(map(point.get, named)) for point in read_curve(folder / "curve.jsonl")]


async def said(model: str) -> str:
    async with Session(settings=Settings()) as session:
        chat = await session.open_model(Named(model))
        return (await ask(chat, ASK, max_tokens=8)).text


async def test_an_adapter_is_learnt_and_loaded(whole: Fitted, base: str, tmp_path: Path) -> None:
    assert whole.finished
    assert (whole.step, whole.steps, whole.samples, whole.left_out) == (STEPS, STEPS, 24, 0)
    assert whole.held_out_before is not None
    assert whole.held_out_after is not None
    assert whole.held_out_after < whole.held_out_before / 5
    assert whole.model == f"{base}+{whole.out}"
    assert await said(whole.model) == "none"
    assert await said(base) != "none"
    file = save_gguf(Path(base.removeprefix("hf:")), tmp_path / "tiny.gguf")
    assert await said(f"gguf:{file}+{whole.out}") == "none"


def test_the_curve(whole: Fitted) -> None:
    curve = read_curve(whole.out / "curve.jsonl")
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, STEPS + 1))
    assert [point["step"] for point in curve if "held_out_loss" in point] == [0, 4, 8, 12]
    for name in ("seconds", "tokens"):
        assert [point[name] for point in curve] == sorted(point[name] for point in curve)
    assert curve[-1]["tokens"] == whole.tokens > 0
    rates = [point["lr"] for point in curve if "lr" in point]
    assert (len(rates), max(rates)) == (STEPS, pytest.approx(0.05, rel=0.05))


def test_the_record(whole: Fitted, base: str, data: Path) -> None:
    record = json.loads((whole.out / "fit.json").read_text("utf-8"))
    assert record["finished"] is True
    assert record["base"] == base
    assert record["recipe"].startswith('title = "RDR2')
    assert record["made_with"]["settings"]["dropout"] == 0.1
    assert set(record["made_with"]["data"]) == {TRAIN, HELD_OUT}
    assert record["samples"] == {TRAIN: 24, HELD_OUT: 6}
    assert 0 < record["parameters"]["trained"] < record["parameters"]["all"]
    assert {"torch", "trl", "peft"} <= set(record["versions"])
    assert [s["from_step"] for s in record["sessions"]] == [0]
    assert all(s["began"] and s["ended"] for s in record["sessions"])


@pytest.mark.real
async def test_all_parameters(tmp_path: Path, train: Any) -> None:
    fitted = train("method=full", "learning_rate=0.003", "targets=all-linear")
    assert fitted.finished
    assert fitted.model == f"hf:{tmp_path}"
    assert await said(fitted.model) == "none"
    assert not (tmp_path / "adapter_config.json").exists()
    assert not (tmp_path / "training_args.bin").exists()
    assert not (tmp_path / "optimizer.pt").exists()


@pytest.mark.parametrize("at", [2, 4])
def test_stopped_and_gone_on_with(whole: Fitted, tmp_path: Path, at: int, train: Any) -> None:
    first = Listening(at, interrupt)
    stopped = train(listener=first)
    assert not stopped.finished
    assert at <= stopped.step <= at + 1
    assert "stopping after this step" in first.notes
    assert not (tmp_path / "adapter_config.json").exists()
    second = Listening()
    gone_on = train(listener=second)
    assert f"resuming from step {stopped.step}" in second.notes
    assert gone_on.finished
    assert losses(tmp_path) == losses(whole.out)
    assert same(weights(tmp_path), weights(whole.out))
    record = json.loads((tmp_path / "fit.json").read_text("utf-8"))
    assert [session["from_step"] for session in record["sessions"]] == [0, stopped.step]
    assert gone_on.seconds > stopped.seconds


@pytest.mark.real
@pytest.mark.parametrize("at", [1, 6, STEPS])
def test_killed_and_gone_on_with(whole: Fitted, tmp_path: Path, at: int, train: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(listener=Listening(at, killed))
    listening = Listening()
    assert train(listener=listening).finished
    assert ("resuming from step" in listening.notes) == (at > 4)
    assert losses(tmp_path) == losses(whole.out)
    assert same(weights(tmp_path), weights(whole.out))


def test_a_finished_training_is_left_alone(whole: Fitted, train: Any) -> None:
    before = (whole.out / "curve.jsonl").read_bytes()
    listening = Listening()
    again = train(out=whole.out, listener=listening)
    assert "is finished" in listening.notes
    assert again == whole
    assert (whole.out / "curve.jsonl").read_bytes() == before


def test_one_made_otherwise(whole: Fitted, base: str, data: Path, tmp_path: Path) -> None:
    for name in (TRAIN, HELD_OUT):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    with (tmp_path / TRAIN).open("a", encoding="utf-8") as out:
        out.write((data / TRAIN).read_text("utf-8").replace('"id": "', '"id": "new '))
    why = r"cannot resume .*rank was 8 and is 4; data: train\.jsonl has changed"
    with pytest.raises(UsageError, match=why):
        fit("rdr2-router-small", tmp_path, base, whole.out, (*QUICK, "rank=4"))


def test_what_is_too_long_is_said(tmp_path: Path, train: Any) -> None:
    listening = Listening()
    fitted = train("cutoff=45", "steps=1", listener=listening)
    assert 0 < fitted.left_out < 24
    assert fitted.left_out + fitted.samples == 24
    assert (
        f"{fitted.left_out} of 24 samples are left out: they have more than 45" in listening.notes
    )
    with pytest.raises(UsageError, match="no sample has at most 5 tokens"):
        train("cutoff=5", out=tmp_path / "none")


def test_the_labels_reach_the_model(base: str, monkeypatch: pytest.MonkeyPatch, train: Any) -> None:
    """What TRL makes of the samples: the prompts' tokens without labels, the replies' with them."""
    from trl import SFTTrainer

    seen: list[tuple[list[int], list[int]]] = []
    step = SFTTrainer.training_step

    def stepped(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((inputs["input_ids"][0].tolist(), inputs["labels"][0].tolist()))
        return step(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(SFTTrainer, "training_step", stepped)
    train("epochs=1", "held_out=0")
    from colligate.models.hf.loading import find_source, load_tokenizer

    tokenizer = load_tokenizer(find_source(base.removeprefix("hf:")))
    assert len(seen) == 24
    for ids, labels in seen:
        learnt = [token for token in labels if token != -100]
        assert tokenizer.decode(learnt) == "none<|im_end|>"
        assert labels == [-100] * (len(ids) - len(learnt)) + learnt
        assert tokenizer.decode(ids[: -len(learnt)]).endswith("<|im_start|>assistant\n")
    assert len({tuple(ids) for ids, _ in seen}) == 5


@pytest.mark.real
def test_nobody_is_told(monkeypatch: pytest.MonkeyPatch, train: Any) -> None:
    import trl.trainer.base_trainer

    def told(*_: Any, **__: Any) -> None:
        pytest.fail("telemetry")

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(trl.trainer.base_trainer, "send_telemetry", told)
    train("steps=1")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bundled", "only a model that transformers loads"),
        ("openai:gpt-x", "only a model that transformers loads"),
        ("hf:no/such/folder", "does not exist"),
        ("hf:tiny+adapter", "without an adapter"),
    ],
)
def test_a_base_that_cannot_be_trained(data: Path, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        fit("rdr2-router-small", data, name, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number: int) -> None:
    before = signal.getsignal(number)
    noted: list[int] = []
    with catch_signals(lambda: noted.append(1)) as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert noted == [1]
    assert signal.getsignal(number) is before
