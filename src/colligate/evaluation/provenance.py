"""What a run was made with: `run.json` in its folder, so that its numbers can be made again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from colligate.errors import ColligateError, MissingPath
from colligate.evaluation.suites import Suite, parse_suite

FILE = "run.json"


@dataclass(frozen=True)
class ModelRecord:
    """A model that took part: its name, and what tells its weights apart from others.

    `digest` is the SHA-256 of weights in a file, or the commit of those fetched from a hub; where
    a server holds them it is empty and `said` is what the server says of itself.
    """

    name: str
    digest: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One time that the command ran: began and ended in UTC, where, and from which commit.

    `ended` is empty where it was killed, or goes on. `arguments` are the command's.
    """

    began: str
    ended: str = ""
    commit: str = ""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """What a run was made with.

    All but `sessions`, `limit`, `datasets` and `strategies` is the same for every row: a run goes
    on only with the same. `datasets` and `strategies` are names of the suite's that were asked so
    far. `models` are by role, and "embedder" and "reranker" where they took part. `prompts` are
    SHA-256 digests of the source that writes prompts, by module. `data` are those of the files of
    questions and passages, by name. `versions` are Python's and the packages'. `limit` is how many
    questions of each data set are asked; None, as many as the suite says.
    """

    suite: str
    suite_text: str
    seed: int
    models: Mapping[str, ModelRecord]
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    limit: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()

    @property
    def began(self) -> str:
        """When the first row was begun, in UTC."""
        return self.sessions[0].began if self.sessions else ""

    def parsed_suite(self) -> Suite:
        """The suite as it was when the run began."""
        return parse_suite(self.suite_text, self.suite, FILE)

    def to_json(self) -> dict[str, Any]:
        """What the file holds."""
        return asdict(self)

    @classmethod
    def from_json(cls, whole: Mapping[str, Any]) -> Provenance:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError: it is none.
        """
        models = {role: ModelRecord(**record) for role, record in whole["models"].items()}
        sessions = tuple(Session(**session) for session in whole["sessions"])
        names = {name: tuple(whole[name]) for name in ("datasets", "strategies")}
        return cls(**{**whole, **names, "models": models, "sessions": sessions})


def read_provenance(directory: Path) -> Provenance:
    """What the run in a folder was made with.

    Raises:
        MissingPath: there is no run there.
        ColligateError: its `run.json` cannot be read.
    """
    file = directory / FILE
    try:
        return Provenance.from_json(json.loads(file.read_text("utf-8")))
    except FileNotFoundError as error:
        mend = "colligate bench run --out makes one"
        raise MissingPath(f"{directory} is no run", f"it has no {FILE}", mend) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ColligateError(f"{file} cannot be read", why, "name another --out") from error


def write_provenance(directory: Path, provenance: Provenance) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    fresh = directory / f"{FILE}.new"
    with fresh.open("w", encoding="utf-8") as lines:
        json.dump(provenance.to_json(), lines, ensure_ascii=False, indent=1)
        lines.flush()
        os.fsync(lines.fileno())
    fresh.replace(directory / FILE)
