"""The losses: of the tokens learnt alone, and no more computed for them than they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from colligate.models import Message
from colligate.training import sft as trainer
from colligate.training.fit import fit
from colligate.training.samples import HELD_OUT, TRAIN, Sample, write_samples

QUICK = ("global_batch=4", "device_batch=4", "steps=2", "precision=float32", "log_every=1")
REPLIES = ("none", "none at all, or be brief: 1, 2, 3, 4, 5, 6, 7, 8, 9 otters")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of prompts and replies of very different lengths."""
    folder = tmp_path_factory.mktemp("uneven")
    made = [
        Sample(
            f"{number}",
            "router",
            (
                Message("user", "How many otters are there? " * (1 + number % 3)),
                Message("assistant", REPLIES[number % 2]),
            ),
        )
        for number in range(8)
    ]
    write_samples(folder / TRAIN, made)
    write_samples(folder / HELD_OUT, made[:6])
    return folder


@pytest.mark.parametrize("more", [(), ("method=full",), ("gradient_checkpointing=true",)])
def test_only_where_something_is_learnt_the_vocabulary_is_computed(
    tiny: Callable[..., Path],
    uneven: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
) -> None:
    fused: Any = import_module("trl.trainer.utils")
    scored: list[int] = []
    apply = fused._ChunkedLogProbFunction.apply

    def counted(hidden: Any, *rest: Any) -> Any:
        scored.append(len(hidden))
        return apply(hidden, *rest)

    monkeypatch.setattr(fused._ChunkedLogProbFunction, "apply", counted)
    quick = (*QUICK, "device_batch=1", *more)
    fewer = fit("rdr2-router-small", uneven, f"hf:{tiny()}", tmp_path / "fewer", quick)
    few, scored[:] = sum(scored), []

    @contextmanager
    def all_of(model: Any, inputs: Any) -> Iterator[Any]:
        yield inputs

    monkeypatch.setattr(trainer, "replies_alone", all_of)
    whole = fit("rdr2-router-small", uneven, f"hf:{tiny()}", tmp_path / "whole", quick)
    assert few < sum(scored) / 2
    assert (fewer.loss, fewer.held_out_before, fewer.held_out_after) == pytest.approx(
        (whole.loss, whole.held_out_before, whole.held_out_after), rel=1e-5
    )


def test_every_token_counts_alike_however_samples_are_put_together(
    tiny: Callable[..., Path], uneven: Path, tmp_path: Path
) -> None:
    base = f"hf:{tiny()}"
    found = [
        fit("rdr2-router-small", uneven, base, tmp_path / size, (*QUICK, f"device_batch={size}"))
        for size in ("1", "4")
    ]
    alone, together = ((each.held_out_before, each.held_out_after, each.loss) for each in found)
    assert together == pytest.approx(alone, rel=1e-4)
