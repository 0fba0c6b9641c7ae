"""What tests of curation share: documents, files of records, samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, read_samples
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
