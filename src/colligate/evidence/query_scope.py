"""How much a question wants to know: LongRefiner's query analysis.

The probabilities of the two labels become R_q, the weight of what the outline says against what
single paragraphs say: 0 for a fact that one place settles, 1 for what the whole document tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from colligate.evidence.material import material
from colligate.models import Message

LOCAL, GLOBAL = "Local", "Global"
LABELS = (LOCAL, GLOBAL)
FORCED = "["
"""How the reply begins before its label: the trained target is `[Local]` or `[Global]`."""

_TASK = """\
You analyse what a question asks for and say how much of a document its answer takes.
[Local]: the answer is fixed and narrow, such as a name, a date, a number or a yes or no; a few \
sentences somewhere in the document settle it.
[Global]: the answer is broad, such as a summary, an overview, a comparison or an explanation; it \
takes an understanding of much of the document."""

_EXAMPLES = (
    ("When was the company founded?", LOCAL),
    ("What does the report say about the risks of the business?", GLOBAL),
    ("Which city hosted the meeting of 1998?", LOCAL),
    ("How did the party's policy change over the years?", GLOBAL),
)


def scope_messages(question: str, *, bare: bool = False) -> list[Message]:
    """The prompt, examples as turns. `bare` asks for the label without its brackets."""
    left, right = ("", "") if bare else ("[", "]")
    task = _TASK.replace("[", "").replace("]", "") if bare else _TASK
    messages = [
        Message("system", f"{task}\nReply with {left}Local{right} or {left}Global{right} alone.")
    ]
    for example, label in _EXAMPLES:
        messages += [Message("user", example), Message("assistant", f"{left}{label}{right}")]
    return [*messages, Message("user", material(question.strip()))]


def scope_of_odds(odds: Mapping[str, float]) -> float:
    """R_q = P_g / (P_g + P_l), in [0, 1]; 0.5 where the model gives neither label any chance.

    The paper writes a softmax over the two probabilities, which would confine R_q to
    [0.27, 0.73]; its code normalises them, as here.
    """
    total = odds[LOCAL] + odds[GLOBAL]
    return odds[GLOBAL] / total if total > 0 else 0.5


def scope_of_reply(reply: str) -> float | None:
    """1 or 0 by the label that a reply names first, None where it names neither."""
    places = {label: reply.casefold().find(label.casefold()) for label in LABELS}
    named = {place: label for label, place in places.items() if place >= 0}
    return float(named[min(named)] == GLOBAL) if named else None
