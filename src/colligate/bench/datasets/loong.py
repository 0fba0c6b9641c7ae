"""Loong: questions over several long documents, all of which matter.

Read as published in github.com/MozerWang/Loong: `data/loong.jsonl`, its documents in the folder
`doc` beside it, `TYPE/NAME`. The judgments of type "legal" lie in one JSON file there and are not
looked up.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.bench.datasets.reading import Shape, Text, candidates, parsed
from colligate.bench.question import Question, Task

_DOCUMENTS = "doc"
_PLACE_OF_DOCUMENTS = re.compile(r"(?:^#[^\n]*:[ \t]*\n)?\{docs\}", re.M)


class _Record(Shape):
    id: str
    type: str
    level: int
    question: Text
    instruction: Text
    prompt_template: str
    doc: list[str]
    answer: Any


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file, asked in the words of their prompts.

    `meta` has what the judges want: `question_field`, `instruction`, `prompt_template`, `answer`.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    folder = path.parent / _DOCUMENTS
    return parsed(path, _Record, lambda record: _question(record, folder))


def wording(template: str, instruction: str, question: str) -> str:
    """What is asked: the prompt without the documents and the heading that announces them."""
    text = _PLACE_OF_DOCUMENTS.sub("", template)
    return text.replace("{question}", question).replace("{instruction}", instruction).strip()


def _question(record: _Record, folder: Path) -> Question:
    answer = record.answer
    names = [_name(record, name, folder) for name in record.doc]
    fields = {"question_field": record.question, "instruction": record.instruction}
    fields |= {"prompt_template": record.prompt_template, "type": record.type}
    return Question(
        record.id,
        wording(record.prompt_template, record.instruction, record.question),
        answers=(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False),),
        documents=candidates((name, "", "") for name in names),
        task=Task.JUDGED,
        meta={**record.rest, **fields, "level": record.level, "answer": answer},
    )


def _name(record: _Record, name: str, folder: Path) -> str:
    """The path of a document below the folder, the name alone if it is not there.

    A report is named by a part of its file's name; of several the first in order is taken.
    """
    below = folder / record.type
    if record.type == "financial":
        year = "" if record.level == 4 else "2024-"
        found = sorted(below.glob(f"*{year}{glob.escape(name)}*.txt"))
    else:
        found = [below / name] if (below / name).is_file() else []
    return f"{record.type}/{found[0].name if found else name}"
