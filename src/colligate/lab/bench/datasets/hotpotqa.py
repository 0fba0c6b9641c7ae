"""HotpotQA and 2WikiMultihopQA: questions over two or four Wikipedia paragraphs, among others.

Read as published: `hotpot_train_v1.1.json`, `hotpot_dev_distractor_v1.json` and
`hotpot_dev_fullwiki_v1.json`, also JSON Lines of the Hugging Face copy; 2Wiki's `train.json` and
`dev.json`, with other names of the answers from `id_aliases.json` where that file is beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    parse_questions,
    parse_records,
    unique,
    validate,
)
from colligate.lab.bench.question import Question


def _zip_columns(value: Any) -> Any:
    """Return pairs; the Hugging Face copies have columns, {"title": [...], ...: [...]}."""
    if not isinstance(value, dict) or not all(isinstance(each, list) for each in value.values()):
        return value
    titles = value.get("title", ())
    return list(zip(titles, *(value[name] for name in value if name != "title"), strict=True))


class FactRecord(RecordModel):
    """The fields that HotpotQA and 2WikiMultihopQA share."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    context: Annotated[list[tuple[str, list[str]]], BeforeValidator(_zip_columns)]
    supporting_facts: Annotated[list[tuple[str, int]], BeforeValidator(_zip_columns)]


def make_fact_question(record: FactRecord, aliases: Sequence[str] = ()) -> Question:
    """Return the question of a record; `aliases` are other names of its answer.

    A fact that names no sentence of its paragraph, as some do, still makes that paragraph gold; so
    does a fact whose paragraph is missing, as in `fullwiki`, whose paragraphs were retrieved.
    """
    paragraphs = [(title, _join(sentences)) for title, sentences in record.context]
    documents = make_candidates(("", title, text) for title, text in paragraphs)
    ids = {document.title: document.id for document in reversed(documents)}
    sentences = dict(reversed(record.context))
    facts = record.supporting_facts
    return Question(
        id=record.id,
        text=record.question,
        answers=unique([record.answer, *aliases]),
        documents=documents,
        gold=unique(ids.get(title) or make_id(title, "") for title, _ in facts),
        gold_texts=tuple(
            (ids[title], sentences[title][number].strip())
            for title, number in facts
            if title in ids and 0 <= number < len(sentences[title])
        ),
        meta={**record.rest, "supporting_facts": [list(fact) for fact in facts]},
    )


def _join(sentences: Sequence[str]) -> str:
    """Return the paragraph of sentences; HotpotQA's begin with their blank, 2Wiki's do not."""
    text = ""
    for sentence in sentences:
        apart = not text or text[-1].isspace() or sentence[:1].isspace()
        text += sentence if apart else f" {sentence}"
    return text


HOTPOTQA = make_format(
    "hotpotqa",
    "HotpotQA",
    FactRecord,
    make_fact_question,
    has_fields("context", "supporting_facts"),
)


# 2WikiMultihopQA

_ALIASES = "id_aliases.json"


class _Answered(RecordModel):
    answer_id: NullableText = ""  # of Wikidata


class _TwoWikiRecord(FactRecord, _Answered):
    pass


class _Names(RecordModel):
    id: str = Field(alias="Q_id")
    aliases: tuple[str, ...] = ()
    demonyms: tuple[str, ...] = ()


def _read_two_wiki(path: Path) -> Iterator[Question]:
    names: Mapping[str, Sequence[str]] = {}
    if (beside := path.parent / _ALIASES).is_file():
        wanted = set(parse_records(path, lambda record: validate(_Answered, record).answer_id))
        names = _read_aliases(beside, wanted)

    def make(record: _TwoWikiRecord) -> Question:
        return make_fact_question(record, names.get(record.answer_id, ()))

    return parse_questions(path, _TwoWikiRecord, make)


def _read_aliases(path: Path, wanted: Collection[str]) -> dict[str, Sequence[str]]:
    """Return other names by Wikidata id, with demonyms, as the official evaluation takes them."""
    entries = parse_records(path, lambda record: validate(_Names, record))
    return {e.id: (*e.aliases, *e.demonyms) for e in entries if e.id in wanted}


TWO_WIKI = DatasetFormat(
    "2wikimultihopqa",
    "2WikiMultihopQA",
    _read_two_wiki,
    has_fields("context", "supporting_facts", "evidences"),
)
