"""Where the tokens of a text lie in it, from what each token is written as."""

from __future__ import annotations

from collections.abc import Sequence

_SPACE = ord(" ")
_BLANKS = set(b" \t\n\v\f\r")
_LOWER_ONE_EIGHTH_BLOCK = "\u2581".encode()  # SentencePiece's space; it reads this one as a space


def token_spans(text: str, pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    """The half-open character range of each token, given its bytes in UTF-8, all in order.

    Tokens may part a character: each of them has the whole of it. Blanks that a tokenizer puts in
    (SentencePiece, at the beginning) have an empty range. Blanks that it leaves out are in no
    token, nor are bytes that its vocabulary does not have at all.

    Raises:
        ValueError: the tokens are not of this text.

    >>> token_spans("n\u00e9 \u6771", [b" n", b"\\xc3\\xa9", b" \\xe6\\x9d", b"\\xb1"])
    [(0, 1), (1, 2), (2, 4), (3, 4)]
    >>> token_spans("a\u0006 b", [b"a", b" b"])
    [(0, 1), (2, 4)]
    """
    data = text.encode()
    may_be_missing = _BLANKS | set(range(256)) - set(b"".join(pieces))
    letters = [index for index, letter in enumerate(text) for _ in letter.encode()] + [len(text)]
    spans = []
    at = 0
    for piece in pieces:
        start = at
        if data.startswith(piece, at):
            at += len(piece)
        else:
            start, at = _find(data, at, piece, may_be_missing)
        spans.append((letters[start], letters[at - 1] + 1 if at > start else letters[start]))
    if not may_be_missing.issuperset(data[at:]):
        raise ValueError("the tokens end before the text")
    return spans


def _find(data: bytes, at: int, piece: bytes, may_be_missing: set[int]) -> tuple[int, int]:
    """Where the piece begins and ends at or after `at`, one byte after another."""
    start = None
    for byte in piece:
        if byte == _SPACE:
            after = at
            while data[after : after + 1] and data[after] in may_be_missing - _BLANKS:
                after += 1
            if data[after : after + 1] == b" ":  # not put in: it stands after what is left out
                at = after
        while byte != _SPACE and data[at : at + 1] not in (bytes([byte]), b""):
            if data[at] not in may_be_missing:
                raise ValueError("a token is not of the text")
            at += 1
        if data[at : at + 1] == bytes([byte]):
            width = 1
        elif byte == _SPACE and data.startswith(_LOWER_ONE_EIGHTH_BLOCK, at):
            width = len(_LOWER_ONE_EIGHTH_BLOCK)
        elif byte == _SPACE:
            continue
        else:
            raise ValueError("the text ends before the tokens")
        start = at if start is None else start
        at += width
    return at if start is None else start, at
