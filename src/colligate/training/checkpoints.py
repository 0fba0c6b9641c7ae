"""The checkpoints of a training: which are whole, and which one to go on from.

A checkpoint is sealed once all of it is on the disk: `whole.json` holds the size and the SHA-256
of each of its files. One without a seal was being written when the process was killed: it is
taken away, and the one before it counts. One whose files are not what its seal says was damaged
afterwards: nobody goes on from that, or past it, unasked.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from colligate.errors import ColligateError
from colligate.evaluation.safe_files import sync, write_whole
from colligate.models.fetching import digest

SEAL = "whole.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def step_of(checkpoint: Path) -> int:
    """How many steps were done when it was written."""
    found = _NAME.fullmatch(checkpoint.name)
    if found is None:
        raise ValueError(f"{checkpoint} is no checkpoint")
    return int(found[1])


def progress(checkpoint: Path) -> tuple[int, int]:
    """How many steps were done when it was written, and of how many.

    Raises:
        OSError, ValueError, KeyError: it is not whole.
    """
    state = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    return int(state["global_step"]), int(state["max_steps"])


def seal(checkpoint: Path) -> None:
    """Put down that a checkpoint is whole. Blocks.

    Raises:
        OSError: it cannot be written.
    """
    files = sorted(f for f in checkpoint.rglob("*") if f.is_file() and f.name != SEAL)
    for file in files:
        sync(file)
    said = {
        file.relative_to(checkpoint).as_posix(): {
            "bytes": file.stat().st_size,
            "sha256": digest(file),
        }
        for file in files
    }
    write_whole(checkpoint / SEAL, [json.dumps(said, indent=1)])


def remove_torn(folder: Path) -> list[Path]:
    """Take away the checkpoints without a seal; returns which."""
    torn = [each for each in _all(folder) if not (each / SEAL).is_file()]
    for each in torn:
        shutil.rmtree(each)
    return torn


def newest(folder: Path) -> Path | None:
    """The last sealed checkpoint; None where there is none. Its files are not read."""
    sealed = [each for each in _all(folder) if (each / SEAL).is_file()]
    return sealed[-1] if sealed else None


def check(checkpoint: Path) -> None:
    """Hold a sealed checkpoint to its seal; reads every byte.

    Raises:
        ColligateError: a file is missing or other than it was; it names the file.
    """
    earlier = [e for e in _all(checkpoint.parent) if step_of(e) < step_of(checkpoint)]
    after = f"from {earlier[-1].name}" if earlier else "from the start"
    mend = f"delete that folder, and the same command goes on {after}"

    def damaged(why: str) -> ColligateError:
        return ColligateError(f"the checkpoint {checkpoint} is damaged", why, mend)

    try:
        said = json.loads((checkpoint / SEAL).read_text("utf-8"))
        wanted = {str(name): (int(f["bytes"]), str(f["sha256"])) for name, f in said.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(f"its {SEAL} cannot be read") from error
    for name, (size, content) in wanted.items():
        file = checkpoint / name
        try:
            if file.stat().st_size != size:
                raise damaged(f"{name} has {file.stat().st_size:,} bytes and had {size:,}")
            if digest(file) != content:
                raise damaged(f"{name} is not what was written")
        except OSError as error:
            raise damaged(f"{name} cannot be read ({error.strerror or error})") from error


def _all(folder: Path) -> list[Path]:
    """The checkpoints of a folder by their steps, whole or not."""
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.is_dir() and _NAME.fullmatch(each.name))
    return sorted(found, key=step_of)
