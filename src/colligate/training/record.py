"""What a training was made with, and what came of it: `fit.json` beside the adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from colligate.errors import ColligateError
from colligate.evaluation.machine import versions
from colligate.evaluation.safe_files import write_whole

FILE = "fit.json"

_PACKAGES = ("accelerate", "datasets", "deepspeed", "flash-attn", "trl")


@dataclass
class Fit:
    """A training, from its first session on.

    `made_with` is what a training has to be gone on with: recipe, settings, digests of base and
    data, how it is computed. `base` is the model's name, `recipe` the recipe's file as it was.
    `samples` and `left_out` are by file; what is left out was longer than the cutoff. `sessions`
    are the times it ran.
    """

    made_with: Mapping[str, Any]
    base: str = ""
    recipe: str = ""
    samples: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    step: int = 0
    steps: int = 0
    sessions: list[dict[str, Any]] = field(default_factory=list)


def read_fit(folder: Path) -> Fit | None:
    """The training that a folder holds, if any.

    Raises:
        ColligateError: its `fit.json` cannot be read.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        whole = json.loads(file.read_text("utf-8"))
        known = {each.name for each in fields(Fit)}
        return Fit(**{name: value for name, value in whole.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        mend = "put back what stood there, or begin anew in another folder"
        raise ColligateError(f"{file} cannot be read", why, mend) from error


def write_fit(folder: Path, fit: Fit) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    write_whole(folder / FILE, [json.dumps(asdict(fit), ensure_ascii=False, indent=1)])


def all_versions() -> dict[str, str]:
    """Python's version, and those of the packages that take part."""
    found = versions()
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
