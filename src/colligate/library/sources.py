"""Sources: the documents a strategy reads and searches, and the passages they are cut into."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from colligate.documents import Document, Hit, Span
from colligate.documents.contents import Contents
from colligate.documents.document import full_title
from colligate.documents.reading.source import compose
from colligate.errors import NoDocuments, UnknownDocument, UsageError

if TYPE_CHECKING:
    from colligate.documents.chunking import Chunker


class SearchMode(StrEnum):
    """How passages are found."""

    DENSE = "dense"  # cosine of embeddings
    SPARSE = "sparse"  # BM25
    HYBRID = "hybrid"  # both, joined by their z-scores (decision 37)


@runtime_checkable
class Sources(Protocol):
    """The documents in view: an `AsyncLibrary`, a `View` of one, or `InMemorySources`."""

    async def documents(self) -> Sequence[DocumentInfo]:
        """Return all documents in view, in order."""

    async def document(self, document_id: str) -> Document:
        """Return one whole document.

        Raises:
            UnknownDocument: the document is not in view.
        """

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """Return the `k` best passages, best first, optionally only of some documents.

        A query without a searchable word returns nothing. Equal scores come in document order.

        Raises:
            UnknownDocument: one of `documents` is not in view.
        """


@dataclass(frozen=True, slots=True)
class Within:
    """Some of the documents of other sources, by id."""

    sources: Sources
    ids: frozenset[str]

    async def documents(self) -> Sequence[DocumentInfo]:
        return [info for info in await self.sources.documents() if info.id in self.ids]

    async def document(self, document_id: str) -> Document:
        if document_id not in self.ids:
            raise UnknownDocument(f"no document {document_id!r}", "it is not in view")
        return await self.sources.document(document_id)

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        among = self.ids if documents is None else documents
        return await self.sources.search(query, k=k, mode=mode, documents=among)


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as lists show it, without its text."""

    id: str
    title: str
    source: str
    characters: int
    pages: int
    passages: int
    language: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    folder: str = field(default="", compare=False)

    @property
    def full_title(self) -> str:
        """The title as models see it (`Passage.full_title`)."""
        return full_title(self.title, self.id, self.folder)

    @property
    def date(self) -> str:
        """The document's date in ISO 8601, "2024" if only the year is known; empty if unknown."""
        return self.metadata.get("date", "")


_MADE_NAME = re.compile(r"[0-9a-f]{16,}|\W*")  # of a folder: a digest, or the root


def tell_apart(documents: Sequence[DocumentInfo]) -> list[DocumentInfo]:
    """Return the documents; those with one full title have as `folder` the name in their paths that
    differs, the nearest to the file that tells most of them apart, else the file's own."""
    titles = Counter(info.title for info in documents)
    titled: dict[str, list[DocumentInfo]] = defaultdict(list)
    for info in documents:
        if titles[info.title] > 1:  # of most documents only this is counted: there may be many
            titled[info.full_title].append(info)
    folders: dict[str, str] = {}
    for alike in titled.values():
        paths = [PurePath(info.source) for info in alike]
        levels = [
            *zip_longest(*(path.parts[-2::-1] for path in paths), fillvalue=""),
            [path.stem for path in paths],
        ]
        names = max(levels, key=lambda level: len(set(level)))
        if len(set(names)) > 1:
            folders.update((info.id, name) for info, name in zip(alike, names, strict=True))
    told = {id_: name for id_, name in folders.items() if not _MADE_NAME.fullmatch(name)}
    return [replace(i, folder=told[i.id]) if i.id in told else i for i in documents]


def find_named(question: str, documents: Sequence[DocumentInfo]) -> list[str]:
    """Return the ids of the documents whose files a question names, as it writes them.

    A name without its suffix counts if it is no plain word, as "rules-v2", or if the question has
    those of several files: "in Leeds and in Hull", where these are files.
    """

    def is_named(name: str) -> bool:
        if not name or name not in asked:  # most of many thousands
            return False
        return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-]|\.\w)", asked) is not None

    asked = _fold(question)
    paths = {info.id: PurePath(_fold(info.source)) for info in documents}
    stems = {name for path in paths.values() if is_named(name := path.stem)}
    wordy = {name for name in stems if any(map(str.isalpha, name))}
    if len(wordy) < 2:
        wordy = {name for name in wordy if not name.isalpha()}
    return [key for key, path in paths.items() if path.stem in wordy or is_named(path.name)]


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


_MOST_NAMED = 5  # documents that an error lists


def find_document(given: str, documents: Sequence[DocumentInfo]) -> str:
    """Return the id of the one document with this id, file, title or start of an id.

    Raises:
        UnknownDocument: there is none.
        UsageError: there are several.
    """
    path = compose(Path(given))
    whole, parts, folded = path.absolute(), path.parts, _fold(given)
    tests: tuple[Callable[[DocumentInfo], bool], ...] = (
        lambda info: info.id == given,
        lambda info: given == info.source or compose(Path(info.source).absolute()) == whole,
        lambda info: compose(Path(info.source)).parts[-len(parts) :] == parts,
        lambda info: _fold(info.title) == folded,
        lambda info: bool(given) and info.id.startswith(given),
    )
    for fits in tests:
        found = [info for info in documents if fits(info)]
        if len(found) == 1:
            return found[0].id
        if found:
            shown = tell_apart(found)[:_MOST_NAMED]
            several = "; ".join(f"{info.id}: {info.full_title}" for info in shown)
            several += "; ..." if found[_MOST_NAMED:] else ""
            what = f"{given!r} may be one of {len(found)} documents"
            raise UsageError(what, several, "give the id of one")
    hint = "a list of the documents shows their names"
    raise UnknownDocument(f"no document {given!r}", "none has this id, file or title", hint)


_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|!=|=|>|<|~)\s*([^\s=<>~].*?)\s*")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a document, such as `date>=2024`, `language=de` or `title~annual report`.

    The key is id, title, file, language, date, or the name of what the file says about itself. A
    document without it only meets `!=`. `date<=2024` holds for all of 2024. Of a document of which
    only the year 2024 is known `date>=2024-03` and `date<=2024-03` hold, `date=2024-03` not. `~` is
    contains; upper and lower case are the same.
    """

    key: str
    operator: str
    value: str

    def holds(self, info: DocumentInfo) -> bool:
        """Return whether a document meets the condition."""
        own = {"id": info.id, "title": info.title, "language": info.language}
        facts = {**info.metadata, **own, "file": PurePath(info.source).name}
        fact, value = _fold(facts.get(self.key, "")), _fold(self.value)
        if not fact:
            return self.operator == "!="
        if self.operator == "~":
            return value in fact
        if self.key == "date":
            fact = fact[: len(value)]
        if self.operator in ("=", "!="):
            return (fact == value) == (self.operator == "=")
        if self.key == "date":
            value = value[: len(fact)]
        less, more = (fact < value, fact > value)
        if _is_number(fact) and _is_number(value):
            less, more = float(fact) < float(value), float(fact) > float(value)
        strict = {"<": less, ">": more}[self.operator[0]]
        return strict or (self.operator.endswith("=") and not (less or more))


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """Return the conditions that texts such as "date>=2024" state.

    Raises:
        UsageError: a text is not a condition.
    """
    found = [(text, _CONDITION.fullmatch(text)) for text in texts]
    for text, match in found:
        if match is None:
            why = "expected a name, one of = != >= <= > < ~, and a value"
            raise UsageError(f"{text!r} is not a condition", why, 'write it as "date>=2024"')
        if match[1].casefold() == "date" and match[2] != "~" and not _DATE.fullmatch(match[3]):
            why = f"expected a date such as 2024, 2024-03 or 2024-03-31, got {match[3]}"
            raise UsageError(f"{text!r} is not a condition", why, 'write it as "date>=2024-03"')
    return [Condition(match[1].casefold(), match[2], match[3]) for _, match in found if match]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None


async def select_documents(sources: Sources, where: Sequence[str]) -> list[str]:
    """Return the ids of the documents that meet all conditions, in order.

    Raises:
        UsageError: a text is not a condition.
        NoDocuments: no document meets them.
    """
    conditions, infos = parse_conditions(where), await sources.documents()
    kept = [info.id for info in infos if all(each.holds(info) for each in conditions)]
    if not kept:
        dated = sum(bool(info.date) for info in infos)
        why = f"of {len(infos):,} documents {dated:,} have a date"
        raise NoDocuments(f"no document meets {' and '.join(where)}", why, "ask without --where")
    return kept


def cut_passages(document: Document, chunker: Chunker) -> list[Span]:
    """Return a document's chunks without what its sections say better.

    A heading right above a sub-section's is on the heading path of every passage below it, and the
    entries of a table of contents are headings of passages. Both would only take a better passage's
    place among the few that are read.
    """
    below: dict[int, int] = {}  # where the sub-section begins that is all below a heading
    for node in document.tree.sections:
        children = document.tree.children(node)
        if node.heading is not None and children and children[0].heading is not None:
            below[node.heading.start] = children[0].span.start
    contents = Contents(document)
    found: list[Span] = []
    for span in chunker(document):
        start = span.start
        while (inner := below.get(start)) is not None:
            start = inner
        if start < span.end:
            found += contents.cut_off(Span(document.id, start, span.end))
    return found


_LONGEST = 10_000  # characters of a passage with some hundred tokens


def prepend_headings(title: str, section: Iterable[str], text: str) -> str:
    """Return the text a passage is found by: its document's title, heading path and own text."""
    if len(text) > _LONGEST:  # mostly blanks, on which a tokenizer may take minutes
        text = " ".join(text.split())
    headings = [title, *(heading for heading in section if heading != title)]
    return "\n".join([" > ".join(filter(None, headings)), text]).replace("\u00ad", "")
