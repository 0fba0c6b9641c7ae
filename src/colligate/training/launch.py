"""The processes of a training: this one among them, and how it is told to stop.

Several are started by `accelerate launch --config_file FILE -m colligate train fit ...`, one for
each GPU; `configurations` are the files that come with colligate.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Any

_ECHO = 2.0  # seconds


@dataclass(frozen=True)
class Place:
    """This process among those that train together; the one of rank 0 writes and speaks.

    `sharded`: FSDP or DeepSpeed shares the model out among them.
    """

    rank: int = 0
    world: int = 1
    sharded: bool = False

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0


def place() -> Place:
    """Where this process stands, by what its launcher put into the environment."""
    sharding = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return Place(
        rank=int(os.environ.get("RANK", 0)),
        world=int(os.environ.get("WORLD_SIZE", 1)),
        sharded=any(os.environ.get(name, "").lower() == "true" for name in sharding),
    )


def configurations() -> dict[str, Path]:
    """The files for `accelerate launch --config_file`, by name."""
    folder = Path(str(resources.files(__package__).joinpath("distributed")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def wait_for_all(world: int) -> None:
    """Go on when every process has come here."""
    if world > 1:
        import torch.distributed

        torch.distributed.barrier()


def any_of(flag: bool, world: int, device: Any) -> bool:
    """Whether the flag is up in any of the processes; all of them have to ask together."""
    if world == 1:
        return flag
    import torch

    raised = torch.tensor([float(flag)], device=device)
    torch.distributed.all_reduce(raised, torch.distributed.ReduceOp.MAX)
    return bool(raised.item())


@contextmanager
def stopping(on_first: Callable[[], None], place: Place) -> Iterator[threading.Event]:
    """An event that Ctrl-C (SIGINT), or SIGTERM, sets instead of ending the process.

    The second Ctrl-C ends it as ever. Outside the main thread signals are left as they are.
    """
    asked = threading.Event()
    first = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if asked.is_set():
            # What a launcher hears it tells its processes, which a terminal has told already.
            if place.world > 1 and time.monotonic() - first < _ECHO:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        asked.set()
        on_first()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
