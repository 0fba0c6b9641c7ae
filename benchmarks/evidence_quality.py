"""Measure how often the evidence contains the answer: LongRefiner and chunks at equal budgets.

    python benchmarks/evidence_quality.py --suite wiki --data DIR --cache DIR --out rows.jsonl
        [--budgets 512 2048] [--methods bm25 dense hybrid ...] [--local-only] [--model NAME]

Every method chooses from the same documents and may show the same number of tokens, titles and
headings included, as the worker model counts them (an estimate without one). The chunks are the
library's own and, as "-six", the paper's of six sentences, taken in the order of the search until
none fits. `refiner` is LongRefiner's `Refiner` with the models given, `refiner-local` the same by
local scores alone, without a call to a language model; the rest of a method's name is the source of
local scores. "everything" is the whole documents without a budget: the upper bound.

Rows are written to `--out` as they are made; the same command resumes a run that was stopped. The
figures are printed at the end: means, then differences to each baseline with 95% intervals of the
paired bootstrap. `evidence_data.py` describes the suites.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from colligate.core.parameters import set_parameters
from colligate.core.run import Run
from colligate.core.units import rank_documents
from colligate.documents import Span
from colligate.documents.chunking import Chunker, SixSentences, Structural
from colligate.library.sources import SearchMode
from colligate.models import ChatModel, Role
from colligate.models.cache import ResponseCache
from colligate.models.metering import Meter
from colligate.models.rerankers import EmbeddingReranker
from colligate.strategies.longrefiner.method import Refiner
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

CHUNKS: Mapping[str, Chunker] = {"": Structural(), "-six": SixSentences()}
MODES = {"bm25": SearchMode.SPARSE, "dense": SearchMode.DENSE, "hybrid": SearchMode.HYBRID}
BASELINES = [mode + chunks for chunks in CHUNKS for mode in MODES]
# Local scores are those of the search, spread over paragraphs, or the embedder's.
SCORERS = [*MODES, "embedding"]
REFINERS = [f"refiner-{scorer}" for scorer in SCORERS]
LOCAL = [f"refiner-local-{scorer}" for scorer in SCORERS]
WHOLE = "everything"
DEFAULT = [WHOLE, *BASELINES, "refiner-local-hybrid", "refiner-local-embedding"]
KEYS = ("suite", "question", "method", "budget", "models", "embedder", "measure", "set")
PAGES = 8  # LongRefiner: the documents whose best passages are best
MOST = 500  # passages ranked for a question
COSTS = ("tokens", "words", "calls", "input_tokens", "output_tokens", "scope", "seconds")


@dataclass
class Comparison:
    """Hold the documents and the models that all methods use."""

    corpus: Corpus
    models: Mapping[Role, ChatModel]
    ruler: Ruler
    kept: ResponseCache
    settings: Sequence[str]

    async def show(self, method: str, question: Question, budget: int) -> tuple[Shown, Row]:
        """Return the evidence that a method shows for a question, and its costs."""
        documents = self.corpus.documents
        sources = await self.corpus.open_sources(CHUNKS[""])
        run = Run(sources, self.models, Meter(), store=self.kept)
        read_by = list(question.documents) or await rank_documents(question.text, run, PAGES)
        if method == WHOLE:
            return make_shown([Span(id_, 0, len(documents[id_])) for id_ in read_by], documents), {}
        if method in BASELINES:
            mode, six, _ = method.partition("-six")
            sources = await self.corpus.open_sources(CHUNKS[six])
            hits = await sources.search(question.text, k=MOST, mode=MODES[mode], documents=read_by)
            ranked = [hit.passage for hit in hits]
            return await fill_budget(ranked, documents, budget, self.ruler), {}
        refined = await self._refiner(method, budget, run).refine(
            question.text, run, documents=read_by
        )
        cost = run.meter.report()
        return Shown(refined.text, refined.passages), {
            "scope": refined.scope,
            "calls": cost.calls,
            "input_tokens": cost.input_tokens,
            "output_tokens": cost.output_tokens,
            "warnings": list(run.warnings),
        }

    def _refiner(self, method: str, budget: int, run: Run) -> Refiner:
        scorer = method.rpartition("-")[2]
        settings = [f"budget={budget}"]
        if method in LOCAL:
            settings += ["no_global=true", "structuring=headings"]
        if scorer in MODES:
            settings.append(f"mode={MODES[scorer]}")
        else:
            run.reranker = EmbeddingReranker(self.corpus.embedder)
        return set_parameters(Refiner, [*settings, *self.settings])


async def measure(arguments: argparse.Namespace) -> None:
    suite = load(arguments.suite, arguments.data, arguments.limit)
    rows = Rows(arguments.out, KEYS)
    wanted: list[Row] = []
    async with AsyncExitStack() as stack:
        embedder = await open_embedder_of(arguments, stack)
        models = await open_models(arguments, stack)
        kept = ResponseCache(arguments.cache / "structures.sqlite")
        stack.callback(kept.close)
        ruler = Ruler(models.get(Role.WORKER, models[Role.READER]))
        corpus = Corpus(suite.documents, embedder, stack)
        for six in {"-six" if method.endswith("-six") else "" for method in arguments.methods}:
            await corpus.open_sources(CHUNKS[six])
        comparison = Comparison(corpus, models, ruler, kept, arguments.set)
        for question in suite.questions:
            for method in arguments.methods:
                for budget in arguments.budgets if method != WHOLE else [0]:
                    refines = method in REFINERS or method in LOCAL
                    names = " ".join(f"{role.value}={model.name}" for role, model in models.items())
                    row: Row = {
                        "suite": suite.name,
                        "question": question.id,
                        "method": method,
                        "budget": budget,
                        "models": names if method in REFINERS else "",
                        "embedder": embedder.name,
                        "measure": ruler.name,
                        "set": " ".join(arguments.set) if refines else "",
                    }
                    if row not in rows:
                        rows.add(row | await measure_one(comparison, question, method, budget))
                    wanted.append(rows[row])
            print(f"{suite.name}: {question.id}", file=sys.stderr, flush=True)
    report(wanted, suite.name, arguments.seed)


async def measure_one(comparison: Comparison, question: Question, method: str, budget: int) -> Row:
    """Measure the evidence that one method shows for one question."""
    began = time.perf_counter()
    evidence, known = await comparison.show(method, question, budget)
    seconds = time.perf_counter() - began
    await comparison.ruler.learn([evidence.text])
    tokens = comparison.ruler(evidence.text)
    if budget and tokens > budget:
        raise SystemExit(f"{method} shows {tokens} tokens, but at most {budget} are allowed")
    return {
        "seconds": round(seconds, 3),
        "tokens": tokens,
        "words": len(evidence.text.split()),
        "measures": question.gold(evidence),
        "spans": [[p.document_id, p.span.start, p.span.end] for p in evidence.passages],
        **known,
    }


def report(rows: Sequence[Row], suite: str, seed: int) -> None:
    """Print means and costs, then each refiner's differences to each baseline."""
    for budget in sorted({row["budget"] for row in rows}):
        where = f"{suite} at {budget} tokens" if budget else suite
        by_method: dict[str, list[Row]] = {}
        for row in rows:
            if row["budget"] == budget:
                by_method.setdefault(row["method"], []).append(row)
        for method, own in by_method.items():
            say_means(own, f"{where}: {{}}, {method}")
            for cost in COSTS:
                values = [row[cost] for row in own if row.get(cost) is not None]
                if values:
                    figure = f"{where}: {cost} a question, {method}"
                    say(figure, sum(values) / len(values), "mean", own[0]["models"] or None)
        for method in (m for m in by_method if m.startswith("refiner")):
            twin = method.replace("refiner-", "refiner-local-")
            for other in (m for m in by_method if m in BASELINES or m == twin):
                for name in dict.fromkeys(n for row in by_method[method] for n in row["measures"]):
                    say_difference(
                        f"{where}: {name}, {method} over {other}",
                        index_by_question(by_method[method], name),
                        index_by_question(by_method[other], name),
                        seed,
                        "share",
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2048])
    parser.add_argument("--methods", nargs="+", choices=[WHOLE, *BASELINES, *LOCAL, *REFINERS])
    arguments = parser.parse_args()
    asks = bool(arguments.model) and not arguments.local_only
    if arguments.methods is None:
        arguments.methods = DEFAULT + (["refiner-hybrid", "refiner-embedding"] if asks else [])
    if not asks and any(method in REFINERS for method in arguments.methods):
        parser.error("refiners need --model, without --local-only; refiner-local-... need no model")
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
