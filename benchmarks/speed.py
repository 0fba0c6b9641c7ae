"""Measure how fast a GGUF model reads and writes, against xllamacpp and in other weights formats.

    python benchmarks/speed.py [--model bundled] [--peer PEER/bin/python] [--formats Q4_0 Q8_0]
        [--read 1500] [--written 100] [--threads N] [--batch N] [--kept] [--only text|quotes]

"text" is `--read` tokens of a licence and `--written` tokens after them, whatever they are: prompt
tokens a second up to the first token, written tokens a second after it, and the whole answer.
"quotes" is passages of the example licences as the reader shows them, and the request to copy a
paragraph of one as JSON; the answers may differ between libraries, and seconds are compared by
token as well as whole. "Without guesses" switches drafting off; the texts must be equal.

`--formats` requantises the weights to a temporary file. `--kept` adds the same with the cache full
of other prompts. `--peer` names a Python with xllamacpp, see `peer.py`. Nothing of a prompt is
known before it is read.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colligate.concurrency import physical_cores
from colligate.core.prompts import render_passages
from colligate.documents import Passage
from colligate.documents.chunking import Structural
from colligate.documents.reading import read_file
from colligate.models.base import Message, encodable
from colligate.models.decoding import GenerationRequest
from colligate.models.grammar import Grammars
from colligate.models.llama import engine as engine_module
from colligate.models.llama.api import load_library
from colligate.models.llama.beginnings import Beginnings
from colligate.models.llama.engine import LlamaEngine
from colligate.models.llama.libraries import pull_libraries
from colligate.models.llama.model import LlamaTokenizer
from colligate.models.prompts import Prompts
from pairs import EXAMPLES, Table, Worker, add_options, alternate, compute, divide, find_gguf
from requantise import requantise

WINDOW = 16384
REPLY = 600  # the reader's limit, in tokens
DRAFT = 7
QUOTE = {"type": "object", "properties": {"quote": {"type": "string"}}, "required": ["quote"]}


@dataclass(frozen=True)
class Answered:
    """An answer: seconds to the first token and to the end, tokens read and written."""

    text: str
    read: int
    written: int
    first: float
    whole: float
    scores: Sequence[float] = ()

    @property
    def reading(self) -> float:
        """Prompt tokens a second."""
        return self.read / self.first

    @property
    def writing(self) -> float:
        """Tokens a second after the first one."""
        return (self.written - 1) / (self.whole - self.first)


class Ours:
    """Our engine, without what it keeps between requests."""

    def __init__(self, path: Path, threads: int) -> None:
        self.engine = LlamaEngine(
            load_library(pull_libraries()),
            path,
            path.name,
            Beginnings(Path(), "", []),  # nothing is known of a prompt
            context=WINDOW,
            parallel=8,
            threads=threads,
            draft=DRAFT,
        )
        self.prompts = Prompts(LlamaTokenizer(self.engine.model), path.name)
        self._grammars = Grammars(self.engine.model.make_llguidance_tokenizer)
        self._ends = self.engine._ends

    def complete(self, ids: list[int], tokens: int, *, draft: int, keep: bool = False) -> Answered:
        """Write so many tokens after a prompt, whatever they are."""
        self.engine._ends = frozenset()
        if not keep:
            self.forget()
        return self._run(time.perf_counter(), GenerationRequest(ids, tokens), draft)

    def answer(
        self, messages: Sequence[Message], tokens: int, schema: Mapping[str, Any], *, draft: int
    ) -> Answered:
        """Answer messages with JSON."""
        self.engine._ends = self._ends
        self.forget()
        began = time.perf_counter()
        ids = self.prompts.encode(self.prompts.render(messages, think=False))
        request = GenerationRequest(ids, tokens, grammar=self._grammars.compile(schema))
        return self._run(began, request, draft)

    def forget(self) -> None:
        """Drop what is kept of earlier prompts."""
        while self.engine._kept:
            self.engine._drop(self.engine._kept[0])

    def _run(self, began: float, request: GenerationRequest, draft: int) -> Answered:
        first = 0.0

        def on_piece(_: str) -> None:
            nonlocal first
            first = first or time.perf_counter() - began

        request.on_piece = on_piece
        self.engine._draft = draft
        self.engine.submit(request)
        found = compute(self.engine, request)
        whole = time.perf_counter() - began
        return Answered(found.text, found.input_tokens, found.output_tokens, first or whole, whole)


def list_pieces(engine: LlamaEngine, count: int, size: int) -> list[list[int]]:
    """Return pieces of the licences of `size` tokens each, which begin differently."""
    texts = [p.read_text("utf-8") for p in sorted((EXAMPLES / "licences").iterdir())]
    ids = engine.model.tokenize(encodable("\n\n".join(texts)))
    starts = random.Random(7).sample(range(len(ids) - size), count)
    return [ids[start : start + size] for start in starts]


def list_reader_prompts(prompts: Prompts, count: int, size: int) -> list[list[Message]]:
    """Return the reader's prompts that ask for a quotation, with about `size` tokens of passages.

    One passage has the words, of an example question's answer; the others are of all licences.
    """
    passages: list[tuple[str, Passage]] = []
    for file in sorted((EXAMPLES / "licences").iterdir()):
        for document in read_file(file).documents:
            document = replace(document, title=file.name)
            spans = Structural(200, prompts.token_spans)(document)
            passages += [(file.name, document.passage(span)) for span in spans]
    found = []
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    for number, question in enumerate(map(json.loads, lines)):
        gold = [
            passage
            for name, passage in passages
            if name in question["documents"]
            and any(
                " ".join(q.split()) in " ".join(passage.text.split()) for q in question["quotes"]
            )
        ]
        if not gold:
            continue
        shown = gold[:1]
        others = [passage for _, passage in passages if passage not in shown]
        random.Random(number).shuffle(others)
        while sum(len(prompts.encode_literal(p.text)) for p in shown) < size and others:
            shown.append(others.pop())
        random.Random(number).shuffle(shown)
        words = max(question["quotes"], key=len).split()
        asked = "Copy the paragraph that contains these words, from its beginning to its end: "
        asked += f'"{" ".join(words[:8])}"'
        found.append([Message("user", f"{render_passages(shown)}\n\n{asked}")])
    return [found[i % len(found)] for i in range(count)]


def report(table: Table, case: str, found: Mapping[str, list[Answered]]) -> None:
    """Print the speeds of each way, and the first one's ratios to the others."""
    names = list(found)
    for name, answers in found.items():
        sizes = f"{answers[0].read} read, {min(a.written for a in answers)}"
        sizes += f" to {max(a.written for a in answers)} written"
        table.say(f"{case}: reading, {name}", [a.reading for a in answers], "tokens/s", sizes)
        table.say(f"{case}: writing, {name}", [a.writing for a in answers], "tokens/s", sizes)
        table.say(f"{case}: whole answer, {name}", [a.whole for a in answers], "s", sizes)
    mine = found[names[0]]
    for name in names[1:]:
        theirs = found[name]
        for what in ("reading", "writing"):
            ratio = divide([getattr(a, what) for a in mine], [getattr(a, what) for a in theirs])
            table.say(f"{case}: {what}, times faster", ratio, "x", name)
        ratio = divide([a.whole for a in theirs], [a.whole for a in mine])
        table.say(f"{case}: whole answer, times faster", ratio, "x", name)
        equal = [float(a.text == b.text) for a, b in zip(mine, theirs, strict=True)]
        table.say(f"{case}: equal texts", [sum(equal) / len(equal)], "share", name)


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    path = find_gguf(arguments.model)
    threads = arguments.threads or physical_cores()
    read, written, rounds = arguments.read, arguments.written, arguments.rounds
    if arguments.quick:
        read, written, rounds = 200, 12, 2
    engine_module._BATCH_TOKENS = arguments.batch or engine_module._BATCH_TOKENS
    table = Table(arguments.json)
    ours = {"new": Ours(path, threads)}
    for name in arguments.formats:
        ours[name] = Ours(requantise(path, folder, name), threads)
    new = ours["new"]
    workers = []
    if arguments.peer:
        here = Path(__file__).parent
        command = [arguments.peer, here / "peer.py", path, "--threads", threads]
        workers.append(Worker(*command, "--context", WINDOW, "--batch", arguments.peer_batch))
    if arguments.only != "quotes":
        pieces = list_pieces(new.engine, rounds + 1, read)
        ways: dict[str, Callable[[int], Answered]] = {
            name: lambda n, each=each: each.complete(pieces[n], written, draft=DRAFT)
            for name, each in ours.items()
        }
        ways["without guesses"] = lambda n: new.complete(pieces[n], written, draft=0)
        for worker in workers:
            ways["xllamacpp"] = lambda n, worker=worker: Answered(
                **worker.ask("complete", ids=pieces[n], tokens=written)
            )
        report(table, "text", alternate(ways, rounds))
    if arguments.only != "text":
        asked = list_reader_prompts(new.prompts, rounds + 1, max(100, read - 400))
        schema = QUOTE
        tokens = REPLY if not arguments.quick else 60
        ways = {
            name: lambda n, each=each: each.answer(asked[n], tokens, schema, draft=DRAFT)
            for name, each in ours.items()
        }
        ways["without guesses"] = lambda n: new.answer(asked[n], tokens, schema, draft=0)
        for worker in workers:
            ways["xllamacpp"] = lambda n, worker=worker: Answered(
                **worker.ask(
                    "answer",
                    messages=[{"role": m.role, "content": m.content} for m in asked[n]],
                    tokens=tokens,
                    schema=schema,
                )
            )
        report(table, "quotes", alternate(ways, rounds))
    if arguments.kept:
        measure_kept(table, new, rounds, read, written)
    table.close(workers)


def measure_kept(table: Table, new: Ours, rounds: int, read: int, written: int) -> None:
    """Print what it costs that the cells are full of earlier prompts."""
    pieces = list_pieces(new.engine, rounds + 1, read)
    others = list_pieces(new.engine, WINDOW // read, read)

    def full(number: int) -> Answered:
        for ids in others:
            new.complete(ids, 1, draft=0, keep=True)
        return new.complete(pieces[number], written, draft=0, keep=True)

    ways = {
        "cache empty": lambda n: new.complete(pieces[n], written, draft=0),
        "cache full": full,
    }
    report(table, "kept", alternate(ways, rounds, warm=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, rounds=5)
    parser.add_argument("--peer", help="a Python with xllamacpp, see peer.py")
    parser.add_argument("--peer-batch", type=int, default=128)
    parser.add_argument("--formats", nargs="*", default=[], help="such as Q4_0 Q8_0")
    parser.add_argument("--read", type=int, default=1500)
    parser.add_argument("--written", type=int, default=100)
    parser.add_argument("--batch", type=int, help="tokens that our engine computes together")
    parser.add_argument("--kept", action="store_true", help="with the cache full of other prompts")
    parser.add_argument("--only", choices=("text", "quotes"))
    with tempfile.TemporaryDirectory() as temporary:
        measure(parser.parse_args(), Path(temporary))
