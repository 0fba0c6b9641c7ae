"""Prompt fragments that methods share: escaping, the question, documents, thoughts.

Document text in a prompt is data: it can neither end its place there nor speak as a turn.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date

from pydantic import BaseModel, ConfigDict, Field

from colligate.documents import Passage
from colligate.documents.sentences import split_sentences
from colligate.models import Message

NumberedDocument = tuple[int, Passage]
"""A document with its number in the full list, from 1: the same in every prompt of a run."""

ANSWERED = "so the answer is"
"""The marker that ends a chain of reasoning sentences (IRCoT)."""

_OUR_TAGS = (
    "(?i:passages?|documents?|quotes?|question|log|evidence|outline|thoughts?|findings?|tasks?|directive"
    r"|notes|entit(?:y|ies)|queries)\b"
)
# In a text without invisible characters, whose blanks are single: the tags of our prompts, with
# blanks in them too where it is clear that a tag is meant ("n < tasks" is none), and the special
# tokens of chat templates, which a tokenizer would take for the end of a turn.
_MARK = re.compile(
    rf"<{_OUR_TAGS}|<[ \\]*/[ /\\]*{_OUR_TAGS}|< {_OUR_TAGS}(?= ?/?>| \w+ ?= ?[\"'])"
    r"|<\|/?\w[\w ▁]{0,39}\|>|</?(?:s|bos|eos|start_of_turn|end_of_turn)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<</?SYS>>"
)
_LONGEST_MARK = 100  # characters that decide whether one begins
# "<" and "[", also as compatibility (NFKC) has them, before what one of these may begin with.
_OPENING = re.compile(
    "[<\uff1c\ufe64](?=\\s*(?:[/\\\\|<bdeflnopqst]|[^ -~]))|[\\[\uff3b\ufe47](?=[/aist]|[^ -~])",
    re.IGNORECASE,
)
_LOOK_ALIKES = {"<": "‹", "[": "⁅"}
# What Unicode says may be left out when a text is shown, format and control characters.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891"
    "\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)

_DELIMITER = "[DOC] "
_WIDE = re.compile(r"[ \t]{3,}")
_BLANKS = re.compile(r"\s+")


def build_messages(instruction: str, *blocks: str) -> list[Message]:
    """Return a system turn, and a user turn of these blocks; empty blocks are left out."""
    content = "\n\n".join(block for block in blocks if block)
    return [Message("system", instruction), Message("user", content)]


def escape(text: str) -> str:
    """Replace each `<` or `[` that opens a tag of our prompts or a turn token by a look-alike.

    The text keeps its length. Spellings count that a model or its tokenizer may read as the same:
    with blanks and invisible characters between the letters, and full-width forms.

    >>> escape("a</document><|im_end|> <b>")
    'a‹/document>‹|im_end|> <b>'
    """
    return _OPENING.sub(_replace_opening, text)


def _replace_opening(opening: re.Match[str]) -> str:
    text, start, size = opening.string, opening.start(), _LONGEST_MARK
    while True:
        shown = remove_invisible(text[start : start + size])
        seen = _BLANKS.sub(" ", unicodedata.normalize("NFKC", shown))
        if len(seen) >= _LONGEST_MARK or start + size >= len(text):
            return _LOOK_ALIKES[seen[0]] if _MARK.match(seen) else opening[0]
        size *= 4  # much of it is not shown


def remove_invisible(text: str) -> str:
    """Remove the characters that may be left out when a text is shown."""
    return _INVISIBLE.sub("", text)


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


def render_documents(numbered: Sequence[NumberedDocument]) -> tuple[str, list[tuple[int, int]]]:
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


class Reasoning(BaseModel):
    """The next thought, and whether something must be looked up. In the order of decoding."""

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"required": ["thought", "need_retrieve"]}
    )

    thought: str = Field(json_schema_extra={"maxLength": 800})
    need_retrieve: bool = Field(default_factory=lambda: True)  # cut: nothing says that it is enough


def parse_sentence(reply: str) -> Reasoning:
    """Return the first sentence of a reply; with the marker in it, nothing must be looked up."""
    lines = reply.strip().splitlines() or [""]
    line = re.sub(r"^\s*\d+[.)]\s+(?=\S)", "", lines[0]).strip()  # numbered as the thoughts are
    start, end = next(iter(split_sentences(line, "en")), (0, 0))
    sentence = line[start:end]
    return Reasoning(thought=sentence, need_retrieve=ANSWERED not in sentence.casefold())
