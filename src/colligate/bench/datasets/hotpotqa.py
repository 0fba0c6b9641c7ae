"""HotpotQA: questions over two Wikipedia paragraphs, among distractors.

Read as published: `hotpot_train_v1.1.json`, `hotpot_dev_distractor_v1.json` and
`hotpot_dev_fullwiki_v1.json`; also JSON Lines of the Hugging Face copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from colligate.bench.datasets.reading import Shape, candidates, distinct, made_id, parsed
from colligate.bench.question import Question

# Paragraphs as lists of sentences, and which of those a question needs (HotpotQA, 2Wiki).


def _in_pairs(value: Any) -> Any:
    """Pairs, also of two columns: the Hugging Face copies have {"title": [...], ...: [...]}."""
    if not isinstance(value, dict) or not all(isinstance(each, list) for each in value.values()):
        return value
    titles = value.get("title", ())
    return list(zip(titles, *(value[name] for name in value if name != "title"), strict=True))


class FactRecord(Shape):
    """The fields that both data sets share."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    context: Annotated[list[tuple[str, list[str]]], BeforeValidator(_in_pairs)]
    supporting_facts: Annotated[list[tuple[str, int]], BeforeValidator(_in_pairs)]


def _joined(sentences: Sequence[str]) -> str:
    """The paragraph of sentences; HotpotQA's bring the blank before them along, 2Wiki's do not."""
    text = ""
    for sentence in sentences:
        apart = not text or text[-1].isspace() or sentence[:1].isspace()
        text += sentence if apart else f" {sentence}"
    return text


def fact_question(record: FactRecord, aliases: Sequence[str] = ()) -> Question:
    """The question of a record.

    A fact that names no sentence of its paragraph, as some do, still makes that paragraph gold;
    so does one whose paragraph is not there, as where HotpotQA's were retrieved (fullwiki).
    """
    paragraphs = [(title, _joined(sentences)) for title, sentences in record.context]
    documents = candidates(("", title, text) for title, text in paragraphs)
    ids = {document.title: document.id for document in reversed(documents)}
    sentences = dict(reversed(record.context))
    facts = record.supporting_facts
    return Question(
        id=record.id,
        text=record.question,
        answers=distinct([record.answer, *aliases]),
        documents=documents,
        gold=distinct(ids.get(title) or made_id(title, "") for title, _ in facts),
        gold_texts=tuple(
            (ids[title], sentences[title][number].strip())
            for title, number in facts
            if title in ids and 0 <= number < len(sentences[title])
        ),
        meta={**record.rest, "supporting_facts": [list(fact) for fact in facts]},
    )


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, FactRecord, fact_question)
