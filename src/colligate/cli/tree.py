"""`colligate tree FILE`: the structure a file was read into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import print_json, print_result, to_one_line, warn
from colligate.errors import UsageError

if TYPE_CHECKING:
    from rich.tree import Tree as Drawing

    from colligate.documents import Document

app = typer.Typer(add_completion=False)


@command(app)
def tree_command(
    file: Annotated[Path, options.argument("Any file colligate can read.", "FILE")],
    *,
    reading: options.ReadOptions,
    as_json: options.AsJson = False,
) -> int:
    """Show the structure of a file: its headings and pages, and how sure it is.

    Examples:
        colligate tree report.pdf
    """
    from colligate.documents.document import tree_json
    from colligate.documents.reading import read_file
    from colligate.library.web import is_address

    if is_address(file):
        why, hint = "a web address is read only into a library", "see `colligate index`"
        raise UsageError("tree shows a file", why, hint)
    found = read_file(file, reading.limits())
    for warning in found.warnings:
        warn(warning)
    if as_json:
        # Most files hold one document; a file of records holds many.
        documents = [tree_json(document) for document in found.documents]
        print_json({"file": str(file), "documents": documents, "warnings": list(found.warnings)})
        return ANSWERED
    for document in found.documents:
        print_result(draw_document(document))
    return ANSWERED


def draw_document(document: Document) -> Drawing:
    """Return a drawing of a document's headings."""
    from rich.text import Text
    from rich.tree import Tree as Drawing

    from colligate.documents.document import page_number
    from colligate.documents.tree import Basis

    tree, structure = document.tree, document.tree.structure
    pages = f", {len(document.pages):,} pages" if document.pages else ""
    size = f"{len(document):,} characters{pages}, language {document.language}"
    sure = "no headings"
    if structure.basis is not Basis.NONE:
        sure = f"{structure.confidence:.0%} sure, from {structure.basis.value}"
    note = f" ({to_one_line(structure.note)})" if structure.note else ""
    root = Text.assemble(
        (to_one_line(document.title), "bold"),
        (f"  {to_one_line(document.id)}\n{size}\n", "dim"),
        f"structure: {sure}{note}",
    )
    drawn = {tree.root.id: Drawing(root, guide_style="dim")}
    for section in tree.sections:
        title = to_one_line(section.title) or "(before the first heading)"
        page = page_number(document, section)
        place = "" if page is None else f"  page {page}"
        parent = section.parent
        while parent not in drawn:
            parent = tree.nodes[parent or 0].parent
        drawn[section.id] = drawn[parent].add(Text.assemble(title, (place, "dim")))
    return drawn[tree.root.id]
