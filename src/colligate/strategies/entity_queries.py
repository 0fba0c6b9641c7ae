"""What a round of DualRAG looks up: entities, named as the outline does, with their queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from colligate.errors import MalformedOutput
from colligate.evidence.entity_identifier import (
    IDENTIFIER_TOKENS,
    QUERY_TOKENS,
    Entities,
    Query,
    identifier_messages,
    query_messages,
    wanted,
)
from colligate.evidence.entity_linking import ELSE, Link, Linking, links
from colligate.strategies.dualrag_trace import Identified
from colligate.strategies.knowledge import Knowledge
from colligate.strategies.run import Run


async def entity_queries(
    knowledge: Knowledge, run: Run, *, linking: Linking, threshold: float
) -> dict[str, tuple[str, ...]]:
    """The Entity Identifier: queries by entity; the latest thought, where its reply has none."""
    known = [name for name in knowledge.outline.entities if name != ELSE]
    names = [] if knowledge.flat else known
    ask = partial(identifier_messages, knowledge.question, thoughts=knowledge.thoughts, names=names)
    outline = await knowledge.shown(run, ask, IDENTIFIER_TOKENS, Entities)
    readable, entities = True, []
    try:
        made = await run.structured(ask(outline), Entities, max_tokens=IDENTIFIER_TOKENS)
        entities = made.value.entities
    except MalformedOutput:
        readable = False
    asked = wanted(entities, knowledge.latest)
    linked = await _linked([name for name, _ in asked], known, run, linking, threshold)
    queries: dict[str, tuple[str, ...]] = {}
    for link, (_, of_link) in zip(linked, asked, strict=True):
        so_far = queries.get(link.name, ())
        queries[link.name] = tuple(dict.fromkeys([*so_far, *of_link]))
    run.emit(
        Identified(knowledge.rounds + 1, tuple(linked), tuple(each for _, each in asked), readable)
    )
    return queries


async def one_query(knowledge: Knowledge, run: Run, *, written: bool) -> str:
    """Without an Entity Identifier: the latest thought, or a query that the model has `written`."""
    query, readable = knowledge.latest, True
    if written:
        ask = partial(query_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.shown(run, ask, QUERY_TOKENS, Query)
        try:
            made = await run.structured(ask(outline), Query, max_tokens=QUERY_TOKENS)
            query = " ".join(made.value.query.split()) or query
        except MalformedOutput:
            readable = False
    run.emit(Identified(knowledge.rounds + 1, (), ((query,),), readable))
    return query


async def _linked(
    asked: Sequence[str], known: Sequence[str], run: Run, linking: Linking, threshold: float
) -> list[Link]:
    vectors = None
    if linking == "similar" and run.embedder is None:
        linking = "name"
        run.warn("entities are linked by their words alone: there is no embedder")
    if linking == "similar":
        names = list(dict.fromkeys([*known, *asked]))
        vectors = dict(zip(names, await run.embed(names), strict=True))
    return links(asked, known, linking=linking, vectors=vectors, threshold=threshold)
