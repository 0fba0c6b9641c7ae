"""What docling writes of a report, made with its own types: `python docling_report.py FILE`.

It runs where docling-core is installed, which cannot be where colligate is: see decision 40. The
tests read the file that it wrote, `docling_report.json`, from a stand-in for docling's program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")


def install(folder: Path, code: str = "", found: Path = RECORDED) -> None:
    """Put a program `docling` into a folder that runs `code`, or writes what is in `found`."""
    program = folder / "docling"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nfrom pathlib import Path\n"
        "assert 'PYTHONPATH' not in os.environ\n"
        "assert Path(sys.argv[2]).read_bytes().startswith(b'%PDF-')\n"
        "written = Path(sys.argv[sys.argv.index('--output-file') + 1])\n"
        + (code or f"written.write_bytes(Path({str(found)!r}).read_bytes())")
    )
    program.chmod(0o755)


def main(path: Path) -> None:
    from docling_core.types.doc import (
        BoundingBox,
        ContentLayer,
        CoordOrigin,
        DocItemLabel,
        DoclingDocument,
        ProvenanceItem,
        Size,
        TableCell,
        TableData,
    )

    def place(page: int, start: int = 0, end: int = 0) -> Any:
        box = BoundingBox(l=72, t=700, r=300, b=690, coord_origin=CoordOrigin.BOTTOMLEFT)
        return ProvenanceItem(page_no=page, bbox=box, charspan=(start, end))

    def cell(text: str, row: int, column: int, columns: int = 1) -> Any:
        return TableCell(
            text=text,
            start_row_offset_idx=row,
            end_row_offset_idx=row + 1,
            start_col_offset_idx=column,
            end_col_offset_idx=column + columns,
            col_span=columns,
        )

    made = DoclingDocument(name="report")
    for number in (1, 2, 3, 4):
        made.add_page(page_no=number, size=Size(width=612, height=792))
    running = DocItemLabel.PAGE_HEADER
    layer = ContentLayer.FURNITURE
    made.add_text(label=running, text="Mill Ltd", prov=place(1), content_layer=layer)
    made.add_title("Report of the mill", prov=place(1))
    made.add_heading("1 Flour", level=1, prov=place(1))
    first, second = "The mill ground 40 tons of rye, and the", "# of sacks rose to 900."
    both = made.add_text(
        label=DocItemLabel.TEXT, text=f"{first} {second}", prov=place(1, 0, len(first))
    )
    both.prov.append(place(2, len(first) + 1, len(first) + 1 + len(second)))
    made.add_heading("1.1 Prices", level=1, prov=place(2))
    cells = [
        cell("Price of a sack", 0, 0, columns=2),
        cell("rye", 1, 0),
        cell("7.20", 1, 1),
        cell("oats | barley", 2, 0),
        cell("5.10", 2, 1),
    ]
    data = TableData(num_rows=3, num_cols=2, table_cells=cells)
    table = made.add_table(data=data, prov=place(2))
    caption = made.add_text(
        label=DocItemLabel.CAPTION, text="Table 1. Prices", prov=place(2), parent=table
    )
    table.captions.append(caption.get_ref())
    made.add_heading("2 Repairs", level=1, prov=place(3))
    outer = made.add_list_group()
    item = made.add_list_item(
        "the wheel", prov=place(3), parent=outer, enumerated=True, marker="1."
    )
    inner = made.add_list_group(parent=item)
    made.add_list_item("two paddles", prov=place(3), parent=inner)
    made.add_text(label=DocItemLabel.CHECKBOX_SELECTED, text="inspected", prov=place(3))
    made.add_formula("", orig="p = w h", prov=place(3))
    made.add_code("turn = 7\n  halt = 0", prov=place(3))
    picture = made.add_picture(prov=place(3))
    for text in ("Wheel", "Race"):
        made.add_text(label=DocItemLabel.TEXT, text=text, prov=place(3), parent=picture)
    path.write_text(json.dumps(made.export_to_dict(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
