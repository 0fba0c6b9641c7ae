"""`colligate table`: values of many documents, each with its place, in files that people open."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from support.leases import COLUMNS, LEASES, read_lease
from support.prompts import passages_in


def read(body: dict[str, Any]) -> dict[str, Any]:
    prompt = "\n".join(turn["content"] for turn in body["messages"])
    return read_lease(prompt, body["response_format"]["json_schema"]["schema"]["properties"])


class Filling:
    """Runs `colligate table` over leases; `asked` are the titles of what was read."""

    def __init__(self, colligate: Any, server: Any, folder: Path) -> None:
        self.colligate, self.server, self.folder = colligate, server, folder
        self.asked: list[str] = []
        server.answer = self._answer
        for name, text in LEASES.items():
            (folder / name).write_text(text)

    def _answer(self, body: dict[str, Any]) -> str:
        said = read(body)
        if "judgements" not in said:
            self.asked += re.findall(r"“(.*?)”", body["messages"][-1]["content"])
        return json.dumps(said)

    def command(self, *given: Any, columns: str = COLUMNS) -> list[Any]:
        model = f"openai:reader@{self.server.url}"
        return ["table", columns, self.folder, "--model", model, "--embedder", "static", *given]

    def __call__(self, *given: Any, columns: str = COLUMNS) -> Any:
        return self.colligate.here(*self.command(*given, columns=columns))


@pytest.fixture
def filling(colligate: Any, openai_server: Any, tmp_path: Path) -> Filling:
    folder = tmp_path / "leases"
    folder.mkdir()
    return Filling(colligate, openai_server, folder)


def test_each_cell_has_its_value_its_place_or_the_reason(filling, tmp_path):
    done = filling("--json")
    assert done.returncode == 0, done.stderr
    anna, boris = json.loads(done.stdout)["rows"]
    rent = anna["cells"]["rent"]["values"][0]
    assert (rent["written"], rent["value"], rent["unit"]) == ("EUR 48,000", 48000, "EUR")
    assert "The rent is EUR 48,000 a year." in rent["citation"]["quote"]
    assert [v["value"] for v in anna["cells"]["parties"]["values"]] == ["Anna Field", "Mill Ltd"]
    assert anna["cells"]["renews"]["values"][0]["value"] is True
    assert anna["cells"]["ends on"]["values"][0]["value"] == "2026-12-31"
    assert anna["cells"]["law"]["values"][0]["citation"]["meaning"] == "unclear"
    several = boris["cells"]["rent"]
    assert several["reason"] == "the document says several"
    assert [each["value"] for each in several["values"]] == [12500, 13000]
    assert boris["cells"]["parties"] == {
        "values": [], "reason": "not in the document", "why": "", "corrected": False
    }  # fmt: skip
    assert sorted(filling.asked) == ["Lease of Anna", "Lease of Boris"]  # one call for all columns


def test_a_spreadsheet_has_numbers_dates_notes_links_and_totals(filling, tmp_path):
    done = filling("-o", tmp_path / "t.xlsx", "-o", tmp_path / "t.csv", "-o", tmp_path / "t.md")
    assert done.returncode == 0, done.stderr
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    heads = [cell.value for cell in sheet[1]]
    assert heads == ["Document", "File", "rent", "ends on", "law", "parties", "renews"]
    anna = dict(zip(heads, sheet[2], strict=True))
    assert anna["rent"].value == 48000
    assert "EUR" in anna["rent"].number_format
    assert "The rent is EUR 48,000 a year." in anna["rent"].comment.text
    assert anna["rent"].hyperlink.target.lower() == (filling.folder / "anna.md").as_uri()
    assert f"{anna['ends on'].value:%Y-%m-%d}" == "2026-12-31"
    assert "may not say so" in anna["law"].comment.text
    boris = dict(zip(heads, sheet[3], strict=True))
    assert (boris["law"].value, boris["law"].data_type) == ("=HYPERLINK", "s")
    assert boris["parties"].value == "not in the document"
    totals = {row[0].value: (row[2].value, row[3].value) for row in sheet.iter_rows(min_row=4)}
    assert totals["Sum"] == ("=SUM(C2:C3)", None)  # dates are not added
    assert totals["Highest"] == ("=MAX(C2:C3)", "=MAX(D2:D3)")
    lines = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text("utf-8-sig"))))
    assert lines[1][:4] == [
        "Lease of Anna",
        str(filling.folder / "anna.md"),
        "48000 EUR",
        "EUR 48,000",
    ]
    assert "'=HYPERLINK" in lines[2]
    assert "12500 USD; 13000 USD (the document says several) " in (tmp_path / "t.md").read_text()


def test_the_same_command_fills_only_what_is_new(filling, tmp_path):
    out = tmp_path / "rents.xlsx"
    assert filling("-o", out).returncode == 0
    filling.asked.clear()
    (filling.folder / "carla.md").write_text("# Lease of Carla\n\nThe rent is EUR 9,000 a year.\n")
    said = filling("--dry-run", "-o", out)
    assert re.match(r"1 documents, about 2 calls and 2,\d+ tokens", said.stdout)
    # The file beside it has the columns and the folder.
    done = filling.colligate.here(
        "table", out.with_suffix(".toml"), "--model", f"openai:reader@{filling.server.url}",
        "--embedder", "static", "-o", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert filling.asked == ["Lease of Carla"]
    assert openpyxl.load_workbook(out).active["C4"].value == 9000
    other = filling("-o", out, columns="rent: money; deposit: money")
    assert (other.returncode, "has other columns" in other.stderr) == (2, True)


def test_a_long_document_is_searched_in_the_words_that_documents_use(filling):
    """Anna's lease is far longer than what is read of it, and has no word of the column."""
    filler = "".join(f"## Part {at}\n\nAbout the deposit of a boat. " * 9 for at in range(150))
    (filling.folder / "anna.md").write_text(
        f"{LEASES['anna.md']}{filler}\n\n## End\n\nBo paid 7 euros.\n"
    )
    (filling.folder / "boris.md").unlink()

    def answer(body):
        fields = body["response_format"]["json_schema"]["schema"]["properties"]
        if "columns" in fields:
            return json.dumps({"columns": [{"number": 1, "queries": ["euros Bo paid"]}]})
        shown = passages_in("\n".join(turn["content"] for turn in body["messages"]))
        quotes = [(n, "Bo paid 7 euros") for n, text in shown.items() if "Bo paid" in text]
        found = [{"passage": n, "quote": quote, "value": "7 euros"} for n, quote in quotes]
        return json.dumps({"deposit": found})

    filling.server.answer = answer
    done = filling("--json", "--check", "none", "--set", "tokens=800", columns="deposit: money")
    [row] = json.loads(done.stdout)["rows"]
    assert row["cells"]["deposit"]["values"][0]["value"] == 7


def test_a_row_may_be_a_record_of_a_document(filling):
    (filling.folder / "loans.md").write_text(
        "# Loans\n\nLoan A of 10 euros. Loan B of 70 euros. Loan B of 9 euros.\n"
    )
    done = filling("--rows", "each loan", "--json", columns="amount: money")
    rows = {row["name"]: row["cells"]["amount"] for row in json.loads(done.stdout)["rows"]}
    assert {name: cell["values"][0]["value"] for name, cell in rows.items()} == {
        "A": 10, "B": 70, "B (row 3)": 9  # two records of one name are two rows
    }  # fmt: skip


def test_a_failing_document_or_a_spent_budget_costs_its_cells_only(filling, tmp_path):
    def fail(body):
        said = json.loads(filling._answer(body))
        return "no JSON" if "Boris" in str(body["messages"]) else json.dumps(said)

    filling.server.answer = fail
    done = filling("--json", "-o", tmp_path / "t.json")
    anna, boris = json.loads(done.stdout)["rows"]
    assert anna["cells"]["rent"]["reason"] is None
    assert boris["cells"]["rent"]["reason"] == "not read"
    warnings = json.loads(done.stdout)["warnings"]
    assert any(each.startswith("documents were not read: nobody") for each in warnings)
    filling.server.answer = filling._answer
    spent = filling("--json", "-o", tmp_path / "t.json", "--max-tokens-total", 10)
    anna, boris = json.loads(spent.stdout)["rows"]
    assert anna["cells"]["rent"]["reason"] is None  # kept
    assert boris["cells"]["rent"]["reason"] == "over the budget"
    again = filling("--json", "-o", tmp_path / "t.json")  # what failed is filled now
    assert json.loads(again.stdout)["rows"][1]["cells"]["ends on"]["values"]


def test_corrections_are_kept(filling, tmp_path):
    out = tmp_path / "t.json"
    model = f"openai:reader@{filling.server.url}"
    # The doubtful ones first: the law of Anna's, the rent of Boris's; then an empty one.
    status, shown = filling.colligate.in_terminal(
        "table", COLUMNS, filling.folder, "--model", model, "--embedder", "static",
        "-o", out, "--review", typed="Irish law\nUSD 13,000\n-\nq\n",
    )  # fmt: skip
    assert status == 0, shown
    assert "its quote may not say so" in shown
    assert "the document says several" in shown
    for _ in range(2):
        anna, boris = json.loads(out.read_text())["rows"]
        assert anna["cells"]["law"]["values"][0]["written"] == "Irish law"
        assert boris["cells"]["rent"]["values"][0]["value"] == 13000
        assert boris["cells"]["parties"]["corrected"]
        assert filling("-o", out).returncode == 0
    assert len(filling.asked) == 2


@pytest.mark.posix
def test_a_killed_run_goes_on_and_fills_nothing_twice(filling, tmp_path):
    for at in range(9):
        name = f"lease-{at}"
        (filling.folder / f"{name}.md").write_text(f"# {name}\n\nThe rent is EUR {at + 1},000.\n")
    running: list[Any] = []

    def answer(body):
        reply = filling._answer(body)
        if len(filling.asked) % 4 == 0 and running:
            os.kill(running.pop().pid, signal.SIGKILL)
        return reply

    filling.server.answer = answer
    out, kills = tmp_path / "t.json", 0
    command = filling.command(
        "-o", out, "--set", "concurrency=1", "--check", "none", columns="rent: money"
    )
    while True:
        process = filling.colligate.start(*command)
        running.append(process)
        process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
    assert kills >= 2
    assert len(filling.asked) <= len(LEASES) + 9 + kills  # what was under way is asked again
    lines = [*map(json.loads, out.with_suffix(".cells.jsonl").read_text().splitlines())]
    assert len({line["key"] for line in lines}) == len(lines) == 11
    rows = json.loads(out.read_text())["rows"]
    assert all(row["cells"]["rent"]["values"] for row in rows)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("rent: coins", "no type 'coins'"),
        ("rent; rent", "each with a name of its own"),
        (";", "1 to 50 columns"),
        ("missing.toml", "cannot read missing.toml"),
    ],
)
def test_wrong_columns_are_refused_in_one_line(filling, columns, says):
    done = filling(columns=columns)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
