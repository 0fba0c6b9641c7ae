"""What a prompt asks for: by the constant that it is made of, never by words of its own."""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from string import Formatter

import colligate.lab.baselines
import colligate.strategies
from colligate.models import Message
from colligate.readers.quoting import FORMS

_SHORTEST = 60  # characters of a prompt; shorter constants are not prompts
_PASSAGE = re.compile(r'<passage number="(\d+)"([^>]*)>\n(.*?)\n</passage', re.DOTALL)
_TITLE = re.compile(r'title="([^"]*)"')


def task_of(messages: Sequence[Message]) -> str:
    """Return "METHOD.CONSTANT" of the prompt, e.g. "genground.deduce"; "reader" of a reader's own.

    A prompt is recognised by a constant of the method's modules, whose fields match any text. Of
    several the longest counts, and a method's own before the reader's.
    """
    instruction = messages[0].content
    for name, pattern in _prompts():
        if pattern.search(instruction):
            return name
    raise AssertionError(f"no strategy has the prompt {instruction[:200]!r}")


def passages_in(prompt: str) -> dict[int, str]:
    """Return the text of each passage that a prompt shows, by its number."""
    return {int(number): text for number, _, text in _PASSAGE.findall(prompt)}


def bodies(prompt: str) -> list[str]:
    """Return the texts of the passages that a prompt shows, in order."""
    return list(passages_in(prompt).values())


def titles(prompt: str) -> list[str]:
    """Return the titles of the passages that a prompt shows, in order."""
    return [_TITLE.search(place)[1] for _, place, _ in _PASSAGE.findall(prompt)]


@cache
def _prompts() -> list[tuple[str, re.Pattern[str]]]:
    own = sorted(_constants(), key=lambda named: -len(named[1]))
    shared = [("reader", form.form) for form in FORMS.values()]
    return [(name, _pattern(text)) for name, text in [*own, *shared]]


def _constants() -> Iterator[tuple[str, str]]:
    modules = [
        found.name
        for root in (colligate.strategies, colligate.lab.baselines)
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
        if not found.ispkg
    ]
    for module in [*modules, "colligate.lab.training.longrefiner"]:  # a teacher's own prompt
        path = re.sub(r"^colligate\.(strategies|lab\.baselines|lab\.training)\.", "", module)
        for name, value in vars(importlib.import_module(module)).items():
            for text in value.values() if isinstance(value, Mapping) else [value]:
                if name.isupper() and isinstance(text, str) and len(text) >= _SHORTEST:
                    yield f"{path.split('.')[0]}.{name.strip('_').lower()}", text


def _pattern(template: str) -> re.Pattern[str]:
    """Return a pattern of the text as it is, or with its fields filled in."""
    choices = [re.escape(template)]
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        parts = []
    if any(field is not None for _, field, _, _ in parts):
        filled = (re.escape(text) + ("" if name is None else ".*?") for text, name, _, _ in parts)
        choices.append("".join(filled))
    return re.compile("|".join(choices), re.DOTALL)
