"""How an answer looks: its text, then its numbered citations."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from colligate.cli.terminal import console, counted, one_line, visible

if TYPE_CHECKING:
    from colligate.evidence.citing import Citation
    from colligate.models.metering import UsageReport
    from colligate.strategies.answer import Answer

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
