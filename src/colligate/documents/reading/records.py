"""Files of records, one JSON object a line: many documents in one file."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator

from colligate.documents.document import Document
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.source import SourceFile, document_id
from colligate.errors import CorruptFile, NoText, TooLarge

_GZIP = b"\x1f\x8b"
_MOST_WARNINGS = 20


def read_records(source: SourceFile) -> tuple[tuple[Document, ...], tuple[str, ...]]:
    """The documents of a file of `{"id", "title", "text"}`, and a warning for each bad line.

    `_id` (BEIR) and `contents` (FlashRAG) are understood too. A record's id is its document's.

    Raises:
        NoText: if no line holds a document.
        CorruptFile, TooLarge: if a compressed file is damaged or unpacks to too much.
    """
    documents: dict[str, Document] = {}
    wrong: list[str] = []
    for number, line in enumerate(_lines(source), start=1):
        if not line.strip():
            continue
        try:
            document = _record(source, line)
        except ValueError as error:
            wrong.append(f"{source.path}:{number}: {error}")
            continue
        if document.id in documents:
            wrong.append(f"{source.path}:{number}: the id {document.id!r} was there before")
            continue
        documents[document.id] = document
    if not documents:
        why = f"none of its lines holds a document ({wrong[0]})" if wrong else "it holds no lines"
        raise NoText(
            f"cannot read {source.path}", why, 'write {"id", "title", "text"} on each line'
        )
    if len(wrong) > _MOST_WARNINGS:
        more = len(wrong) - _MOST_WARNINGS
        wrong[_MOST_WARNINGS:] = [f"{source.path}: {more:,} more lines were left out"]
    return tuple(documents.values()), tuple(wrong)


def _lines(source: SourceFile) -> Iterator[bytes]:
    data = source.data
    if data.startswith(_GZIP):
        data = _unpacked(source)
    # Bytes are split at b"\n" alone: a JSON string may hold other line separators.
    yield from io.BytesIO(data.removeprefix(b"\xef\xbb\xbf"))


def _unpacked(source: SourceFile) -> bytes:
    most = source.limits.unpacked_bytes
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(source.data)) as packed:
            data = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptFile(
            f"cannot read {source.path}", f"its gzip archive is damaged ({error})", "fetch it again"
        ) from error
    if len(data) > most:
        raise TooLarge(
            f"cannot read {source.path}", f"it unpacks to more than {most:,} bytes", "split it"
        )
    return data


def _record(source: SourceFile, line: bytes) -> Document:
    """One line's document.

    Raises:
        ValueError: saying what is wrong with the line.
    """
    if len(line) > source.limits.text_bytes:
        raise ValueError(f"it is longer than {source.limits.text_bytes:,} bytes")
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    text = record.get("text", record.get("contents"))
    if not isinstance(text, str) or not text.strip():
        raise ValueError('it has no "text"')
    given = record.get("id", record.get("_id"))
    if given is not None and not isinstance(given, str | int):
        raise ValueError('its "id" is neither a string nor a whole number')
    text = _clean(text)
    title = record.get("title")
    title = " ".join(title.split()) if isinstance(title, str) else ""
    name = str(given).strip() if given is not None else ""
    name = name or document_id(title or source.stem, text)
    return Document(
        id=name,
        title=title or name,
        text=text,
        tree=markdown_tree(text, name),
        source=str(source.path),
        media_type=source.format.media_type,
    )


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")
    # JSON may escape half a surrogate pair, which no encoding can write.
    return text.encode("utf-8", "replace").decode() if not _encodable(text) else text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
