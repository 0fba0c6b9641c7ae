"""Measure SPD-RAG where every document is needed: which facts reach the last synthesis.

    python benchmarks/every_document.py --suite reports|trends|papers|extremes --data DIR
        --cache DIR --out rows.jsonl [--model NAME] [--worker-model NAME] [--methods spd-rag ...]
        [--limit N]

`every_document_data.py` describes the questions and the fact that each needs of each document.
`reports` is the small setting: 5 questions over 2 to 5 whole financial reports, 16 facts.

A method is `NAME[:PARAMETER=VALUE,...]`. Two need no model and measure a search with the question
itself: `search:k=10` takes the best passages of all documents together, `search-each:k=5` the best
of each document, which are the first passages of a reader for each document.

Scores are shares of a question's facts, each in its own document: in a passage that a search
returned ("found"), in one that was in any prompt ("read"), in the text that the last call answered
from ("reached": the source sentences of the findings, or the reader's passages), in a citation of
the answer ("cited"); and the figures that the answer contains, whatever their source ("said"). In
addition, the documents of which any text reached the last call. `extremes` has no facts, but a
company: whether the short answer names it and no other ("right", else "wrong"), and whether the
sentence does that compares the figures found ("compared right").

Cost: calls and tokens by role, against all documents in one prompt ("whole", counted without a
call), in tokens and in dollars at `--prices` (per million tokens; by default those of Gemini 2.5
Pro and Flash, which the paper used, for short prompts).

Rows are written to `--out` as they are made; the same command resumes a run that was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from answering import (
    COSTS,
    Setting,
    answer_question,
    count_costs,
    list_retrieved,
    parse_method,
    select_shown_to_models,
)
from breaking import measure_spd_rag
from colligate.core.answer import Answer
from colligate.core.run import Run
from colligate.documents import Document, Span
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from every_document_data import SUITES, NeedsAll, load_questions
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

SEARCH, EACH = "search", "search-each"
LOCAL = [f"{SEARCH}:k=10", f"{EACH}:k=5"]
ASKING = ["retrieve-read", "spd-rag"]
KEYS = ("suite", "question", "method", "models", "embedder", "reranker")
AGENTS = (
    *("searches of an agent", "turns of an agent"),
    *("findings", "findings dropped", "agents without a finding"),
)
PRICES = [1.25, 10.0, 0.30, 2.50]
PAPER = {
    "cost over whole": "the paper: 0.38",
    "tokens over whole": "the paper: 0.81",
    "calls": "the paper: about 35 over 11 documents",
}


@dataclass
class Asking:
    """Ask every question over its own documents."""

    setting: Setting
    documents: dict[str, Document]

    async def measure(self, question: NeedsAll, written: str) -> Row:
        """Measure one method's answer to one question."""
        documents = {id_: self.documents[id_] for id_ in question.documents}
        counting = self.setting.models[Role.READER]
        whole = sum([await counting.count_tokens(each.text) for each in documents.values()])
        async with InMemorySources(list(documents.values()), self.setting.embedder) as sources:
            await sources.search("index", k=1)  # so that indexing is not timed
            run = self.setting.make_run(sources)
            row = await self._answer(question, written, run)
        return {"documents": len(documents), "facts": len(question.facts), "whole": whole, **row}

    async def _answer(self, question: NeedsAll, written: str, run: Run) -> Row:
        if written.partition(":")[0] in (SEARCH, EACH):
            began = time.perf_counter()
            found = await search_passages(question, written, run)
            seconds = round(time.perf_counter() - began, 3)
            row: Row = {**count_costs(run.meter), "seconds": seconds, "error": ""}
            return {**row, "measures": {"facts found": self._share(question, found)}}
        answer, row = await answer_question(parse_method(written), question.text, run)
        found = list_retrieved(run)
        reached = [piece.span for piece in answer.evidence] if answer else []
        read = select_shown_to_models(run, self.documents, dict.fromkeys([*found, *reached]))
        cited = [citation.span for citation in answer.citations] if answer else []
        if question.named:
            return {**row, **measure_spd_rag(run), "measures": self._compare(question, answer)}
        measures = {
            "facts found": self._share(question, found),
            "facts read": self._share(question, read),
            "facts reached": self._share(question, reached),
            "facts cited": self._share(question, cited),
            "documents reached": compute_reached_share(question, reached),
            "answered": float(row["found"]),
            "broken": float(bool(row["error"])),
        }
        if all(fact.figure for fact in question.facts):
            said = f"{row['text']} {row['short']}" if row["found"] else ""
            known = [fact.is_in(said) for fact in question.facts]
            measures["figures said"] = sum(known) / len(known)
        return {**row, **measure_spd_rag(run), "measures": measures}

    def _compare(self, question: NeedsAll, answer: Answer | None) -> dict[str, float]:
        """Return whether the right company is named."""
        titles = {self.documents[id_].title for id_ in question.documents}
        text = answer.text if answer and answer.found else ""
        lead = text.split("[")[0]
        said = {
            "": (answer.short or "") if answer and text else "",
            "compared ": lead if " of what was found in " in lead else "",
        }
        measures = {"answered": float(bool(text))}
        for what, words in said.items():
            named = {title for title in titles if title.casefold() in words.casefold()}
            measures[f"{what}right"] = float(named == {question.named})
            measures[f"{what}wrong"] = float(bool(words) and named != {question.named})
        return measures

    def _share(self, question: NeedsAll, spans: Sequence[Span]) -> float:
        """Return the share of facts that are in one of the spans, in their own document."""
        there = [
            any(
                fact.is_in(self.documents[span.document_id].slice(span))
                for span in spans
                if span.document_id == fact.document
            )
            for fact in question.facts
        ]
        return sum(there) / len(there)


async def search_passages(question: NeedsAll, written: str, run: Run) -> list[Span]:
    """Return the best passages for the question, of all documents or of each."""
    name, _, k = written.partition(":k=")
    views = [[id_] for id_ in question.documents] if name == EACH else [list(question.documents)]
    hits = [await run.search(question.text, k=int(k), documents=view) for view in views]
    return [hit.passage.span for found in hits for hit in found]


def compute_reached_share(question: NeedsAll, spans: Sequence[Span]) -> float:
    """Return the share of the documents with a fact that have one of the spans."""
    wanted = {fact.document for fact in question.facts}
    return len(wanted & {span.document_id for span in spans}) / len(wanted)


async def measure(arguments: argparse.Namespace) -> None:
    documents, questions = load_questions(
        arguments.suite, arguments.data, arguments.limit, arguments.offset
    )
    rows = Rows(arguments.out, KEYS)
    wanted: list[Row] = []
    async with AsyncExitStack() as stack:
        embedder = await open_embedder_of(arguments, stack)
        models = await open_models(arguments, stack)
        reranker = await open_reranker_of(arguments, stack, embedder, models)
        asking = Asking(Setting(models, embedder, reranker), documents)
        names = " ".join(f"{role.value}={model.name}" for role, model in models.items())
        for question in questions:
            for written in arguments.methods:
                asks = written.partition(":")[0] not in (SEARCH, EACH)
                key: Row = {
                    "suite": arguments.suite,
                    "question": question.id,
                    "method": written,
                    "models": names if asks else "",
                    "embedder": embedder.name,
                    "reranker": arguments.reranker,
                }
                if key not in rows:
                    rows.add(key | await asking.measure(question, written))
                wanted.append(rows[key])
                measures = " ".join(f"{n} {v:.2f}" for n, v in rows[key]["measures"].items())
                trouble = rows[key]["error"]
                line = f"{question.id} {written}: {measures} {trouble}".rstrip()
                print(line, file=sys.stderr, flush=True)
    report(wanted, arguments)


def report(rows: Sequence[Row], arguments: argparse.Namespace) -> None:
    """Print the facts that reached the last call, the costs, and differences to other methods."""
    suite, seed = arguments.suite, arguments.seed
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    for written, own in by_method.items():
        for name in dict.fromkeys(name for row in own for name in row["measures"]):
            facts = sum(row["facts"] for row in own)
            values = [row["measures"][name] for row in own if name in row["measures"]]
            say_mean(f"{suite}: {name}, {written}", values, seed, "share", f"{facts} facts")
        if written.partition(":")[0] not in (SEARCH, EACH):
            say_costs(own, arguments, written)
    for written, own in by_method.items():
        for other in (m for m in by_method if m != written and written.startswith("spd-rag")):
            for name in own[0]["measures"]:
                say_difference(
                    f"{suite}: {name}, {written} over {other}",
                    index_by_question(own, name),
                    index_by_question(by_method[other], name),
                    seed,
                    "share",
                )


def say_costs(rows: Sequence[Row], arguments: argparse.Namespace, written: str) -> None:
    """Print calls and tokens a question, by role, and over those of all documents in one prompt."""
    whole = [row for row in rows if not row["error"]]
    suite, seed = arguments.suite, arguments.seed
    paper = PAPER if written.startswith("spd-rag") else {}
    for cost in COSTS:
        values = [float(row[cost]) for row in whole]
        against = paper.get(cost, "")
        if any(values):
            say_mean(f"{suite}: {cost} a question, {written}", values, seed, "mean", against)
    for role in dict.fromkeys(role for row in whole for role in row["by_role"]):
        for cost in ("calls", "input_tokens", "output_tokens"):
            values = [float(row["by_role"].get(role, {}).get(cost, 0)) for row in whole]
            say_mean(f"{suite}: {cost} of the {role} a question, {written}", values, seed, "mean")
    agents = [row for row in whole if "agents" in row]
    for what in AGENTS:
        values = [float(row[what]) for row in agents]
        say_mean(f"{suite}: {what} a question, {written}", values, seed, "mean")
    for status in sorted({status for row in agents for status in row["agents"]}):
        count = sum(row["agents"].get(status, 0) for row in agents)
        every = sum(sum(row["agents"].values()) for row in agents)
        say(f"{suite}: agents that ended as {status}, {written}", count, "count", f"of {every}")
    ratios = {
        "tokens over whole": [
            row["tokens"] / (row["whole"] + get_last_output(row)) for row in whole
        ],
        "cost over whole": [compute_cost_ratio(row, arguments.prices) for row in whole],
    }
    for figure, values in ratios.items():
        against = paper.get(figure, "")
        say_mean(f"{suite}: {figure}, {written}", values, seed, "ratio", against)


def get_last_output(row: Row) -> int:
    """Return the reader's output tokens: one prompt of all documents needs at least as many."""
    return int(row["by_role"].get("reader", {}).get("output_tokens", 0))


def compute_cost_ratio(row: Row, prices: Sequence[float]) -> float:
    """Return a question's cost over that of all its documents in one prompt of the reader."""
    read_in, read_out, work_in, work_out = prices
    spent = 0.0
    for role, used in row["by_role"].items():
        inside, outside = (work_in, work_out) if role == "worker" else (read_in, read_out)
        spent += used["input_tokens"] * inside + used["output_tokens"] * outside
    return spent / float(row["whole"] * read_in + get_last_output(row) * read_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, suites=SUITES)
    parser.add_argument("--methods", nargs="+", metavar="NAME[:PARAMETER=VALUE,...]")
    parser.add_argument("--offset", type=int, default=0, help="number of questions to skip")
    parser.add_argument("--reranker", default="none")
    parser.add_argument("--prices", type=float, nargs=4, default=PRICES)
    arguments = parser.parse_args()
    local = [] if arguments.suite == "extremes" else LOCAL
    arguments.methods = arguments.methods or [*local, *(ASKING if arguments.model else [])]
    asking = [m for m in arguments.methods if m.partition(":")[0] not in (SEARCH, EACH)]
    if arguments.suite == "extremes" and asking != arguments.methods:
        parser.error("extremes has no facts to be found by a search")
    if asking and arguments.model is None:
        parser.error(f"{asking[0]} asks a model: name one with --model")
    for written in asking:
        parse_method(written)  # report a wrong name before anything is loaded
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
