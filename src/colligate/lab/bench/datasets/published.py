"""The published forms of data sets, each read as published (docs/datasets.md).

A form is a model of its records, and how a record becomes a question.
"""

from __future__ import annotations

import csv
import glob
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from colligate.errors import MissingPath
from colligate.lab.bench.datasets.passages import strip_page
from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    JsonObject,
    NullableText,
    QuestionRecord,
    RecordModel,
    format_of,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    parse_questions,
    parse_records,
    record_error,
    unique,
    validate,
)
from colligate.lab.bench.question import Candidate, Question, QuestionReading, QuestionTask


class _Passage(RecordModel):
    id: NullableText = ""
    title: NullableText = ""
    text: NullableText = ""
    isgold: bool = False


def _candidates(passages: Iterable[_Passage]) -> tuple[Candidate, ...]:
    return make_candidates((each.id, each.title, each.text) for each in passages)


class _ShortAnswers(RecordModel):
    """One reading of an ambiguous question, and its answer with its aliases (ASQA)."""

    question: str
    short_answers: list[str]


def _readings(pairs: Sequence[_ShortAnswers]) -> tuple[QuestionReading, ...]:
    return tuple(QuestionReading(pair.question, unique(pair.short_answers)) for pair in pairs)


class _Gold(RecordModel):
    qa_pairs: list[_ShortAnswers] | None = None
    answer_list: list[list[str]] | None = None
    claims: list[str] | None = None
    long_answers: list[str] | None = None


class _Meta(RecordModel):
    gold_position: int | None = None
    answerable: bool = True
    evidence_text: tuple[str, ...] = ()
    gold_texts: tuple[tuple[str, str], ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    judged: bool = False
    prompt_template: NullableText = ""
    instruction: NullableText = ""
    question_field: NullableText = ""


class _Plain(QuestionRecord):
    """The plain form; `meta` may hold what only some data sets know: `_Gold` and `_Meta`."""

    id: str
    question: str
    answers: list[str]
    documents: tuple[_Passage, ...] = ()
    gold_document_ids: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)

    def make(self) -> Question:
        documents = _candidates(self.documents)
        meta = validate(_Meta, self.meta)
        if meta.gold_position is not None and not 0 <= meta.gold_position < len(documents):
            raise ValueError(f"meta.gold_position {meta.gold_position} is not among its documents")
        there = {document.id for document in documents}
        # Gold may be named by page where whole documents are read (FinanceBench).
        gold = unique(
            strip_page(id_) if id_ not in there and strip_page(id_) in there else id_
            for id_ in self.gold_document_ids
        )
        kept = {**self.rest, **self.meta}
        if gold != unique(self.gold_document_ids):
            kept["gold_pages"] = list(self.gold_document_ids)
        answers = unique(self.answers)
        text = self.question
        if meta.prompt_template:
            text = _make_wording(meta.prompt_template, meta.instruction, meta.question_field)
        texts = meta.evidence_text if len(gold) == 1 else ()
        judged = bool(meta.judged or meta.prompt_template or meta.evidence_text)
        return Question(
            id=self.id,
            text=text,
            answers=answers,
            documents=documents,
            gold=gold,
            gold_texts=meta.gold_texts or tuple((gold[0], evidence) for evidence in texts),
            gold_at=meta.gold_position,
            answerable=meta.answerable,
            history=meta.history,
            meta=kept,
            **_find_task(self.meta, answers, judged=judged),
        )


class _Flashrag(QuestionRecord):
    """FlashRAG's form of NQ, TriviaQA, PopQA and others, whose documents are a corpus's."""

    id: NullableText = ""
    question: str
    golden_answers: list[str]
    metadata: dict[str, Any] | None = None

    def make(self) -> Question:
        answers = unique(self.golden_answers)
        meta = {**self.rest, **(self.metadata or {})}
        fields = _find_task({"qa_pairs": meta.get("qa_pairs")}, answers, judged=False)
        return Question(self.id, self.question, answers, meta=meta, **fields)


def _find_task(meta: Mapping[str, Any], answers: Sequence[str], *, judged: bool) -> dict[str, Any]:
    """Return the task and its gold: which of `qa_pairs`, `answer_list` and `claims` is there."""
    gold = validate(_Gold, dict(meta))
    task = QuestionTask.JUDGED if judged else QuestionTask.SHORT
    if gold.qa_pairs:
        task = QuestionTask.READINGS
    elif gold.answer_list:
        task = QuestionTask.SET
    elif gold.claims:
        task = QuestionTask.LONG
    return {
        "task": task,
        "readings": _readings(gold.qa_pairs or ()),
        "members": tuple(unique(member) for member in gold.answer_list or ()),
        "claims": unique(gold.claims or ()),
        "long_answers": unique(gold.long_answers or (answers if gold.claims else ())),
    }


def _zip_columns(value: Any) -> Any:
    """Return pairs; the Hugging Face copies have columns, {"title": [...], ...: [...]}."""
    if not isinstance(value, dict) or not all(isinstance(each, list) for each in value.values()):
        return value
    titles = value.get("title", ())
    return list(zip(titles, *(value[name] for name in value if name != "title"), strict=True))


class _Facts(QuestionRecord):
    """HotpotQA and 2WikiMultihopQA: two or four paragraphs of Wikipedia, among others."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    answer_id: NullableText = ""  # of Wikidata, in 2Wiki alone
    context: Annotated[list[tuple[str, list[str]]], BeforeValidator(_zip_columns)]
    supporting_facts: Annotated[list[tuple[str, int]], BeforeValidator(_zip_columns)]

    def make(self, aliases: Sequence[str] = ()) -> Question:
        """Return the question; `aliases` are other names of its answer.

        A fact that names no sentence of its paragraph still makes that paragraph gold; so does one
        whose paragraph is missing, as in `fullwiki`, whose paragraphs were retrieved.
        """
        documents = make_candidates(("", title, _join(texts)) for title, texts in self.context)
        ids = {document.title: document.id for document in reversed(documents)}
        sentences = dict(reversed(self.context))
        facts = self.supporting_facts
        return Question(
            id=self.id,
            text=self.question,
            answers=unique([self.answer, *aliases]),
            documents=documents,
            gold=unique(ids.get(title) or make_id(title, "") for title, _ in facts),
            gold_texts=tuple(
                (ids[title], sentences[title][number].strip())
                for title, number in facts
                if title in ids and 0 <= number < len(sentences[title])
            ),
            meta={**self.rest, "supporting_facts": [list(fact) for fact in facts]},
        )


def _join(sentences: Sequence[str]) -> str:
    """Return the paragraph of sentences; HotpotQA's begin with their blank, 2Wiki's do not."""
    text = ""
    for sentence in sentences:
        apart = not text or text[-1].isspace() or sentence[:1].isspace()
        text += sentence if apart else f" {sentence}"
    return text


class _Answered(RecordModel):
    answer_id: NullableText = ""


class _Names(RecordModel):
    id: str = Field(alias="Q_id")
    aliases: tuple[str, ...] = ()
    demonyms: tuple[str, ...] = ()


def _read_two_wiki(path: Path) -> Iterator[Question]:
    """Yield the questions, with other names of the answers if `id_aliases.json` is beside them."""
    names: Mapping[str, Sequence[str]] = {}
    if (beside := path.parent / "id_aliases.json").is_file():
        wanted = set(parse_records(path, lambda record: validate(_Answered, record).answer_id))
        entries = parse_records(beside, lambda record: validate(_Names, record))
        # With demonyms, as the official evaluation takes them.
        names = {e.id: (*e.aliases, *e.demonyms) for e in entries if e.id in wanted}
    return parse_questions(path, _Facts, lambda each: each.make(names.get(each.answer_id, ())))


class _Paragraph(RecordModel):
    title: str
    paragraph_text: str
    is_supporting: bool = False


class _Musique(QuestionRecord):
    """MuSiQue; in MuSiQue-Full each question comes twice, once without one of its paragraphs."""

    id: str
    question: str
    paragraphs: list[_Paragraph]
    answer: str
    answer_aliases: tuple[str, ...] = ()
    answerable: bool = True

    def make(self) -> Question:
        """Return the question; the id of one that cannot be answered ends in "-unanswerable"."""
        answers = unique([self.answer, *self.answer_aliases])
        texts = [(each.title, each.paragraph_text) for each in self.paragraphs]
        golds = zip(texts, self.paragraphs, strict=True)
        withheld = {} if self.answerable else {"withheld_answers": list(answers)}
        return Question(
            id=self.id if self.answerable else f"{self.id}-unanswerable",
            text=self.question,
            answers=answers if self.answerable else (),
            documents=make_candidates(("", *text) for text in texts),
            gold=unique(make_id(*text) for text, each in golds if each.is_supporting),
            answerable=self.answerable,
            meta={**self.rest, **withheld},
        )


class _Lost(QuestionRecord):
    """Lost in the Middle: the gold passage, whose id is null, at a known place."""

    question: str
    answers: list[str]
    ctxs: list[_Passage]

    def make(self) -> Question:
        documents = _candidates(self.ctxs)
        gold = unique(e.id or make_id(e.title, e.text) for e in self.ctxs if e.isgold)
        places = [document.id for document in documents]
        return Question(
            id="",
            text=self.question,
            answers=unique(self.answers),
            documents=documents,
            gold=gold,
            gold_at=places.index(gold[0]) if gold else None,
            meta=self.rest,
        )


class _Alce(QuestionRecord):
    """ALCE's forms of ASQA (readings), QAMPARI (sets), ELI5 (claims), with 100 passages each."""

    id: NullableText = Field("", validation_alias=AliasChoices("sample_id", "id"))
    question: str
    docs: tuple[_Passage, ...] = ()

    def with_gold(self, task: QuestionTask, **gold: Any) -> Question:
        documents, meta = _candidates(self.docs), self.rest
        return Question(self.id, self.question, documents=documents, task=task, meta=meta, **gold)


class _Annotation(RecordModel):
    long_answer: str


class _Asqa(_Alce):
    qa_pairs: list[_ShortAnswers]
    annotations: tuple[_Annotation, ...] = ()
    answer: NullableText = ""

    def make(self) -> Question:
        # Both annotators' answers, first `answer`, which is one of them: MAUVE takes it.
        annotated = [each.long_answer for each in self.annotations]
        if not annotated or self.answer in annotated:
            annotated = [self.answer, *annotated]
        return self.with_gold(
            QuestionTask.READINGS,
            answers=unique(answer for pair in self.qa_pairs for answer in pair.short_answers),
            readings=_readings(self.qa_pairs),
            long_answers=unique(annotated),
        )


class _Qampari(_Alce):
    answers: list[list[str]]

    def make(self) -> Question:
        aliases = unique(alias for member in self.answers for alias in member)
        members = tuple(unique(member) for member in self.answers)
        return self.with_gold(QuestionTask.SET, answers=aliases, members=members)


class _Eli5(_Alce):
    answer: str
    claims: list[str]

    def make(self) -> Question:
        answers, claims = unique([self.answer]), unique(self.claims)
        return self.with_gold(
            QuestionTask.LONG, answers=answers, claims=claims, long_answers=answers
        )


def _is_qampari(record: JsonObject) -> bool:
    answers = record.get("answers")
    return isinstance(answers, list) and bool(answers) and isinstance(answers[0], list)


class _Evidence(RecordModel):
    evidence_text: str
    doc_name: str = Field("", validation_alias=AliasChoices("doc_name", "evidence_doc_name"))
    evidence_page_num: int | None = None


class _Finance(QuestionRecord):
    """FinanceBench: questions over a filing, with the pages (from 0) that answer them."""

    financebench_id: str
    question: str
    answer: str
    doc_name: str
    evidence: list[_Evidence]

    def make(self) -> Question:
        """Return the question; a document's id is the name of its filing, a PDF of the corpus."""
        evidence = [(each.doc_name or self.doc_name, each) for each in self.evidence]
        pages = [each.evidence_page_num for each in self.evidence]
        return Question(
            self.financebench_id,
            self.question,
            answers=(self.answer,),
            documents=make_candidates([(self.doc_name, self.doc_name, "")]),
            gold=unique(name for name, _ in evidence),
            gold_texts=tuple((name, each.evidence_text) for name, each in evidence),
            task=QuestionTask.JUDGED,
            meta={**self.rest, "doc_name": self.doc_name, "evidence_pages": pages},
        )


class _Loong(RecordModel):
    """Loong: questions over several long documents, asked in the words of their prompts.

    The documents are `doc/TYPE/NAME` beside the file; the judgments of type "legal" lie in one JSON
    file there and are not looked up. `meta` has what the judges want.
    """

    id: str
    type: str
    level: int
    question: NullableText
    instruction: NullableText
    prompt_template: str
    doc: list[str]
    answer: Any

    def make_below(self, folder: Path) -> Question:
        answer = self.answer
        names = [_find_name(self, name, folder) for name in self.doc]
        fields = {"question_field": self.question, "instruction": self.instruction}
        fields |= {"prompt_template": self.prompt_template, "type": self.type}
        return Question(
            self.id,
            _make_wording(self.prompt_template, self.instruction, self.question),
            answers=(
                answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False),
            ),
            documents=make_candidates((name, "", "") for name in names),
            task=QuestionTask.JUDGED,
            meta={**self.rest, **fields, "level": self.level, "answer": answer},
        )


def _find_name(record: _Loong, name: str, folder: Path) -> str:
    """Return a document's path below the folder (a report's by part of it), or its name alone."""
    below = folder / record.type
    if record.type == "financial":
        year = "" if record.level == 4 else "2024-"
        found = sorted(below.glob(f"*{year}{glob.escape(name)}*.txt"))
    else:
        found = [below / name] if (below / name).is_file() else []
    return f"{record.type}/{found[0].name if found else name}"


_PLACE_OF_DOCUMENTS = re.compile(r"(?:^#[^\n]*:[ \t]*\n)?\{docs\}", re.M)


def _make_wording(template: str, instruction: str, question: str) -> str:
    """Return what is asked: the prompt without the documents and the heading above them."""
    text = _PLACE_OF_DOCUMENTS.sub("", template)
    return text.replace("{question}", question).replace("{instruction}", instruction).strip()


# BEIR: a folder of `queries.jsonl`, `qrels/test.tsv` (or `dev`, `train`) and the corpus. It has no
# answers: retrieval is measured.
QUERIES_FILE = "queries.jsonl"
_JUDGEMENTS = "qrels"
_SPLITS = ("test", "dev", "train")


class _BeirQuery(RecordModel):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    text: str


def _read_beir(path: Path) -> Iterator[Question]:
    """Yield the queries that have a judged document; `meta["qrels"]` keeps the grades."""
    judged = _read_judgements(path)

    def make(query: _BeirQuery) -> Question:
        grades = judged.get(query.id, {})
        gold = tuple(document for document, grade in grades.items() if grade > 0)
        return Question(query.id, query.text, gold=gold, meta={**query.rest, "qrels": grades})

    return (found for found in parse_questions(path / QUERIES_FILE, _BeirQuery, make) if found.gold)


def _read_judgements(folder: Path) -> dict[str, dict[str, int]]:
    """Return the grade of each judged document by query."""
    paths = [folder / _JUDGEMENTS / f"{split}.tsv" for split in _SPLITS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise MissingPath(f"cannot read {folder}", "it has no qrels/test.tsv", "check the folder")
    judged: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row in rows:
            if rows.line_num == 1 and row[-1:] == ["score"]:
                continue
            try:
                query, document, grade = row
                judged.setdefault(query, {})[document] = int(grade)
            except ValueError:
                reason = "expected a query, a document and a whole number, between tabs"
                raise record_error(path, f"line {rows.line_num}", reason) from None
    return judged


BEIR = DatasetFormat("beir", _read_beir)


def _read_loong(path: Path) -> Iterator[Question]:
    folder = path.parent / "doc"
    return parse_questions(path, _Loong, lambda record: record.make_below(folder))


PUBLISHED = (
    format_of("plain", _Plain, "question answers documents gold_document_ids"),
    format_of("lost-in-the-middle", _Lost, "question answers ctxs"),
    format_of("musique", _Musique, "question paragraphs"),
    DatasetFormat(
        "2wikimultihopqa", _read_two_wiki, has_fields("context", "supporting_facts", "evidences")
    ),
    format_of("hotpotqa", _Facts, "context supporting_facts"),
    format_of("asqa", _Asqa, "question qa_pairs"),
    format_of("eli5", _Eli5, "question claims"),
    make_format("qampari", _Qampari, _Qampari.make, _is_qampari),
    DatasetFormat("loong", _read_loong, has_fields("prompt_template", "doc")),
    format_of("financebench", _Finance, "financebench_id"),
    format_of("flashrag", _Flashrag, "question golden_answers"),
    BEIR,
)
"""In the order in which a file's first record is tried on them."""
