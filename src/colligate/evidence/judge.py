"""DuQUAD's judge: the final answer from reliability scores, evidence and the agents' debate.

Documents keep the numbers that the agents knew them by, so that [DOC 7] of the debate and passage
7 of the evidence are the same. The reply is a reader's: what it quotes can be looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.documents import Passage, Span
from colligate.evidence.material import material
from colligate.evidence.reader import FORMS, Form
from colligate.evidence.views import titled
from colligate.models import Message

_JUDGE = """\
You are the judge of a debate. Two agents read the documents and answered the question; their \
answers are the debate, in <log> tags before the passages. A passage shows only the sentences of \
its document that matter, and its number is the one that the debate gives its document as \
[DOC number]. The reliability of a document is the probability, from 0 to 1, that it answers the \
question; higher is better. The debate may be wrong: where it and the passages differ, the \
passages are right. Quote the passages; where they lack what the debate quotes of a document, \
quote that, with the document's number as "passage"."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A document that was kept: its number, and the spans of it that are shown.

    `p` is its reliability in [0, 1], None where documents were not scored.
    """

    number: int
    passage: Passage
    p: float | None
    shown: tuple[Span, ...]

    @property
    def text(self) -> str:
        """What is shown, a line a span."""
        start = self.passage.span.start
        cut = (self.passage.text[each.start - start : each.end - start] for each in self.shown)
        return "\n".join(" ".join(each.split()) for each in cut)


def judge_messages(
    question: str, kept: Sequence[Exhibit], logs: Sequence[tuple[str, str]], form: Form
) -> list[Message]:
    """The prompt: debate, scores, evidence, question.

    The paper has the debate behind the evidence; there, small models made fewer statements or
    none. `logs` are the agents' names and what each wrote. The reply is `FORMS[form].reply`, whose
    `passage` is a document's number.
    """
    scores = [f"Passage {each.number}: {each.p:.2f}" for each in kept if each.p is not None]
    passages = "\n".join(
        f'<passage number="{each.number}">\n{titled(each.passage, each.text)}\n'
        f'</passage number="{each.number}">'
        for each in kept
    )
    blocks = [
        *(f'<log agent="{name}">\n{material(log.strip())}\n</log>' for name, log in logs),
        *(["Reliability:\n" + "\n".join(scores)] if scores else []),
        f"<passages>\n{passages or 'None was found reliable.'}\n</passages>",
        f"Question: {material(question.strip())}",
    ]
    return [
        Message("system", f"{FORMS[form].instruction}\n{_JUDGE}"),
        Message("user", "\n\n".join(blocks)),
    ]
