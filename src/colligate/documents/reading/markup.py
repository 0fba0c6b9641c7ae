"""E-books, notebooks, Org, RTF and older Microsoft formats: each becomes Markdown."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest
from typing import Any
from urllib.parse import unquote

from colligate.documents.document import Document, clean_text
from colligate.documents.markdown import format_table, markdown_tree
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.office import Archive, read_properties
from colligate.documents.reading.records import parse_object
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.tables import table_tree
from colligate.errors import CorruptFile, EncryptedFile


def read_epub(source: SourceFile) -> Document:
    """Read the chapters of an e-book in their order, without its own table of contents."""
    archive = Archive(source)
    rootfile = archive.require("META-INF/container.xml").find(".//{*}rootfile")
    package_name = rootfile.get("full-path", "") if rootfile is not None else ""
    package = archive.require(package_name)
    items = {each.get("id"): each for each in package.iterfind("{*}manifest/{*}item")}
    chapters = []
    for listed in package.iterfind("{*}spine/{*}itemref"):
        item = items.get(listed.get("idref"))
        if item is None or "nav" in item.get("properties", "").split():
            continue
        folder = posixpath.dirname(package_name)
        name = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        if not (data := archive.read(name)):
            source.warn(f"{name} is missing or damaged")
        chapters.append(parse_html(source, clean_text(decode(data)[0])).text)
    found = package.find("{*}metadata")
    metadata = read_properties(found) if found is not None else {}
    return make_document(source, "\n\n".join(chapters), metadata=metadata)


def read_notebook(source: SourceFile) -> Document:
    """Read a Jupyter notebook: its texts, its code and what that printed."""
    try:
        notebook = parse_object(source.text.encode())
        text = "\n\n".join(filter(None, map("\n\n".join, map(_write_cell, notebook["cells"]))))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise source.error(CorruptFile, f"it is no notebook ({error})", "save it again") from error
    return make_document(source, text + "\n")


def _write_cell(cell: Mapping[str, Any]) -> Iterator[str]:
    written = _join(cell["source"]).strip("\n")
    yield _fence(written) if cell["cell_type"] == "code" and written else written
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        shown = output.get("text", data.get("text/markdown", data.get("text/plain", "")))
        if text := _join(shown).strip("\n"):
            yield text if "text/markdown" in data else _fence(text)


def _join(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def _fence(code: str) -> str:
    longest = max(map(len, re.findall("`{3,}", code)), default=2)
    return f"{'`' * (longest + 1)}\n{code}\n{'`' * (longest + 1)}"


# Org

_ORG_HEADING = re.compile(r"^(\*{1,6}) +(.*?)(?:[ \t]+:[\w@:]+:)?[ \t]*$", re.MULTILINE)
_ORG_CODE = re.compile(
    r"^[ \t]*#\+begin_(?:src|example)\b.*\n((?:.*\n)*?)[ \t]*#\+end_(?:src|example)\b.*$",
    re.MULTILINE | re.IGNORECASE,
)
_ORG_FACT = re.compile(r"^#\+(title|author|date):[ \t]*(.*)\n", re.MULTILINE | re.IGNORECASE)
_ORG_SETTING = re.compile(r"^[ \t]*(?:#\+|# |:\w+:).*\n", re.MULTILINE)
_ORG_TABLE = re.compile(r"^(?:[ \t]*\|.*(?:\n|\Z))+", re.MULTILINE)
_ORG_LINK = re.compile(r"\[\[([^]\n]+)\](?:\[([^]\n]+)\])?\]")


def read_org(source: SourceFile) -> Document:
    """Read an Org file: its headings, lists, tables and code are written as Markdown has them."""
    facts = {name.lower(): value.strip() for name, value in _ORG_FACT.findall(source.text)}
    parts = _ORG_CODE.split(source.text)  # text and code by turns
    texts = map(_write_org, parts[::2])
    code = (_fence(each.rstrip("\n")) for each in parts[1::2])
    text = "".join(chain.from_iterable(zip_longest(texts, code, fillvalue="")))
    facts["authors"] = facts.pop("author", "")
    return make_document(source, text, metadata=facts)


def _write_org(text: str) -> str:
    text = _ORG_TABLE.sub(_write_org_table, _ORG_SETTING.sub("", text))
    text = _ORG_LINK.sub(lambda link: link[2] or link[1], text)
    return _ORG_HEADING.sub(lambda found: f"{'#' * len(found[1])} {found[2]}", text)


def _write_org_table(found: re.Match[str]) -> str:
    lines = (line.strip() for line in found[0].splitlines())
    rows = [line.strip("|").split("|") for line in lines if not line.startswith("|-")]
    return f"\n{format_table([[cell.strip() for cell in row] for row in rows])}\n\n"


# DOC, XLS, PPT, MSG, RTF

_SHEETS = "application/vnd.ms-excel"
_FACTS = ("title", "subject", "authors", "created_at", "modified_at", "language")


def read_legacy(source: SourceFile) -> Document:
    """Read RTF, or a file of an older Microsoft program, by xberg."""
    import xberg

    given = xberg.ExtractInput(kind="bytes", bytes=source.data, mime_type=source.format.media_type)
    config = xberg.ExtractionConfig(
        use_cache=False,
        disable_ocr=True,
        output_format="markdown",
        max_archive_depth=0,
        extraction_timeout_secs=int(source.limits.seconds(len(source.data))),
        concurrency=xberg.ConcurrencyConfig(max_threads=1),
    )
    try:
        found = asyncio.run(xberg.extract(given, config)).results[0]
    except Exception as error:  # whatever a parser in another language raises is a damaged file
        if re.search(r"encrypt|password", str(error), re.IGNORECASE):
            raise source.error(EncryptedFile, "it is encrypted", "remove its password") from error
        raise source.error(CorruptFile, str(error)[:200], "open and save it again") from error
    facts = {name: getattr(found.metadata, name) or "" for name in _FACTS}
    facts["authors"] = ", ".join(facts["authors"])
    metadata = {name: str(value) for name, value in facts.items()}
    tree = table_tree if source.format.media_type == _SHEETS else markdown_tree
    return make_document(source, found.content, tree=tree, metadata=metadata)
