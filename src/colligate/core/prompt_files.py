"""Prompts from a user's file, for models that were trained on prompts of their own.

The file is TOML. A list named after a step has the turns of its prompt, in which `{question}` and
other names stand for texts of the run:

    [[router]]
    role = "user"
    content = "Question: {question} Document: {document}"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from colligate.core.prompts import escape
from colligate.errors import UsageError, closest
from colligate.models import Message


@dataclass(frozen=True)
class PromptTemplate:
    """The turns of a step's prompt, with names in braces where texts of the run belong."""

    turns: tuple[Message, ...]

    def fill(self, **texts: str) -> list[Message]:
        """Return the turns with these texts, in which nothing can end a turn."""
        names = re.compile("|".join(re.escape(f"{{{name}}}") for name in texts))

        def put(match: re.Match[str]) -> str:
            return escape(texts[match[0][1:-1]])

        return [Message(turn.role, names.sub(put, turn.content)) for turn in self.turns]


_PROMPTS = TypeAdapter(dict[str, tuple[Message, ...]])


def apply_prompts(strategy: Any, steps: Mapping[str, Collection[str]]) -> None:
    """Read the file that `strategy.prompts` names into `strategy.templates`; None is no file.

    `steps` are the prompts that the file may have, with the names that each must use. UsageError if
    the file cannot be read, or does not fit the strategy.
    """
    if strategy.prompts is None:
        return
    file = Path(strategy.prompts)
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the prompts {file}", why) from error
    for step in table:
        if step not in steps:
            near = closest(step, steps)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(steps)}"
            raise UsageError(f"{file}: {step}", f"{strategy.name} has no such prompt", hint)
    try:
        prompts = _PROMPTS.validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        raise UsageError(f"{file}: {place}", first["msg"].lower()) from error
    for step, turns in prompts.items():
        written = "".join(turn.content for turn in turns)
        if missing := [name for name in steps[step] if f"{{{name}}}" not in written]:
            why = f"{{{missing[0]}}} is missing"
            raise UsageError(f"{file}: {step}", why, "write it where its text belongs")
    templates = {step: PromptTemplate(turns) for step, turns in prompts.items()}
    object.__setattr__(strategy, "templates", templates)
