"""Score checks of citations on statements whose label is known.

    python benchmarks/checks.py --data DIR [--check head] [--model NAME] [--batch 8] [--out FILE]

`DIR` holds `written_statements.jsonl` and `strong_statements.jsonl` (all supported);
`claims.jsonl`, beside this file, has the project's own (parts held, building, wording). A check
says whether the quotes of a statement support it (its citation is kept), whether that is unclear
(kept and marked), or whether they contradict it (lost). FILE (checks-NAME.json) becomes one
of `docs/results/`, with the counts by set, label and kind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binomtest

from colligate.core.answer import Claim, Quoted, Verdict
from colligate.core.run import Check, Run
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.models.names import open_head, open_model
from colligate.readers.checks import ModelCheck, OddsCheck, PairCheck
from results import Row, read_arguments, write_result

CLAIMS = Path(__file__).parent / "claims.jsonl"


@dataclass(frozen=True, slots=True)
class Item:
    """A claim with its label: supported, unsupported or contradicted."""

    id: str
    set: str
    kind: str
    label: str
    claim: Claim


def load_items(data: Path) -> list[Item]:
    """Return the items of all files, in their order."""
    files = {name: data / f"{name}_statements.jsonl" for name in ("written", "strong")}
    items = []
    for name, file in {**files, "": CLAIMS}.items():
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            record = json.loads(line)
            quotes = tuple(Quoted(each["title"], each["quote"]) for each in record["quotes"])
            statement = record.get("statement") or record["sentence"]
            items.append(
                Item(
                    id=record.get("id", f"{name}-{number:03d}"),
                    set=record.get("part", name),
                    kind=record.get("kind", "answer of a strong reader"),
                    label=record.get("label", "supported"),
                    claim=Claim(statement, quotes, record["question"]),
                )
            )
    return items


def open_check(name: str) -> Check:
    """Return the check of a name: `model`, `odds`, or what a model of pairs is called."""
    if name == "model":
        return ModelCheck()
    if name == "odds":
        return OddsCheck()
    return PairCheck(open_head(name))


ASKING = ("model", "odds")
SHOWN = {Verdict.SUPPORTED: "kept", Verdict.UNCLEAR: "marked", Verdict.CONTRADICTED: "lost"}
WRONG = ("unsupported", "contradicted")


def count(items: Sequence[Item], verdicts: Sequence[Verdict]) -> list[Row]:
    """Return how many statements of each set, label and kind are kept, marked and lost."""
    counts: dict[tuple[str, str, str], Counter[Verdict]] = {}
    for item, verdict in zip(items, verdicts, strict=True):
        counts.setdefault((item.set, item.label, item.kind), Counter())[verdict] += 1
    return [
        {"set": name, "label": label, "kind": kind, **{SHOWN[v]: found[v] for v in Verdict}}
        for (name, label, kind), found in counts.items()
    ]


def sum_sets(check: str, counts: Sequence[Row]) -> Iterator[Row]:
    """Yield a row of the result's table for each set."""
    for name in dict.fromkeys(each["set"] for each in counts):
        own = [each for each in counts if each["set"] == name]
        row: Row = {"check": f"`{check}`", "set": name}
        for label, labels in (("right", ("supported",)), ("wrong", WRONG)):
            some = [each for each in own if each["label"] in labels]
            kept, marked, lost = (sum(each[shown] for each in some) for shown in SHOWN.values())
            n = kept + marked + lost
            short = [say_share(part, n).split()[0] if n else "" for part in (kept, marked)]
            row[label] = n or ""
            if label == "right":
                row |= {"kept": short[0], "marked": short[1], "lost": say_share(lost, n)}
            else:
                found = say_share(lost + marked, n) if n else ""
                row |= {"lost or marked": found, "kept unmarked": short[0]}
        yield row


def say_share(part: int, whole: int) -> str:
    """Return a share with its Wilson interval of 95 %.

    >>> say_share(9, 10)
    '.90 (.60 to .98)'
    """
    interval = binomtest(part, whole).proportion_ci(method="wilson")
    share, low, high = (f"{each:.2f}".removeprefix("0") for each in (part / whole, *interval))
    return f"{share} ({low} to {high})"


async def main() -> None:
    options = {"check": "head", "model": str, "batch": 8, "out": Path}
    given = read_arguments(__doc__, data=Path, **options)
    if not given.model and given.check in ASKING:
        raise SystemExit(f"{given.check} asks a model: give --model")
    items = load_items(given.data)
    models = {Role.READER: open_model(given.model)} if given.model else {}
    verdicts: list[Verdict] = []
    async with InMemorySources(()) as sources:
        run, check = Run(sources, models, Meter()), open_check(given.check)
        began = time.perf_counter()
        for start in range(0, len(items), given.batch):
            claims = [each.claim for each in items[start : start + given.batch]]
            verdicts += await check.judge(claims, run)
        seconds = time.perf_counter() - began
    used, counts = run.meter.report(), count(items, verdicts)
    print("\n".join(f"warning: {warning}" for warning in run.warnings))
    write_result(
        given.out or Path(f"checks-{given.check}.json"),
        "Checks of citations on statements whose label is known",
        model=given.model,
        n=len(items),
        rows=list(sum_sets(given.check, counts)),
        milliseconds=round(1000 * seconds / len(items), 1),
        tokens=round((used.input_tokens + used.output_tokens) / len(items), 1),
        counts=counts,
    )
    for model in models.values():
        await model.aclose()


if __name__ == "__main__":
    asyncio.run(main())
