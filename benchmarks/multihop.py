"""Measure DualRAG where an answer needs several paragraphs, and calls and tokens of DuQUAD.

    python benchmarks/multihop.py --suite musique|2wiki --data DIR --cache DIR --out rows.jsonl
        --model NAME [--methods retrieve-read dualrag ...] [--limit N] [--offset K] [--corpus]
    python benchmarks/multihop.py --suite nq20 [--gold-at 9] ... --methods full-context duquad

A question is asked over its own candidate paragraphs (MuSiQue: 20, 2Wiki: 10, NQ: 20 documents),
or, with `--corpus`, over all of its data set's paragraphs at once (about 12,000). A method is
`NAME[:PARAMETER=VALUE,...]`: `dualrag:no_reasoner=true` is an ablation.

Scores are the share of a question's gold paragraphs that any search returned ("retrieved"), that
were in any prompt ("read"), that the last reader was shown ("shown") and that are cited; whether
the answer's text and its short answer contain an alias of the gold answer, in whole words and
normalised as SQuAD does; exact match and F1 of the short answer. A refusal or a failed answer is
wrong in all of these. A search that returns as many passages as there are candidates retrieves all
of them: among candidates compare "read". 2Wiki's ten are all read with retrieve-read's k = 10; use
`retrieve-read:k=5`, or `--corpus`.

Rows are written to `--out` as they are made, one a question and method; the same command resumes a
run that was stopped. Means have 95% intervals of the bootstrap over questions, differences to the
first method those of the paired one. The papers' calls and tokens are printed next to these, but
come from other models and other corpora.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from answering import (
    COSTS,
    Setting,
    answer_question,
    compute_document_share,
    compute_f1,
    contains,
    count_by_step,
    list_retrieved,
    make_documents,
    matches_exactly,
    parse_method,
    select_shown_to_models,
)
from breaking import measure_dualrag, measure_duquad
from colligate.core.reader import Form, reader_messages
from colligate.core.run import Run
from colligate.documents import Document, Span
from colligate.library.in_memory import InMemorySources
from colligate.models import Message
from colligate.strategies.dualrag.knowledge import ELSE, NOTHING
from colligate.strategies.dualrag.prompts import (
    chooser_messages,
    identifier_messages,
    query_messages,
    reasoner_messages,
    sentence_messages,
    step_messages,
    summarizer_messages,
)
from colligate.strategies.duquad.prompts import (
    debate_messages,
    doc_score_messages,
    quoting_view_messages,
    view_messages,
)
from evidence_data import Record, read_records, select_some
from evidence_measuring import (
    Row,
    Rows,
    add_arguments,
    index_by_question,
    open_embedder_of,
    open_models,
    open_reranker_of,
    say,
    say_difference,
    say_mean,
)

FILES = {"musique": "musique", "2wiki": "2wikimultihopqa", "nq20": "nq20_gold_at_{}"}
CORPORA = {"musique": "musique", "2wiki": "2wikimultihopqa", "nq20": "nq20"}
DEFAULT = {
    "musique": ["retrieve-read", "dualrag"],
    "2wiki": ["retrieve-read", "dualrag"],
    "nq20": ["full-context", "retrieve-read", "duquad"],
}
KEYS = ("suite", "question", "method", "corpus", "models", "embedder", "reranker")
ANSWERS = ("answer in the text", "answer in the short answer", "exact match", "F1")


def _begins(messages: Sequence[Message]) -> str:
    return messages[0].content


# The start of its instruction identifies a call.
STEPS = {
    "reasoner and identifier, first": _begins(step_messages("", NOTHING, (), ())),
    "reasoner and identifier": _begins(step_messages("", "", (), ())),
    "reasoner, first": _begins(reasoner_messages("", NOTHING, ())),
    "reasoner": _begins(reasoner_messages("", "", ())),
    "reasoner, by sentences": _begins(sentence_messages("", "", ())),
    "identifier": _begins(identifier_messages("", "", (), ())),
    "query": _begins(query_messages("", "", ())),
    "summarizer": _begins(summarizer_messages("", (), "an entity", (), ())),
    "summarizer of the rest": _begins(summarizer_messages("", (), ELSE, (), ())),
    "chooser": _begins(chooser_messages("", (), "an entity", (), ())),
    "chooser of the rest": _begins(chooser_messages("", (), ELSE, (), ())),
    "agents": _begins(view_messages("", ())[0]),
    "agents, quoting": _begins(quoting_view_messages("", ())[0]),
    "scores": _begins(doc_score_messages("", ())),
    "judge": _begins(debate_messages("", (), (), Form.JOINED)),  # starts as the reader's
    "reader, joined": _begins(reader_messages("", (), Form.JOINED)),
    "reader": _begins(reader_messages("", ())),
}
# The steps whose tokens the paper counts.
OWN = (
    *("reasoner and identifier, first", "reasoner and identifier", "reasoner, first", "reasoner"),
    *("identifier", "summarizer", "summarizer of the rest", "chooser", "chooser of the rest"),
)
LOOP = ("rounds", "statements made", "statements kept", "unreadable replies")

# The papers' figures of cost a question: for DualRAG the output tokens of reasoner, entity
# identifier and summarizer (2Wiki 555, MuSiQue 638) and the rounds that retrieved; for DuQUAD
# calls, and tokens over those of full context.
PAPER = {
    ("dualrag", "musique", "rounds"): "the paper: 2.20",
    ("dualrag", "2wiki", "rounds"): "the paper: 1.99",
    ("dualrag", "musique", "own output tokens"): "the paper: 638",
    ("dualrag", "2wiki", "own output tokens"): "the paper: 555",
    ("duquad", "nq20", "calls"): "the paper: 4.10",
    ("duquad", "nq20", "tokens over full-context"): "the paper: 2.07",
}


@dataclass
class Asking:
    """Ask questions over their own candidates, or over one corpus."""

    setting: Setting
    stack: AsyncExitStack
    corpus: Mapping[str, Document]
    _all: InMemorySources | None = None

    async def measure(self, record: Record, written: str) -> Row:
        """Measure one method's answer to one question."""
        documents = self.corpus or make_documents(record["documents"])
        if self.corpus:
            self._all = self._all or await self._index()
            return await self._measure(record, written, self.setting.make_run(self._all), documents)
        async with InMemorySources(list(documents.values()), self.setting.embedder) as sources:
            await sources.search("index", k=1)  # so that indexing is not timed
            run = self.setting.make_run(sources)
            return await self._measure(record, written, run, documents)

    async def _index(self) -> InMemorySources:
        sources = InMemorySources(list(self.corpus.values()), self.setting.embedder)
        self.stack.push_async_callback(sources.close)
        await sources.search("index", k=1)  # so that indexing is not timed
        return sources

    async def _measure(
        self, record: Record, written: str, run: Run, documents: Mapping[str, Document]
    ) -> Row:
        answer, row = await answer_question(parse_method(written), record["question"], run)
        found = list_retrieved(run)
        shown = [piece.span for piece in answer.evidence] if answer else []
        gold = record["gold_document_ids"]
        whole = [Span(id_, 0, len(documents[id_])) for id_ in gold]
        read = select_shown_to_models(run, documents, dict.fromkeys([*found, *shown, *whole]))
        cited = [citation.span for citation in answer.citations] if answer else []
        text, short = (row["text"], row["short"]) if row["found"] else ("", "")
        said = (contains(record["answers"], text), contains(record["answers"], short))
        words = (matches_exactly(record["answers"], short), compute_f1(record["answers"], short))
        return {
            **row,
            "steps": count_by_step(run, STEPS),
            **measure_dualrag(run),
            "hops": record["meta"].get("hops") or len(gold),
            "kind": record["meta"].get("type"),
            "measures": {
                "gold retrieved": compute_document_share(gold, found),
                "gold read": compute_document_share(gold, read),
                "all gold read": float(compute_document_share(gold, read) == 1.0),
                "gold shown": compute_document_share(gold, shown),
                "gold cited": compute_document_share(gold, cited),
                **dict(zip(ANSWERS, (*said, *words), strict=True)),
                **measure_duquad(run, gold),
                "answered": float(row["found"]),
                "broken": float(bool(row["error"])),
            },
        }


async def measure(arguments: argparse.Namespace) -> None:
    suite = arguments.suite
    name = FILES[suite].format(arguments.gold_at)
    questions = read_records(arguments.data / "dev" / f"{name}.jsonl.gz")
    questions = select_some(questions, arguments.limit, arguments.offset)
    corpus: dict[str, Document] = {}
    if arguments.corpus:
        file = arguments.data / "dev" / f"{CORPORA[suite]}.corpus.jsonl.gz"
        corpus = make_documents(read_records(file))
    rows = Rows(arguments.out, KEYS)
    wanted: list[Row] = []
    async with AsyncExitStack() as stack:
        embedder = await open_embedder_of(arguments, stack)
        models = await open_models(arguments, stack)
        reranker = await open_reranker_of(arguments, stack, embedder, models)
        setting = Setting(models, embedder, reranker)
        asking = Asking(setting, stack, corpus)
        names = " ".join(f"{role.value}={model.name}" for role, model in models.items())
        for record in questions:
            for written in arguments.methods:
                key: Row = {
                    "suite": suite if suite != "nq20" else name,
                    "question": record["id"],
                    "method": written,
                    "corpus": arguments.corpus,
                    "models": names,
                    "embedder": embedder.name,
                    "reranker": arguments.reranker,
                }
                if key not in rows:
                    rows.add(key | await asking.measure(record, written))
                wanted.append(rows[key])
                say_row(rows[key])
    report(wanted, suite, arguments.seed)


def say_row(row: Row) -> None:
    """Print the result of a question on standard error."""
    measures, said = row["measures"], row["error"] or row["short"] or row["text"]
    right = measures["answer in the text"] or measures["answer in the short answer"]
    verdict = "right" if right else "WRONG" if row["found"] else "refused"
    gold = f"gold read {measures['gold read']:.2f}"
    line = f"{row['question']} {row['method']}: {verdict}, {gold}, {row['seconds']:.0f} s: {said}"
    print(line[:300], file=sys.stderr, flush=True)


def report(rows: Sequence[Row], suite: str, seed: int) -> None:
    """Print measures and costs, then differences to the first method."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    first = next(iter(by_method), "")
    for written, own in by_method.items():
        for name in list_measures(own):
            values = [row["measures"][name] for row in own if name in row["measures"]]
            say_mean(f"{suite}: {name}, {written}", values, seed, "share")
        say_costs(own, suite, written, seed)
    for written, own in by_method.items():
        for name in list_measures(own) if written != first else ():
            say_difference(
                f"{suite}: {name}, {written} over {first}",
                index_by_question(own, name),
                index_by_question(by_method[first], name),
                seed,
                "share",
            )
        if "full-context" in by_method and written != "full-context":
            say_ratio(own, by_method["full-context"], suite, written)


def list_measures(rows: Sequence[Row]) -> list[str]:
    """Return the names of all measures; rows of failed runs may lack some."""
    return list(dict.fromkeys(name for row in rows for name in row["measures"]))


def say_costs(rows: Sequence[Row], suite: str, written: str, seed: int) -> None:
    """Print calls, tokens and rounds a question, without failed runs."""
    whole = [row for row in rows if not row["error"]]
    for cost in COSTS:
        values = [float(row[cost]) for row in whole]
        against = _paper(written, suite, cost)
        if any(values):
            say_mean(f"{suite}: {cost} a question, {written}", values, seed, "mean", against)
    looped = [row for row in whole if "rounds" in row]
    for what in LOOP:
        values = [float(row[what]) for row in looped]
        against = _paper(written, suite, what)
        say_mean(f"{suite}: {what} a question, {written}", values, seed, "mean", against)
    for why in sorted({row["stopped"] for row in looped}):
        count = sum(row["stopped"] == why for row in looped)
        say(f"{suite}: stopped for {why!r}, {written}", count, "count", f"{len(looped)} questions")
    for step in dict.fromkeys(step for row in whole for step in row["steps"]):
        for what in ("calls", "output_tokens"):
            values = [float(row["steps"].get(step, {}).get(what, 0)) for row in whole]
            say_mean(f"{suite}: {what} of the {step} a question, {written}", values, seed, "mean")
    if looped:
        values = [
            float(sum(row["steps"].get(step, {}).get("output_tokens", 0) for step in OWN))
            for row in looped
        ]
        against = _paper(written, suite, "own output tokens")
        what = "output tokens of reasoner, identifier and summarizer a question"
        say_mean(f"{suite}: {what}, {written}", values, seed, "mean", against)


def say_ratio(rows: Sequence[Row], whole: Sequence[Row], suite: str, written: str) -> None:
    """Print a method's tokens over those of full context, without failed runs."""
    full = {row["question"]: row["tokens"] for row in whole if not row["error"]}
    own = [row for row in rows if not row["error"] and row["question"] in full]
    if own:
        ratio = sum(row["tokens"] for row in own) / sum(full[row["question"]] for row in own)
        against = _paper(written, suite, "tokens over full-context")
        sample = f"{len(own)} questions" + (f"; {against}" if against else "")
        say(f"{suite}: tokens, {written} over full-context", ratio, "ratio", sample)


def _paper(written: str, suite: str, figure: str) -> str:
    return PAPER.get((written.partition(":")[0], suite, figure), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, suites=FILES)
    parser.add_argument("--methods", nargs="+", metavar="NAME[:PARAMETER=VALUE,...]")
    parser.add_argument("--offset", type=int, default=0, help="number of questions to skip")
    parser.add_argument("--corpus", action="store_true", help="search all paragraphs at once")
    parser.add_argument("--gold-at", type=int, choices=(0, 4, 9, 14, 19), default=9)
    parser.add_argument("--reranker", default="none")
    arguments = parser.parse_args()
    if arguments.model is None:
        parser.error("these methods ask a model: name one with --model")
    arguments.methods = arguments.methods or DEFAULT[arguments.suite]
    for written in arguments.methods:
        parse_method(written)  # report a wrong name before anything is loaded
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
