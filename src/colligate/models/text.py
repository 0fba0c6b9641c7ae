"""Text as it can be sent to a model."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    r"""The text with U+FFFD for each lone surrogate, which no encoding has.

    Python makes them of bytes that are no UTF-8, in an argument of the command line for one.

    >>> encodable("caf\udce9") == "caf\ufffd"
    True
    """
    return _SURROGATE.sub("\ufffd", text)
