"""Layouts by docling, a program of its own with models of layout and of tables.

docling needs older releases of packages that colligate uses, so it cannot be imported here: it is
installed apart, runs once for each file, and writes a `DoclingDocument` as JSON. What it finds
becomes blocks of pages, as liteparse's do, so text, headings and page ranges are made alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine, clean_line
from colligate.documents.reading.source import SourceFile
from colligate.errors import MissingExtra, ReadingError, TooLarge, UsageError

OWN, DOCLING = "liteparse", "docling"

_Item = Mapping[str, Any]


def require_reader(name: str) -> None:
    """Check the name of a reader of PDFs: "liteparse", "docling", or "" for none in particular.

    Raises:
        UsageError: there is no reader of this name.
        MissingExtra: docling is not installed.
    """
    if name not in ("", OWN, DOCLING):
        why = f"expected {OWN} or {DOCLING}, got {name!r}"
        raise UsageError("cannot read PDFs", why, f"write {OWN} or {DOCLING}")
    if name == DOCLING:
        _find_program()


def read_layouts(source: SourceFile, page_count: int) -> list[PageLayout]:
    """Return a PDF's pages with the blocks that docling finds; a warning counts those left out."""
    found = _convert(source)
    pages = [PageLayout(number, None, 0.0, 0.0) for number in range(1, page_count + 1)]
    for number, block in _iter_blocks(found, found["body"]):
        pages[number - 1].blocks.append(block)
    if (read := len(found["pages"])) < page_count:
        source.warn(f"docling left out {page_count - read:,} of {page_count:,} pages")
    return pages


def _find_program() -> str:
    program = shutil.which(DOCLING)
    if program is None or not os.path.isabs(program):  # noqa: PTH117 (relative: in this folder)
        why, hint = "there is no program docling on the PATH", "pipx install docling"
        raise MissingExtra("cannot read PDFs by docling", why, hint)
    return program


_OPTIONS = "--from pdf --to json --no-ocr --image-export-mode placeholder --quiet".split()
_SHARE = 0.9  # of the file's time


def _convert(source: SourceFile) -> dict[str, Any]:
    """Return what docling makes of a PDF."""
    seconds = _SHARE * source.limits.seconds(len(source.data))
    # Its own packages and not those of this process, and messages that are not wrapped.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own |= {"HF_HUB_DISABLE_TELEMETRY": "1", "COLUMNS": "1000"}
    with tempfile.TemporaryDirectory() as folder:
        given, made, said = (Path(folder, f"document.{end}") for end in ("pdf", "json", "log"))
        given.write_bytes(source.data)
        command = [_find_program(), "convert", str(given), "--output-file", str(made), *_OPTIONS]
        try:
            with said.open("wb") as log, _lift_address_limit():
                subprocess.run(
                    command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    timeout=seconds, check=True,
                )  # fmt: skip
            return json.loads(made.read_bytes())  # type: ignore[no-any-return]
        except subprocess.TimeoutExpired as error:
            why = f"docling took longer than {seconds:.0f} s"
            raise source.error(TooLarge, why, f"split it, or use --pdf {OWN}") from error
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            text = said.read_text(errors="replace").strip() or "it wrote nothing"
            why, hint = f"docling failed ({clean_line(text.splitlines()[-1])[:200]})", ""
            if "LocalEntryNotFoundError" in text:  # the hub's: not here, and not to be fetched
                why = "docling has no models here and cannot fetch them from the hub"
                hint = "run `docling-tools models download` where there is a network, or "
            raise source.error(ReadingError, why, f"{hint}use --pdf {OWN}") from error


@contextmanager
def _lift_address_limit() -> Iterator[None]:
    """Let programs started here take more memory than a parser may (`library.parsing`)."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


_BOXES = {"checkbox_selected": "☒ ", "checkbox_unselected": "☐ "}


def _iter_blocks(found: _Item, item: _Item, depth: int = -1) -> Iterator[tuple[int, PdfBlock]]:
    """Yield the blocks of an item and of what is in it, each with its page, in reading order.

    A caption comes before its table or picture, and what is written in a picture is one block.
    Running headers and the like are in other layers than the body.
    """
    if item.get("content_layer", "body") != "body":
        return
    captions = [_resolve(found, ref) for ref in item.get("captions", ())]
    parts = [_resolve(found, ref) for ref in item.get("children", ())]
    rest = [part for part in parts if not any(part is caption for caption in captions)]
    for caption in captions:
        yield from _iter_blocks(found, caption)
    if item["label"] == "picture":
        inside = [(number, block) for part in rest for number, block in _iter_blocks(found, part)]
        if lines := [line for _, block in inside for line in block.lines]:
            yield inside[0][0], PdfBlock("paragraph", lines)
        yield from ((number, block) for number, block in inside if not block.lines)
        return
    for number, text in _split_pages(item):
        if block := _make_block(item, text, number, depth):
            yield number, block
    for part in rest:
        yield from _iter_blocks(found, part, depth + (item["label"] in _LISTS))


_LISTS = ("list", "ordered_list")


def _resolve(found: _Item, ref: _Item) -> _Item:
    _, kind, at = ref["$ref"].split("/")
    item: _Item = found[kind][int(at)]
    return item


def _split_pages(item: _Item) -> Iterator[tuple[int, str]]:
    """Yield an item's text by page: a paragraph may begin on one and end on the next."""
    text, places = item.get("text") or item.get("orig", ""), item.get("prov", ())
    turns = [b for a, b in pairwise(places) if b["page_no"] != a["page_no"]]
    # docling counts a blank between the parts, also where it joined a broken word.
    cuts = [text.find(" ", max(0, place["charspan"][0] - 1)) for place in turns]
    ends = [*(len(text) if cut < 0 else cut for cut in cuts), len(text)]
    for place, (start, end) in zip([*places[:1], *turns], pairwise([0, *ends]), strict=False):
        yield place["page_no"], text[start:end]


def _make_block(item: _Item, text: str, page: int, depth: int) -> PdfBlock | None:
    label = item["label"]
    if "data" in item and "grid" in item["data"]:
        return PdfBlock("table", [], rows=_list_rows(item["data"]["grid"]))
    if label == "code":
        return PdfBlock("code", [], verbatim=text.split("\n"))
    if not (shown := clean_line(_BOXES.get(label, "") + text)):
        return None
    if label in ("title", "section_header"):
        # Type as large as its level is high: where nothing else says so, this makes the level.
        level = 0 if label == "title" else item.get("level", 1)
        return PdfBlock("heading", [_make_line(shown, page, 20.0 - level)], level=level)
    kind = "list_item" if label == "list_item" else "paragraph"
    marker = clean_line(item.get("marker", ""))
    return PdfBlock(kind, [_make_line(shown, page, 10.0)], level=max(0, depth), marker=marker)


def _make_line(text: str, page: int, size: float) -> PdfLine:
    return PdfLine(page - 1, text, size=size)


def _list_rows(grid: Sequence[Sequence[_Item]]) -> list[list[str]]:
    """Return the cells of a table by row; one over several rows or columns has its text once."""
    return [
        [
            clean_line(cell["text"])
            if (cell["start_row_offset_idx"], cell["start_col_offset_idx"]) == (row, column)
            else ""
            for column, cell in enumerate(cells)
        ]
        for row, cells in enumerate(grid)
    ]
