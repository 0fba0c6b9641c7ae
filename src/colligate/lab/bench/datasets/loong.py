"""Loong: questions over several long documents, all of which matter.

Read as published in github.com/MozerWang/Loong: `data/loong.jsonl`, its documents in the folder
`doc` beside it, `TYPE/NAME`. The judgments of type "legal" lie in one JSON file there and are not
looked up. A question is asked in the words of its prompt; `meta` has what the judges want:
`question_field`, `instruction`, `prompt_template`, `answer`.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    parse_questions,
)
from colligate.lab.bench.question import Question, QuestionTask

_DOCUMENTS = "doc"
_PLACE_OF_DOCUMENTS = re.compile(r"(?:^#[^\n]*:[ \t]*\n)?\{docs\}", re.M)


class _Record(RecordModel):
    id: str
    type: str
    level: int
    question: NullableText
    instruction: NullableText
    prompt_template: str
    doc: list[str]
    answer: Any


def _read(path: Path) -> Iterator[Question]:
    folder = path.parent / _DOCUMENTS
    return parse_questions(path, _Record, lambda record: _make_question(record, folder))


def _make_question(record: _Record, folder: Path) -> Question:
    answer = record.answer
    names = [_find_name(record, name, folder) for name in record.doc]
    fields = {"question_field": record.question, "instruction": record.instruction}
    fields |= {"prompt_template": record.prompt_template, "type": record.type}
    return Question(
        record.id,
        make_wording(record.prompt_template, record.instruction, record.question),
        answers=(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False),),
        documents=make_candidates((name, "", "") for name in names),
        task=QuestionTask.JUDGED,
        meta={**record.rest, **fields, "level": record.level, "answer": answer},
    )


def _find_name(record: _Record, name: str, folder: Path) -> str:
    """Return the path of a document below the folder, or its name alone if it is not there.

    A report is named by a part of its file's name; of several the first in order is taken.
    """
    below = folder / record.type
    if record.type == "financial":
        year = "" if record.level == 4 else "2024-"
        found = sorted(below.glob(f"*{year}{glob.escape(name)}*.txt"))
    else:
        found = [below / name] if (below / name).is_file() else []
    return f"{record.type}/{found[0].name if found else name}"


def make_wording(template: str, instruction: str, question: str) -> str:
    """Return what is asked: the prompt without the documents and the heading above them."""
    text = _PLACE_OF_DOCUMENTS.sub("", template)
    return text.replace("{question}", question).replace("{instruction}", instruction).strip()


LOONG = DatasetFormat("loong", "Loong", _read, has_fields("prompt_template", "doc"))
