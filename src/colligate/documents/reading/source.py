"""One file as its reader gets it, and the document that comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from colligate.documents.document import Document, Page
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.decoding import Decoded, decode
from colligate.documents.reading.formats import Format, suffix_of
from colligate.documents.reading.identity import document_id
from colligate.documents.reading.limits import Limits
from colligate.documents.tree import Structure, Tree
from colligate.errors import NoText, TooLarge


@dataclass(frozen=True)
class Source:
    """A loaded file: its bytes and what they are."""

    path: Path
    data: bytes
    format: Format
    limits: Limits

    @property
    def stem(self) -> str:
        """The file's name without a suffix that names its format."""
        return stem_of(self.path)

    @cached_property
    def decoded(self) -> Decoded:
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
    source: Source,
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
    source: Source,
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
