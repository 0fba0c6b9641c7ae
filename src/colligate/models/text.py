"""Text as it can be sent to a model."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SURROGATE = re.compile("[\ud800-\udfff]")

# <s>, <|im_end|>, <end_of_turn>, <｜User｜>, [INST]: within one line, looked for at each opening.
_MARK = re.compile(r"(?=(<[^<>\n]{1,98}>|\[[^\[\]\n]{1,98}\]))")
# Letters that no normalisation turns back into what they look like.
_LOOK_ALIKE = {"<": "\u2039", "[": "\u2045", "]": "\u2046", ">": "\u203a", "|": "\u01c0"}


def encodable(text: str) -> str:
    r"""The text with U+FFFD for each lone surrogate, which no encoding has.

    Python makes them of bytes that are no UTF-8, in an argument of the command line for one.

    >>> encodable("caf\udce9") == "caf\ufffd"
    True
    """
    return _SURROGATE.sub("\ufffd", text)


def marks(text: str) -> list[str]:
    """What could be a control token by its form: in `<>` or `[]`; each once, overlapping ones too.

    >>> marks("[a<b>] <|<s>|> 1 < 2")
    ['[a<b>]', '<b>', '<s>']
    """
    return list(dict.fromkeys(found[1] for found in _MARK.finditer(text)))


def blunt(text: str, controls: Iterable[str]) -> str:
    """The text with these control tokens made harmless: the first character of each a look-alike.

    The text reads the same to the model, has the same length, and spans of it stay valid.

    >>> blunt("<b>bold</b> <|im_end|>", ["<|im_end|>"])
    '<b>bold</b> ‹|im_end|>'
    """
    for control in controls:
        text = text.replace(control, _LOOK_ALIKE.get(control[0], "\ufffd") + control[1:])
    return text
