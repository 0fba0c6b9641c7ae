"""Measure whether claims that turn the meaning of their source round are caught.

    python benchmarks/meaning.py --data DIR [--part held|building] [--ways lexical rules both ...]
        [--verifier FOLDER] [--show KIND]
    python benchmarks/meaning.py --data DIR --part building --choose .02

`meaning.jsonl` names sentences of the development data (`DIR/NAME.corpus.jsonl.gz`) and holds the
claims that were written about them by hand; simple ones are made here by a seeded program. A third
of the documents is `held`: it is measured as a whole, and nothing is chosen by it (`--show` reads
the building part alone). `caught` is the share of claims of a kind that are not accepted; for kinds
that keep the meaning it is the share that is lost.

`lexical` is the test of words that runs first; `rules`, `verifier` and `both` are the check of
meaning alone; `all` is what a citation goes through. `--choose` prints the verifier's limit at
which at most this share of true claims of the building part is lost.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from colligate.bench.significance import bootstrap
from colligate.core.meaning import Verdict, judge
from colligate.core.support import support
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
    return judge(claim.claim, claim.source) is Verdict.CONTRADICTS


def make_ways(verifier: MiniLMVerifier | None, limit: float | None) -> dict[str, Way]:
    """Return the checks by name."""
    ways: dict[str, Way] = {"lexical": _lexical, "rules": _rules}
    if verifier is not None:
        chosen = verifier.limit if limit is None else limit

        def verified(claim: Claim) -> bool:
            return verifier.score(claim.claim, claim.title, claim.source)[1] > chosen

        ways["verifier"] = verified
        ways["both"] = lambda claim: _rules(claim) or verified(claim)
        ways["all"] = lambda claim: _lexical(claim) or _rules(claim) or verified(claim)
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


def choose(pairs: Sequence[Claim], verifier: MiniLMVerifier, most: float) -> None:
    """Print, for several limits, what is lost and caught by the verifier and the rules together."""
    scored = [
        (verifier.score(each.claim, each.title, each.source)[1], _rules(each), each)
        for each in pairs
        if each.kind != UNRELATED
    ]
    for limit in (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99):
        shares = []
        for true in (True, False):
            own = [x for x in scored if (x[2].label == SUPPORTS) == true]
            shares += [
                sum(odds > limit for odds, _, _ in own) / len(own),
                sum(odds > limit or ruled for odds, ruled, _ in own) / len(own),
            ]
        mark = "  <=" if shares[1] <= most else ""
        print(
            f"limit {limit}: lost {shares[0]:.3f} (with rules {shares[1]:.3f}), "
            f"caught {shares[2]:.3f} ({shares[3]:.3f}){mark}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("building", "held"), default="building")
    parser.add_argument("--ways", nargs="+", help="default: all that can be computed")
    parser.add_argument("--verifier", type=Path, help="a folder; default: the one in the package")
    parser.add_argument("--no-verifier", action="store_true")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--choose", type=float, metavar="SHARE")
    parser.add_argument("--show", choices=KINDS, nargs="+", help="print what is judged wrongly")
    arguments = parser.parse_args()
    pairs = load_pairs(arguments.data, arguments.part)
    verifier = None if arguments.no_verifier else MiniLMVerifier(arguments.verifier)
    ways = make_ways(verifier, arguments.limit)
    ways = {name: ways[name] for name in arguments.ways or ways}
    if arguments.choose is not None and verifier is not None:
        choose(pairs, verifier, arguments.choose)
    elif arguments.show and arguments.part == "building":
        for name, way in ways.items():
            for each in pairs:
                if each.kind in arguments.show and way(each) == (each.label == SUPPORTS):
                    print(f"{name} {each.kind}: {each.claim}\n    {each.title}: {each.source}")
    else:
        measure(pairs, ways)


if __name__ == "__main__":
    main()
