"""A document as LongRefiner scores it: abstract, sections, sub-sections, paragraphs.

There are two levels of headings; text under deeper ones belongs to the sub-section above. The
paragraphs hold all text but the headings, also text that the tree does not cover.
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
from colligate.documents.sentences import (
    LEAST_WORDS,
    MOST_WORDS,
    sentence_spans,
    split_at_headings,
    split_paragraphs,
    word_spans,
)

ABSTRACT = "abstract"
"""The title of the node that holds the text before the first section."""


class Level(StrEnum):
    """The kind of a node."""

    ABSTRACT = "abstract"
    SECTION = "section"
    SUBSECTION = "subsection"
    PARAGRAPH = "paragraph"


@dataclass(frozen=True, slots=True)
class ArticleNode:
    """One node of an `Article`.

    `id` is its place in `Article.nodes`. `span` goes from its heading, or from its first paragraph
    if the text has no heading for it, to the end of its last paragraph. `parent` is None at the
    top.
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
        """The ids of the paragraphs in each node, in order; its own id for a paragraph."""
        under: list[tuple[int, ...]] = [()] * len(self.nodes)
        for node in reversed(self.nodes):
            below = [leaf for child in node.children for leaf in under[child]]
            under[node.id] = tuple(below) if node.children else (node.id,)
        return tuple(under)


def build_article(
    document: Document,
    tree: Tree | None = None,
    *,
    least_words: int = LEAST_WORDS,
    most_words: int = MOST_WORDS,
    within: Sequence[Span] | None = None,
) -> Article:
    """Build the article of a document by `tree`: its own by default, or one that a model made.

    A section at the top that has the document's title, or that holds all others, is not a section
    of the article. The text before the first section is the abstract, and so is a first section
    with the title "Abstract" or "Summary". Without any section a long text is one section with the
    document's title, in chunks of six sentences; a short one is a paragraph. Sections without text
    are left out. With `within` only what lies inside these spans is kept; spans of other documents
    are ignored.
    """
    areas = _merge_areas(document, within)
    sectioned = _assign_sections(document, tree or document.tree)
    if all(owners == _ABSTRACT for owners, _ in sectioned):
        return _build(document, _chunk(document, areas, least_words, most_words))
    leaves: list[_Leaf] = []
    for owners, stretch in sectioned:
        for area in areas:
            if common := stretch.intersection(area):
                found = split_paragraphs(
                    document, common, least_words=least_words, most_words=most_words
                )
                leaves.extend((owners, span) for span in found)
    return _build(document, leaves)


class _Owner(NamedTuple):
    """A future section: `key` identifies it, `start` is where its heading begins, if it has one."""

    key: int
    level: Level
    title: str
    start: int | None = None


_Owners = tuple[_Owner, ...]
"""The sections around a stretch of text, outermost first."""

_Leaf = tuple[_Owners, Span]
_ABSTRACT: _Owners = (_Owner(-1, Level.ABSTRACT, ABSTRACT),)
_LEVELS = (Level.SECTION, Level.SUBSECTION)


def _assign_sections(document: Document, tree: Tree) -> list[_Leaf]:
    """Cut the whole text into stretches, each up to where text of another section begins."""
    marks = [(0, _ABSTRACT)]
    for node, owners in zip(tree, _find_owners(document, tree), strict=True):
        # Text outside all sections belongs to the section before it.
        if owners != marks[-1][1] and owners != _ABSTRACT:
            marks.append((node.span.start, owners))
    ends = [start for start, _ in marks[1:]] + [len(document)]
    return [
        (owners, Span(document.id, start, end))
        for (start, owners), end in zip(marks, ends, strict=True)
    ]


def _find_owners(document: Document, tree: Tree) -> list[_Owners]:
    """Return the sections that each node of the tree belongs to."""
    sections = _find_titled(tree)
    wrappers = _find_wrappers(document, tree, sections)
    found: list[_Owners] = []
    depths: list[int] = []
    begun = False  # a section has been seen
    for node in tree:
        if node.parent is None or node.id in wrappers:
            found.append(_ABSTRACT)
            depths.append(0)
            continue
        owners, depth = found[node.parent], depths[node.parent]
        if node.id in sections and depth < len(_LEVELS):
            if not begun and _is_abstract(node.title):
                depth = len(_LEVELS)  # everything in it is abstract too
            else:
                start = None if node.heading is None else node.heading.start
                owner = _Owner(node.id, _LEVELS[depth], node.title, start)
                owners = (*owners, owner) if depth else (owner,)
                depth += 1
                begun = True
        found.append(owners)
        depths.append(depth)
    return found


def _find_titled(tree: Tree) -> frozenset[int]:
    """Return the sections with a title of the document's own; all, if a model named them."""
    titled = [node for node in tree.sections if node.title]
    headed = [node for node in titled if not node.synthetic]
    return frozenset(node.id for node in headed or titled)


def _find_wrappers(document: Document, tree: Tree, sections: Collection[int]) -> set[int]:
    """Return the sections at the top that are only the document's title, or hold all others."""
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


_ABSTRACT_TITLES = frozenset({ABSTRACT, "summary"})
_NOT_LETTERS = re.compile(r"[\W\d_]+")


def _is_abstract(title: str) -> bool:
    return _NOT_LETTERS.sub("", title).casefold() in _ABSTRACT_TITLES


def _chunk(
    document: Document, areas: Sequence[Span], least_words: int, most_words: int
) -> list[_Leaf]:
    """Return chunks of six sentences under the document's title; a short text as it is."""
    texts = [text for area in areas for text in split_at_headings(document, area)]
    if sum(len(word_spans(document.slice(text))) for text in texts) <= most_words:
        return [((), text) for text in texts]
    owners = (_Owner(-1, Level.SECTION, document.title),)
    leaves: list[_Leaf] = []
    for text in texts:
        sentences = sentence_spans(document, text)
        for six in range(0, len(sentences), SixSentences.sentences):
            last = sentences[six : six + SixSentences.sentences][-1]
            chunk = Span(document.id, sentences[six].start, last.end)
            finer = [chunk]
            if len(word_spans(document.slice(chunk))) > most_words:
                finer = split_paragraphs(
                    document, chunk, least_words=least_words, most_words=most_words
                )
            leaves.extend((owners, span) for span in finer)
    return leaves


def _merge_areas(document: Document, within: Sequence[Span] | None) -> list[Span]:
    """Return what to look at, in order: spans that touch, or have only blanks between, are one."""
    if within is None:
        return [document.span(0, len(document))]
    areas: list[Span] = []
    for span in sorted(span for span in within if span.document_id == document.id):
        document.slice(span)  # fails if it is outside the text
        last = areas[-1] if areas else None
        if last and not document.text[last.end : span.start].strip():
            areas[-1] = Span(document.id, last.start, max(last.end, span.end))
        else:
            areas.append(span)
    return areas


def _build(document: Document, leaves: Sequence[_Leaf]) -> Article:
    """Make the nodes of paragraphs in order; a section begins with its first paragraph."""
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
            span = replace(nodes[parent].span, end=leaf.end)
            nodes[parent] = replace(nodes[parent], span=span)
        add(Level.PARAGRAPH, "", leaf, parent)
    return Article(
        document, tuple(replace(node, children=tuple(children[node.id])) for node in nodes)
    )
