"""Leases, columns of a table over them, and a reader that fills it."""

import re
from collections.abc import Collection
from typing import Any

from support.prompts import passages_in

COLUMNS = "rent: money; ends on: date; law; parties: list; renews: yes/no"
LEASES = {
    "anna.md": "# Lease of Anna\n\nThe rent is EUR 48,000 a year. It ends on 31 December 2026.\n\n"
    "The parties are Anna Field and Mill Ltd. It renews by itself. The laws of Ireland apply.\n",
    "boris.md": "# Lease of Boris\n\nThe rent is USD 12,500 a year. It ends on 1 March 2027.\n\n"
    "By the schedule the rent is USD 13,000 a year.\n\n=HYPERLINK is a formula.\n",
}  # fmt: skip
# What a reader quotes for each column, and its value.
SAYS = {
    "rent": r"rent is ((?:EUR|USD) [\d,]+)",
    "ends on": r"ends on (\d+ \w+ \d+)",
    "law": r"laws of (\w+)|(=HYPERLINK)",
    "parties": r"(Anna Field)|(Mill Ltd)",
    "renews": r"(renews by itself)",
    "name": r"Loan (\w)",
    "amount": r"Loan \w of (\d+ euros)",
}


def read_lease(prompt: str, fields: Collection[str]) -> dict[str, Any]:
    """Return what a reader says that finds each column by its words."""
    if "judgements" in fields:
        numbers = re.findall(r"^Statement (\d+): (.*)$", prompt, re.M)
        unclear = {n: "unclear" if "Ireland" in said else "supports" for n, said in numbers}
        return {"judgements": [{"number": int(n), "verdict": v} for n, v in unclear.items()]}
    found: dict[str, Any] = {"rows": []}
    for name in SAYS:
        found[name] = [
            {"passage": n, "quote": each[0], "value": name == "renews" or each[each.lastindex or 0]}
            for n, text in passages_in(prompt).items()
            for each in re.finditer(SAYS[name], text)
        ]
    for name, amount in zip(found["name"], found["amount"], strict=True):
        found["rows"].append({"name of the row": name, "amount": [amount]})
    return {name: found.get(name, []) for name in fields}
