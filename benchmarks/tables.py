"""Score a table against gold: right cells, right pages, cells that should be empty.

    python benchmarks/tables.py TABLE.json GOLD

TABLE.json is of `colligate table ... -o TABLE.json`. GOLD is what `contracts.py` writes, or
`filings.jsonl` or `more_filings.jsonl` beside it: figures of 17 and 14 public filings, copied by
hand from their pages.
A cell is right if its value, or its words, are those of the gold; a contradiction is right if
both places are given. Precision is of the filled cells, recall of those that gold fills.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from colligate.documents.quantities import read_quantities
from results import read_arguments


@dataclass(frozen=True)
class Gold:
    """What a cell should have: wordings of each value with its pages, and whether it may be empty.

    A page None is any. `several` are values that contradict each other, or that are all wanted.
    """

    values: list[tuple[list[str], list[int] | None]] = field(default_factory=list)
    may_be_empty: bool = True
    several: bool = False


def load_gold(path: Path) -> dict[str, dict[str, Gold]]:
    """Return what the cells of each file should have, by the name of the column."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        read, files = of_filing, {each["file"]: each for each in map(json.loads, text.splitlines())}
    else:
        read, files = of_contract, json.loads(text)
    return {
        file: {name: read(cell) for name, cell in each["columns"].items()}
        for file, each in files.items()
    }


def of_contract(cell: Mapping[str, Any]) -> Gold:
    """Return the gold of a cell of a contract."""
    found = cell["found"]
    values = [([str(v["value"]), v["text"]], [v["page"]] if v["page"] else None) for v in found]
    return Gold(values, not found, len(found) > 1)


def of_filing(cell: Mapping[str, Any] | None) -> Gold:
    """Return the gold of a cell of a filing."""
    if cell is None:
        return Gold()
    wanted = [cell, *cell.get("also", ())]
    values = [
        ([*each["values"], *([str(each["value"])] if "value" in each else [])], each["pages"])
        for each in wanted
    ]
    return Gold(values, bool(cell.get("null_ok")))


def is_said(value: Mapping[str, Any], wordings: list[str]) -> bool:
    """Return whether a value of a table is one of these."""
    unit = value["unit"]
    if isinstance(value["value"], bool):
        return ("no", "yes")[value["value"]] in wordings
    given = [value["written"], str(value["value"]), f"{unit} {value['value']}"]
    said = {squeeze(each) for each in given if each}
    wanted = {squeeze(each) for each in wordings}
    if said & wanted or any(len(s) > 3 and (s in w or w in s) for s in said for w in wanted):
        return True
    numbers = numbers_of(value["written"]) | numbers_of(str(value["value"]))
    for scale in ("thousand", "million", "billion"):  # printed over the table
        if f"in {scale}s" in unit.lower():
            numbers |= numbers_of(f"{value['value']} {scale}")
    return bool(numbers) and any(numbers_of(each) & numbers for each in wordings)


def squeeze(text: str) -> str:
    """Return the letters and digits of a text, in small letters."""
    return re.sub(r"[\W_]+", "", text.casefold())


def numbers_of(text: str) -> set[Any]:
    """Return the amounts and dates of a text."""
    found = read_quantities(text).found
    return {(reading.value, reading.unit == "date") for q in found for reading in q.readings}


def judge(cell: Mapping[str, Any], gold: Gold) -> Iterator[str]:
    """Yield what a cell counts as."""
    values = cell["values"]
    pages, hits = [], set()
    for value in values:
        page = (value["citation"] or {}).get("page")
        for at, (wordings, on) in enumerate(gold.values):
            if is_said(value, wordings):
                hits.add(at)
                pages.append(on is None or page in on)
                break
    filled = bool(values) and (cell["reason"] is None or gold.several)
    if gold.values and not gold.may_be_empty:
        yield "wanted"
    if not filled:
        return
    yield "filled"
    if len(hits) == len(gold.values) if gold.several else hits:
        yield "right"
        yield from ["right, with a page"] * bool(pages)
        yield from ["right, on the right page"] * any(pages)
        if gold.values and not gold.may_be_empty:
            yield "wanted and right"


def main() -> None:
    given = read_arguments(__doc__, "table", "gold")
    gold, counts = load_gold(given.gold), Counter[str]()
    for row in json.loads(given.table.read_text("utf-8"))["rows"]:
        wanted = gold[PurePath(row["source"]).name]
        for (name, cell), (_, expected) in zip(row["cells"].items(), wanted.items(), strict=True):
            marks = list(judge(cell, expected))
            counts.update(marks)
            counts["cells"] += 1
            wrong = "filled" in marks and "right" not in marks
            missed = "wanted" in marks and "filled" not in marks
            if wrong or missed:
                said = "; ".join(each["written"] for each in cell["values"]) or cell["reason"]
                best = "; ".join(each[0][0] for each in expected.values) or "nothing"
                what = "wrong" if wrong else "missed"
                print(f"{what}: {row['title']}, {name}: {said!r}, not {best!r}")
    right, filled, want = counts["right"], counts["filled"], counts["wanted"]
    print(f"{counts['cells']} cells, {filled} filled, {right} right, {want} wanted")
    print(f"precision {right / max(1, filled):.3f}, recall {counts['wanted and right'] / want:.3f}")
    print(f"page {counts['right, on the right page'] / max(1, counts['right, with a page']):.3f}")


if __name__ == "__main__":
    main()
