"""What tests of curation share: documents, files of records, samples."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from colligate.lab.bench.participants import ModelNames
from colligate.lab.training.curation import Curation
from colligate.lab.training.samples import HELD_OUT, TRAIN, Card, Sample, read_samples
from colligate.models import Role
from colligate.settings import Settings
from colligate.testing import ScriptedModel
from support.embedders import WordEmbedder
from support.runs import document as document


def write_jsonl(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def write_data(folder: Path, questions: Iterable[str], texts: Mapping[str, str], gold: str) -> Path:
    """Questions in the plain form, each over all documents of a corpus of Markdown."""
    documents = [{"id": name, "title": "", "text": ""} for name in texts]
    write_jsonl(
        folder / "questions.jsonl",
        (
            {
                "id": f"q{n}",
                "question": question,
                "answers": ["2003"],
                "documents": documents,
                "gold_document_ids": [gold],
            }
            for n, question in enumerate(questions)
        ),
    )
    write_jsonl(
        folder / "corpus.jsonl",
        (
            {"id": n, "title": text.splitlines()[0][2:], "text": text, "file": f"{n}.md"}
            for n, text in texts.items()
        ),
    )
    return folder


def every_sample(out: Path, task: str = "") -> list[Sample]:
    tasks = [task] if task else []
    return [sample for name in (TRAIN, HELD_OUT) for sample in read_samples(out / name, tasks)]


def curate(
    kind: Callable[..., Coroutine[Any, Any, Card]],
    data: Path,
    teacher: ScriptedModel | None,
    **more: Any,
) -> Card:
    """The card of a curation over the files of `write_data`, into `out` if no other is named."""
    defaults = {
        "out": data / "out",
        "corpus": data / "corpus.jsonl",
        "questions": data / "questions.jsonl",
        "settings": ("mode=sparse",),
    }
    models = {} if teacher is None else {Role.READER: teacher}
    names = ModelNames(Settings(), models, embedder=WordEmbedder())
    return asyncio.run(kind(Curation(names=names, **{**defaults, **more}), lambda event: None))
