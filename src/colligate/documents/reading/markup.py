"""E-books, notebooks and older Microsoft formats: each becomes Markdown."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from colligate.documents.document import Document, clean_text
from colligate.documents.markdown import format_code
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.office import Archive, read_properties
from colligate.documents.reading.records import parse_object
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile, EncryptedFile


def read_epub(source: SourceFile) -> Document:
    """Read the chapters of an e-book in their order, without its own table of contents."""
    archive = Archive(source)
    rootfile = archive.require("META-INF/container.xml").find(".//{*}rootfile")
    package_name = rootfile.get("full-path", "") if rootfile is not None else ""
    package = archive.require(package_name)
    items = {each.get("id"): each for each in package.iterfind("{*}manifest/{*}item")}
    locked = {unquote(each) for each in archive.parse("META-INF/encryption.xml").xpath("//@URI")}
    chapters = []
    for listed in package.iterfind("{*}spine/{*}itemref"):
        if (item := items.get(listed.get("idref"))) is None:
            source.warn(f"it lists a chapter that it does not have: {listed.get('idref')}")
        if item is None or "nav" in item.get("properties", "").split():
            continue
        folder = posixpath.dirname(package_name)
        name = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        if name in locked:  # fonts often are, and are not read
            raise source.error(EncryptedFile, "it is encrypted", "get it without its protection")
        if not (data := archive.read(name)):
            source.warn(f"{name} is missing or damaged")
        text, _ = parse_html(source, clean_text(decode(data)[0]))
        chapters.append(text)
    found = package.find("{*}metadata")
    metadata = read_properties(found) if found is not None else {}
    return make_document(source, "\n\n".join(chapters), metadata=metadata)


def read_notebook(source: SourceFile) -> Document:
    """Read a Jupyter notebook: its texts, its code and what that printed."""
    try:
        notebook = parse_object(source.text.encode())
        cells = ("\n\n".join(_write_cell(source, cell)) for cell in notebook["cells"])
        text = "\n\n".join(filter(None, cells))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise source.error(CorruptFile, f"it is no notebook ({error})", "save it again") from error
    return make_document(source, text + "\n")


def _write_cell(source: SourceFile, cell: Mapping[str, Any]) -> Iterator[str]:
    written = _join(cell["source"]).strip("\n")
    yield format_code(written) if cell["cell_type"] == "code" and written else written
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "<table" in (page := _join(data.get("text/html", ""))):
            data = {"text/markdown": parse_html(source, page)[0]}
        said = f"{output['ename']}: {output['evalue']}" if "evalue" in output else ""
        shown = output.get("text", data.get("text/markdown", data.get("text/plain", said)))
        if text := _join(shown).strip("\n"):
            yield text if "text/markdown" in data else format_code(text)


def _join(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


_FACTS = ("title", "subject", "authors", "created_at", "modified_at", "language")


def read_legacy(source: SourceFile) -> Document:
    """Read a file of an older Microsoft program (DOC, PPT, MSG) by xberg."""
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
        if any(word in str(error).lower() for word in ("encrypt", "password")):
            raise source.error(EncryptedFile, "it is encrypted", "remove its password") from error
        raise source.error(CorruptFile, str(error)[:200], "open and save it again") from error
    facts = {name: getattr(found.metadata, name) or "" for name in _FACTS}
    facts["authors"] = ", ".join(facts["authors"])
    metadata = {name: str(value) for name, value in facts.items()}
    return make_document(source, found.content, metadata=metadata)
