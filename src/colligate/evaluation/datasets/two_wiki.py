"""2WikiMultihopQA: questions over two or four Wikipedia paragraphs, among distractors.

Read as published: `train.json` and `dev.json`, with other names of the answers from
`id_aliases.json` where that lies beside the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from colligate.evaluation.datasets.jsonl import lines
from colligate.evaluation.datasets.records import Text, parsed
from colligate.evaluation.datasets.supporting_facts import FactRecord, fact_question
from colligate.evaluation.question import Question

_ALIASES = "id_aliases.json"


class _Record(FactRecord):
    answer_id: Text = ""  # of Wikidata


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    names: Mapping[str, list[str]] = {}
    if (beside := path.parent / _ALIASES).is_file():
        wanted = {record["answer_id"] for _, record in lines(path) if record.get("answer_id")}
        names = _aliases(beside, wanted)

    def question(record: _Record) -> Question:
        return fact_question(record, names.get(record.answer_id, ()))

    yield from parsed(path, _Record, question)


def _aliases(path: Path, wanted: Collection[str]) -> dict[str, list[str]]:
    """Other names by Wikidata id, demonyms among them, as the official evaluation takes them."""
    return {
        record["Q_id"]: [*record.get("aliases", ()), *record.get("demonyms", ())]
        for _, record in lines(path)
        if record.get("Q_id") in wanted
    }
