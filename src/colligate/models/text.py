"""Text as it can be sent to a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

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


def disarm(text: str, is_control: Callable[[str], bool]) -> str:
    """The text with every mark that the model would take for a control token made harmless.

    `is_control` says whether the model reads one mark, such as `<|im_end|>`, `</s>` or `[INST]`,
    as more than its letters. The first character of each that it does becomes a look-alike: the
    text reads the same to the model, has the same length, and spans of it stay valid. Any other
    text comes back unchanged.

    >>> disarm("<b>bold</b> <|im_end|>", {"<|im_end|>"}.__contains__)
    '<b>bold</b> ‹|im_end|>'
    """
    return blunt(text, filter(is_control, marks(text)))


def marks(text: str) -> list[str]:
    """What could be a control token by its form: in `<>` or `[]`; each once, overlapping ones too.

    >>> marks("[a<b>] <|<s>|> 1 < 2")
    ['[a<b>]', '<b>', '<s>']
    """
    return list(dict.fromkeys(found[1] for found in _MARK.finditer(text)))


def blunt(text: str, controls: Iterable[str]) -> str:
    """The text with the first character of each of the control tokens replaced by a look-alike."""
    for control in controls:
        text = text.replace(control, _LOOK_ALIKE.get(control[0], "\ufffd") + control[1:])
    return text
