"""One file as its reader gets it, and the document that comes of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from colligate.documents.document import Document, Page, digest
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.decoding import DecodedText, decode
from colligate.documents.reading.formats import FileFormat, suffix_of
from colligate.documents.reading.limits import Limits
from colligate.documents.tree import Structure, Tree
from colligate.errors import (
    ColligateError,
    FileChanged,
    MissingPath,
    NoText,
    NotPermitted,
    ReadingError,
    TooLarge,
    UnsupportedFormat,
)

# The name of a document: what its file is called and what it says.

_STEM_LENGTH = 40


def document_id(stem: str, text: str) -> str:
    """A stable, readable id: the file's stem as a slug, and ten hexadecimal digits of its text.

    Letters and digits of every script, dots and hyphens stay; all else becomes one hyphen.

    >>> document_id("Annual Report (2023)", "")
    'annual-report-2023-e3b0c44298'
    """
    slug = re.sub(r"(?:[^\w.]|_)+", "-", stem.lower())[:_STEM_LENGTH].strip("-.")
    return f"{slug or 'document'}-{digest(text)[:10]}"


@dataclass(frozen=True)
class SourceFile:
    """A loaded file: its bytes and what they are."""

    path: Path
    data: bytes
    format: FileFormat
    limits: Limits

    @property
    def stem(self) -> str:
        """The file's name without a suffix that names its format."""
        return stem_of(self.path)

    @cached_property
    def decoded(self) -> DecodedText:
        """The bytes as text.

        Raises:
            TooLarge, NoText: if they are too many, or hold nothing but blanks.
        """
        if len(self.data) > self.limits.text_bytes:
            raise TooLarge(
                f"cannot read {self.path}",
                f"it has {len(self.data):,} bytes of text and the limit is "
                f"{self.limits.text_bytes:,} a document",
                "split it",
            )
        return decode(self.data, str(self.path))


def stem_of(path: Path) -> str:
    """The name without its suffix, where that is a suffix and not a version ("GPL-2.0")."""
    suffix = suffix_of(path)
    is_suffix = re.fullmatch(r"\.[a-z][a-z0-9]{0,9}(\.gz)?", suffix)
    return path.name[: -len(suffix)] if is_suffix else path.name


def markdown_document(
    source: SourceFile,
    text: str,
    *,
    title: str | None = None,
    structure: Structure | None = None,
    metadata: Mapping[str, str] | None = None,
    warnings: tuple[str, ...] = (),
    pages: tuple[Page, ...] = (),
    language: str = "und",
) -> Document:
    """A document of Markdown text; its title is `title`, else its first heading, else the stem."""
    return finish(
        source,
        text,
        lambda name: markdown_tree(text, name, structure=structure),
        title=title,
        metadata=metadata,
        warnings=warnings,
        pages=pages,
        language=language,
    )


def finish(
    source: SourceFile,
    text: str,
    grow: Callable[[str], Tree],
    *,
    title: str | None = None,
    metadata: Mapping[str, str] | None = None,
    warnings: tuple[str, ...] = (),
    pages: tuple[Page, ...] = (),
    language: str = "und",
) -> Document:
    """A document of a text whose tree `grow` builds from the document's id.

    Raises:
        NoText: if nothing but blanks is left of the file.
    """
    if not text.strip():
        raise NoText(f"cannot read {source.path}", "it holds no text", "leave it out")
    name = document_id(source.stem, text)
    tree = grow(name)
    return Document(
        id=name,
        title=title or title_of(tree) or source.stem,
        text=text,
        tree=tree,
        pages=pages,
        source=str(source.path),
        media_type=source.format.media_type,
        language=language,
        metadata=metadata or {},
        warnings=warnings,
    )


def title_of(tree: Tree) -> str | None:
    """The first heading's text, if it is the document's only one of the highest level."""
    sections = [section for section in tree.sections if not section.synthetic]
    if not sections:
        return None
    highest = min(section.level for section in sections)
    tops = [section for section in sections if section.level == highest]
    return tops[0].title if len(tops) == 1 and tops[0] is sections[0] else None


# The bytes of one file, whole and unchanged while they were read.

_ATTEMPTS = 2


def load(path: Path, limits: Limits) -> bytes:
    """All bytes of a file.

    Raises:
        MissingPath: if there is no such file.
        ReadingError: `UnsupportedFormat` if it is not a regular file, `NotPermitted`, `NoText` if
            it is empty, `TooLarge`, or `FileChanged` if it changed in both of two attempts.
    """
    for _ in range(_ATTEMPTS):
        try:
            before = path.stat()
            _check(path, before, limits)
            data = _bytes(path, limits.file_bytes)
            after = path.stat()
        except OSError as error:
            raise os_error(path, error) from error
        if _version(before) == _version(after) and len(data) == after.st_size:
            if not data:
                raise NoText(f"cannot read {path}", "it is empty (0 bytes)", "leave it out")
            return data
    raise FileChanged(f"cannot read {path}", "it changes while it is read", "try again later")


def os_error(path: Path, error: OSError) -> ColligateError:
    """What the operating system said about a path, as one of ours."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingPath(f"no such file or folder: {path}", "", "check the path")
    if isinstance(error, PermissionError):
        return NotPermitted(f"cannot read {path}", "permission denied", "give yourself read access")
    return ReadingError(f"cannot read {path}", error.strerror or str(error), "check the path")


def require_regular(path: Path, state: os.stat_result) -> None:
    """Refuse what is no file of a certain length.

    Raises:
        UnsupportedFormat: if it is a folder, a pipe, a device, a socket.
    """
    if stat.S_ISDIR(state.st_mode):
        raise UnsupportedFormat(f"cannot read {path}", "it is a folder", "name a file")
    if not stat.S_ISREG(state.st_mode):
        # A pipe or a device may never end.
        raise UnsupportedFormat(f"cannot read {path}", "it is not a regular file", "name a file")


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        # One byte beyond the limit, so a file that grows meanwhile cannot fill the memory.
        return file.read(most + 1)


def _check(path: Path, state: os.stat_result, limits: Limits) -> None:
    require_regular(path, state)
    if state.st_size > limits.file_bytes:
        raise TooLarge(
            f"cannot read {path}",
            f"it has {state.st_size:,} bytes and the limit is {limits.file_bytes:,}",
            "split it",
        )


def _version(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
