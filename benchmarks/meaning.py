"""Measure whether claims that turn the meaning of their source round are caught.

    python benchmarks/meaning.py --data DIR [--part held|building] [--ways lexical rules both ...]
        [--verifier minilm|onnx:FOLDER|hf:NAME|odds] [--model bundled] [--show KIND]
    python benchmarks/meaning.py --data DIR --answers [--part held]
    python benchmarks/meaning.py --data DIR --choose


`meaning.jsonl` names sentences of the development data (`DIR/NAME.corpus.jsonl.gz`) and holds the
claims that were written about them by hand; simple ones are made here by a seeded program. A third
of the documents is `held`: it is measured as a whole, and nothing is chosen by it (`--show` reads
the building part alone). `caught` is the share of claims of a kind that are not accepted; for kinds
that keep the meaning it is the share that is lost.

`--answers` takes the sentences of ASQA's answers, which people wrote, with the sentences of their
passages that pass the lexical test, and prints how many citations the check of meaning drops.
Nearly all of these are right.

A verifier is one of `colligate ask --verifier`; `odds` asks `--model`, which takes seconds a claim.

`lexical` is the test of words that runs first; `rules` and `verifier` are the parts of the check of
meaning, `both` the check, in which the verifier is not asked about claims that add words; `all` is
what a citation goes through. `cited`, `joined` and `short` go through the code that makes
citations, without a verifier: a statement, one with a list of quotes, and a short answer beside its
source. `--choose` prints what limits of the verifier catch and lose in the building part (with
`onnx:FOLDER`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

from colligate.bench.datasets import load_records
from colligate.bench.significance import bootstrap
from colligate.core.citing import Joined, Place, Quote, Stated, Statement, cite, write_answer
from colligate.core.meaning import Meaning, check_meaning, compare_words
from colligate.core.odds_verifier import OddsVerifier
from colligate.core.run import Run
from colligate.core.support import NEAR, find_supporting_sentences, support
from colligate.documents import Document, Span, flat_tree
from colligate.documents.sentences import sentence_spans
from colligate.library.in_memory import InMemorySources
from colligate.models import Role, Verifier
from colligate.models.metering import Meter
from colligate.models.names import open_model, open_verifier
from colligate.models.pairs import MiniLMVerifier
from colligate.training.claims import (
    ENTAILED,
    KINDS,
    PARAPHRASED,
    SUPPORTS,
    UNRELATED,
    Claim,
    Sentence,
    read_written,
)

PAIRS = Path(__file__).parent / "meaning.jsonl"

Way = Callable[[Claim], bool]
"""A check that returns whether a claim is not accepted."""


def load_pairs(data: Path, part: str) -> list[Claim]:
    """Return the claims of a part: those written by hand, then those made by the program."""
    written = read_written(PAIRS, data)
    pairs = []
    for place, (sentence, claims) in enumerate(written):
        if is_held(sentence.document) == (part == "held"):
            other, theirs = written[place - 1]
            pairs += [*claims, *_make(sentence, other, theirs)]
    return pairs


def is_held(document: str) -> bool:
    """Return whether a document is in the third that nothing is chosen by."""
    return hashlib.sha256(f"held {document}".encode()).digest()[0] % 3 == 0


_BE = re.compile(r"\b(?:is|was|are|were|has|have|had|can|will|would|did)\b(?! not| never)")
_YEAR_OR_NUMBER = re.compile(r"\b\d+\b")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+(?: [A-Z][a-z]+)*")


def _make(sentence: Sentence, other: Sentence, theirs: Sequence[Claim]) -> Iterator[Claim]:
    """Yield the program's claims about a sentence; `other` gives a name and something unrelated."""
    drawn = random.Random(f"20261123 {sentence.document}")
    text = sentence.text

    def claim(made: str, kind: str) -> Claim:
        return Claim(sentence.set, sentence.document, sentence.title, text, made, kind)

    without = re.sub(r" ?\([^()]*\)", "", text)
    cuts = [m.start() for m in re.finditer(r", | and | (?:in|on|at|by|with|for) ", without)]
    cuts = [at for at in cuts if 6 <= len(without[:at].split()) <= len(text.split()) - 3]
    yield claim(f"{without[: drawn.choice(cuts)]}." if cuts else text, ENTAILED)
    if drawn.random() < 0.35 and (verbs := list(_BE.finditer(text))) and " not " not in text:
        at = verbs[0].end()
        yield claim(f"{text[:at]} not{text[at:]}", "negated")
    if drawn.random() < 0.5 and (numbers := list(_YEAR_OR_NUMBER.finditer(text))):
        found = drawn.choice(numbers)
        new = str(int(found.group()) + drawn.choice((-3, -1, 1, 2, 10)))
        yield claim(text[: found.start()] + new + text[found.end() :], "number")
    if drawn.random() < 0.5 and (names := list(_NAME.finditer(text))):
        found, others = drawn.choice(names), _NAME.findall(other.text)
        if others:
            new = drawn.choice(others)
            yield claim(text[: found.start()] + new + text[found.end() :], "name")
    if drawn.random() < 0.4 and theirs:
        yield claim(theirs[0].claim, UNRELATED)


def _lexical(claim: Claim) -> bool:
    return not support(claim.claim, f"{claim.title} {claim.source}").enough()


def _rules(claim: Claim) -> bool:
    return compare_words(claim.claim, claim.source) is Meaning.CONTRADICTS


def _cite(claim: Claim, statement: Callable[[int, str, str], Statement | Joined]) -> bool:
    """Return whether a claim that quotes its whole source gets no citation in an answer."""
    source = make_document(claim.document, claim.title, claim.source)
    passage = source.passage(source.span(0, len(source)))
    said = statement(1, claim.source, claim.claim)
    return not cite("", [said], [passage], {source.id: source}).citations


def _single(claim: Claim) -> bool:
    return _cite(claim, lambda p, q, s: Statement(passage=p, quote=q, sentence=s))


def _joined(claim: Claim) -> bool:
    return _cite(claim, lambda p, q, s: Joined(quotes=[Quote(passage=p, quote=q)], sentence=s))


def _short(claim: Claim) -> bool:
    """Return whether a claim is left out as the short answer beside its source."""
    source = make_document(claim.document, claim.title, claim.source)
    stated = Stated(claim.source, (Place(source.span(0, len(source)), "exact"),))
    return not write_answer([stated], {source.id: source}, (), short=claim.claim).short


def make_ways(verifier: Verifier | None) -> dict[str, Way]:
    """Return the checks by name."""
    ways: dict[str, Way] = {"lexical": _lexical, "rules": _rules}
    ways |= {"cited": _single, "joined": _joined, "short": _short}
    if verifier is not None:

        def alone(claim: Claim) -> bool:
            return verifier.score(claim.claim, claim.title, claim.source)[1] > verifier.limit

        @cache
        def both(claim: Claim) -> bool:
            found = check_meaning(claim.claim, claim.title, claim.source, verifier)
            return found is Meaning.CONTRADICTS

        ways |= {"verifier": alone, "both": both}
    found = ways.get("both", _rules)
    ways["all"] = lambda claim: _lexical(claim) or found(claim)
    return ways


def measure(pairs: Sequence[Claim], ways: dict[str, Way]) -> None:
    """Print the table: what each way catches of each kind, and in sum."""
    groups: dict[str, list[Claim]] = {kind: [] for kind in KINDS}
    for pair in pairs:
        groups[pair.kind].append(pair)
    wrong = [each for each in pairs if each.label != SUPPORTS and each.kind != UNRELATED]
    groups |= {
        "all contradictions": wrong,
        "true claims": [*groups[ENTAILED], *groups[PARAPHRASED]],
    }
    seconds: dict[str, float] = defaultdict(float)
    print("| kind | n | " + " | ".join(ways) + " |")
    print("|---|---|" + "---|" * len(ways))
    for kind, own in groups.items():
        cells = []
        for name, way in ways.items():
            began = time.perf_counter()
            caught = [float(way(each)) for each in own]
            seconds[name] += time.perf_counter() - began
            cell = f"{sum(caught) / max(1, len(caught)):.3f}"
            if len(own) > 100 and kind not in KINDS:
                low, high = bootstrap(caught, seed=1)
                cell += f" ({low:.3f} to {high:.3f})"
            cells.append(cell)
        print(f"| {kind} | {len(own)} | " + " | ".join(cells) + " |")
    counted = sum(map(len, groups.values()))
    for name in ways:
        print(f"{name}: {1000 * seconds[name] / counted:.1f} ms a pair")


def choose(pairs: Sequence[Claim], answers: Sequence[Claim], verifier: MiniLMVerifier) -> None:
    """Print what limits of the verifier, and of words added, catch and lose, rules included."""
    wrong = [each for each in pairs if each.label != SUPPORTS and each.kind != UNRELATED]
    true = [each for each in pairs if each.label == SUPPORTS]
    for most, limit in product((1, 2, 3), (0.8, 0.85, 0.9, 0.93, 0.95, 0.97)):
        verifier.most_added, verifier.limit = most, limit
        both = make_ways(verifier)["both"]
        found = [sum(map(both, own)) / len(own) for own in (wrong, true, answers)]
        what = f"{most} words added, limit {limit}"
        print(what + ": caught {:.3f}, lost {:.3f}, of answers {:.3f}".format(*found))


def load_answers(data: Path, part: str) -> list[Claim]:
    """Return the sentences of ASQA's written answers with the place that each would cite."""
    pairs = []
    for _, record in load_records(data / "asqa.jsonl.gz"):
        gold = set(record["gold_document_ids"])
        documents = [
            make_document(each["id"], each["title"], each["text"])
            for each in record["documents"]
            if each["id"] in gold and each["text"]
        ]
        for answer in record["meta"]["long_answers"]:
            written = make_document("", "", answer)
            for span in sentence_spans(written, Span("", 0, len(answer))):
                pair = _find_cited(written.slice(span).strip(), record["question"], documents)
                if pair and is_held(pair.document) == (part == "held"):
                    pairs.append(pair)
    return pairs


def make_document(name: str, title: str, text: str) -> Document:
    return Document(name, title, text, flat_tree(name, len(text)), language="en")


def _find_cited(claim: str, question: str, documents: Sequence[Document]) -> Claim | None:
    """Return a claim with the sentences that support it most, if any pass the lexical test."""
    rated = []
    for each in documents:
        whole = Span(each.id, 0, len(each.text))
        for span in find_supporting_sentences(claim, each, whole):
            source = each.slice(span)
            found = support(claim, f"{each.title} {source}", question)
            if found.enough(NEAR):
                pair = Claim("asqa", each.id, each.title, source, claim, PARAPHRASED)
                rated.append((found.whole, pair))
    return max(rated, key=lambda each: each[0])[1] if rated else None


def open_odds_verifier(name: str) -> Verifier:
    """Return a verifier that asks a model, whose event loop runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    run = Run(InMemorySources(()), {Role.READER: open_model(name)}, Meter())

    async def make() -> Verifier:
        return OddsVerifier(run)

    return asyncio.run_coroutine_threadsafe(make(), loop).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("building", "held"), default="building")
    parser.add_argument("--ways", nargs="+", help="default: all that can be computed")
    parser.add_argument("--verifier", metavar="NAME")
    parser.add_argument("--model", default="bundled", help="what --verifier odds asks")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--show", choices=KINDS, nargs="+", help="print what is judged wrongly")
    arguments = parser.parse_args()
    load = load_answers if arguments.answers else load_pairs
    pairs = load(arguments.data, arguments.part)
    verifier: Verifier | None = None
    if arguments.verifier == "odds":
        verifier = open_odds_verifier(arguments.model)
    elif arguments.verifier:
        verifier = open_verifier(arguments.verifier)
    ways = make_ways(verifier)
    ways = {name: ways[name] for name in arguments.ways or ways}
    if arguments.choose and isinstance(verifier, MiniLMVerifier):
        choose(pairs, load_answers(arguments.data, "building"), verifier)
    elif arguments.show and arguments.part == "building":
        for name, way in ways.items():
            for each in pairs:
                if each.kind in arguments.show and way(each) == (each.label == SUPPORTS):
                    print(f"{name} {each.kind}: {each.claim}\n    {each.title}: {each.source}")
    else:
        measure(pairs, ways)


if __name__ == "__main__":
    main()
