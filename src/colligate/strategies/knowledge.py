"""What one DualRAG run knows, and what of it its prompts and its reader are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import BaseModel

from colligate.documents import Passage, Span
from colligate.evidence.citing import Evidence
from colligate.evidence.knowledge_outline import Fragment, KnowledgeOutline
from colligate.evidence.reader import FORMS, Form, reader_messages
from colligate.evidence.reasoner import numbered
from colligate.models import Message, Role
from colligate.strategies.dualrag_trace import Stop
from colligate.strategies.run import Run


@dataclass
class Knowledge:
    """The outline, the thoughts so far, the passages that were read, and how the rounds ended.

    `flat` shows the outline without its entities.
    """

    question: str
    flat: bool = False
    outline: KnowledgeOutline = field(default_factory=KnowledgeOutline)
    thoughts: list[str] = field(default_factory=list)
    passages: dict[str, Passage] = field(default_factory=dict)
    rounds: int = 0
    stop: Stop = Stop.ROUNDS

    def merge(
        self, name: str, fragments: Sequence[Fragment], passages: Sequence[Passage]
    ) -> tuple[Fragment, ...]:
        """Take what passages say of an entity into the outline; the fragments that are new."""
        self.passages.update((passage.id, passage) for passage in passages)
        return self.outline.merge(name, fragments, passages)

    async def shown(
        self,
        run: Run,
        prompt: Callable[[str], list[Message]],
        max_tokens: int,
        schema: type[BaseModel] | None = None,
    ) -> str:
        """The outline as a prompt shows it: where it does not fit, without its oldest fragments."""
        without, size = 0, self.outline.size
        while True:
            text = self.outline.render(without=without, flat=self.flat)
            room = await run.room(Role.READER, prompt(text), max_tokens, schema=schema)
            if room is None or room >= 0 or without == size:
                break
            without = min(size, without + max(1, size // 8))
        if without:
            run.warn("the outline did not fit the model's window: its oldest parts were left out")
        return text

    async def for_reader(
        self, run: Run, form: Form, *, outline: bool = True
    ) -> tuple[list[tuple[Passage, Evidence]], str]:
        """What the reader is shown: passages, each with the reason why, and notes.

        The passages that the outline rests on, the first of every entity before the second of
        any; where they do not fit the model's window, only the sentences that it rests on. The
        notes are the outline, unless that is the passages themselves, and the thoughts.
        """
        whole, parts = self._passages(), await self._sentences(run)
        reply, tokens = FORMS[form].reply, FORMS[form].tokens
        thoughts = [numbered(self.thoughts)] if self.thoughts else []

        def notes(text: str) -> str:
            known = [f"<outline>\n{text}\n</outline>"] if outline else []
            return "\n\n".join([*known, *thoughts])

        def ask(sources: Sequence[tuple[Passage, Evidence]], text: str) -> list[Message]:
            passages = [passage for passage, _ in sources]
            return reader_messages(self.question, passages, form, notes=notes(text))

        text = await self.shown(run, partial(ask, parts), tokens, reply)
        room = await run.room(Role.READER, ask(whole, text), tokens, schema=reply)
        return (whole if room is None or room >= 0 else parts), notes(text)

    @property
    def latest(self) -> str:
        """The latest thought, or the question: what is looked up for want of anything better."""
        return self.thoughts[-1] if self.thoughts else self.question

    def _passages(self) -> list[tuple[Passage, Evidence]]:
        found: dict[Passage, list[str]] = {}
        for name, span in self.outline.sources:
            found.setdefault(self._passage_of(span), []).append(name)
        return [
            (passage, Evidence(passage.span, float(len(names)), _reason(names)))
            for passage, names in found.items()
        ]

    async def _sentences(self, run: Run) -> list[tuple[Passage, Evidence]]:
        return [
            (
                (await run.document(span.document_id)).passage(span),
                Evidence(span, 1.0, _reason([name])),
            )
            for name, span in self.outline.sources
        ]

    def _passage_of(self, span: Span) -> Passage:
        return next(each for each in self.passages.values() if each.span.contains(span))


def _reason(names: Sequence[str]) -> str:
    """Why it is shown, by the entities that knowledge of rests on it, once for each piece."""
    said = ", ".join(dict.fromkeys(f"“{name}”" for name in names))
    return f"{len(names)} sentence{'s' * (len(names) > 1)} say something of {said}"
