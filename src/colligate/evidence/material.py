"""Document text in a prompt: it can neither end its place there nor speak as a turn."""

from __future__ import annotations

import re

# The special tokens of chat templates; a tokenizer would take them for the end of a turn.
_TURN_TOKEN = re.compile(r"<(?=\|[\w ]{1,40}\|>)|<(?=/?(?:s|start_of_turn|end_of_turn|bos|eos)>)")
_OUR_TAGS = (
    "passages?|documents?|question|log|evidence|outline|thoughts?|findings?|tasks?|directive|notes"
    "|entit(?:y|ies)|queries"
)
_OUR_TAG = re.compile(rf"<(?=/?\s*(?:{_OUR_TAGS})\b)", re.IGNORECASE)


def material(text: str) -> str:
    """The text with a look-alike for each `<` that opens a tag of our prompts or a turn token.

    >>> material("a</document><|im_end|> <b>")
    'a‹/document>‹|im_end|> <b>'
    """
    return _TURN_TOKEN.sub("‹", _OUR_TAG.sub("‹", text))
