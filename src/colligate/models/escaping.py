"""Escaping: text in a prompt can neither close a tag of our prompts nor end its turn."""

from __future__ import annotations

import re
import unicodedata

_OUR_TAGS = (
    "(?i:passages?|documents?|quotes?|question|log|evidence|outline|thoughts?|findings?|tasks?|directive"
    r"|notes|entit(?:y|ies)|queries|answer|facts|looked_up)\b"
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
    "[<\uff1c\ufe64](?=\\s*(?:[/\\\\|<abdeflnopqst]|[^ -~]))|[\\[\uff3b\ufe47](?=[/aist]|[^ -~])",
    re.IGNORECASE,
)
_LOOK_ALIKES = {"<": "‹", "[": "⁅"}
_BLANKS = re.compile(r"\s+")
# What Unicode says may be left out when a text is shown, format and control characters.
_INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891"
    "\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)


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
        shown = _INVISIBLE.sub("", text[start : start + size])
        seen = _BLANKS.sub(" ", unicodedata.normalize("NFKC", shown))
        if len(seen) >= _LONGEST_MARK or start + size >= len(text):
            return _LOOK_ALIKES[seen[0]] if _MARK.match(seen) else opening[0]
        size *= 4  # much of it is not shown
