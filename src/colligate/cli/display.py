"""How an answer looks: its text, then its numbered citations."""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from colligate.core.answer import Answer
    from colligate.core.citing import Citation
    from colligate.models.metering import UsageReport


# Where output goes: results to standard output, notes to standard error.
#
# Nothing a document, a file name or a model says may drive the terminal, so all foreign text
# passes through `visible`, and rich is never given markup to read.

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


_INDENT = 4


def show_answer(answer: Answer) -> None:
    """The answer and its citations, to standard output."""
    out = console(sys.stdout)
    text = Text(visible(answer.text))
    text.highlight_regex(r"\[\d+\]", "bold cyan")
    text.highlight_regex(r"\[uncited\]", "yellow")
    out.print(text)
    for number, citation in enumerate(answer.citations, 1):
        out.print()
        out.print(_heading(number, citation, " › " if out.encoding.startswith("utf") else " > "))
        quote = Text(visible(inspect.cleandoc(citation.quote)), style="italic")
        if out.is_terminal:
            out.print(Padding(quote, (0, 0, 0, _INDENT)))
        else:
            for line in quote.plain.split("\n"):
                out.print(Text(" " * _INDENT + line if line.strip() else ""))


def usage_line(usage: UsageReport, model: str) -> str:
    """What a run cost, for standard error."""
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd else ""
    by = f"{model}: " if model else ""
    roles = [f"{role} {sums['calls']:,}" for role, sums in usage.by_role.items() if sums["calls"]]
    calls = counted(usage.calls, "call") + (f" ({', '.join(roles)})" if len(roles) > 1 else "")
    return f"{by}{calls}, {tokens}{cost}, {usage.seconds:.1f} s"


def _heading(number: int, citation: Citation, arrow: str) -> Text:
    """`[1] Title › Section › Subsection, page 3`."""
    line = Text.assemble((f"[{number}] ", "bold cyan"), (one_line(citation.title), "bold"))
    for title in citation.section:
        # The document's title is often its first heading as well: once is enough.
        if title != citation.title:
            line.append(arrow + one_line(title))
    if citation.page is not None:
        line.append(f", page {citation.page}")
    return line


# Rows in columns: a rich table in a terminal, aligned plain text elsewhere.


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines; cells are shown whole, wrapped where the terminal is narrow."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(one_line(cell)) for cell in row))
    return made
