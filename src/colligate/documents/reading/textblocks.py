"""The blocks of a plain text: lines that stand together between blank ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A line's place in the text, without its end and the blanks around it; its indentation."""

    start: int
    end: int
    indent: int


@dataclass(frozen=True, slots=True)
class Block:
    """Lines without a blank one between them."""

    lines: tuple[Line, ...]

    @property
    def start(self) -> int:
        """Where its first character that is not blank stands."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """Where its last character that is not blank ends."""
        return self.lines[-1].end


def split_blocks(text: str) -> list[Block]:
    """The blocks of a text in order; they hold all its characters that are not blank."""
    blocks: list[Block] = []
    lines: list[Line] = []
    at = 0
    for raw in text.split("\n"):
        words = raw.strip()
        if words:
            lead = len(raw) - len(raw.lstrip())
            indent = len(raw[:lead].expandtabs())
            lines.append(Line(at + lead, at + lead + len(words), indent))
        elif lines:
            blocks.append(Block(tuple(lines)))
            lines = []
        at += len(raw) + 1
    if lines:
        blocks.append(Block(tuple(lines)))
    return blocks
