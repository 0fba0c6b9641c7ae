"""Retrievers: what finds the evidence, by name: `--retriever NAME[:k=v,...]`.

`hybrid`, `dense` and `sparse` are the engine's own search. `sfs`, `rdr2` and `longrefiner` are the
ways of three methods; they are entry points, as those of other packages (docs/extending.md).
`http:URL` asks a retriever server.
"""

from __future__ import annotations

import re

from colligate.core.parameters import set_parameters
from colligate.core.run import Retriever
from colligate.errors import UsageError, closest
from colligate.library.sources import SearchMode
from colligate.plugins import load_plugin, plugins

HTTP = re.compile(r"(?:http:)?(?=https?://)")


def list_retrievers() -> list[str]:
    """Return the names of all retrievers but `http:URL`."""
    return [*SearchMode, *plugins("retrievers")]


def split_retriever(name: str) -> tuple[str, list[str]]:
    """Return the kind and the settings that "KIND:k=v,..." names."""
    kind, _, settings = name.partition(":")
    # A list in a value has commas too.
    return kind, [each for each in re.split(r",(?=\s*\w+=)", settings) if each.strip()]


def make_retriever(name: str) -> Retriever | SearchMode:
    """Return the retriever that a name such as "longrefiner:budget=512" stands for.

    Raises:
        UsageError: there is no such retriever, or it has no such parameter.
    """
    if HTTP.match(name):
        from colligate.retrievers.http import HTTPRetriever

        return HTTPRetriever(HTTP.sub("", name, count=1))
    kind, given = split_retriever(name)
    if kind not in list_retrievers():
        near = closest(kind, list_retrievers())
        there = f"there are {', '.join(list_retrievers())} and http:URL"
        hint = f"did you mean {near!r}?" if near else there
        raise UsageError(f"there is no retriever {kind!r}", hint=hint)
    if kind not in plugins("retrievers"):
        if given:
            raise UsageError(f"the retriever {kind} has no parameters", f"got {', '.join(given)}")
        return SearchMode(kind)
    made: Retriever = set_parameters(load_plugin("retrievers", kind, type), given)
    return made
