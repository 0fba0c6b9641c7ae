"""What is printed: results on standard output, notes and warnings on standard error.

No text of a document, a file name or a model may control the terminal. So all foreign text passes
through `escape_controls`, and rich never reads markup.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from colligate.core.answer import Answer, Citation

_INDENT = 4


def show_answer(answer: Answer) -> None:
    """Print an answer and its numbered citations."""
    from rich.padding import Padding
    from rich.text import Text

    from colligate.export import lay_out

    out = make_console(sys.stdout)
    text = Text(escape_controls(answer.text))
    text.highlight_regex(r"\[\d+\]", "bold cyan")
    text.highlight_regex(r"[^\]]+(?= \[uncited\])", "strike")
    text.highlight_regex(r"\[uncited\]", "yellow")
    out.print(text)
    if rows := lay_out(answer.to_json()):
        out.print()
        print_result(make_table(rows[0], rows[1:]))
    arrow = "›" if out.encoding.startswith("utf") else ">"
    for number, citation in enumerate(answer.citations, 1):
        quote = Text(escape_controls(inspect.cleandoc(citation.quote)), style="italic")
        out.print()
        out.print(_format_heading(number, citation, arrow))
        said = [each.path for each in answer.values if each.citation == number]
        if said:
            out.print(Text(" " * _INDENT + to_one_line(", ".join(said)), style="dim"))
        if citation.head:
            quote = Text.assemble((to_one_line(citation.head) + "\n", "dim"), quote)
        print_result(Padding(quote, (0, 0, 0, _INDENT)))


def _format_heading(number: int, citation: Citation, arrow: str) -> Text:
    """Return `[1] Title › Section › Subsection, page 3, 2024-05-01 (reports/annual.pdf)`."""
    from rich.text import Text

    from colligate.export import describe_place

    shown = {**citation.to_json(), "source": shorten_path(citation.source)}
    place = to_one_line(describe_place(shown, with_folder=True)).replace("›", arrow)
    title = min(len(to_one_line(citation.title)), len(place))
    return Text.assemble((f"[{number}] ", "bold cyan"), (place[:title], "bold"), place[title:])


def shorten_path(source: str) -> str:
    """Return a path from the working folder, if it is in there."""
    path = Path(source)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else source


def make_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without lines; in a narrow terminal, cells are wrapped and not cut."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(to_one_line(cell)) for cell in row))
    return made


def print_result(what: RenderableType) -> None:
    """Print a result on standard output."""
    out = make_console(sys.stdout)
    if sys.stdout.isatty():
        out.print(what)
        return
    with out.capture() as plain:
        out.print(what)
    # Tables pad their last column.
    sys.stdout.writelines(line.rstrip() + "\n" for line in plain.get().rstrip("\n").split("\n"))


def print_json(value: Any) -> None:
    """Print a result as one line of JSON, in ASCII: the same bytes in every locale."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


# "quiet", "normal" or "verbose", as the command line asks (`options.Quiet`, `options.Verbose`).
loudness = "normal"


def note(text: str) -> None:
    """Print one line on standard error, unless the command is to be quiet."""
    if loudness != "quiet":
        tell(text, "dim")


def tell(text: str, style: str = "") -> None:
    """Print one line on standard error, also where the command is to be quiet."""
    from rich.text import Text

    make_console(sys.stderr).print(Text(to_one_line(text), style=style), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning in one line on standard error."""
    tell(f"warning: {text}", "yellow")


def prepare_streams() -> None:
    """Print `?` for characters that a stream's encoding lacks, and allow closed streams (`>&-`)."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def make_console(stream: TextIO) -> Console:
    """Return a rich console that reads no markup and wraps lines only in a terminal."""
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
    # Lines longer than 110 characters are hard to read.
    made.width = max(20, min(made.width, 110)) if watched else 10_000
    return made


_UNSEEN = "\N{REPLACEMENT CHARACTER}"
# Control characters become their symbols (ESC is U+241B). C1 controls, lone surrogates and the
# marks that reorder text have no symbol.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys(range(0x80, 0xA0), _UNSEEN),
    **dict.fromkeys(range(0x202A, 0x202F), _UNSEEN),
    **dict.fromkeys(range(0x2066, 0x206A), _UNSEEN),
    **dict.fromkeys(range(0xD800, 0xE000), _UNSEEN),
}


def escape_controls(text: str) -> str:
    r"""Return the text with control characters replaced by visible ones; newlines and tabs stay.

    The length does not change, so offsets stay valid.

    >>> escape_controls("a\x1b[2Jb")
    'a␛[2Jb'
    """
    return text.translate(_VISIBLE)


def to_one_line(text: str) -> str:
    """Return the text in one line: control characters escaped, white space as single blanks."""
    return " ".join(escape_controls(text).split())
