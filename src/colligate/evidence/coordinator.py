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
A question is going to be answered from many documents, in three stages. You are the first: you \
plan. Then, for each document by itself, a reader carries out your tasks on that document alone. \
At last a writer, who sees none of the documents but what the readers found, answers the question.
You cannot see the documents, not even their names. Do not answer the question.
Reply with JSON. "sub_agent_todos" is one to six tasks, the same for every reader. Each "task" \
asks for one kind of fact that the question needs, can be carried out on any single document and \
answered by what it says or by "not found", is clear without the question, and says what to find, \
not how. A task never compares documents: that is for the writer. "synthesis_directive" tells the \
writer in two to four sentences what the answer is for, what matters most in it, and in what \
order it is to be put."""


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
