"""Measure how often DuQUAD's signals rank the gold document among the best six, by its place.

    python benchmarks/signals.py --data DIR --cache DIR --out rows.jsonl --model hf:FOLDER
        [--dtype bfloat16] [--positions 0 4 9 14 19] [--limit 50] [--offset N] [--prompt agent]
        [--fusions reranked calibrated sfs] [--without attention] [--reranker minilm]
    python benchmarks/signals.py --recompute --out rows.jsonl
    python benchmarks/signals.py --learn --out rows.jsonl

NQ with 20 documents, the same questions with the gold document at five places. The signals come
from the code that `duquad` uses; the model gives likelihood and attention, the embedder similarity,
the reranker its score. `--fusions reranked` needs no model. A reranker must not be trained on these
questions: `--data` then holds those that it was kept from.
Values that do not depend on the order of the documents are computed once a question and kept in the
cache folder. Attention is measured on the paper's prompt, or (`--prompt agent`) on that of the
Global agent, which adds no cost if the agent is the same model.

Rows contain the signals of every document, one row a question and position, and are written as they
are made; the same command resumes a run that was stopped. Another choice of signals needs another
file; a row says which were left out. Recall at 6 of each signal alone, of each pair fused and of
all, by position and over all positions, is computed from the rows at the end: `--recompute` does
only that, without a model.
Intervals are of the bootstrap over questions (over all positions, of a question's mean).

`--learn` fits the weights of the calibrated fusion to the rows: they maximise the likelihood of the
gold documents under a softmax of the fused scores. The recall of each question is computed with
weights learned from the others, also with the reranker's score as a fourth signal if the rows have
it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from answering import make_documents
from colligate.core.events import Trace
from colligate.core.reader import is_small
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.metering import Meter
from colligate.session import Session
from colligate.settings import Settings
from colligate.strategies.duquad.prompts import quoting_view_messages, view_messages
from colligate.strategies.duquad.signals import (
    WEIGHTS,
    Fusion,
    Signal,
    add_up,
    fuse_signals,
    share_weights,
    standardise,
)
from colligate.testing import ScriptedModel
from evidence_data import Record, read_records, select_some
from evidence_measuring import (
    Row,
    Rows,
    index_by_question,
    open_embedder_of,
    open_reranker_of,
    say,
    say_difference,
    say_mean,
)

POSITIONS = (0, 4, 9, 14, 19)
BEST = 6  # the paper's local documents
KEYS = ("question", "position", "model", "embedder", "reranker", "without", "prompt")
# The paper's Figure 3, 500 questions: Llama 3.1 8B and gte-large.
PAPER = {"similarity": 0.690, "likelihood": 0.754, "contrast": 0.814, "sfs": 0.908}

# The names of a fusion's signals in the rows: each fusion has its own prompts.
NAMES: Mapping[Fusion, Mapping[str, str]] = {
    Fusion.RERANKED: {},
    Fusion.SFS: {},
    Fusion.CALIBRATED: {
        "likelihood": "told likelihood",
        "attention": "attention of middle layers",
        "attention in reverse": "attention of middle layers, in reverse",
        "calibrated": "calibrated attention",
    },
}
# The form of each signal that a fusion uses.
COUNTED: Mapping[Fusion, Mapping[Signal, str]] = {
    Fusion.RERANKED: {Signal.SIMILARITY: "similarity", Signal.RERANKER: "reranker"},
    Fusion.SFS: {
        Signal.SIMILARITY: "similarity",
        Signal.LIKELIHOOD: "likelihood",
        Signal.ATTENTION: "contrast",
    },
    Fusion.CALIBRATED: {
        Signal.SIMILARITY: "similarity",
        Signal.LIKELIHOOD: "told likelihood",
        Signal.ATTENTION: "calibrated attention",
        Signal.RERANKER: "reranker",
    },
}


async def measure(arguments: argparse.Namespace) -> None:
    rows = Rows(arguments.out, KEYS)
    async with AsyncExitStack() as stack:
        embedder = await open_embedder_of(arguments, stack)
        model = await open_remembering(arguments, stack)
        models = {Role.READER: model}
        reranker = await open_reranker_of(arguments, stack, embedder, models)
        by_position = {
            position: select_some(
                read_records(arguments.data / "dev" / f"nq20_gold_at_{position}.jsonl.gz"),
                arguments.limit,
                arguments.offset,
            )
            for position in arguments.positions
        }
        left_out = " and ".join(sorted(arguments.without))
        for same in zip(*by_position.values(), strict=True):
            for position, record in zip(by_position, same, strict=True):
                if record["id"] != same[0]["id"]:
                    raise SystemExit("the files of the positions do not have the same questions")
                key: Row = {
                    "question": record["id"],
                    "position": position,
                    "model": model.name,
                    "embedder": embedder.name,
                    "reranker": arguments.reranker,
                    "without": f"without {left_out}" if left_out else "no signal left out",
                    "prompt": arguments.prompt,
                }
                if key not in rows:
                    made = await compute_signals(record, model, embedder, reranker, arguments)
                    rows.add(key | made)
                    line = f"{record['id']} gold at {position + 1}: {made['seconds']:.1f} s"
                    print(line, file=sys.stderr, flush=True)


async def open_remembering(arguments: argparse.Namespace, stack: AsyncExitStack) -> ChatModel:
    """Open the model, with a cache of its replies; one that gives no signals if none is named."""
    if arguments.model is None:
        return ScriptedModel(name="none")
    settings = Settings.load()
    if arguments.dtype:
        options = {**settings.options, arguments.model: {"dtype": arguments.dtype}}
        settings = replace(settings, options=options)
    session = await stack.enter_async_context(
        Session(settings, models={Role.READER: arguments.model})
    )
    replies = ResponseCache(arguments.cache / f"scores-{arguments.dtype or 'auto'}.sqlite")
    stack.callback(replies.close)
    models = await session.open_models(Trace(), roles=[Role.READER])
    return CachedChat(models[Role.READER], replies)


async def compute_signals(
    record: Record,
    model: ChatModel,
    embedder: Embedder,
    reranker: Reranker | None,
    arguments: argparse.Namespace,
) -> Row:
    """Return every signal of these fusions of every document of a question, in their order."""
    documents = make_documents(record["documents"])
    passages = [d.passage(Span(d.id, 0, len(d))) for d in documents.values()]
    # The default form of `duquad`'s agents.
    quotes = Capability.STRUCTURED in model.capabilities and is_small(model)
    framed = quoting_view_messages if quotes else view_messages
    shared = framed(record["question"], list(enumerate(passages, 1)))
    signals: dict[str, Sequence[float]] = {}
    async with InMemorySources(list(documents.values()), embedder) as sources:
        run = Run(sources, {Role.READER: model}, Meter(), embedder=embedder, reranker=reranker)
        began = time.perf_counter()
        for fusion in map(Fusion, arguments.fusions):
            scored = await fuse_signals(
                record["question"],
                passages,
                run,
                fusion=fusion,
                without=arguments.without,
                agent_prompt=shared if arguments.prompt == "agent" else None,
            )
            if scored.missing:
                raise SystemExit(f"{model.name} has no {', '.join(scored.missing)}")
            signals |= {NAMES[fusion].get(name, name): v for name, v in scored.signals.items()}
    return {
        "gold": find_gold(record, passages),
        "seconds": round(time.perf_counter() - began, 3),
        "signals": signals,
    }


def find_gold(record: Record, passages: Sequence[Passage]) -> int:
    """Return the place of the gold document."""
    [gold] = record["gold_document_ids"]
    return [passage.document_id for passage in passages].index(gold)


# From rows to figures


def compute_scores(signals: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """Return the scores of each signal alone and of each fusion measured, named by its signals."""
    found: dict[str, Sequence[float]] = dict(signals)
    for fusion, weights in WEIGHTS.items():
        parts = {s: signals[name] for s, name in COUNTED[fusion].items() if name in signals}
        measured = [signal for signal in weights if signal in parts]
        if len(measured) < 2:
            continue
        for some_of in dict.fromkeys((*combinations(measured, 2), tuple(measured))):
            left_out = [signal for signal in weights if signal not in some_of]
            there = {signal: parts[signal] for signal in some_of}
            name = fusion.value if not left_out else f"{fusion.value}: {' + '.join(some_of)}"
            found[name] = add_up(fusion, there, share_weights(weights, left_out))
    return found


def is_among_the_best(scores: Sequence[float], gold: int, best: int = BEST) -> float:
    """Return 1 if the gold document is among the best; of equal scores the earlier is first."""
    ranked = sorted(range(len(scores)), key=lambda at: -scores[at])
    return float(gold in ranked[:best])


def compute_recalls(rows: Sequence[Row]) -> list[Row]:
    """Return for each row whether each score has the gold document among its best."""
    return [
        {
            "question": row["question"],
            "position": row["position"],
            "measures": {
                name: is_among_the_best(scores, row["gold"])
                for name, scores in compute_scores(row["signals"]).items()
            },
        }
        for row in rows
    ]


def report(rows: Sequence[Row], seed: int) -> None:
    """Print recall by position and over all, and the fusions' differences to each signal."""
    for about in sorted({tuple(row[key] for key in KEYS[2:]) for row in rows}):
        own = compute_recalls([row for row in rows if tuple(row[key] for key in KEYS[2:]) == about])
        what = ", ".join(about[:-1]) + f", prompt of the {about[-1]}"
        positions = sorted({row["position"] for row in own})
        names = list(own[0]["measures"])
        by_position = {p: [row for row in own if row["position"] == p] for p in positions}
        for name in names:
            means = []
            for position, there in by_position.items():
                values = [row["measures"][name] for row in there]
                means.append(float(np.mean(values)))
                figure = f"recall at {BEST}, {name}, gold at {position + 1}"
                say_mean(figure, values, seed, "share", what)
            whole = average_positions(own, name, len(positions))
            against = f"lowest of a position {min(means):.3f}, highest {max(means):.3f}"
            if name in PAPER:
                against += f", the paper {PAPER[name]:.3f}"
            values = list(whole.values())
            say_mean(f"recall at {BEST}, {name}, all positions", values, seed, "share", against)
        fused = [fusion.value for fusion in Fusion if fusion.value in names]
        for name in fused:
            for other in names:
                if other != name and ":" not in other:
                    figure = f"recall at {BEST}, {name} over {other}, all positions"
                    pair = [average_positions(own, each, len(positions)) for each in (name, other)]
                    say_difference(figure, pair[0], pair[1], seed, "share")


def average_positions(rows: Sequence[Row], name: str, positions: int) -> dict[str, float]:
    """Return the mean of each question that was asked at all positions."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for question, value in index_by_question([row], name).items():
            found.setdefault(question, []).append(value)
    return {q: float(np.mean(v)) for q, v in found.items() if len(v) == positions}


def learn(rows: Sequence[Row], seed: int) -> None:
    """Print the calibrated fusion's weights of maximum likelihood, and their recall held out."""
    # One row a question: none of these signals depends on the order of the documents.
    of_questions = {row["question"]: row for row in rows}
    gold = [row["gold"] for row in of_questions.values()]
    everything = COUNTED[Fusion.CALIBRATED]
    paper = [signal for signal in everything if signal is not Signal.RERANKER]
    measured = all(everything[Signal.RERANKER] in row["signals"] for row in of_questions.values())
    found: dict[str, dict[str, float]] = {}
    for counted in [paper, list(everything)] if measured else [paper]:
        what = f"{len(counted)} signals"
        terms = [
            np.stack([standardise(row["signals"][everything[s]]) for s in counted], axis=1)
            for row in of_questions.values()
        ]
        for signal, weight in zip(counted, _likeliest(terms, gold), strict=True):
            figure = f"learned weight of {signal.value}, {what}"
            say(figure, float(weight), "weight", f"{len(gold)} questions")
        found[what] = {}
        for at, (question, own) in enumerate(zip(of_questions, terms, strict=True)):
            weights = _likeliest(terms[:at] + terms[at + 1 :], gold[:at] + gold[at + 1 :])
            found[what][question] = is_among_the_best((own @ weights).tolist(), gold[at])
        values = list(found[what].values())
        figure = f"recall at {BEST}, {what}, weights learned from the other questions"
        say_mean(figure, values, seed, "share")
    if measured:
        whole = found.pop(what)
        found[Fusion.RERANKED.value] = index_by_question(
            compute_recalls(list(of_questions.values())), Fusion.RERANKED.value
        )
        for other, recalls in found.items():
            figure = f"recall at {BEST}, {what} over {other}"
            say_difference(figure, whole, recalls, seed, "share")


def _likeliest(
    terms: Sequence[NDArray[np.float64]], gold: Sequence[int], ridge: float = 0.01
) -> NDArray[np.float64]:
    """Fit a weight for each signal to [documents, signals] a question and the gold's place."""

    def loss(weights: NDArray[np.float64]) -> float:
        scores = [own @ weights for own in terms]
        surprise = [np.logaddexp.reduce(s) - s[at] for s, at in zip(scores, gold, strict=True)]
        return float(np.mean(surprise) + ridge * weights @ weights)

    found: NDArray[np.float64] = minimize(loss, np.ones(terms[0].shape[1])).x
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of questions")
    parser.add_argument("--cache", type=Path, help="folder of vectors and scores")
    parser.add_argument("--out", type=Path, required=True, help="file of rows (JSONL)")
    parser.add_argument("--model", help="model for likelihood and attention: hf:FOLDER")
    parser.add_argument("--dtype", help="bfloat16 or float32 (default: the model's)")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--reranker", default="minilm")
    parser.add_argument("--fusions", nargs="+", choices=[*Fusion], default=[*Fusion])
    parser.add_argument("--without", nargs="+", choices=[*Signal], default=[])
    parser.add_argument("--prompt", choices=("paper", "agent"), default="paper")
    parser.add_argument("--positions", type=int, nargs="+", choices=POSITIONS, default=POSITIONS)
    parser.add_argument("--limit", type=int, help="number of questions")
    parser.add_argument("--offset", type=int, default=0, help="number of questions to skip")
    parser.add_argument("--recompute", action="store_true", help="only print figures from the rows")
    parser.add_argument("--learn", action="store_true", help="only fit weights to the rows")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.learn:
        learn(Rows(arguments.out, KEYS).all, arguments.seed)
        return
    if not arguments.recompute:
        if None in (arguments.data, arguments.cache):
            parser.error("give --data and --cache, or --recompute")
        if arguments.model is None and arguments.fusions != [Fusion.RERANKED]:
            parser.error("give --model: only --fusions reranked needs none")
        asyncio.run(measure(arguments))
    report(Rows(arguments.out, KEYS).all, arguments.seed)


if __name__ == "__main__":
    main()
