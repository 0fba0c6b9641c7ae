"""Which entity of the outline a name means: DualRAG's linking, beyond names that are the same.

The paper leaves it to the prompt and compares names exactly. A small model seldom writes a name
twice in the same way, and what is then read twice is paid for twice.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ELSE = "else"
"""The name that collects what belongs to no entity; it is linked with nothing."""

Linking = Literal["exact", "name", "similar"]
"""How far linking goes: the same characters; the same words; the same meaning."""


@dataclass(frozen=True, slots=True)
class Link:
    """The name that was asked for, the one it goes under, and why.

    `how` is "new" for an entity the outline does not have; `similarity` is the cosine that linked.
    """

    asked: str
    name: str
    how: Literal["new", "exact", "name", "similar"]
    similarity: float | None = None


def links(
    asked: Sequence[str],
    known: Sequence[str],
    *,
    linking: Linking = "name",
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
    threshold: float = 1.0,
) -> list[Link]:
    """Link each name to a known one, or to one asked for before it; else it is new.

    `vectors` are unit vectors of all the names, needed for linking by meaning: the most similar
    name is taken where the cosine is at least `threshold` and both name the same numbers.
    """
    names = [name for name in known if name != ELSE]
    found = []
    for each in asked:
        link = _link(each, names, linking, vectors if linking == "similar" else None, threshold)
        found.append(link)
        if link.how == "new" and link.name != ELSE:
            names.append(link.name)
    return found


def _link(
    asked: str,
    names: Sequence[str],
    linking: Linking,
    vectors: Mapping[str, NDArray[np.float32]] | None,
    threshold: float,
) -> Link:
    if asked.casefold() == ELSE:
        return Link(asked, ELSE, "new")
    if asked in names:
        return Link(asked, asked, "exact")
    if linking != "exact":
        for name in names:
            if words_of(name) == words_of(asked):
                return Link(asked, name, "name")
    if vectors is not None:
        near = {
            name: float(vectors[name] @ vectors[asked])
            for name in names
            if _numbers(name) == _numbers(asked)
        }
        best = max(near, key=lambda name: near[name], default=None)
        if best is not None and near[best] >= threshold:
            return Link(asked, best, "similar", near[best])
    return Link(asked, asked, "new")


_UNSAID = frozenset(("a", "an", "the", "of", "s"))  # they come and go with the order of words


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in one order, without case, marks, articles and genitives.

    >>> words_of("The population of France") == words_of("France's population")
    True
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    words = sorted(re.findall(r"\w+", folded))
    return tuple(word for word in words if word not in _UNSAID) or tuple(words)


_ROMAN = re.compile(r"[IVX]+")


def _numbers(name: str) -> list[str]:
    """The numbers of a name, also Roman ones: years, reigns and parts are told apart by them."""
    words = re.findall(r"\w+", name)
    return sorted(w for w in words if any(c.isdigit() for c in w) or _ROMAN.fullmatch(w))
