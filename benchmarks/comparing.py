"""Measure questions that compare a figure or a date of every document.

    python benchmarks/comparing.py [--model bundled] [--strategy auto] [--kinds loan ...]

Three folders of six short contracts are made, leases, loans and employments, by a seeded program,
and asked six questions each: for the largest and the earliest, for those in a year or within a
limit, and for the sum. An answer is right if its short answer names exactly the documents asked
for, or, where it names none, if exactly these are cited; of a sum, if the text has the number; if
no document is asked for, if it says "none" or nothing. It is wrong if it is found and is not right.
Every question is written to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from colligate.core.answer import Answer
from colligate.engine import Engine
from evidence_measuring import say

DOCUMENTS, SEED = 6, 0
YEAR = date.today().year
NAMES = ("Lind", "Moss", "Berg", "Roth", "Alta", "Dorne", "Harrow", "Elm", "Tarn", "Norvik")
TEXTS = {
    "lease": """# Lease of {name} Hall

This lease is made between {name} Hall Trust (the landlord) and the tenant named in the schedule.

## Term

The lease begins on 1 March {begins} and ends on {ends}, unless it is renewed in writing.

## Rent

The rent is {amount:,} euros a month, payable on the first day of each month. The tenant pays for
heating and water according to use.
""",
    "loan": """# Loan to {name} Ltd

The bank lends {name} Ltd the sum of ${amount:,} for the purchase of machines.

## Repayment

The loan is paid out on 2 May {begins} and must be repaid in full by {ends}. The borrower may repay
it earlier without a fee.
""",
    "employment": """# Employment of Ms {name}

This agreement is made between Alta Mills (the company) and Ms {name} (the employee).

## Work

The employee starts work on {ends} as an engineer. The first six months are a probation. This
agreement was signed in {begins}.

## Pay

The salary is {amount:,} pounds a year, paid in twelve parts at the end of each month.
""",
}
SCALE = {"lease": 1, "loan": 1000, "employment": 10}


@dataclass(frozen=True)
class Contract:
    """The title of a contract, its last day, and its amount as it is asked for."""

    title: str
    ends: date
    amount: int


Choice = Callable[[list[Contract]], list[Contract] | int]
ASKED: dict[str, list[tuple[str, Choice]]] = {
    "lease": [
        ("Which lease has the highest rent?", lambda all_: [max(all_, key=_amount)]),
        ("Which of these leases ends first?", lambda all_: [min(all_, key=_ends)]),
        ("Which of these leases end this year?", lambda all_: _select(all_, _in_year)),
        ("How many leases cost more than 3,000 euros a month?", lambda all_: _above(all_, 3000)),
        (f"Which leases end before {YEAR + 2}?", lambda all_: _select(all_, _soon)),
        ("What is the rent of all these leases altogether?", lambda all_: sum(map(_amount, all_))),
    ],
    "loan": [
        ("Which company has the largest loan?", lambda all_: [max(all_, key=_amount)]),
        ("Which loan must be repaid last?", lambda all_: [max(all_, key=_ends)]),
        (f"Which of these loans must be repaid in {YEAR}?", lambda all_: _select(all_, _in_year)),
        ("Which loans are for more than $3 million?", lambda all_: _above(all_, 3_000_000)),
        (f"List the loans to be repaid before {YEAR + 2}.", lambda all_: _select(all_, _soon)),
        ("What are the loans in total?", lambda all_: sum(map(_amount, all_))),
    ],
    "employment": [
        ("Who has the lowest salary?", lambda all_: [min(all_, key=_amount)]),
        ("Which employee starts work first?", lambda all_: [min(all_, key=_ends)]),
        ("Which employees start work next year?", lambda all_: _select(all_, _next)),
        ("Who earns more than 30,000 pounds a year?", lambda all_: _above(all_, 30_000)),
        (f"How many employees start before {YEAR + 2}?", lambda all_: _select(all_, _soon)),
        ("What do all employees earn together?", lambda all_: sum(map(_amount, all_))),
    ],
}


def _amount(contract: Contract) -> int:
    return contract.amount


def _ends(contract: Contract) -> date:
    return contract.ends


def _in_year(contract: Contract) -> bool:
    return contract.ends.year == YEAR


def _next(contract: Contract) -> bool:
    return contract.ends.year == YEAR + 1


def _soon(contract: Contract) -> bool:
    return contract.ends.year < YEAR + 2


def _select(contracts: list[Contract], fits: Callable[[Contract], bool]) -> list[Contract]:
    return [each for each in contracts if fits(each)]


def _above(contracts: list[Contract], amount: int) -> list[Contract]:
    return [each for each in contracts if each.amount > amount]


def write_contracts(kind: str, folder: Path) -> list[Contract]:
    """Write the contracts of a kind into a folder; no two have the same amount or last day."""
    chance = random.Random(f"{kind} {SEED}")
    folder.mkdir()
    contracts = []
    amounts = chance.sample(range(1000, 6000, 50), DOCUMENTS)
    years = [YEAR, YEAR, *chance.choices(range(YEAR + 1, YEAR + 8), k=DOCUMENTS - 2)]
    chance.shuffle(years)
    months = chance.sample(range(1, 13), DOCUMENTS)
    names = chance.sample(NAMES, DOCUMENTS)
    for name, plain, year, month in zip(names, amounts, years, months, strict=True):
        amount = plain * SCALE[kind]
        ends = date(year, month, chance.randint(1, 28))
        text = TEXTS[kind].format(
            name=name, amount=amount, begins=year - 8, ends=f"{ends.day} {ends:%B %Y}"
        )
        (folder / f"{name.lower()}.md").write_text(text, "utf-8")
        title = text.splitlines()[0].removeprefix("# ")
        contracts.append(Contract(title, ends, amount))
    return contracts


def is_right(answer: Answer, wanted: list[Contract] | int, contracts: list[Contract]) -> bool:
    """Return whether an answer chooses exactly the documents wanted, or has the number."""
    if isinstance(wanted, int):
        return f"{wanted:,}" in answer.text
    if not wanted:
        return not answer.found or ", none " in answer.text
    titles = {each.title for each in contracts}
    named = {title for title in titles if title in (answer.short or "")}
    cited = {citation.title for citation in answer.citations} & titles
    return answer.found and (named or cited) == {each.title for each in wanted}


async def measure(arguments: argparse.Namespace) -> None:
    strategy = arguments.strategy
    right, wrong, seconds = [], [], []
    with tempfile.TemporaryDirectory() as name:
        async with Engine(model=arguments.model, library=Path(name) / "library") as engine:
            for kind in arguments.kinds:
                questions = ASKED[kind]
                folder = Path(name) / kind
                contracts = write_contracts(kind, folder)
                for question, choose in questions[: arguments.limit]:
                    answer = await engine.ask(question, [folder], strategy=strategy)
                    right.append(is_right(answer, choose(contracts), contracts))
                    wrong.append(answer.found and not right[-1])
                    seconds.append(answer.usage.seconds)
                    verdict = "right" if right[-1] else "WRONG" if wrong[-1] else "refused"
                    line = f"{verdict} {question}: {answer.short} | {answer.text}"
                    print(line, file=sys.stderr, flush=True)
    against = f"{len(right)} questions, {arguments.strategy}"
    say("questions that compare documents: right", sum(right), "count", against)
    say("questions that compare documents: wrong", sum(wrong), "count", against)
    say("seconds a question, median", round(statistics.median(seconds), 1), "s", against)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--kinds", nargs="+", choices=list(ASKED), default=list(ASKED))
    parser.add_argument("--limit", type=int)
    asyncio.run(measure(parser.parse_args()))
