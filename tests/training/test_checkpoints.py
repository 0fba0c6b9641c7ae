"""Which checkpoint is gone on from: the last that is whole; never one that was damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from colligate.errors import ColligateError
from colligate.training.fit import SEAL, check, newest, progress, remove_torn, seal, step_of


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    made = folder / f"checkpoint-{step}"
    (made / "global").mkdir(parents=True)
    (made / "adapter_model.safetensors").write_bytes(bytes(range(256)))
    (made / "global" / "rank_0.pt").write_bytes(b"states")
    state = {"global_step": step, "max_steps": 40}
    (made / "trainer_state.json").write_text(json.dumps(state), "utf-8")
    if whole:
        seal(made)
    return made


def test_the_newest_that_is_whole(tmp_path: Path) -> None:
    assert newest(tmp_path / "none") is None
    assert newest(tmp_path) is None
    nine, ten = checkpoint(tmp_path, 9), checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 30, whole=False)
    (tmp_path / "checkpoint-final").mkdir()
    (tmp_path / "checkpoint-50").write_text("a file", "utf-8")
    assert newest(tmp_path) == ten
    check(ten)
    assert (step_of(nine), progress(nine)) == (9, (9, 40))


def test_those_half_written_are_removed(tmp_path: Path) -> None:
    whole, torn = checkpoint(tmp_path, 5), checkpoint(tmp_path, 10, whole=False)
    assert remove_torn(tmp_path) == [torn]
    assert not torn.exists()
    check(whole)
    assert remove_torn(tmp_path) == []
    assert remove_torn(tmp_path / "none") == []


def test_one_torn_while_it_was_sealed(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 5)
    (made / SEAL).rename(made / f"{SEAL}.new")
    assert newest(tmp_path) is None
    assert remove_torn(tmp_path) == [made]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda c: (c / "global/rank_0.pt").unlink(), "global/rank_0.pt cannot be read"),
        (lambda c: (c / "global/rank_0.pt").write_bytes(b"x"), "has 1 bytes and had 6"),
        (lambda c: (c / "global/rank_0.pt").write_bytes(b"stateS"), "is not what was written"),
        (lambda c: (c / SEAL).write_text("{", "utf-8"), f"its {SEAL} cannot be read"),
        (lambda c: (c / SEAL).write_text("[]", "utf-8"), f"its {SEAL} cannot be read"),
        (lambda c: (c / SEAL).write_text('{"a": 1}', "utf-8"), f"its {SEAL} cannot be read"),
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_damaged_one_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], why: str, earlier: bool
) -> None:
    if earlier:
        checkpoint(tmp_path, 5)
    made = checkpoint(tmp_path, 10)
    damage(made)
    with pytest.raises(ColligateError) as caught:
        check(made)
    said = str(caught.value)
    assert f"the checkpoint {made} is damaged: " in said
    assert why in said
    assert said.endswith("from checkpoint-5" if earlier else "from the start")
    assert "\n" not in said


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no checkpoint"):
        step_of(tmp_path)
