"""2WikiMultihopQA: questions over two or four Wikipedia paragraphs, among distractors.

Read as published: `train.json` and `dev.json`, with other names of the answers from
`id_aliases.json` where that lies beside the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from colligate.bench.datasets.hotpotqa import FactRecord, fact_question
from colligate.bench.datasets.reading import Shape, Text, parsed, read_each, understood
from colligate.bench.question import Question

_ALIASES = "id_aliases.json"


class _Record(FactRecord):
    answer_id: Text = ""  # of Wikidata


class _Named(Shape):
    answer_id: Text = ""


class _Names(Shape):
    id: str = Field(alias="Q_id")
    aliases: tuple[str, ...] = ()
    demonyms: tuple[str, ...] = ()


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    names: Mapping[str, Sequence[str]] = {}
    if (beside := path.parent / _ALIASES).is_file():
        wanted = set(read_each(path, lambda record: understood(_Named, record).answer_id))
        names = _aliases(beside, wanted)

    def question(record: _Record) -> Question:
        return fact_question(record, names.get(record.answer_id, ()))

    yield from parsed(path, _Record, question)


def _aliases(path: Path, wanted: Collection[str]) -> dict[str, Sequence[str]]:
    """Other names by Wikidata id, demonyms among them, as the official evaluation takes them."""
    entries = read_each(path, lambda record: understood(_Names, record))
    return {e.id: (*e.aliases, *e.demonyms) for e in entries if e.id in wanted}
