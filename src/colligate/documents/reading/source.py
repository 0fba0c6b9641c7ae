"""One file within its limits, loaded as its reader gets it, and the document that comes of it."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from colligate.documents.document import SHEETS, Document, clean_text, digest
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.formats import TEXT, FileFormat, suffix_of
from colligate.documents.tree import Tree, shorten_title
from colligate.errors import MissingPath, NoText, ReadingError, TooLarge, UnsupportedFormat

E = TypeVar("E", bound=ReadingError)
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one file; sizes in bytes.

    `text_bytes` bounds files read as text, `file_bytes` any file. In zip-based formats,
    `unpacked_bytes` bounds the unpacked size of all members, `ratio` the same in sizes of the
    archive itself (up to a mebibyte is always accepted), `members` their number. A document of
    more than `sections` sections keeps them only if they have text. With `ocr`, Tesseract's names
    of languages ("eng+deu"), scanned pages and pictures are read, which may take ten times as long;
    so may a `pdf` of "docling", which reads PDFs in the place of liteparse.
    """

    file_bytes: int = 512 * _MEBIBYTE
    text_bytes: int = 64 * _MEBIBYTE
    unpacked_bytes: int = 512 * _MEBIBYTE
    ratio: int = 200
    members: int = 20_000
    sections: int = 20_000
    ocr: str = ""
    pdf: str = ""

    def seconds(self, size: int) -> float:
        """Return how long reading a file of so many bytes may take."""
        return (60 + 10 * size / _MEBIBYTE) * (10 if self.ocr or self.pdf == "docling" else 1)

    def memory(self, size: int) -> int:
        """Return how many bytes of memory reading a file of so many bytes may take."""
        return min(4096 * _MEBIBYTE, max(900 * _MEBIBYTE, 100 * size))


@dataclass(frozen=True)
class SourceFile:
    """A loaded file: its bytes, its format, and the warnings collected while it is read."""

    path: Path
    data: bytes
    format: FileFormat = TEXT
    limits: Limits = field(default_factory=Limits)
    warnings: list[str] = field(default_factory=list)
    depth: int = 0  # how many files it is attached to, each to the next

    @property
    def stem(self) -> str:
        """The file's name without a suffix that names its format."""
        return stem_of(self.path)

    @cached_property
    def text(self) -> str:
        """The bytes as text, cleaned; a doubtful encoding is a warning."""
        if len(self.data) > self.limits.text_bytes:
            sizes = f"{len(self.data):,} bytes of text and the limit is {self.limits.text_bytes:,}"
            raise self.error(TooLarge, f"it has {sizes} a document", "split it")
        text, doubt = decode(self.data)
        if doubt:
            self.warn(doubt)
        if "\x00" in text:
            self.warn("NUL characters were replaced")
        text = clean_text(text)
        if not text.strip():
            raise self.error(NoText, "it holds only blanks", "leave it out")
        return text

    def warn(self, what: str) -> None:
        """Add a warning about the file."""
        self.warnings.append(clean_text(f"{self.path}: {what}"))

    def error(self, kind: type[E], why: str, hint: str) -> E:
        """Return an error to raise about the file."""
        return kind(f"cannot read {self.path}", why, hint)


def make_document(
    source: SourceFile,
    text: str,
    *,
    tree: Callable[[str, str], Tree] = markdown_tree,
    title: str | None = None,
    metadata: Mapping[str, str] | None = None,
    media_type: str | None = None,
) -> Document:
    """Return the document that a file's text makes, with the warnings about the file so far.

    `tree` makes the tree of a text and a document's id. The title is `title`, otherwise that of the
    metadata, the text's top heading, or the file's stem. The `date` among the metadata is the one
    stated there, else that of the title page, else the day on which the file was made
    (`created_at`); ISO 8601, as exact as it is known.

    Raises:
        NoText: if the text holds nothing but blanks.
    """
    text = clean_text(text)
    if not text.strip():
        raise source.error(NoText, "it holds no text", "leave it out")
    name = document_id(source.stem, text)
    grown = tree(text, name)
    facts = {key: clean_text(value) for key, value in (metadata or {}).items()}
    stated, made = (parse_date(facts.get(key, "")) for key in ("date", "created_at"))
    top = _find_sheet_title(text) if source.format.media_type in SHEETS else text
    facts["date"] = stated or _find_date(top) or made
    title = title or facts.get("title") or _find_top_heading(grown) or source.stem
    return Document(
        id=name,
        title=shorten_title(clean_text(title)),
        text=text,
        tree=grown,
        source=str(source.path),
        media_type=media_type or source.format.media_type,
        metadata={key: value for key, value in facts.items() if value},
        warnings=tuple(source.warnings),
    )


def _find_top_heading(tree: Tree) -> str | None:
    """Return the first heading's text if it is the only one of the highest level."""
    sections = [section for section in tree.sections if not section.synthetic]
    highest = min((section.level for section in sections), default=0)
    tops = [section for section in sections if section.level == highest]
    return tops[0].title if len(tops) == 1 and tops[0] is sections[0] else None


_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name[:3]: number for number, name in enumerate(_MONTHS.split(), 1)}
_NAMED = rf"(?:{'|'.join(_MONTHS.split())}|{'|'.join(_MONTH)})\.?"
_DAY = r"(\d\d?)(?:st|nd|rd|th)?"
_DATE = re.compile(
    r"\b(?P<iso>(?:19|20)\d\d-\d\d(?:-\d\d)?)(?!\d)"
    rf"|\b(?:{_DAY}\s+)?(?P<month>{_NAMED})(?:\s+{_DAY})?,?\s+(?P<year>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_TITLE_LINES = 12
_LONGEST_TITLE_LINE = 120  # characters: a longer line is already the text
# Of reports under the Exchange Act of 1934: the words before a period count only on a title page.
_DATE_LABEL = re.compile(
    r"\bdate of report\b|\b1934\W+for the (?:fiscal year|quarterly period) ended\b", re.IGNORECASE
)
_BIOGRAPHY = re.compile(r"\b(?:born|died)\b", re.IGNORECASE)


def parse_date(text: str) -> str:
    """Return the first date in a text in ISO 8601, as exact as it is stated; empty without one.

    >>> parse_date("Version 3, 29 June 2007"), parse_date("March 2024"), parse_date("2021")
    ('2007-06-29', '2024-03', '2021')
    """
    if re.fullmatch(r"\s*(19|20)\d\d\s*", text):
        return text.strip()
    for found in _DATE.finditer(text):
        stated = found["iso"] or f"{found['year']}-{_MONTH[found['month'][:3].lower()]:02}"
        if day := found[4] or found[2]:
            stated += f"-{int(day):02}"
        with suppress(ValueError):  # there is no such day
            date.fromisoformat(stated if len(stated) > 7 else f"{stated}-01")
            return stated
    return ""


def _find_date(text: str) -> str:
    """Return the date on a title page: a labelled one, or in a short line before the text."""
    page = text[: _TITLE_LINES * 500]
    for label in _DATE_LABEL.finditer(page):
        if labelled := parse_date(page[label.end() :][:_LONGEST_TITLE_LINE]):
            return labelled
    lines = [line.strip() for line in page.splitlines() if line.strip()]
    for line in lines[:_TITLE_LINES]:
        if len(line) > _LONGEST_TITLE_LINE:
            break
        if not _BIOGRAPHY.search(line) and _DATE.search(line):
            return parse_date(line)
    return ""


def _find_sheet_title(text: str) -> str:
    """Return the rows of one cell above a sheet's table: a date in the table is only a row's."""
    rows = text[: _TITLE_LINES * 500].splitlines()
    return "\n".join(takewhile(lambda row: "|" not in row.strip("| "), rows))


_STEM_LENGTH = 40


def document_id(stem: str, text: str) -> str:
    """Return a stable, readable id: the file's stem as a slug, ten hexadecimal digits of its text.

    Letters and digits of every script, dots and hyphens stay; all else becomes one hyphen.

    >>> document_id("Annual Report (2023)", "")
    'annual-report-2023-e3b0c44298'
    """
    slug = re.sub(r"(?:[^\w.]|_)+", "-", unicodedata.normalize("NFC", stem.lower()))
    return f"{slug[:_STEM_LENGTH].strip('-.') or 'document'}-{digest(text)[:10]}"


def stem_of(path: Path) -> str:
    """Return the name without its suffix, where that is a suffix and not a version ("GPL-2.0")."""
    suffix = suffix_of(path)
    is_suffix = re.fullmatch(r"(\.[a-z][a-z0-9]{0,9}){1,2}", suffix)
    return path.name[: -len(suffix)] if is_suffix else path.name


def compose(path: Path) -> Path:
    """Return a path with composed letters, the form in which names are compared."""
    return Path(unicodedata.normalize("NFC", str(path)))


def find_path(given: str | Path) -> Path:
    """Return the path that is meant: with its home, and its letters composed as those on disk."""
    path = Path(given)
    with suppress(OSError, ValueError):  # no file can have this name
        if path.exists():
            return path
        path = Path(os.path.expanduser(path))  # noqa: PTH111 (pathlib may refuse)
        if str(path).isascii():
            return path
        found = Path(path.anchor)
        for part in path.parts[bool(path.anchor) :]:
            step = found / part
            if not step.exists():  # macOS writes names decomposed, people do not
                step = next((p for p in found.iterdir() if compose(p) == compose(step)), step)
            found = step
        return found
    return path


_ATTEMPTS = 2


def load(path: Path, limits: Limits) -> bytes:
    """Read all bytes of a file, unchanged while they are read."""
    require_utf8(path, str(path))
    for _ in range(_ATTEMPTS):
        try:
            before = path.stat()
            require_regular(path, before)
            if before.st_size > limits.file_bytes:
                why = f"it has {before.st_size:,} bytes and the limit is {limits.file_bytes:,}"
                raise TooLarge(f"cannot read {path}", why, "split it")
            if not before.st_size:  # not opened: files of the kernel are empty and may never end
                raise NoText(f"cannot read {path}", "it is empty (0 bytes)", "leave it out")
            with path.open("rb") as file:
                # One byte over the limit, so a file that grows meanwhile cannot fill the memory.
                data = file.read(limits.file_bytes + 1)
            after = path.stat()
        except OSError as error:
            raise os_error(path, error) from error
        same = ("st_dev", "st_ino", "st_size", "st_mtime_ns")
        unchanged = all(getattr(before, fact) == getattr(after, fact) for fact in same)
        if unchanged and len(data) == after.st_size:
            return data
    raise ReadingError(f"cannot read {path}", "it changes while it is read", "try again later")


def require_utf8(path: Path, name: str) -> None:
    """Refuse a path whose name no catalogue and no other program could store."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ReadingError(f"cannot read {path}", "its path is not UTF-8", "rename it") from error


def require_regular(path: Path, state: os.stat_result) -> None:
    """Refuse a folder, a pipe, a device or a socket."""
    if not stat.S_ISREG(state.st_mode):  # a pipe or a device may never end
        why = "it is a folder" if stat.S_ISDIR(state.st_mode) else "it is not a regular file"
        raise UnsupportedFormat(f"cannot read {path}", why, "name a file")


def os_error(path: Path, error: OSError) -> MissingPath | ReadingError:
    """Return our error for one of the operating system's about a path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingPath(f"no such file or folder: {path}", "", "check the path")
    if isinstance(error, PermissionError):
        return ReadingError(f"cannot read {path}", "permission denied", "give yourself read access")
    return ReadingError(f"cannot read {path}", error.strerror or str(error), "check the path")
