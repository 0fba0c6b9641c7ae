"""Measure what RDR2's router keeps of the passages it is given, and its cost.

    python benchmarks/routing.py --suite wiki --data DIR --cache DIR --out rows.jsonl
        [--methods chunks rdr2 rdr2-no_expand ...] [--local-only] [--model NAME]

`chunks` are the `--k` passages of one search, `rdr2` what the router accepts of their documents,
and `rdr2-no_...` the paper's ablations (`rdr2-no_router` asks no model: the blocks that contain the
passages). Scored: whether the evidence contains the gold, words a passage (one a chunk, one a
routed document), the paper's P-LEN (words over k places) and P-SCORE (gold by rank of the passage),
and the results of the router's calls. "rdr2 else chunks" takes the chunks if nothing was accepted;
"as long as rdr2" takes the best chunks that fit the number of tokens that `rdr2` showed.

Rows are written to `--out` as they are made; the same command resumes a run that was stopped.
Differences to the chunks have 95% intervals of the paired bootstrap. `evidence_data.py` describes
the suites.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from colligate.core.parameters import set_parameters
from colligate.core.run import Run
from colligate.documents import Hit
from colligate.documents.chunking import Chunker, FixedWords, Structural
from colligate.library.sources import SearchMode
from colligate.models import ChatModel, Role
from colligate.models.metering import Meter
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.method import RDR2
from evidence_data import Question, Shown, load
from evidence_measuring import (
    Corpus,
    Row,
    Rows,
    Ruler,
    add_arguments,
    fill_budget,
    index_by_question,
    make_shown,
    open_embedder_of,
    open_models,
    say,
    say_difference,
    say_means,
)

CHUNKERS: Mapping[str, Chunker] = {"structural": Structural(), "words": FixedWords()}
ABLATIONS = ("router", "structure", "similarity", "content", "expand", "refuse")
LOCAL = "rdr2-no_router"
ROUTED = ["rdr2", LOCAL, *(f"rdr2-no_{part}" for part in ABLATIONS[1:])]
CHUNKS, AS_LONG, ELSE_CHUNKS = "chunks", "as long as rdr2", "rdr2 else chunks"
BEGINNING = ("suite", "question", "k", "chunker", "mode", "embedder", "measure")
KEYS = (*BEGINNING, "method", "models", "set")
COSTS = ("tokens", "words", "passages", "calls", "input_tokens", "output_tokens", "seconds")
MOST = 200  # passages ranked for a question
# In addition to retrieve-read, with the trained router (the paper's appendix B.7).
PAPER = {"input_tokens": "the paper's router: 2031", "output_tokens": "the paper's router: 41"}


@dataclass
class Routing:
    """Hold the corpus, the models and the arguments that all methods use."""

    corpus: Corpus
    models: Mapping[Role, ChatModel]
    ruler: Ruler
    arguments: argparse.Namespace

    async def find_hits(self, question: Question, run: Run, k: int) -> list[Hit]:
        """Return the best passages of the question's documents, or of all."""
        mode = SearchMode(self.arguments.mode)
        return await run.search(question.text, k=k, mode=mode, documents=question.documents or None)

    async def open_run(self) -> Run:
        """Return a run over the documents."""
        sources = await self.corpus.open_sources(CHUNKERS[self.arguments.chunker])
        return Run(sources, self.models, Meter())

    async def show_chunks(self, question: Question) -> Row:
        """Measure the passages of the search."""
        run = await self.open_run()
        passages = [h.passage for h in await self.find_hits(question, run, self.arguments.k)]
        documents = self.corpus.documents
        each = [make_shown([passage.span], documents) for passage in passages]
        return await self._make_row(
            question, make_shown([p.span for p in passages], documents), each
        )

    async def show_as_long(self, question: Question, tokens: int) -> Row:
        """Measure the best chunks that fit so many tokens."""
        run = await self.open_run()
        ranked = [h.passage for h in await self.find_hits(question, run, MOST)]
        evidence = await fill_budget(ranked, self.corpus.documents, tokens, self.ruler)
        return await self._make_row(question, evidence, None)

    async def show_routed(self, question: Question, method: str) -> Row:
        """Measure the passages that the router accepts."""
        began = time.perf_counter()
        run = await self.open_run()
        ablation = method.partition("-")[2]
        settings = [*self.arguments.set, *([f"{ablation}=true"] if ablation else [])]
        hits = await self.find_hits(question, run, self.arguments.k)
        routings = await set_parameters(RDR2, settings).route(question.text, run, hits)
        each = [
            Shown(routing.tree.render_routed(routing.answers), routing.passages)
            for routing in routings
            if routing.answers
        ]
        together = Shown(
            "\n\n".join(one.text for one in each), [p for one in each for p in one.passages]
        )
        cost = run.meter.report()
        seen = [event for _, event in run.trace.events if isinstance(event, Routed)]
        return {
            **await self._make_row(question, together, each),
            "seconds": round(time.perf_counter() - began, 3),
            "calls": cost.calls,
            "input_tokens": cost.input_tokens,
            "output_tokens": cost.output_tokens,
            "documents": len(routings),
            "verdicts": Counter(event.verdict for event in seen),
            "actions": Counter(action.tag for event in seen for action in event.actions),
            "expelled": Counter(one.why for event in seen for one in event.rejected),
            "dropped": [line for event in seen for line in event.dropped],
            "omitted": sum(len(event.omitted) for event in seen),
            "from_expansions": sum(
                found > 0 for routing in routings for found in routing.answers.values()
            ),
            "warnings": list(run.warnings),
        }

    async def _make_row(
        self, question: Question, together: Shown, each: Sequence[Shown] | None
    ) -> Row:
        await self.ruler.learn([together.text])
        k, measures = self.arguments.k, question.gold(together)
        main = next(iter(measures))
        row: Row = {
            "tokens": self.ruler(together.text),
            "words": len(together.text.split()),
            "spans": [[p.document_id, p.span.start, p.span.end] for p in together.passages],
        }
        if each is not None:
            scores = [question.gold(one)[main] for one in each[:k]]
            row["passages"] = len(each)
            row["p_len"] = sum(len(one.text.split()) for one in each[:k]) / k
            measures["P-SCORE"] = sum(s / rank for rank, s in enumerate(scores, 1)) / k
        return {**row, "measures": measures}


async def measure(arguments: argparse.Namespace) -> None:
    suite = load(arguments.suite, arguments.data, arguments.limit)
    rows = Rows(arguments.out, KEYS)
    wanted: list[Row] = []
    async with AsyncExitStack() as stack:
        embedder = await open_embedder_of(arguments, stack)
        models = await open_models(arguments, stack)
        ruler = Ruler(models.get(Role.WORKER, models[Role.READER]))
        corpus = Corpus(suite.documents, embedder, stack)
        routing = Routing(corpus, models, ruler, arguments)
        names = " ".join(f"{role.value}={model.name}" for role, model in models.items())
        for question in suite.questions:
            of_rdr2: Row | None = None
            for method in [*arguments.methods, AS_LONG]:
                key: Row = {
                    "suite": suite.name,
                    "question": question.id,
                    "method": method,
                    "k": arguments.k,
                    "chunker": arguments.chunker,
                    "mode": arguments.mode,
                    "models": "" if method in (CHUNKS, LOCAL) else names,
                    "embedder": embedder.name,
                    "measure": ruler.name,
                    "set": "" if method == CHUNKS else " ".join(arguments.set),
                }
                if method == AS_LONG and of_rdr2 is None:
                    continue
                if key not in rows:
                    if method == CHUNKS:
                        made = await routing.show_chunks(question)
                    elif method == AS_LONG and of_rdr2 is not None:
                        made = await routing.show_as_long(question, of_rdr2["tokens"])
                    else:
                        made = await routing.show_routed(question, method)
                    rows.add(key | made)
                if method == "rdr2":
                    of_rdr2 = rows[key]
                wanted.append(rows[key])
            print(f"{suite.name}: {question.id}", file=sys.stderr, flush=True)
    report(wanted, suite.name, arguments.seed)


def report(rows: Sequence[Row], suite: str, seed: int) -> None:
    """Print means, costs and verdicts, then differences to the chunks."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    if "rdr2" in by_method and CHUNKS in by_method:
        chunks = {row["question"]: row for row in by_method[CHUNKS]}
        by_method[ELSE_CHUNKS] = [
            row if row["words"] else chunks[row["question"]] for row in by_method["rdr2"]
        ]
    for method, own in by_method.items():
        say_means(own, f"{suite}: {{}}, {method}")
        for cost in COSTS:
            values = [row[cost] for row in own if cost in row]
            if values:
                mean = sum(values) / len(values)
                against = PAPER.get(cost) if method == "rdr2" else None
                say(f"{suite}: {cost} a question, {method}", mean, "mean", against)
        if slots := [row["p_len"] for row in own if "p_len" in row]:
            say(f"{suite}: P-LEN, {method}", sum(slots) / len(slots), "words")
        if parts := sum(row.get("passages", 0) for row in own):
            say(
                f"{suite}: words a passage, {method}", sum(r["words"] for r in own) / parts, "words"
            )
        if method in ROUTED and method != LOCAL:
            say_verdicts(own, f"{suite}: {{}}, {method}")
    for method in by_method:
        for other in (CHUNKS, AS_LONG):
            if other not in by_method or method in (CHUNKS, AS_LONG):
                continue
            for name in dict.fromkeys(n for row in by_method[method] for n in row["measures"]):
                say_difference(
                    f"{suite}: {name}, {method} over {other}",
                    index_by_question(by_method[method], name),
                    index_by_question(by_method[other], name),
                    seed,
                    "share",
                )


def say_verdicts(rows: Sequence[Row], what: str) -> None:
    """Print the results of the router's calls."""
    for kind in ("verdicts", "actions", "expelled"):
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update(row[kind])
        for name, count in sorted(counts.items()):
            say(what.format(f"{kind}: {name}"), count, "count", f"{len(rows)} questions")
    say(what.format("lines dropped"), sum(len(row["dropped"]) for row in rows), "count")
    say(what.format("blocks from expansions"), sum(r["from_expansions"] for r in rows), "count")
    say(what.format("questions with nothing accepted"), sum(not r["words"] for r in rows), "count")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--methods", nargs="+", choices=[CHUNKS, *ROUTED])
    parser.add_argument("--k", type=int, default=5, help="passages of the search")
    parser.add_argument("--chunker", choices=CHUNKERS, default="structural")
    parser.add_argument("--mode", choices=[mode.value for mode in SearchMode], default="hybrid")
    arguments = parser.parse_args()
    asks = bool(arguments.model) and not arguments.local_only
    if arguments.methods is None:
        arguments.methods = [CHUNKS, LOCAL, *(["rdr2"] if asks else [])]
    if not asks and any(method not in (CHUNKS, LOCAL) for method in arguments.methods):
        parser.error(f"a router needs --model, without --local-only; {LOCAL} needs no model")
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
