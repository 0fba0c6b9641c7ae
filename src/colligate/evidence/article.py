"""A document as LongRefiner weighs it: abstract, sections, sub-sections, and paragraphs of them.

Two levels of headings are told apart; what stands under deeper ones belongs to the sub-section
above. No text is left out but headings, whatever the tree covers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from colligate.documents import Document, Span, Tree
from colligate.documents.chunking import SixSentences
from colligate.documents.paragraphs import (
    LEAST_WORDS,
    MOST_WORDS,
    paragraphs,
    stretches,
    word_spans,
)
from colligate.documents.sentences import sentence_spans

ABSTRACT = "abstract"
"""The title of the node that holds the text before the first section."""

_ABSTRACT_TITLES = frozenset({ABSTRACT, "summary"})
_NOT_LETTERS = re.compile(r"[\W\d_]+")


class Level(StrEnum):
    """What a node of an article is."""

    ABSTRACT = "abstract"
    SECTION = "section"
    SUBSECTION = "subsection"
    PARAGRAPH = "paragraph"


@dataclass(frozen=True, slots=True)
class ArticleNode:
    """One node of an `Article`.

    `id` is its place in `Article.nodes`. `span` goes from its heading, or its first paragraph
    where the text has no heading for it, to the end of its last paragraph. `parent` is None for
    what stands directly in the document.
    """

    id: int
    level: Level
    title: str
    span: Span
    parent: int | None = None
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class Article:
    """The nodes of a document in pre-order; those without children are its paragraphs."""

    document: Document
    nodes: tuple[ArticleNode, ...]

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The ids of all paragraphs, in document order."""
        return tuple(node.id for node in self.nodes if node.level is Level.PARAGRAPH)

    @cached_property
    def leaves_under(self) -> tuple[tuple[int, ...], ...]:
        """Of each node, the ids of the paragraphs it holds, in order; of a paragraph, its own."""
        under: list[tuple[int, ...]] = [()] * len(self.nodes)
        for node in reversed(self.nodes):
            below = [leaf for child in node.children for leaf in under[child]]
            under[node.id] = tuple(below) if node.children else (node.id,)
        return tuple(under)


def article(
    document: Document,
    tree: Tree | None = None,
    *,
    least_words: int = LEAST_WORDS,
    most_words: int = MOST_WORDS,
    within: Sequence[Span] | None = None,
) -> Article:
    """The article of a document, by `tree` (default: its own; a model may have made another).

    A section at the top that has the document's title, or that alone holds all others, is not a
    section of the article. The text before the first section is the abstract, and so is a first
    section with the title "Abstract" or "Summary". Without any section a long text stands in one
    that has the document's title, in chunks of six sentences; a short one is a paragraph by
    itself. Sections without text are left out. `within` leaves only what lies inside these
    spans; spans of other documents are passed over.

    Raises:
        UsageError: as `paragraphs` does.
        SpanError: if one of `within` reaches beyond the text.
    """
    areas = _areas(document, within)
    sectioned = _sectioned(document, tree or document.tree)
    leaves: list[_Leaf] = []
    if all(owners == _ABSTRACT for owners, _ in sectioned):
        leaves = _unsectioned(document, areas, least_words, most_words)
    else:
        for owners, stretch in sectioned:
            for area in areas:
                if common := stretch.intersection(area):
                    found = paragraphs(
                        document, common, least_words=least_words, most_words=most_words
                    )
                    leaves.extend((owners, span) for span in found)
    return _grown(document, leaves)


class _Owner(NamedTuple):
    """A section to be: `key` tells it apart, `start` is where its heading stands, if it has one."""

    key: int
    level: Level
    title: str
    start: int | None = None


_Owners = tuple[_Owner, ...]
"""The nodes around a stretch of text, outermost first."""

_Leaf = tuple[_Owners, Span]
_ABSTRACT: _Owners = (_Owner(-1, Level.ABSTRACT, ABSTRACT),)
_LEVELS = (Level.SECTION, Level.SUBSECTION)


def _sectioned(document: Document, tree: Tree) -> list[_Leaf]:
    """The whole text in stretches, each running to where something of another owner begins."""
    marks = [(0, _ABSTRACT)]
    for node, owners in zip(tree, _owners(document, tree), strict=True):
        # What no section holds goes on from the section before it.
        if owners != marks[-1][1] and owners != _ABSTRACT:
            marks.append((node.span.start, owners))
    ends = [start for start, _ in marks[1:]] + [len(document)]
    return [
        (owners, Span(document.id, start, end))
        for (start, owners), end in zip(marks, ends, strict=True)
    ]


def _owners(document: Document, tree: Tree) -> list[_Owners]:
    """Of each node of the tree, the sections it belongs to."""
    sections = _counted(tree)
    titling = _titling(document, tree, sections)
    found: list[_Owners] = []
    depths: list[int] = []
    begun = False  # a section has been seen
    for node in tree:
        if node.parent is None or node.id in titling:
            found.append(_ABSTRACT)
            depths.append(0)
            continue
        owners, depth = found[node.parent], depths[node.parent]
        if node.id in sections and depth < len(_LEVELS):
            if not begun and _is_abstract(node.title):
                depth = len(_LEVELS)  # what stands inside it is abstract too
            else:
                start = None if node.heading is None else node.heading.start
                owner = _Owner(node.id, _LEVELS[depth], node.title, start)
                owners = (*owners, owner) if depth else (owner,)
                depth += 1
                begun = True
        found.append(owners)
        depths.append(depth)
    return found


def _counted(tree: Tree) -> frozenset[int]:
    """The sections that have a title of the document's own; all, where a model named them."""
    titled = [node for node in tree.sections if node.title]
    headed = [node for node in titled if not node.synthetic]
    return frozenset(node.id for node in headed or titled)


def _titling(document: Document, tree: Tree, sections: Collection[int]) -> set[int]:
    """The sections at the top that are only the document's title, or hold all there is."""
    found: set[int] = set()
    tops = [child for child in reversed(tree.root.children) if child in sections]
    while tops:
        first = tree.nodes[tops.pop()]
        below = [child for child in reversed(first.children) if child in sections]
        holds_all = below and not tops
        if not holds_all and not same_title(first.title, document.title):
            break
        found.add(first.id)
        tops.extend(below)
    return found


def same_title(one: str, other: str) -> bool:
    """Whether two titles differ in case and blanks at most."""
    return one.casefold().split() == other.casefold().split()


def _is_abstract(title: str) -> bool:
    return _NOT_LETTERS.sub("", title).casefold() in _ABSTRACT_TITLES


def _unsectioned(
    document: Document, areas: Sequence[Span], least_words: int, most_words: int
) -> list[_Leaf]:
    """Chunks of six sentences under the document's title; a short text as it is."""
    texts = [text for area in areas for text in stretches(document, area)]
    if sum(len(word_spans(document.slice(text))) for text in texts) <= most_words:
        return [((), text) for text in texts]
    owner = _Owner(-1, Level.SECTION, document.title)
    leaves: list[_Leaf] = []
    for text in texts:
        sentences = sentence_spans(document, text)
        for six in range(0, len(sentences), SixSentences.sentences):
            last = sentences[six : six + SixSentences.sentences][-1]
            chunk = Span(document.id, sentences[six].start, last.end)
            if len(word_spans(document.slice(chunk))) <= most_words:
                leaves.append(((owner,), chunk))
                continue
            finer = paragraphs(document, chunk, least_words=least_words, most_words=most_words)
            leaves.extend(((owner,), span) for span in finer)
    return leaves


def _areas(document: Document, within: Sequence[Span] | None) -> list[Span]:
    """What to look at, in order: spans that touch, or have only blanks between them, are one."""
    if within is None:
        return [document.span(0, len(document))]
    areas: list[Span] = []
    for span in sorted(span for span in within if span.document_id == document.id):
        document.slice(span)  # it must lie in the text
        last = areas[-1] if areas else None
        if last and not document.text[last.end : span.start].strip():
            areas[-1] = Span(document.id, last.start, max(last.end, span.end))
        else:
            areas.append(span)
    return areas


def _grown(document: Document, leaves: Sequence[_Leaf]) -> Article:
    """The nodes for paragraphs in order; a section is there when its first paragraph is."""
    nodes: list[ArticleNode] = []
    children: list[list[int]] = []
    placed: dict[int, int] = {}

    def add(level: Level, title: str, span: Span, parent: int | None) -> int:
        nodes.append(ArticleNode(len(nodes), level, title, span, parent))
        children.append([])
        if parent is not None:
            children[parent].append(len(nodes) - 1)
        return len(nodes) - 1

    for owners, leaf in leaves:
        parent = None
        for owner in owners:
            if owner.key not in placed:
                start = leaf.start if owner.start is None else min(owner.start, leaf.start)
                span = Span(document.id, start, leaf.end)
                placed[owner.key] = add(owner.level, owner.title, span, parent)
            parent = placed[owner.key]
            nodes[parent] = replace(
                nodes[parent], span=Span(document.id, nodes[parent].span.start, leaf.end)
            )
        add(Level.PARAGRAPH, "", leaf, parent)
    return Article(
        document, tuple(replace(node, children=tuple(children[node.id])) for node in nodes)
    )
