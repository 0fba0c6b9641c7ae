"""Files of records, one JSON object a line: many documents in one file.

The data sets of the bench parse their JSON here too.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from html import unescape
from typing import Any

from colligate.documents.document import Document, clean_text
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.source import SourceFile, document_id, make_document
from colligate.documents.reading.text import read_text
from colligate.documents.tree import shorten_title
from colligate.errors import CorruptFile, NoText, TooLarge

_MOST_WARNINGS = 20
_NO_TEXT = 'it has no "text"'
_WORD = re.compile(r"\w+")


def read_records(source: SourceFile) -> tuple[Document, ...]:
    """Return the documents of a file of `{"id", "title", "text"}`; each bad line is a warning.

    `_id` (BEIR) and `contents` (FlashRAG) are accepted too. A record's id is its document's. If no
    line has a text, all objects are one document, as those of a JSON file are.
    """
    documents: dict[str, Document] = {}
    others: list[dict[str, Any]] = []
    wrong: list[str] = []
    data = _unpack(source) if source.data.startswith(GZIP_MAGIC) else source.data
    # Bytes are split at b"\n" alone: a JSON string may hold other line separators.
    for number, line in enumerate(io.BytesIO(data.removeprefix(BYTE_ORDER_MARK)), start=1):
        if not line.strip():
            continue
        try:
            document = _parse_record(source, line, others)
            if document.id in documents:
                raise ValueError(f"the id {document.id!r} was there before")
        except ValueError as error:
            wrong.append(f"{source.path}:{number}: {error}")
        else:
            documents[document.id] = document
    if others and not documents:
        text = "\n\n".join(_iter_paragraphs(others, "", 1))
        documents[""] = make_document(source, text, title=source.stem)
        wrong = [each for each in wrong if not each.endswith(_NO_TEXT)]
    if not documents:
        why = f"none of its lines holds a document ({wrong[0]})" if wrong else "it holds no lines"
        raise source.error(NoText, why, 'write {"id", "title", "text"} on each line')
    source.warnings.extend(wrong[:_MOST_WARNINGS])
    if len(wrong) > _MOST_WARNINGS:
        source.warn(f"{len(wrong) - _MOST_WARNINGS:,} more lines were left out")
    return tuple(documents.values())


def _parse_record(source: SourceFile, line: bytes, others: list[dict[str, Any]]) -> Document:
    """Return a line's document, or a ValueError; an object without a text goes to `others`."""
    if len(line) > source.limits.text_bytes:
        raise ValueError(f"it is longer than {source.limits.text_bytes:,} bytes")
    record = parse_object(line)
    text = record.get("text", record.get("contents"))
    if not isinstance(text, str) or not text.strip():
        if len(source.data) <= source.limits.text_bytes:
            others.append(record)
        raise ValueError(_NO_TEXT)
    given = record.get("id", record.get("_id"))
    if given is not None and not isinstance(given, str | int):
        raise ValueError('its "id" is neither a string nor a whole number')
    text = clean_text(text)
    title = record.get("title")
    title = " ".join(clean_text(title).split()) if isinstance(title, str) else ""
    name = clean_text(str(given)).strip() if given is not None else ""
    name = name or document_id(title or source.stem, text)
    tree, path, kind = markdown_tree(text, name), str(source.path), source.format.media_type
    return Document(name, shorten_title(title or name), text, tree, source=path, media_type=kind)


_DEEPEST = 50  # values inside values
_LONGEST_NAME = 60  # characters of a value that names its record


def read_json(source: SourceFile) -> Document:
    """Read JSON, such as an exported chat, object by object; what is no JSON is plain text."""
    try:
        value = parse_json(source.text.encode())
    except ValueError:
        return read_text(source)
    text = "\n\n".join(_iter_paragraphs(value, "", 1))
    if not text or isinstance(value, str | int | float):
        return read_text(source)
    title = value.get("title") if isinstance(value, dict) else None
    return make_document(source, text, title=title if isinstance(title, str) else source.stem)


def _iter_paragraphs(value: Any, name: str, level: int, around: str = "") -> Iterator[str]:
    """Yield the plain values of an object or a list, then those of the lists in it, each object
    below the first short values of the records around it."""
    lines: list[str] = []
    inner: list[tuple[str, Any]] = []
    _collect(value, name, lines, inner)
    if lines:
        fits = 0 < len(around) <= 3 * sum(map(len, lines))
        yield "\n".join([around, *lines] if fits and isinstance(value, dict) else lines)
    named = [line for line in lines if len(line) <= _LONGEST_NAME][:3] if level > 1 else []
    around = ", ".join(filter(None, [around, *named]))[: 4 * _LONGEST_NAME]
    for key, each in inner:
        within = f"{around} > {key}" if around and key else around
        if level == 1 and key:
            yield f"## {key}"
        for item in each:
            if level < _DEEPEST:
                name = "" if isinstance(item, dict) else key
                yield from _iter_paragraphs(item, name, level + 1, within)
            else:
                yield json.dumps(item, ensure_ascii=False)


def _collect(value: Any, name: str, lines: list[str], inner: list[tuple[str, Any]]) -> None:
    if isinstance(value, dict):
        value = {key: _join_pieces(each) for key, each in value.items()}
        words = set(_WORD.findall(unescape(_say(value.get("text")))))
        for key, each in value.items():
            if isinstance(each, list) and _repeats(each, words):  # the text again, in pieces
                continue
            shown = " ".join(key.split())
            _collect(each, f"{name}.{shown}" if name else shown, lines, inner)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        inner.append((name, value))
    elif value not in (None, "", []):
        values = value if isinstance(value, list) else [value]
        said = ", ".join(" ".join(_say(each).split()) for each in values)
        lines.append(f"{name}: {said}" if name else said)


def _join_pieces(value: Any) -> Any:
    """Return a text that a list holds in pieces, with the addresses of links; else a value."""
    if not isinstance(value, list) or set(map(type, value)) != {str, dict}:
        return value
    pieces = [each if isinstance(each, dict) else {"text": each} for each in value]
    if not all(isinstance(each.get("text"), str) for each in pieces):
        return value
    said = ""
    for piece in pieces:
        links = (each for each in piece.values() if "://" in _say(each) and each != piece["text"])
        said += piece["text"] + "".join(f" ({_say(each)})" for each in links)
    return said


def _repeats(value: Any, words: set[str]) -> bool:
    """Return whether a list holds a text, and no words but `words`, its kinds and its ids."""
    left, has_text = [("", value)], False
    for key, each in left:  # which grows meanwhile
        if isinstance(each, dict | list):
            left += each.items() if isinstance(each, dict) else ((key, item) for item in each)
        elif key != "type" and not key.endswith("_id") and not isinstance(each, bool | None):
            has_text = has_text or key == "text"
            if not words.issuperset(_WORD.findall(_say(each))):
                return False
    return has_text


def _say(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _unpack(source: SourceFile) -> bytes:
    most = source.limits.unpacked_bytes
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(source.data)) as packed:
            data = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = f"its gzip archive is damaged ({error})"
        raise source.error(CorruptFile, why, "fetch it again") from error
    if len(data) > most:
        raise source.error(TooLarge, f"it unpacks to more than {most:,} bytes", "split it")
    return data


_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes) -> Any:
    """Return the value of UTF-8 JSON.

    Half a surrogate pair, which JSON can escape and no encoding can write, becomes U+FFFD.

    Raises:
        ValueError: it is not JSON; the message says why and where.
    """
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode()
        value = json.loads(text)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of too many digits
        raise ValueError(f"it is not JSON ({error})") from None
    if _ESCAPED_SURROGATE.search(text):
        value = json.loads(clean_text(json.dumps(value, ensure_ascii=False)))
    return value


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object that a line of JSON holds; raise a ValueError that says why if none."""
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value
