"""What several baselines share: documents that are read, the best of what is scored, replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from colligate.core.answer import Form
from colligate.core.fit import fit_budget
from colligate.core.parameters import require_min
from colligate.core.run import Run, Shown, show_ranked
from colligate.core.strategy import Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Hit, Passage
from colligate.errors import WeightsUnavailable
from colligate.library.sources import SearchMode
from colligate.readers.lookup import Lookup


@dataclass(frozen=True)
class DocumentMethod:
    """A method that shortens or filters the documents in view, or the passages of a search.

    Attributes:
        documents: documents (or passages, by `units`) that are read, best first
        pool: passages that a search gives to the reranker, if there is one
    """

    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    documents: int = 20  # N of DuQUAD's Natural Questions
    units: Units = "auto"
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, documents=1, pool=1)

    async def choose(self, question: str, run: Run) -> list[Passage]:
        """Return what is read, without blank texts."""
        _, found = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        return [passage for passage in found if passage.text.strip()]


@dataclass(frozen=True)
class LookupMethod:
    """A method that looks things up by searches of its own.

    Attributes:
        k: passages of each search
        pool: passages that a search gives to the reranker, if there is one
    """

    needs: ClassVar[Needs] = Needs()
    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    k: int = 10
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, k=1, pool=1)

    def look_up(self, run: Run) -> Lookup:
        """Return what searches in a run and keeps what was found."""
        return Lookup(run, self.k, self.pool, self.mode)


async def show_best(
    passages: Sequence[Passage],
    scores: Sequence[float],
    run: Run,
    *,
    by: str,
    most: int | None = None,
    budget: int | None = None,
) -> list[Shown]:
    """Return passages in the order of their scores; of equal ones the earlier comes first.

    They are at most `most`, with at most `budget` tokens of the reader. `by` names the scores.
    """
    order = sorted(range(len(passages)), key=lambda place: -scores[place])[:most]
    ranked = [passages[place] for place in order]
    if budget is not None:
        ranked = await fit_budget(ranked, budget, run)
    hits = [Hit(each, scores[place]) for each, place in zip(ranked, order, strict=False)]
    return show_ranked(hits, f"by {by}")


def require_weights(name: str | None, strategy: str, kind: str, hint: str) -> str:
    """Return the name of trained weights; raise `WeightsUnavailable` if none are named."""
    if name is None:
        raise WeightsUnavailable(f"{strategy} needs a trained {kind}", "none is named", hint)
    return name


def require_all(schema: dict[str, Any]) -> None:
    """Ask for all fields of a reply, also those with a default."""
    schema["required"] = list(schema["properties"])


class StepReply(BaseModel):
    """What a model replies in a step. The order of the fields is the order of decoding."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=require_all)
