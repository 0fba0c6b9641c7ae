"""SPD-RAG's coordinator: what to look for in every document, and how to put it together.

It sees the question and nothing else. It writes tasks that every document's agent is given, and a
directive for whoever puts the agents' findings together.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from colligate.evidence.material import material
from colligate.models import Message

_MOST_TASKS = 6

INSTRUCTION = """\
You plan how a question is answered from many documents. Readers will each read one of these \
documents, alone, and note what it says; a writer will then join their notes into the answer. You \
have not seen the documents and do not know the answer.
Reply with JSON. "sub_agent_todos" tells the readers what to note, in one to six tasks. Every \
reader gets the same tasks and sees nothing but its own document, so each "task" begins with \
"Note" and says in one sentence which facts of "this document" the question needs. Comparing, \
counting and choosing are left to the writer. "synthesis_directive" tells the writer in two to \
four sentences how to join the notes of all documents and what to pay attention to. It does not \
say what the answer is."""


class Task(BaseModel):
    """One thing to find in every document."""

    model_config = ConfigDict(extra="ignore")

    task: str = Field(json_schema_extra={"maxLength": 300})


class Todos(BaseModel):
    """What the coordinator must return; a task may be a bare text."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"required": ["sub_agent_todos", "synthesis_directive"]},
    )

    sub_agent_todos: list[Task] = Field(
        default_factory=list, json_schema_extra={"minItems": 1, "maxItems": _MOST_TASKS}
    )
    synthesis_directive: str = Field(default="", json_schema_extra={"maxLength": 800})

    @field_validator("sub_agent_todos", mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"task": each} if isinstance(each, str) else each for each in value]

    def tasks(self, question: str) -> tuple[str, ...]:
        """The tasks, none twice; the question itself where there are none."""
        said = (" ".join(todo.task.split()) for todo in self.sub_agent_todos)
        tasks = tuple(dict.fromkeys(task for task in said if task))[:_MOST_TASKS]
        return tasks or (question.strip(),)


def coordinator_messages(question: str) -> list[Message]:
    """The prompt: instruction, question."""
    return [
        Message("system", INSTRUCTION),
        Message("user", f"Question: {material(question.strip())}"),
    ]
