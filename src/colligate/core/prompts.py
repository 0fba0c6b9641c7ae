"""Document text in a prompt: it can neither end its place there nor speak as a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from colligate.documents import Passage

# The special tokens of chat templates; a tokenizer would take them for the end of a turn.
_TURN_TOKEN = re.compile(r"<(?=\|[\w ]{1,40}\|>)|<(?=/?(?:s|start_of_turn|end_of_turn|bos|eos)>)")
_OUR_TAGS = (
    "passages?|documents?|question|log|evidence|outline|thoughts?|findings?|tasks?|directive|notes"
    "|entit(?:y|ies)|queries"
)
_OUR_TAG = re.compile(rf"<(?=/?\s*(?:{_OUR_TAGS})\b)", re.IGNORECASE)


def escape(text: str) -> str:
    """The text with a look-alike for each `<` that opens a tag of our prompts or a turn token.

    >>> material("a</document><|im_end|> <b>")
    'a‹/document>‹|im_end|> <b>'
    """
    return _TURN_TOKEN.sub("‹", _OUR_TAG.sub("‹", text))


def asked(question: str) -> str:
    """The question in a prompt."""
    return f"Question: {escape(question.strip())}"


def numbered(thoughts: Sequence[str]) -> str:
    """The thoughts in their order."""
    lines = [f"{number}. {thought}" for number, thought in enumerate(thoughts, 1)]
    return f"<thoughts>\n{escape(chr(10).join(lines))}\n</thoughts>"


Numbered = tuple[int, Passage]
"""A document with its number in the full list, from 1: the same in every prompt of a run."""


def rendered(numbered: Sequence[Numbered]) -> tuple[str, list[tuple[int, int]]]:
    """Documents, each inside a tag with its number that its own text cannot close; and where the
    title and text of each stand in it."""
    text, spans = "<documents>\n", []
    for number, passage in numbered:
        text += f'<document number="{number}">\n'
        start = len(text)
        text += titled(passage, passage.text)
        spans.append((start, len(text)))
        text += f'\n</document number="{number}">\n'
    return f"{text}</documents>", spans


def titled(passage: Passage, text: str) -> str:
    """A text of a passage under the passage's title and headings."""
    title = " › ".join(dict.fromkeys([passage.title, *passage.section]))
    lines = [" ".join(title.split()), text.strip()]
    return escape("\n".join(line for line in lines if line))


Span = tuple[int, int]

_DELIMITER = "[DOC] "


def attention_prompt(
    question: str, passages: Sequence[Passage], *, lead: bool = True
) -> tuple[str, list[Span]]:
    """The passages, then the question, with which the text ends; and where each passage stands.

    With `lead` the question comes before the passages too: the "query-aware" prompt of Lost in
    the Middle.
    """
    asked = f"Question: {escape(question.strip())}"
    text, spans = f"{asked}\n\n" if lead else "", []
    for passage in passages:
        body = _body(passage)
        start = len(text) + len(_DELIMITER)
        spans.append((start, start + len(body)))
        text += f"{_DELIMITER}{body}\n\n"
    return text + asked, spans


def _body(passage: Passage) -> str:
    return escape(f"{passage.title}\n{passage.text.strip()}")


ANSWERED = "so the answer is"
"""The marker that ends a reasoning of sentences (IRCoT)."""


class Reasoning(BaseModel):
    """The next thought, and whether something has to be looked up. In the order of decoding."""

    model_config = ConfigDict(extra="ignore")

    thought: str = Field(json_schema_extra={"maxLength": 800})
    need_retrieve: bool


def sentence_reasoning(reply: str) -> Reasoning:
    """The first sentence of a reply; the marker says that nothing is missing."""
    lines = reply.strip().splitlines() or [""]
    sentence = re.split(r"(?<=[.!?])\s", lines[0].strip(), maxsplit=1)[0]
    return Reasoning(thought=sentence, need_retrieve=ANSWERED not in sentence.casefold())
