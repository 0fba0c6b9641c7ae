"""Pairs to learn structuring from: a document without its headings, and the skeleton of it.

Any document that has sections will do. What the model is shown is what inference shows of a text
without structure, what it is to reply is written by the serialiser that inference's reader
reverses, and a pair is kept only where that reader brings the text back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from colligate.documents import Document, Span
from colligate.documents.markdown import markdown_tree
from colligate.documents.paragraphs import MOST_WORDS, word_spans
from colligate.documents.skeleton import skeleton
from colligate.documents.skeleton_recovery import recover
from colligate.documents.tree import flat_tree
from colligate.errors import FaultyRecord, UsageError
from colligate.evidence.material import material
from colligate.evidence.structuring import stretches, structuring_messages
from colligate.models import Message
from colligate.strategies.at_least import at_least
from colligate.token_estimate import estimate_tokens
from colligate.training.journal import Made
from colligate.training.samples import Sample

TASK = "structuring"

SHORT = "no longer than a paragraph: inference would not ask"
UNSECTIONED = "without sections"
HEADED = "its body still reads as if it had headings"
LONG = "the skeleton is longer than inference lets a reply be"
LOST = "the skeleton does not bring the text back"

_LEAST_SECTIONS = 2  # one alone tells nothing apart
_SECTION = re.compile(r"<(?:sub-)?section: [^>]*>")
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


@dataclass(frozen=True)
class Pairing:
    """How pairs are made.

    A text of `structuring_tokens` is the longest that inference shows a model with a window of
    32,768 tokens, such as the paper's, and with the longest skeleton that a reply may be, half
    of it, it is within the 25,000 tokens that the recipe trains on.

    Raises:
        UsageError: a number that means nothing.
    """

    structuring_tokens: int = 16_000  # of text in a pair
    edge_words: int = 8  # of each end of a paragraph, as the instruction says
    joined_words: int = 20  # paragraphs of fewer are joined, as in the paper's labels
    recovered: float = 0.99  # of the text, or the pair is discarded

    def __post_init__(self) -> None:
        at_least(self, structuring_tokens=1, edge_words=1, joined_words=0, recovered=0)
        if self.recovered > 1:
            why = "it is a share of the text"
            raise UsageError(f"recovered is {self.recovered:g}", why, "name one such as 0.99")


def structuring_pairs(document: Document, pairing: Pairing) -> Made:
    """A sample for each stretch that inference would ask about, were the headings not there.

    A stretch that begins inside a section has that section's title again, since nothing else
    says where its text belongs. Blocks.
    """
    body = body_of(document)
    if len(body.bare.text.split()) <= MOST_WORDS:
        return Made(discarded={SHORT: 1})
    if body.bare.tree.sections:
        return Made(discarded={HEADED: 1})
    spans = list(stretches(body.bare, pairing.structuring_tokens))
    replies = [_reply(document, body.source(span), pairing) for span in spans]
    if len({tag for reply in replies for tag in _SECTION.findall(reply)}) < _LEAST_SECTIONS:
        return Made(discarded={UNSECTIONED: 1})
    samples = []
    discarded: Counter[str] = Counter()
    for place, (span, reply) in enumerate(zip(spans, replies, strict=True)):
        text = body.bare.slice(span)
        if estimate_tokens(reply) > pairing.structuring_tokens // 2:
            discarded[LONG] += 1
        elif recover(reply, plain(text)).coverage < pairing.recovered:
            discarded[LOST] += 1
        else:
            samples.append(_sample(document, text, reply, place, len(spans)))
    return Made(tuple(samples), discarded)


def shown(sample: Sample) -> str:
    """The text that the model is to structure.

    Raises:
        FaultyRecord: the sample's prompt is not the one that inference sends now.
    """
    before, _, after = structuring_messages("\0")[0].content.partition("\0")
    content = sample.messages[0].content
    if len(sample.messages) != 2 or not (content.startswith(before) and content.endswith(after)):
        why = "it was made with another version of the prompt"
        raise FaultyRecord(f"cannot read sample {sample.id}", why, "curate the samples again")
    return content[len(before) : len(content) - len(after)]


def plain(text: str) -> Document:
    """A text by itself, of which nothing else is known."""
    return Document("text", "", text, flat_tree("text", len(text)))


@dataclass(frozen=True)
class Body:
    """A document without its headings, `bare`: the `pieces` between them, blank lines between.

    `starts` is where each piece begins in the bare text.
    """

    bare: Document
    pieces: tuple[Span, ...]
    starts: tuple[int, ...]

    def source(self, span: Span) -> Span:
        """Where a stretch of the bare text, without blanks around it, stands in the document."""
        return Span(span.document_id, self._source(span.start), self._source(span.end - 1) + 1)

    def _source(self, offset: int) -> int:
        piece = bisect_right(self.starts, offset) - 1
        return self.pieces[piece].start + offset - self.starts[piece]


def body_of(document: Document) -> Body:
    """The document as one whose author wrote no headings, its title included."""
    pieces = tuple(_between_headings(document))
    starts = []
    length = 0
    for piece in pieces:
        starts.append(length)
        length += len(piece) + len("\n\n")
    text = "\n\n".join(map(document.slice, pieces))
    tree = markdown_tree(text, document.id)
    bare = Document(document.id, document.title, text, tree, language=document.language)
    return Body(bare, pieces, tuple(starts))


def _between_headings(document: Document) -> Iterator[Span]:
    """The text between headings, without blank lines around each piece."""
    headings = [node.heading for node in document.tree.sections if node.heading is not None]
    place = 0
    for start, stop in [*((each.start, each.end) for each in headings), (len(document),) * 2]:
        lead = _BLANK_LINES.match(document.text, place, start)
        begin = lead.end() if lead else place
        end = begin + len(document.text[begin:start].rstrip())
        if begin < end:
            yield document.span(begin, end)
        place = stop


def _reply(document: Document, within: Span, pairing: Pairing) -> str:
    written = skeleton(
        document,
        tokens=pairing.edge_words,
        least_words=pairing.joined_words,
        token_spans=word_spans,
        within=within,
    )
    return material(written)  # as the model sees the text; and no reply may end a turn


def _sample(document: Document, text: str, reply: str, place: int, of: int) -> Sample:
    return Sample(
        id=f"{TASK}/{document.id}/{place}",
        task=TASK,
        messages=(*structuring_messages(text), Message("assistant", reply)),
        meta={
            "document": document.id,
            "title": document.title,
            "class": document.tree.structure.basis.value,
            "stretch": [place, of],
        },
    )
