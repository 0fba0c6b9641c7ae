"""Direct generation: the model answers from memory, without retrieval.

The "naive generation" rows of DualRAG, RDR2 and LongRefiner: one call with the question only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from colligate.core.answer import Answer, Form
from colligate.core.events import Answered, Said
from colligate.core.parameters import require_min
from colligate.core.prompts import build_messages, escape
from colligate.core.run import Run
from colligate.core.strategy import Needs


@dataclass(frozen=True)
class Direct:
    """The model alone, no documents: what it knows by heart.

    One call. Nothing is cited, and the answer says so.

    Attributes:
        max_tokens: most tokens of the answer
    """

    name: ClassVar[str] = "direct"
    needs: ClassVar[Needs] = Needs(searches=False, reads=False)

    max_tokens: int = 1024  # DualRAG's code
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, max_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        messages = build_messages(INSTRUCTIONS[self.form], f"Question: {escape(question.strip())}")
        with run.meter.step("answer"):
            completion = await run.chat(messages, max_tokens=self.max_tokens)
        run.warn("answered from the model's memory: no document was read and nothing is cited")
        text = completion.text.strip()
        run.emit(Said(text, "" if self.form is Form.LONG else text))
        run.emit(Answered(bool(text), text, ()))
        # A short answer is always verified, and this one cannot be.
        return Answer(question, strategy="", text=text, found=bool(text))


# Papers tell the model that yes and no are allowed; small models then answer every question with
# yes. Here these are only the last of the examples.
_SHORT = (
    "Answer the question from what you know. Reply with the answer alone: a few words, such as a "
    "name, a date, a number, or yes or no."
)

INSTRUCTIONS: Mapping[Form, str] = {
    Form.SHORT: _SHORT,
    Form.JOINED: _SHORT,
    Form.EACH: _SHORT,
    Form.LIST: (
        "Answer the question with every answer there is: the answers alone, separated by commas."
    ),
    Form.LONG: (
        "Answer the question with an accurate, engaging and concise explanation in a neutral tone, "
        "in one paragraph."
    ),
}
