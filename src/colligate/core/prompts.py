"""Prompt fragments that methods share: escaping, the question, documents, thoughts.

Document text in a prompt is data: it can neither end its place there nor speak as a turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from pydantic import BaseModel, Field

from colligate.documents import Document, Passage, Span
from colligate.documents.sentences import split_sentences
from colligate.models import Message
from colligate.models.escaping import escape as escape


class NumberedDocument(NamedTuple):
    """A document with its number in the full list, from 1: the same in every prompt of a run."""

    number: int
    passage: Passage

    @property
    def span(self) -> Span:
        return self.passage.span


Numbered = Sequence[NumberedDocument]

ANSWERED = "so the answer is"
"""The marker that ends a chain of reasoning sentences (IRCoT)."""

_DELIMITER = "[DOC] "
_WIDE = re.compile(r"[ \t]{3,}")


def build_messages(instruction: str, *blocks: str) -> list[Message]:
    """Return a system turn, and a user turn of these blocks; empty blocks are left out."""
    content = "\n\n".join(block for block in blocks if block)
    return [Message("system", instruction), Message("user", content)]


def render_text(text: str) -> str:
    """Return a document's text as prompts show it: escaped, without the wide gaps of its tables.

    In a table of plain text every third character is a blank. Quotes are located without blanks.
    """
    return escape(_WIDE.sub("  ", text.strip()))


def enclose(tag: str, text: str) -> str:
    """Return a text in a tag of our prompts that the text itself cannot close."""
    return f"<{tag}>\n{escape(text)}\n</{tag}>"


def render_question(question: str) -> str:
    """Return the question as prompts show it, after the date if it says "this year" or the like.

    The question comes last: signals are read at its tokens.
    """
    today = f"Today is {say_day(date.today())}.\n" if depends_on_today(question) else ""
    return f"{today}Question: {escape(question.strip())}"


def depends_on_today(question: str) -> bool:
    """Return whether a question has words such as "this year", whose days depend on the date.

    >>> depends_on_today("Which of these leases end in the next six months?")
    True
    """
    return _RELATIVE.search(question) is not None


_RELATIVE = re.compile(
    r"\b(?:this|next|last) (?:year|quarter|month)\b|\btoday\b"
    r"|\b(?:next|coming|last|past) (?:\d+|[a-z]+) (?:day|week|month|year)s\b"
    r"|\b(?:within|in) (?:\d+|[a-z]+) (?:day|week|month|year)s\b",
    re.IGNORECASE,
)


def say_day(day: date) -> str:
    """Return a day in words: "26 November 2026"."""
    return f"{day.day} {day:%B %Y}"


def render_thoughts(thoughts: Sequence[str]) -> str:
    """Return numbered thoughts in a tag."""
    lines = [f"{number}. {thought}" for number, thought in enumerate(thoughts, 1)]
    return enclose("thoughts", "\n".join(lines))


def render_documents(numbered: Numbered) -> tuple[str, list[tuple[int, int]]]:
    """Return documents, each in a tag with its number, and the span of each title and text."""
    text, spans = "<documents>\n", []
    for number, passage in numbered:
        text += f'<document number="{number}">\n'
        start = len(text)
        text += render_titled(passage, passage.text)
        spans.append((start, len(text)))
        text += f'\n</document number="{number}">\n'
    return f"{text}</documents>", spans


def render_titled(passage: Passage, text: str) -> str:
    """Return a text of a passage under the passage's title and headings."""
    headings = (heading for heading in passage.section if heading != passage.title)
    title = " › ".join(dict.fromkeys([passage.full_title, *headings]))
    lines = [escape(" ".join(title.split())), render_text(text)]
    return "\n".join(line for line in lines if line)


def build_attention_prompt(
    question: str, passages: Sequence[Passage], *, lead: bool = True
) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of the passages and then the question, and the span of each passage.

    With `lead` the question comes before the passages too: the "query-aware" prompt of Lost in
    the Middle (Liu et al. 2024).
    """
    asked = render_question(question)
    text, spans = f"{asked}\n\n" if lead else "", []
    for passage in passages:
        body = render_body(passage)
        start = len(text) + len(_DELIMITER)
        spans.append((start, start + len(body)))
        text += f"{_DELIMITER}{body}\n\n"
    return text + asked, spans


def render_body(passage: Passage) -> str:
    """Return a passage's title and text, as scoring prompts show them."""
    return f"{escape(passage.full_title)}\n{render_text(passage.text)}"


def keep_table_head(passage: Passage, document: Document) -> Passage:
    """Return a passage that continues a table with the table's head in its headings."""
    head = document.table_head(passage.span)
    if not head or passage.section[-1:] == (head,):
        return passage
    return replace(passage, section=(*passage.section, head))


def render_passages(
    passages: Sequence[Passage], first: int = 1, *, numbers: Sequence[int] = ()
) -> str:
    """Return passages numbered from `first`, or by `numbers`, in tags that their text cannot close.

    The closing tag repeats the number: small models then name the passage they quote more often
    than its neighbour.
    """
    blocks = []
    counted = range(first, first + len(passages))
    for number, passage in zip(numbers or counted, passages, strict=True):
        place = [f'number="{number}"', f'title="{_attribute(passage.full_title)}"']
        if passage.section:
            place.append(f'section="{_attribute(" › ".join(passage.section))}"')
        if passage.page is not None:
            place.append(f'page="{passage.page}"')
        body = render_text(passage.text)
        blocks.append(f'<passage {" ".join(place)}>\n{body}\n</passage number="{number}">')
    return "<passages>\n" + "\n".join(blocks) + "\n</passages>"


def _attribute(text: str) -> str:
    return " ".join(escape(text).replace('"', "'").replace("<", "‹").replace(">", "›").split())


class Reasoning(BaseModel, json_schema_extra={"required": ["thought", "need_retrieve"]}):
    """The next thought, and whether something must be looked up. In the order of decoding."""

    thought: str = Field(json_schema_extra={"maxLength": 800})
    need_retrieve: bool = Field(default_factory=lambda: True)  # cut: nothing says that it is enough


def parse_sentence(reply: str) -> Reasoning:
    """Return the first sentence of a reply; with the marker in it, nothing must be looked up."""
    lines = reply.strip().splitlines() or [""]
    line = re.sub(r"^\s*\d+[.)]\s+(?=\S)", "", lines[0]).strip()  # numbered as the thoughts are
    start, end = next(iter(split_sentences(line, "en")), (0, 0))
    sentence = line[start:end]
    return Reasoning(thought=sentence, need_retrieve=ANSWERED not in sentence.casefold())
