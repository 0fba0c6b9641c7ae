"""Data sets published since 2024, each read as published (docs/datasets.md).

Of those published as Parquet alone, the records are read from JSON Lines with the same fields.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    JsonObject,
    NullableText,
    QuestionIds,
    RecordModel,
    format_of,
    has_fields,
    make_candidates,
    make_id,
    parse_questions,
    parse_records,
    record_error,
    unique,
    validate,
)
from colligate.lab.bench.question import Question, QuestionTask

# MultiHop-RAG: questions over news articles, whose ids are their addresses.


class _Fact(RecordModel):
    url: str
    fact: NullableText = ""


class _MultiHop(RecordModel):
    query: str
    answer: str
    question_type: str
    evidence_list: list[_Fact]


def _multihop_question(record: _MultiHop) -> Question:
    answerable = record.question_type != "null_query"
    return Question(
        "",
        record.query,
        answers=unique([record.answer]) if answerable else (),
        gold=unique(each.url for each in record.evidence_list),
        gold_texts=tuple((each.url, each.fact) for each in record.evidence_list if each.fact),
        answerable=answerable,
        meta={**record.rest, "question_type": record.question_type},
    )


# FRAMES: questions over two to fifteen articles of Wikipedia, named by their addresses; a table
# between tabs, in which they are a Python list.


def _parse_list(value: Any) -> Any:
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is not a list ({error})") from None


class _Frames(RecordModel):
    prompt: str = Field(alias="Prompt")
    answer: str = Field(alias="Answer")
    links: Annotated[list[str], BeforeValidator(_parse_list)] = Field(alias="wiki_links")


def _frames_question(record: _Frames) -> Question:
    answers, gold = unique([record.answer]), unique(record.links)
    return Question("", record.prompt, answers, gold=gold, meta=record.rest)


def _read_frames(path: Path) -> Iterator[Question]:
    if not is_frames_table(path):
        yield from parse_questions(path, _Frames, _frames_question)
        return
    ids = QuestionIds()
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", restkey="more", restval="")
        try:
            for row in rows:
                yield ids.assign(_frames_question(validate(_Frames, row)))
        except (ValueError, csv.Error) as error:
            raise record_error(path, f"line {rows.line_num}", str(error)) from None


def is_frames_table(path: Path) -> bool:
    """Tell whether a file is the table in which FRAMES is published."""
    if path.suffix.lower() != ".tsv" or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as stream:
        return FRAMES.fits(dict.fromkeys(stream.readline().strip().split("\t")))


# LongBench v2: one of four choices, after one long text.


class _LongBench(RecordModel):
    id: str = Field(alias="_id")
    question: str
    choice_A: str
    choice_B: str
    choice_C: str
    choice_D: str
    answer: Literal["A", "B", "C", "D"]
    context: str


def _longbench_question(record: _LongBench) -> Question:
    """Return the question with its choices.

    A letter alone is no answer that words can be compared with: "a" is an article.
    """
    choices = {letter: getattr(record, f"choice_{letter}") for letter in "ABCD"}
    listed = "\n".join(f"({letter}) {words}" for letter, words in choices.items())
    words = choices[record.answer]
    documents = make_candidates([("", "", record.context)])
    return Question(
        record.id,
        f"{record.question}\n{listed}\nGive the letter and the words of the right choice.",
        answers=unique([f"({record.answer}) {words}", words]),
        documents=documents,
        gold=(documents[0].id,),
        meta={**record.rest, "choice": record.answer},
    )


# BRIGHT: retrieval that takes reasoning. What `excluded_ids` names does not count as retrieved.


class _Bright(RecordModel):
    id: str
    query: str
    gold_ids: list[str]
    excluded_ids: list[str] = Field(default_factory=list)


def _bright_question(record: _Bright) -> Question:
    meta = {**record.rest, "excluded_ids": record.excluded_ids}
    return Question(record.id, record.query, gold=unique(record.gold_ids), meta=meta)


# MTRAG and MTRAG-UN: the last question of a conversation, with the passages that answer it.


class _Turn(RecordModel):
    speaker: str
    text: str


class _Context(RecordModel):
    document_id: str
    title: NullableText = ""
    text: str


class _MtRag(RecordModel):
    task_id: str
    contexts: list[_Context]
    input: Annotated[list[_Turn], Field(min_length=1)]
    targets: list[_Turn]
    answerability: list[str] = Field(default_factory=list)


def _mtrag_question(record: _MtRag) -> Question:
    answerable = "UNANSWERABLE" not in record.answerability
    documents = make_candidates((e.document_id, e.title, e.text) for e in record.contexts)
    return Question(
        record.task_id,
        record.input[-1].text,
        answers=unique(each.text for each in record.targets) if answerable else (),
        documents=documents,
        gold=tuple(document.id for document in documents),
        task=QuestionTask.JUDGED,
        answerable=answerable,
        history=tuple(
            (asked.text, replied.text if replied.speaker != "user" else "")
            for asked, replied in pairwise(record.input)
            if asked.speaker == "user"
        ),
        meta={**record.rest, "answerability": record.answerability},
    )


# T2-RAGBench: numbers from a page of a report with its tables.


class _T2(RecordModel):
    id: str
    context_id: NullableText = ""
    question: NullableText
    program_answer: NullableText
    original_answer: NullableText = ""
    file_name: NullableText = ""
    context: str


def _t2_question(record: _T2) -> Question:
    documents = make_candidates([(record.context_id, record.file_name, record.context)])
    return Question(
        record.id,
        record.question,
        answers=unique([record.program_answer, record.original_answer]),
        documents=documents,
        gold=(documents[0].id,),
        meta={**record.rest, "file_name": record.file_name},
    )


def _read_t2(path: Path) -> Iterator[Question]:
    """Yield the questions; a few records of ConvFinQA are published without one."""
    ids = QuestionIds()

    def parse(record: JsonObject) -> Question | None:
        question = _t2_question(validate(_T2, record))
        return ids.assign(question) if question.text.strip() else None

    return filter(None, parse_records(path, parse))


# RAGBench: passages whose relevant sentences are marked. The answers are a model's: those marked
# as adherent to the passages count as right, others are no gold.


class _RagBench(RecordModel):
    id: str
    question: str
    documents: list[str]
    response: str
    generation_model_name: NullableText = ""
    documents_sentences: list[list[tuple[str, str]]]
    all_relevant_sentence_keys: list[str]
    adherence_score: bool | None = None


def _ragbench_question(record: _RagBench) -> Question:
    """Return the question; the same one comes once for each model that answered it."""
    texts = [text for text in record.documents if text.strip()]
    gold_texts = tuple(
        (make_id("", text), sentence)
        for text, sentences in zip(record.documents, record.documents_sentences, strict=True)
        for key, sentence in sentences
        if key in record.all_relevant_sentence_keys
    )
    return Question(
        f"{record.id}_{record.generation_model_name}".removesuffix("_"),
        record.question,
        answers=unique([record.response]) if record.adherence_score else (),
        documents=make_candidates(("", "", text) for text in texts),
        gold=unique(id_ for id_, _ in gold_texts),
        gold_texts=gold_texts,
        task=QuestionTask.JUDGED,
        meta={
            **record.rest,
            "response": record.response,
            "adherence_score": record.adherence_score,
        },
    )


# RefusalBench-NQ: questions or passages changed so that most should be refused.


class _Refusal(RecordModel):
    id: str
    perturbed_query: str
    perturbed_context: str
    original_answers: list[str]
    expected_rag_behavior: str


def _refusal_question(record: _Refusal) -> Question:
    answerable = not record.expected_rag_behavior.startswith("REFUSE")
    documents = make_candidates([("", "", record.perturbed_context)])
    return Question(
        record.id,
        record.perturbed_query,
        answers=unique(record.original_answers) if answerable else (),
        documents=documents,
        gold=(documents[0].id,) if answerable else (),
        answerable=answerable,
        meta={**record.rest, "expected_rag_behavior": record.expected_rag_behavior},
    )


# GraphRAG-Bench: facts, reasoning, summaries and retellings over a novel or a guideline, whose
# text is in its corpus file.


class _GraphRag(RecordModel):
    id: str
    source: str
    question: str
    answer: str
    question_type: str


def _graphrag_question(record: _GraphRag) -> Question:
    """Return the question; two novels may have questions of one id."""
    return Question(
        f"{record.source}:{record.id}",
        record.question,
        answers=unique([record.answer]),
        documents=make_candidates([(record.source, record.source, "")]),
        gold=(record.source,),
        task=QuestionTask.JUDGED,
        meta={**record.rest, "question_type": record.question_type},
    )


FRAMES = DatasetFormat("frames", _read_frames, has_fields("Prompt", "Answer", "wiki_links"))

RECENT = (
    format_of("multihop-rag", _MultiHop, _multihop_question, "query evidence_list"),
    FRAMES,
    format_of("longbench-v2", _LongBench, _longbench_question, "choice_A context"),
    format_of("bright", _Bright, _bright_question, "query gold_ids"),
    format_of("mtrag", _MtRag, _mtrag_question, "task_id targets contexts"),
    DatasetFormat("t2-ragbench", _read_t2, has_fields("context_id", "program_answer")),
    format_of("ragbench", _RagBench, _ragbench_question, "documents_sentences"),
    format_of("refusalbench", _Refusal, _refusal_question, "perturbed_query"),
    format_of("graphrag-bench", _GraphRag, _graphrag_question, "source question question_type"),
)
