"""Drafts: the statements of a reply are shown while it is written, and their quotes looked for.

Only what code can check is said so early; what a statement means is judged when all are there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from colligate.core.answer import Claim
from colligate.core.events import Drafted
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.models import Message
from colligate.models.structured import StructuredReply, parse, parse_begun
from colligate.readers.citing import place_sentence, remove_model_marks

_SECONDS_BETWEEN_LOOKS = 0.2

R = TypeVar("R", bound=Any)  # a reply with `statements`


@dataclass
class Draft:
    """The reply to a question over numbered passages, as far as it is written.

    `checked` are its sentences whose quotes were looked for, and `writing` is the one after them.
    """

    question: str
    passages: Mapping[int, Passage]
    run: Run
    text: str = ""
    checked: list[str] = field(default_factory=list)
    writing: str = ""

    async def ask(
        self, messages: Sequence[Message], reply: type[R], *, max_tokens: int, retries: int = 1
    ) -> StructuredReply[R]:
        """Make the call as `Run.structured` does; if a person watches, `Drafted` events follow."""
        call = partial(self.run.structured, messages, reply, max_tokens=max_tokens, retries=retries)
        if not self.run.live:
            return await call()
        following = asyncio.create_task(self._follow(reply))
        try:
            made = await call(on_text=self._hear)
        except Exception:
            self._withdraw(0)
            raise
        finally:
            following.cancel()
        await self._check(made.value.statements)
        if self.writing:  # it is not in the reply that is used
            self._withdraw(len(self.checked))
        return made

    def _hear(self, text: str) -> None:
        if not text:  # a reply begins
            self._withdraw(0)
        self.text = text

    def _withdraw(self, index: int) -> None:
        if self.checked[index:] or self.writing:
            self.run.emit(Drafted(index, ""))
        self.checked, self.writing = self.checked[:index], ""

    async def _follow(self, reply: type[Any]) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            text = self.text
            said = parse_begun(text)
            if not isinstance(said, dict) or not isinstance(said.get("statements"), list):
                continue
            whole, last = said["statements"], None
            if [*said][-1] == "statements" and whole:  # another field would follow them
                *whole, last = whole
            statements: Sequence[Any] = ()
            with suppress(ValueError):  # a reply may need a statement, and none is whole
                made, _ = parse(json.dumps({"statements": whole, "found": True}), reply)
                statements = made.statements
            await self._check(statements)
            sentence = last.get("sentence") if isinstance(last, dict) else None
            written = remove_model_marks(sentence) if isinstance(sentence, str) else ""
            if written not in ("", self.writing) and self.text.startswith(text):
                self.writing = written
                self.run.emit(Drafted(len(self.checked), written))

    async def _check(self, statements: Sequence[Any]) -> None:
        """Look for the quotes of the statements that are new, and for their numbers there."""
        passages, checked = self.passages, self.checked
        documents = await self.run.documents_of(list(passages.values()))
        for each in statements:
            sentence = remove_model_marks(each.sentence)
            if not sentence or sentence in checked:
                continue
            claim = Claim(sentence, (), self.question)
            placed = await asyncio.to_thread(place_sentence, claim, [each], passages, documents)
            if self.checked is not checked:  # another reply has begun
                return
            places = [documents[p.span.document_id].passage(p.span) for p in placed.places]
            why = "" if places else "no single passage has its quote"
            if placed.missing:
                why = f"no quote has {', '.join(placed.missing)}"
            state: Literal["struck", "confirmed"] = "struck" if why else "confirmed"
            self.run.emit(Drafted(len(checked), sentence, state, tuple(places), why))
            checked.append(sentence)
            self.writing = ""
