"""Ask whether claims are true, and count citations that say the opposite of their answer.

    python benchmarks/claims.py --data DIR --out rows.jsonl [--part held] [--limit 200]
        [--model bundled] [--replies FILE] [--show]

The claims are those of `meaning.jsonl` (benchmarks/meaning.py), as FEVER has them: sentences of the
development data kept in their meaning, or turned round. Each is asked as a question ("Is it true
that ...?") over the paragraph that it is about and five others, by `retrieve-read` with `--model`,
once with the check of meaning and once with the test of words alone.

An answer affirms its claim if it is "yes", or is nearer in its letters to the claim than to the
sentence of the data. Affirmed with a citation of that sentence, a claim that turns it round is a
citation turned round. `--show` prints these answers, to be read. Rows are written as they are made,
and the same command resumes a run that was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import mean, median

from rapidfuzz.fuzz import ratio

from answering import Setting, answer_question, make_documents
from colligate.bench.datasets import load_records
from colligate.bench.significance import bootstrap, paired_bootstrap
from colligate.core import citing
from colligate.core.answer import Answer, split_answer
from colligate.core.events import Trace
from colligate.core.meaning import Meaning
from colligate.documents import Document
from colligate.library.in_memory import InMemorySources
from colligate.models import Role, Verifier
from colligate.models.cache import CachedChat, ResponseCache
from colligate.session import Session
from colligate.strategies.retrieve_read import RetrieveRead
from colligate.training.claims import SUPPORTS, UNRELATED, Claim
from evidence_measuring import Row, Rows
from meaning import load_pairs

OTHERS = 5
CHECKED, WORDS = "checked", "words alone"


def draw_claims(data: Path, part: str, limit: int) -> list[Claim]:
    """Return claims by a hash of their text; those that are about something else are left out."""
    claims = [each for each in load_pairs(data, part) if each.kind != UNRELATED]
    return sorted(claims, key=lambda each: _digest(each.claim))[:limit]


def _digest(text: str) -> str:
    return hashlib.sha256(f"20261125 {text}".encode()).hexdigest()


def load_documents(data: Path, claims: Sequence[Claim]) -> dict[str, Document]:
    """Return the paragraphs that the claims are about."""
    wanted = {each.document for each in claims}
    entries = [
        record
        for name in sorted({each.set for each in claims})
        for _, record in load_records(data / f"{name}.corpus.jsonl.gz")
        if record["id"] in wanted
    ]
    return make_documents(entries)


@contextmanager
def words_alone() -> Iterator[None]:
    """Cite as if there were no check of meaning."""
    kept = citing.check_meaning, citing.check_short_answer
    citing.check_meaning = citing.check_short_answer = lambda *_: Meaning.UNCLEAR  # type: ignore[assignment]
    try:
        yield
    finally:
        citing.check_meaning, citing.check_short_answer = kept


def affirms(answer: Answer, claim: Claim) -> bool:
    """Return whether an answer says that its claim is true."""
    first = (answer.short or "").casefold().strip(" .,").partition(" ")[0].strip(",.")
    if first in ("yes", "true", "no", "not", "false"):
        return first in ("yes", "true")
    said = [each.sentence for each in split_answer(answer)]
    return any(ratio(text, claim.claim) > ratio(text, claim.source) for text in said)


def cites(answer: Answer, claim: Claim, documents: dict[str, Document]) -> bool:
    """Return whether an answer cites the sentence that its claim was made from."""
    for citation in answer.citations:
        text = " ".join(documents[citation.span.document_id].slice(citation.span).split())
        if citation.span.document_id == claim.document and (
            text in claim.source or claim.source in text or ratio(text, claim.source) > 80
        ):
            return True
    return False


class Timed:
    """A verifier that keeps the seconds of each claim that it is asked."""

    def __init__(self, verifier: Verifier) -> None:
        self.name, self.limit, self.most_added = verifier.name, verifier.limit, verifier.most_added
        self.seconds: list[float] = []
        self._verifier = verifier

    def score(self, claim: str, title: str, source: str) -> tuple[float, float, float]:
        """Ask the verifier."""
        began = time.perf_counter()
        odds = self._verifier.score(claim, title, source)
        self.seconds.append(round(time.perf_counter() - began, 3))
        return odds

    async def aclose(self) -> None:
        """Do nothing: whoever opened the verifier closes it."""


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """Ask what has no row yet; return all rows."""
    claims = draw_claims(arguments.data, arguments.part, arguments.limit)
    documents = load_documents(arguments.data, claims)
    ordered = sorted(documents, key=_digest)
    rows = Rows(arguments.out, ("claim", "way"))
    async with AsyncExitStack() as stack:
        named = {Role.READER: arguments.model}
        session = await stack.enter_async_context(Session(models=named))
        models = await session.open_models(Trace())
        _, verifier_for = await session.open_verifier(models[Role.READER], Trace())
        if arguments.replies:
            cache = ResponseCache(arguments.replies)
            stack.callback(cache.close)
            models = {role: CachedChat(model, cache) for role, model in models.items()}
        embedder = await session.open_embedder(Trace())
        reranker = await session.open_reranker(models, default=RetrieveRead.needs.reranker)
        setting = Setting(models, embedder, reranker)
        for done, claim in enumerate(claims, 1):
            at = ordered.index(claim.document)
            shown = {ordered[(at + step) % len(ordered)] for step in range(OTHERS + 1)}
            sources = InMemorySources([documents[name] for name in sorted(shown)], embedder)
            for way in (CHECKED, WORDS):
                key = {"claim": claim.claim, "way": way}
                if key in rows:
                    continue
                run = setting.make_run(sources)
                timed = None
                if way == CHECKED and (verifier := verifier_for(run)) is not None:
                    run.verifier = timed = Timed(verifier)
                question = f"Is it true that {claim.claim.rstrip('.')}?"
                with words_alone() if way == WORDS else nullcontext():
                    answer, row = await answer_question(RetrieveRead(), question, run)
                affirmed = answer is not None and answer.found and affirms(answer, claim)
                found = affirmed and cites(answer, claim, documents)
                said = {
                    "kind": claim.kind,
                    "source": claim.source,
                    "wrong": claim.label != SUPPORTS,
                }
                asked = {"asked": timed.seconds if timed else []}
                rows.add({**key, **said, **row, **asked, "affirmed": affirmed, "cited": found})
                print(f"{done} of {len(claims)}, {way}", flush=True)
    return [row for row in rows.all if row["claim"] in {each.claim for each in claims}]


def report(rows: Sequence[Row]) -> None:
    """Print the shares of both ways, and how they differ on the same claims."""
    ways = {way: [row for row in rows if row["way"] == way] for way in (CHECKED, WORDS)}
    both = {row["claim"] for row in ways[CHECKED]} & {row["claim"] for row in ways[WORDS]}
    for name, wrong in (("turned round", True), ("true", False)):
        shares: dict[str, list[float]] = {}
        for way, own in ways.items():
            asked = [row for row in own if row["wrong"] is wrong and row["claim"] in both]
            asked.sort(key=lambda row: row["claim"])
            shares[way] = [float(row["cited"]) for row in asked]
            found = mean(row["found"] for row in asked)
            low, high = bootstrap(shares[way], seed=1)
            cited = f"affirmed with a citation of the sentence {mean(shares[way]):.3f}"
            print(f"{name}, {way}: {len(asked)} claims, answered {found:.3f}, "
                  f"{cited} ({low:.3f} to {high:.3f})")  # fmt: skip
        difference = paired_bootstrap(shares[CHECKED], shares[WORDS], seed=1)
        print(f"{name}, difference: {difference.mean:+.3f}, p {difference.p:.3f}")
    seconds = [sum(row["asked"]) for row in ways[CHECKED]]
    print(f"seconds of the odds a question: median {median(seconds):.1f}, worst {max(seconds):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("building", "held"), default="held")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    rows = asyncio.run(measure(arguments))
    if arguments.show:
        for row in rows:
            if row["wrong"] and row["cited"]:
                print(f"{row['way']}, {row['kind']}: {row['claim']}\n    {row['text']}")
    report(rows)


if __name__ == "__main__":
    main()
