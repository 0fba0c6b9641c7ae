"""Where output goes: results to standard output, notes to standard error.

Nothing a document, a file name or a model says may drive the terminal, so all foreign text
passes through `visible`, and rich is never given markup to read.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNSEEN = "\N{REPLACEMENT CHARACTER}"
# Control characters become their symbols (ESC is shown as U+241B). C1 controls, lone surrogates
# and the marks that reorder the text around them have none.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys(range(0x80, 0xA0), _UNSEEN),
    **dict.fromkeys(range(0x202A, 0x202F), _UNSEEN),
    **dict.fromkeys(range(0x2066, 0x206A), _UNSEEN),
    **dict.fromkeys(range(0xD800, 0xE000), _UNSEEN),
}


def visible(text: str) -> str:
    r"""The same text, character for character, with control characters shown and not obeyed.

    Newlines and tabs stay. The length does not change, so offsets still hold.

    >>> visible("a\x1b[2Jb")
    'a␛[2Jb'
    """
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    """`visible`, with all white space folded to single blanks."""
    return " ".join(visible(text).split())


def counted(count: int, thing: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def prepare_streams() -> None:
    """Let no character stop the output: what the stream's encoding lacks becomes `?`.

    A stream that was closed before the start (`>&-`) is replaced by nothing.
    """
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def is_terminal(stream: TextIO) -> bool:
    """Whether a person watches this stream in a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console(stream: TextIO) -> Console:
    """A rich console that reads no markup, and wraps lines in a terminal only."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            # Rich would end the process here, with the status of a fault.
            raise BrokenPipeError

    watched = stream.isatty()
    made = _Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not watched,
        force_terminal=None if watched else False,
        no_color=None if watched else True,
    )
    # Lines longer than 110 are hard to read; elsewhere the reader wraps them, if it wants to.
    made.width = max(20, min(made.width, 110)) if watched else 10_000
    return made


def say(what: RenderableType) -> None:
    """A result, to standard output."""
    out = console(sys.stdout)
    if sys.stdout.isatty():
        out.print(what)
        return
    with out.capture() as plain:
        out.print(what)
    # Tables pad their last column.
    sys.stdout.writelines(line.rstrip() + "\n" for line in plain.get().rstrip("\n").split("\n"))


def say_json(value: Any) -> None:
    """A result as one JSON object, in ASCII so that it is the same bytes in every locale."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def note(text: str, style: str = "dim") -> None:
    """One line for the person watching, to standard error."""
    from rich.text import Text

    console(sys.stderr).print(Text(one_line(text), style=style), soft_wrap=True)


def warn(text: str) -> None:
    """A warning, to standard error: one line."""
    note(f"warning: {text}", style="yellow")
