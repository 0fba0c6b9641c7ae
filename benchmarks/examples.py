"""Measure the answers to `examples/questions.jsonl` over the licences of `examples/`.

    python benchmarks/examples.py [--model bundled] [--strategy auto] [--set NAME=VALUE]
        [--reranker NAME] [--skip N] [--limit N] [--library DIR]

Counts, for answerable questions, answers that contain a known answer (in the cited sentences or the
short answer, in lower case and without punctuation; of an answer that joins documents all parts,
each in one of its known forms)
and citations into a document that contains the answer; for the others, refusals. Every question is
written to standard error when it ends. `--library` keeps the library and the model's replies in a
folder: after a change of the code, only what is asked in other words is asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from colligate.core.answer import Answer
from colligate.core.parameters import set_parameters
from colligate.core.strategy import load_strategy
from colligate.engine import Engine

EXAMPLES = Path(__file__).parent.parent / "examples"


def normalise(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s]", " ", text.casefold()).split())


def is_right(question: dict[str, Any], answer: Answer) -> bool:
    """Return whether the cited sentences and the short answer contain a known answer."""
    cited = [answer.text[start:end] for c in answer.citations for start, end in c.answer_spans]
    said = normalise(" ".join([*cited, answer.short or ""]))
    joins = len(question["documents"]) > 1
    forms: dict[int, list[list[str]]] = {}  # known answers as their parts, by the number of these
    for known in question["answers"]:
        parts = re.split(r", | and ", known) if joins else [known]
        forms.setdefault(len(parts), []).append(parts)
    return answer.found and any(
        all(
            any(f" {normalise(form)} " in f" {said} " for form in part)
            for part in zip(*group, strict=True)
        )
        for group in forms.values()
    )


async def measure(arguments: argparse.Namespace) -> None:
    model, skip, limit = arguments.model, arguments.skip, arguments.limit
    strategy = set_parameters(load_strategy(arguments.strategy), arguments.set)
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines][skip:][:limit]
    right, refused, cited_right, citations, seconds, retrieved = 0, 0, 0, 0, [], 0
    kept = arguments.library
    with tempfile.TemporaryDirectory() as library:
        async with Engine(
            model=model, reranker=arguments.reranker, library=kept or library, cache=bool(kept)
        ) as engine:
            await engine.add([EXAMPLES / "licences"])
            titles = {
                info.id: Path(info.source).name
                for info in await (await engine.open_library()).documents()
            }
            for question in questions:
                answer = await engine.ask(question["question"], strategy=strategy)
                seconds.append(answer.usage.seconds)
                good = is_right(question, answer)
                holds = set(question["documents"])
                if question["found"]:
                    right += good
                    retrieved += bool(holds & {titles[e.span.document_id] for e in answer.evidence})
                    citations += len(answer.citations)
                    cited_right += sum(
                        titles[c.span.document_id] in holds for c in answer.citations
                    )
                else:
                    refused += not answer.found
                verdict = "right" if (good if question["found"] else not answer.found) else "WRONG"
                notes = " | ".join([answer.text, answer.short or "", *answer.warnings])
                print(
                    f"{verdict} {question['id']}: {notes}",
                    file=sys.stderr,
                    flush=True,
                )
    answerable = sum(q["found"] for q in questions)
    rows = [
        ("answers right", right, f"of {answerable} answerable questions"),
        ("refusals right", refused, f"of {len(questions) - answerable} without an answer"),
        ("citations into a document that holds the answer", cited_right, f"of {citations}"),
        ("evidence holds a gold document", retrieved, f"of {answerable}"),
        ("seconds a question, median", round(statistics.median(seconds), 1), model or "default"),
    ]
    for figure, value, against in rows:
        unit = "s" if "seconds" in figure else "count"
        print(json.dumps({"figure": figure, "value": value, "unit": unit, "against": against}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--reranker")
    parser.add_argument("--library")
    asyncio.run(measure(parser.parse_args()))
