"""Write thirty made contracts, and the values that a table of them should show.

    python benchmarks/contracts.py OUT

Leases, services, licences, loans and contracts of employment, as Word, PDF, scans, Markdown and
HTML; their words are in `contracts.toml`. The text is the same each time. `OUT.gold.json`, beside
the folder so that it is not indexed with it, has for each file and column the type and what is to
be `found`: value, words as written, heading they stand under, and page (null where the format has
none). Nothing to be found means that the contract does not say; a column named in `contradicts`
has two places that differ. Needs Pillow for the two scans.
"""

from __future__ import annotations

import ctypes
import html
import json
import random
import re
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import docx
import pypdfium2
from docx.enum.text import WD_BREAK
from pypdfium2 import raw

from results import read_arguments

COLUMNS = {
    "parties": "name",
    "start": "date",
    "end": "date or term",
    "amount": "money per year",
    "notice": "duration",
    "law": "country",
    "cap": "money or words",
    "renewal": "yes or no",
}
TITLE, HEADING, TEXT, HEAD, ROW, BREAK = "title", "heading", "text", "head", "row", "break"
SIZES = {TITLE: 18.0, HEADING: 12.0, TEXT: 10.5, HEAD: 9.5, ROW: 9.5}
TABLE = (HEAD, ROW)
FONTS = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold"}
WIDTH, HEIGHT, MARGIN = 595.0, 842.0, 72.0
STREETS = ("Castle Street", "Station Road", "Canal Walk", "Linden Row")
PLACES = ("Portmere", "Wexcombe", "Carrowbeg", "Altenbrueck", "Montelaine")


@dataclass
class Block:
    """A heading, a paragraph, a row of a table, or a page break; `page` counts from 1."""

    kind: str
    cells: Sequence[str] = ("",)
    page: int | None = None


class Contract:
    """Compose a contract of its values: its `blocks`, and where they hold a value of a column."""

    def __init__(self, values: dict[str, Any], data: dict[str, Any]) -> None:
        self.values, self.data, self.kind = values, data, data["kinds"][values["kind"]]
        self.random = random.Random(values["file"])
        self.blocks: list[Block] = []
        self.places: list[tuple[str, str, str, str, Block]] = []
        self.heading = ""
        self.title = f"{self.kind['title']}: {values['about']}"
        self._open()
        without = self.kind.get("without", ())
        common = [clause for clause in data["common"]["clauses"] if clause[0] not in without]
        chosen = (*self.kind["clauses"], *self.random.sample(common, values["size"]))
        number = 0
        for heading, *paragraphs in chosen:
            filled = [each for text in paragraphs if (each := self._fill(text)) is not None]
            if filled:
                number += 1
                self._add_heading(f"{number}. {heading}")
            for at, (text, found) in enumerate(filled, start=1):
                self._add(Block(TEXT, (f"{number}.{at} {text}",)), found)
        self._sign()
        self._add_particulars()
        for at, table in enumerate(self.kind["tables"][: values.get("tables")], start=2):
            self._add_table(at, *table)

    def _add(self, block: Block, found: Sequence[tuple[str, str, str]] = ()) -> None:
        self.blocks.append(block)
        self.places += [(*each, self.heading, block) for each in found]

    def _add_heading(self, text: str) -> None:
        self.heading = text
        self.blocks.append(Block(HEADING, (text,)))

    def _open(self) -> None:
        text = f"concerning {self.values['about']}. Reference {self.random.randrange(1000, 9999)}."
        self.blocks += [Block(TITLE, (self.kind["title"],)), Block(TEXT, (text,))]
        if self.values["size"] > 9:  # the longer ones have a title page
            self.blocks.append(Block(BREAK))
        self._add_heading("Parties")
        for name, role in zip(self.values["parties"], self.kind["roles"], strict=True):
            street = f"{self.random.randrange(2, 90)} {self.random.choice(STREETS)}"
            text = f'{name}, of {street}, {self.random.choice(PLACES)} (the "{role}")'
            self._add(Block(TEXT, (text,)), [("parties", name, name)])

    def _fill(self, text: str) -> tuple[str, list[tuple[str, str, str]]] | None:
        """Return a paragraph and the values in it; None if the contract lacks one of these."""
        found = []
        for column in COLUMNS:
            if f"{{{column}}}" in text:
                entries = self._list_entries(column)
                if not entries:
                    return None
                here = [(column, *entry) for entry in entries if entry[0][0] != "@"]
                found += here
                words = here[0][2] if here else self.data["stated"][column]
                text = text.replace(f"{{{column}}}", words)
        a, b = self.kind["roles"]
        for name, words in {"A": a, "B": b, "about": self.values["about"]}.items():
            text = text.replace(f"{{{name}}}", words)
        return self._choose(text), found

    def _list_entries(self, column: str) -> list[tuple[str, str]]:
        """Return (value, words) of a column; a value that begins with @ is in the particulars."""
        entries = self.values.get(column, [])
        entries = [entries] if isinstance(entries, str) else entries
        return [tuple(entry.split(" = ", 1)) for entry in entries]

    def _choose(self, text: str) -> str:
        return re.sub(r"\[\[(.*?)]]", lambda m: self.random.choice(m[1].split("|")), text)

    def _sign(self) -> None:
        self._add_heading("Signatures")
        start = self._list_entries("start")[0][0].lstrip("@")
        day = date.fromisoformat(start) - timedelta(days=self.random.randrange(9, 60))
        signed = f"{self.random.choice(PLACES)}, {day.day} {day:%B %Y}"
        for name in self.values["parties"]:
            self.blocks.append(Block(TEXT, (f"{signed}, for {name}: ____________________",)))

    def _add_particulars(self) -> None:
        self.blocks.append(Block(BREAK))
        self._add_heading("Schedule 1: Particulars")
        number = f"P-{self.random.randrange(200, 900)}"
        self.blocks += [Block(HEAD, ("Particular", "Entry")), Block(ROW, ("File number", number))]
        for column, label in self.data["labels"].items():
            for value, words in self._list_entries(column):
                if value[0] == "@":
                    self._add(Block(ROW, (label, words)), [(column, value[1:], words)])
        self.blocks.append(Block(ROW, ("Language of letters", self._choose("[[English|French]]"))))

    def _add_table(self, at: int, title: str, count: int, head: Sequence[str], row: Any) -> None:
        self._add_heading(f"Schedule {at}: {title}")
        self.blocks.append(Block(HEAD, head))
        for n in range(1, count * self.values.get("rows", 1) + 1):
            cells = [self._choose(cell).replace("{n}", str(n)) for cell in row]
            self.blocks.append(Block(ROW, cells))

    def gold(self) -> dict[str, Any]:
        """Return what a table should show of this contract; the pages are known once written."""
        columns: dict[str, Any] = {name: {"type": t, "found": []} for name, t in COLUMNS.items()}
        for column, value, words, heading, block in self.places:
            place = {"value": value, "text": words, "heading": heading, "page": block.page}
            columns[column]["found"].append(place)
        twice = [name for name in COLUMNS if name != "parties" and len(columns[name]["found"]) > 1]
        return {
            "kind": self.values["kind"],
            "scan": self.values.get("scan", False),
            "contradicts": twice,
            "columns": columns,
        }


def write_word(contract: Contract, path: Path) -> None:
    made = docx.Document()
    made.core_properties.title = contract.title
    made.sections[0].header.paragraphs[0].text = contract.title
    for is_table, blocks in groupby(contract.blocks, lambda block: block.kind in TABLE):
        if is_table:
            rows = list(blocks)
            table = made.add_table(0, len(rows[0].cells), "Table Grid")
            for block in rows:
                for cell, text in zip(table.add_row().cells, block.cells, strict=True):
                    cell.text = text
            continue
        for block in blocks:
            style = {TITLE: "Title", HEADING: "Heading 1"}.get(block.kind, "Normal")
            paragraph = made.add_paragraph(block.cells[0], style)
            if block.kind == BREAK:
                paragraph.add_run().add_break(WD_BREAK.PAGE)
    made.save(str(path))


def write_markdown(contract: Contract, path: Path) -> None:
    lines: list[str] = []
    for block in contract.blocks:
        row = f"| {' | '.join(block.cells)} |"
        lines += {
            TITLE: [f"# {block.cells[0]}", ""],
            HEADING: ["", f"## {block.cells[0]}", ""],
            HEAD: [row, "|---" * len(block.cells) + "|"],
            ROW: [row],
        }.get(block.kind, [block.cells[0], ""])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_html(contract: Contract, path: Path) -> None:
    parts = [f'<!DOCTYPE html><html lang="en"><title>{html.escape(contract.title)}</title><body>']
    tags = {TITLE: "h1", HEADING: "h2", HEAD: "th", ROW: "td"}
    for is_table, blocks in groupby(contract.blocks, lambda block: block.kind in TABLE):
        parts.append("<table>" * is_table)
        for block in blocks:
            tag = tags.get(block.kind, "p")
            cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in block.cells)
            parts.append(f"<tr>{cells}</tr>" if is_table else cells)
        parts.append("</table>" * is_table)
    path.write_text("\n".join([*parts, "</body></html>"]), encoding="utf-8")


def write_pdf(contract: Contract, path: Path) -> None:
    """Set the text on A4, each block on one page, which it then knows; some have ruled tables."""
    document = pypdfium2.PdfDocument.new()
    plain = contract.random.choice(tuple(FONTS))
    page, count, y = document.new_page(WIDTH, HEIGHT), 1, HEIGHT - MARGIN

    def put(text: str, x: float, y: float, size: float, font: str) -> None:
        words = raw.FPDFPageObj_NewTextObj(document, font.encode(), size)
        raw.FPDFText_SetText(words, (ctypes.c_ushort * (len(text) + 1))(*map(ord, text)))
        raw.FPDFPageObj_Transform(words, 1, 0, 0, 1, x, y)
        raw.FPDFPage_InsertObject(page, words)

    def draw_box(x: float, y: float, width: float, height: float) -> None:
        box = raw.FPDFPageObj_CreateNewRect(x, y, width, height)
        raw.FPDFPath_SetDrawMode(box, raw.FPDF_FILLMODE_NONE, True)
        raw.FPDFPage_InsertObject(page, box)

    def end_page() -> None:
        put(f"Page {count}", WIDTH - 2 * MARGIN, MARGIN / 2, 8, plain)
        page.gen_content()

    for block in contract.blocks:
        size = SIZES.get(block.kind, 0)
        room = (WIDTH - 2 * MARGIN) / len(block.cells)
        cells = [textwrap.wrap(cell, int(room / size * 2)) for cell in block.cells] if size else []
        height = max(map(len, cells), default=0) * size * 1.35
        least = height + (3 * SIZES[TEXT] if block.kind in (HEADING, HEAD) else 0)
        if not size or y - least < MARGIN:
            end_page()
            page, count, y = document.new_page(WIDTH, HEIGHT), count + 1, HEIGHT - MARGIN
        y -= size if block.kind == HEADING else 0
        font = plain if block.kind in (TEXT, ROW) else FONTS[plain]
        for column, lines in enumerate(cells):
            for number, line in enumerate(lines):
                put(line, MARGIN + column * room, y - size * (1 + 1.35 * number), size, font)
            if plain == "Times-Roman" and block.kind in TABLE:
                draw_box(MARGIN + column * room - 4, y - height - 1, room, height + 2)
        y -= height + (2 if block.kind in TABLE else 7)
        block.page = count
    end_page()
    if contract.values.get("scan"):
        pages = [page.render(scale=2.5).to_pil().convert("L") for page in document]
        tilted = [picture.rotate(0.4, fillcolor=255) for picture in pages]
        tilted[0].save(path, "PDF", resolution=180, save_all=True, append_images=tilted[1:])
    else:
        document.save(path)


WRITERS = {".docx": write_word, ".md": write_markdown, ".html": write_html, ".pdf": write_pdf}


def main() -> None:
    out = read_arguments(__doc__, "out").out
    out.mkdir(parents=True, exist_ok=True)
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    gold = {}
    for values in data["contract"]:
        contract, path = Contract(values, data), out / values["file"]
        WRITERS[path.suffix](contract, path)
        gold[path.name] = contract.gold()
    text = json.dumps(gold, indent=1, ensure_ascii=False)
    out.with_name(f"{out.name}.gold.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
