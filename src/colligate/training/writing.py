"""From what the journal holds to files of samples, split by question, and their data card."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from colligate.evaluation import machine
from colligate.evaluation.datasets.sampling import HasId
from colligate.evaluation.identity import file_digest
from colligate.evaluation.question import Question
from colligate.training.card import Card, summed, write_card
from colligate.training.curating import read_record
from colligate.training.journal import read_journal
from colligate.training.samples import HELD_OUT, TRAIN, Sample, write_samples

if TYPE_CHECKING:
    from colligate.training.curation import Curation


def written(
    request: Curation, system: str, items: Sequence[HasId], filters: tuple[str, ...]
) -> Card:
    """Write what the journal holds of these items: the samples, split, and the card. Blocks."""
    journal = read_journal(request.out)
    made = {item.id: journal[item.id] for item in items if item.id in journal}
    splits: dict[str, list[Sample]] = {"train": [], "held_out": []}
    asked: dict[str, list[HasId]] = {"train": [], "held_out": []}
    for item in items:
        if item.id in made:
            held_out = is_held_out(told_apart_by(item), request.held_out, request.seed)
            split = "held_out" if held_out else "train"
            splits[split] += made[item.id].samples
            asked[split].append(item)
    files = {TRAIN: splits["train"], HELD_OUT: splits["held_out"]}
    for name, samples in files.items():
        write_samples(request.out / name, samples)
    record = read_record(request.out)
    card = Card(
        system=system,
        items={
            "asked": len(items),
            "done": len(made),
            "failed": sum(bool(each.error) for each in made.values()),
        },
        filters=filters,
        sources=_sources(request),
        made_with=record.identity,
        split={
            "held out": request.held_out,
            "kept apart by": "a question's words, or the document where there is no question",
            "seed": request.seed,
            **_shared_gold(asked["train"], asked["held_out"]),
            **_shared_documents(splits["train"], splits["held_out"]),
        },
        files={name: file_digest(request.out / name) for name in files},
        versions=machine.versions(),
        sessions=tuple(asdict(session) for session in record.sessions),
        **summed(made.values(), splits),
    )
    write_card(request.out, card)
    return card


def is_held_out(what: str, share: float, seed: int) -> bool:
    """Whether a question or document is kept from training: the same at every size of a set."""
    # Not hashed as `sampling.some` does: the first that it draws would all be held out.
    whole = hashlib.sha256(f"held out\n{seed}\n{what}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(whole[:8], "big") < share * 2**64


def told_apart_by(item: HasId) -> str:
    """A question by its words, since data sets have some twice under several ids."""
    return " ".join(item.text.casefold().split()) if isinstance(item, Question) else item.id


def _shared_gold(train: Sequence[HasId], held_out: Sequence[HasId]) -> dict[str, int]:
    """How many questions that are held out have a gold document of one that is not."""
    known = {id_ for each in train if isinstance(each, Question) for id_ in each.gold}
    golds = [set(each.gold) for each in held_out if isinstance(each, Question) and each.gold]
    if not golds:
        return {}
    shared = sum(not known.isdisjoint(gold) for gold in golds)
    return {
        "held-out questions with gold documents": len(golds),
        "of them with one that a training question has too": shared,
    }


def _shared_documents(train: Sequence[Sample], held_out: Sequence[Sample]) -> dict[str, int]:
    """How many samples that are held out show a document which a training sample shows too."""
    shows = [shown for sample in held_out if (shown := _shown_to(sample))]
    if not shows:
        return {}
    known = set(map(_shown_to, train))
    return {
        "held-out samples for a question and a document": len(shows),
        "of them over one that a training sample of the task is over too": sum(
            shown in known for shown in shows
        ),
    }


def _shown_to(sample: Sample) -> tuple[str, str] | None:
    """The task, and the document that a question was asked over, if it was over one."""
    if "question" not in sample.meta or "document" not in sample.meta:
        return None
    return sample.task, str(sample.meta["document"])


def _sources(request: Curation) -> dict[str, str]:
    named = (
        ("questions", request.questions),
        ("library", request.library),
        ("corpus", request.corpus),
    )
    return {what: str(path) for what, path in named if path is not None}
