"""2WikiMultihopQA: questions over two or four Wikipedia paragraphs, among distractors.

Read as published: `train.json` and `dev.json`, with other names of the answers from
`id_aliases.json` where that file lies beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from colligate.bench.datasets.hotpotqa import FactRecord, make_fact_question
from colligate.bench.datasets.records import (
    DatasetFormat,
    NullableText,
    RecordModel,
    has_fields,
    parse_questions,
    parse_records,
    validate,
)
from colligate.bench.question import Question

_ALIASES = "id_aliases.json"


class _Answered(RecordModel):
    answer_id: NullableText = ""  # of Wikidata


class _Record(FactRecord, _Answered):
    pass


class _Names(RecordModel):
    id: str = Field(alias="Q_id")
    aliases: tuple[str, ...] = ()
    demonyms: tuple[str, ...] = ()


def _read(path: Path) -> Iterator[Question]:
    names: Mapping[str, Sequence[str]] = {}
    if (beside := path.parent / _ALIASES).is_file():
        wanted = set(parse_records(path, lambda record: validate(_Answered, record).answer_id))
        names = _read_aliases(beside, wanted)

    def make(record: _Record) -> Question:
        return make_fact_question(record, names.get(record.answer_id, ()))

    return parse_questions(path, _Record, make)


def _read_aliases(path: Path, wanted: Collection[str]) -> dict[str, Sequence[str]]:
    """Return other names by Wikidata id, with demonyms, as the official evaluation takes them."""
    entries = parse_records(path, lambda record: validate(_Names, record))
    return {e.id: (*e.aliases, *e.demonyms) for e in entries if e.id in wanted}


TWO_WIKI = DatasetFormat(
    "2wikimultihopqa",
    "2WikiMultihopQA",
    _read,
    has_fields("context", "supporting_facts", "evidences"),
)
