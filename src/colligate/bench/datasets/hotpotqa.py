"""HotpotQA: questions over two Wikipedia paragraphs, among distractors.

Read as published: `hotpot_train_v1.1.json`, `hotpot_dev_distractor_v1.json` and
`hotpot_dev_fullwiki_v1.json`; also JSON Lines of the Hugging Face copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from colligate.bench.datasets.records import (
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    unique,
)
from colligate.bench.question import Question


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
