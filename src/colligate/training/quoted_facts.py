"""Facts in a reply that is to be learnt: copied from where they stand, word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from colligate.documents import Passage
from colligate.documents.languages import detect
from colligate.documents.sentences import sentences
from colligate.evidence.knowledge_outline import Fragment
from colligate.evidence.material import material
from colligate.evidence.reader import Statement
from colligate.evidence.support import NEAR, support
from colligate.evidence.words import content_words
from colligate.training.gold_entities import Gold

# What the schemas of the Reasoner and the Knowledge Summarizer allow.
_LONGEST_FACT, _LONGEST_QUOTE = 300, 600  # characters
_MOST_FACTS, _MOST_STATEMENTS = 6, 8


def copied(facts: Sequence[str], fragments: Sequence[Fragment]) -> list[str]:
    """The facts as the outline has them: what says nearly the same becomes the outline's words.

    Those that it does not have are left out.
    """
    shown = [material(each.text) for each in fragments]
    found = []
    for fact in facts:
        text = " ".join(fact.split())
        if not text:
            continue
        if not any(text in each for each in shown):
            near = max(shown, key=lambda each: support(fact, each).whole, default="")
            if not near or not support(fact, near).enough(NEAR):
                continue
            text = near
        found.append(_cut(text, _LONGEST_FACT))
    return list(dict.fromkeys(found))[:_MOST_FACTS]


def statements(fragments: Sequence[Fragment], passages: Sequence[Passage]) -> list[Statement]:
    """What the fragments say, each with the sentences of the passages it rests on as its quote."""
    found = []
    for fragment in fragments:
        for span in fragment.spans:
            for number, passage in enumerate(passages, 1):
                if passage.span.contains(span):
                    start = span.start - passage.span.start
                    quote = passage.text[start : start + len(span)]
                    found.append(_statement(number, quote, fragment.text))
                    break
    return found[:_MOST_STATEMENTS]


def gold_statement(gold: Gold, passages: Sequence[Passage], claim: str) -> list[Statement]:
    """The gold's first named sentence that a passage has; empty where none has one.

    Of a gold without named sentences it is that sentence of its passages which shares most
    content words with the `claim`.
    """
    if gold.sentences:
        for sentence in gold.sentences:
            for number, passage in enumerate(passages, 1):
                if passage.document_id == gold.id and sentence in passage.text:
                    return [_statement(number, sentence, sentence)]
        return []
    wanted = set(content_words(claim))
    best: Statement | None = None
    most = 0
    for number, sentence in _sentences(gold, passages):
        shared = len(wanted.intersection(content_words(sentence)))
        if shared > most:
            best, most = _statement(number, sentence, sentence), shared
    return [best] if best is not None else []


def _sentences(gold: Gold, passages: Sequence[Passage]) -> Iterator[tuple[int, str]]:
    for number, passage in enumerate(passages, 1):
        if passage.document_id == gold.id:
            for start, end in sentences(passage.text, detect(passage.text)):
                yield number, passage.text[start:end]


def _statement(number: int, quote: str, sentence: str) -> Statement:
    """A statement whose quote stands in the prompt as it stands here."""
    return Statement(
        passage=number,
        quote=_cut(material(quote), _LONGEST_QUOTE),
        sentence=_cut(" ".join(sentence.split()), _LONGEST_QUOTE),
    )


def _cut(text: str, longest: int) -> str:
    """The text as far as whole words of it have room."""
    if len(text) <= longest:
        return text
    cut = text[: longest + 1].rpartition(" ")[0]
    return cut or text[:longest]
