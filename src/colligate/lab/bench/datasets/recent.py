"""Data sets published since 2024, each read as published (docs/datasets.md).

Of those published as Parquet alone, the records are read from JSON Lines with the same fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    JsonObject,
    NullableText,
    QuestionIds,
    QuestionRecord,
    RecordModel,
    format_of,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    parse_records,
    unique,
    validate,
)
from colligate.lab.bench.question import Question, QuestionTask


class _Fact(RecordModel):
    url: str
    fact: NullableText = ""


class _MultiHop(QuestionRecord):
    """MultiHop-RAG: questions over news articles, whose ids are their addresses."""

    query: str
    answer: str
    question_type: str
    evidence_list: list[_Fact]

    def make(self) -> Question:
        answerable = self.question_type != "null_query"
        return Question(
            "",
            self.query,
            answers=unique([self.answer]) if answerable else (),
            gold=unique(each.url for each in self.evidence_list),
            gold_texts=tuple((each.url, each.fact) for each in self.evidence_list if each.fact),
            answerable=answerable,
            meta={**self.rest, "question_type": self.question_type},
        )


def _parse_list(value: Any) -> Any:
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"it is not a list ({error})") from None


class _Frames(QuestionRecord):
    """FRAMES: over two to fifteen articles of Wikipedia; in its table these are a Python list."""

    prompt: str = Field(validation_alias=AliasChoices("Prompt", "prompt"))
    answer: str = Field(validation_alias=AliasChoices("Answer", "answer"))
    links: Annotated[list[str], BeforeValidator(_parse_list)] = Field(alias="wiki_links")

    def make(self) -> Question:
        answers, gold = unique([self.answer]), unique(self.links)
        return Question("", self.prompt, answers, gold=gold, meta=self.rest)


def _fits_frames(record: JsonObject) -> bool:
    return {"prompt", "answer", "wiki_links"} <= set(map(str.lower, record))


class _LongBench(QuestionRecord):
    """LongBench v2: one of four choices, after one long text."""

    id: str = Field(alias="_id")
    question: str
    choice_A: str
    choice_B: str
    choice_C: str
    choice_D: str
    answer: Literal["A", "B", "C", "D"]
    context: str

    def make(self) -> Question:
        """Return the question with its choices: a letter alone, "a", is an article."""
        choices = {letter: getattr(self, f"choice_{letter}") for letter in "ABCD"}
        listed = "\n".join(f"({letter}) {words}" for letter, words in choices.items())
        words = choices[self.answer]
        documents = make_candidates([("", "", self.context)])
        return Question(
            self.id,
            f"{self.question}\n{listed}\nGive the letter and the words of the right choice.",
            answers=unique([f"({self.answer}) {words}", words]),
            documents=documents,
            gold=(documents[0].id,),
            meta={**self.rest, "choice": self.answer},
        )


class _Bright(QuestionRecord):
    """BRIGHT: retrieval that takes reasoning; `excluded_ids` do not count as retrieved."""

    id: str
    query: str
    gold_ids: list[str]
    excluded_ids: list[str] = Field(default_factory=list)

    def make(self) -> Question:
        meta = {**self.rest, "excluded_ids": self.excluded_ids}
        return Question(self.id, self.query, gold=unique(self.gold_ids), meta=meta)


class _Turn(RecordModel):
    speaker: str
    text: str


class _Context(RecordModel):
    document_id: str
    title: NullableText = ""
    text: str


class _MtRag(QuestionRecord):
    """MTRAG and MTRAG-UN: the last question of a conversation, with passages that answer it."""

    task_id: str
    contexts: list[_Context]
    input: Annotated[list[_Turn], Field(min_length=1)]
    targets: list[_Turn]
    answerability: list[str] = Field(default_factory=list)

    def make(self) -> Question:
        answerable = "UNANSWERABLE" not in self.answerability
        documents = make_candidates((e.document_id, e.title, e.text) for e in self.contexts)
        return Question(
            self.task_id,
            self.input[-1].text,
            answers=unique(each.text for each in self.targets) if answerable else (),
            documents=documents,
            gold=tuple(document.id for document in documents),
            task=QuestionTask.JUDGED,
            answerable=answerable,
            history=tuple(
                (asked.text, replied.text if replied.speaker != "user" else "")
                for asked, replied in pairwise(self.input)
                if asked.speaker == "user"
            ),
            meta={**self.rest, "answerability": self.answerability},
        )


class _T2(QuestionRecord):
    """T2-RAGBench: numbers from a page of a report with its tables."""

    id: str
    context_id: NullableText = ""
    question: NullableText
    program_answer: NullableText
    original_answer: NullableText = ""
    file_name: NullableText = ""
    context: str

    def make(self) -> Question:
        documents = make_candidates([(self.context_id, self.file_name, self.context)])
        return Question(
            self.id,
            self.question,
            answers=unique([self.program_answer, self.original_answer]),
            documents=documents,
            gold=(documents[0].id,),
            meta={**self.rest, "file_name": self.file_name},
        )


def _read_t2(path: Path) -> Iterator[Question]:
    """Yield the questions; a few records of ConvFinQA are published without one."""
    ids = QuestionIds()

    def parse(record: JsonObject) -> Question | None:
        question = _T2.make(validate(_T2, record))
        return ids.assign(question) if question.text.strip() else None

    return filter(None, parse_records(path, parse))


class _RagBench(QuestionRecord):
    """RAGBench: relevant sentences are marked; a model's answers are right if they adhere."""

    id: str
    question: str
    documents: list[str]
    response: str
    generation_model_name: NullableText = ""
    documents_sentences: list[list[tuple[str, str]]]
    all_relevant_sentence_keys: list[str]
    adherence_score: bool | None = None

    def make(self) -> Question:
        """Return the question; the same one comes once for each model that answered it."""
        texts = [text for text in self.documents if text.strip()]
        gold_texts = tuple(
            (make_id("", text), sentence)
            for text, sentences in zip(self.documents, self.documents_sentences, strict=True)
            for key, sentence in sentences
            if key in self.all_relevant_sentence_keys
        )
        return Question(
            f"{self.id}_{self.generation_model_name}".removesuffix("_"),
            self.question,
            answers=unique([self.response]) if self.adherence_score else (),
            documents=make_candidates(("", "", text) for text in texts),
            gold=unique(id_ for id_, _ in gold_texts),
            gold_texts=gold_texts,
            task=QuestionTask.JUDGED,
            meta={**self.rest, "response": self.response, "adherence_score": self.adherence_score},
        )


class _Refusal(QuestionRecord):
    """RefusalBench-NQ: questions or passages changed so that most should be refused."""

    id: str
    perturbed_query: str
    perturbed_context: str
    original_answers: list[str]
    expected_rag_behavior: str

    def make(self) -> Question:
        answerable = not self.expected_rag_behavior.startswith("REFUSE")
        documents = make_candidates([("", "", self.perturbed_context)])
        return Question(
            self.id,
            self.perturbed_query,
            answers=unique(self.original_answers) if answerable else (),
            documents=documents,
            gold=(documents[0].id,) if answerable else (),
            answerable=answerable,
            meta={**self.rest, "expected_rag_behavior": self.expected_rag_behavior},
        )


class _GraphRag(QuestionRecord):
    """GraphRAG-Bench: questions over a novel or a guideline, whose text is in its corpus file."""

    id: str
    source: str
    question: str
    answer: str
    question_type: str

    def make(self) -> Question:
        """Return the question; two novels may have questions of one id."""
        return Question(
            f"{self.source}:{self.id}",
            self.question,
            answers=unique([self.answer]),
            documents=make_candidates([(self.source, self.source, "")]),
            gold=(self.source,),
            task=QuestionTask.JUDGED,
            meta={**self.rest, "question_type": self.question_type},
        )


_FRAMES = make_format("frames", _Frames, _Frames.make, _fits_frames)

RECENT = (
    format_of("multihop-rag", _MultiHop, "query evidence_list"),
    _FRAMES,
    format_of("longbench-v2", _LongBench, "choice_A context"),
    format_of("bright", _Bright, "query gold_ids"),
    format_of("mtrag", _MtRag, "task_id targets contexts"),
    DatasetFormat("t2-ragbench", _read_t2, has_fields("context_id", "program_answer")),
    format_of("ragbench", _RagBench, "documents_sentences"),
    format_of("refusalbench", _Refusal, "perturbed_query"),
    format_of("graphrag-bench", _GraphRag, "source question question_type"),
)
