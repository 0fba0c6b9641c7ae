"""What is done while a training runs: its curve, its progress, its checkpoints' seals, its end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from colligate.strategies.trace import Listener, Noted, Progressed
from colligate.training import checkpoints
from colligate.training.curves import Curve, Measured
from colligate.training.launch import Place, any_of, wait_for_all
from colligate.training.sft import Libraries, finite

_TIMED = 3  # steps, of which the first is slow, before it is said how long all will take


class Watch:
    """Follows one training. Only the first process has a curve, and speaks."""

    def __init__(
        self, curve: Curve | None, place: Place, stop: threading.Event, on_event: Listener
    ) -> None:
        self._curve = curve
        self._place = place
        self._stop = stop
        self._emit = on_event
        self._before = curve.seconds if curve is not None else 0.0
        self._began = self._first_step = 0.0
        self._steps = 0

    def begun(self) -> None:
        """Training begins, or goes on."""
        self._began = self._first_step = time.perf_counter()

    def logged(self, step: int, epoch: float, tokens: int, logs: dict[str, Any]) -> None:
        """Something was measured.

        Raises:
            ColligateError: the loss is no number.
        """
        loss, held_out = logs.get("loss"), logs.get("eval_loss")
        for value in (loss, held_out):
            if value is not None:
                finite(value, step)
        if self._curve is None or (loss is None and held_out is None):
            return
        self._curve.add(
            Measured(
                step=step,
                epoch=round(epoch, 4),
                tokens=int(tokens),
                seconds=round(self._before + time.perf_counter() - self._began, 2),
                loss=loss,
                lr=logs.get("learning_rate") if loss is not None else None,
                held_out_loss=held_out,
            )
        )

    def stepped(self, step: int, total: int, device: Any) -> bool:
        """A step is done; whether to save and stop."""
        self._steps += 1
        if self._steps == 1:
            self._first_step = time.perf_counter()
        elif self._steps == _TIMED and step < total:
            each = (time.perf_counter() - self._first_step) / (self._steps - 1)
            rest = (total - step) * each
            lasts = f"{rest / 60:,.0f} minutes" if rest > 90 else f"{rest:.0f} s"
            text = f"{each:.1f} s a step: {lasts} for the {total - step:,} left, and the held out"
            self._emit(Noted(text))
        return any_of(self._stop.is_set(), self._place.world, device)

    def progressed(self, step: int, total: int) -> None:
        """Tell how far it is."""
        measured = self._curve.measured if self._curve is not None else []
        loss = [m.loss for m in measured if m.loss is not None][-1:]
        held = [m.held_out_loss for m in measured if m.held_out_loss is not None][-1:]
        parts = (("loss", loss), ("held out", held))
        said = ", ".join(f"{name} {value:.3f}" for name, values in parts for value in values)
        self._emit(Progressed("training", step, total, said))

    def saved(self, checkpoint: Path) -> None:
        """All of a checkpoint was written, as far as this process knows."""
        wait_for_all(self._place.world)
        if self._place.first:
            checkpoints.seal(checkpoint)


def callback(watch: Watch, with_: Libraries) -> Any:
    """What the trainer calls, on behalf of a watch."""

    class Callback(with_.transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.begun()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            watch.logged(state.global_step, state.epoch or 0.0, state.num_input_tokens_seen, logs)
            if logs and ("loss" in logs or "eval_loss" in logs):
                watch.progressed(state.global_step, state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            last = state.global_step >= state.max_steps
            if watch.stepped(state.global_step, state.max_steps, args.device) or last:
                control.should_training_stop = control.should_save = control.should_log = True
            if not control.should_log:
                watch.progressed(state.global_step, state.max_steps)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Callback()
