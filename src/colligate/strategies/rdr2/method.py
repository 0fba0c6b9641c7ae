"""RDR2: retrieve, route each document's heading tree, read (Xu et al. 2025).

The method in the order of the paper (symbols as there):

1. Retrieve the k best chunks c_i with their documents d_i (equation 1).
2. S_0, the first routing state of a document, is the subtree around the nodes of a chunk: all
   headings, and the content around what was found (equation 3, Algorithm 1; `tree.py`).
3. The router sees S_t and replies with actions A_t: ANSWER with a block, EXPAND a heading, or
   refuse (equation 2; `router.py`).
4. Each EXPAND of a heading v gives another S_t, in which the content under v replaces the content
   seen before (equation 4), until no heading is left or a document had its number of expansions.
5. The blocks with ANSWER, from all rounds (P_d, equation 5), are the routed passage of the
   document, in its order (p_d, equation 6).
6. A reader answers from the routed passages (equation 7).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.parameters import require_min
from colligate.core.reader import Form, fit_reader, read
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.documents import Hit, Passage
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role
from colligate.models.names import split_adapter
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.router import (
    QUOTING_SCHEMA,
    RouterDecision,
    parse_quoting_router_reply,
    parse_router_reply,
    quoting_router_messages,
    router_messages,
)
from colligate.strategies.rdr2.tree import (
    StructureTree,
    SubTree,
    build_structure_tree,
    build_subtree,
)


@dataclass(frozen=True)
class RDR2:
    """A router walks each document's heading tree, accepts blocks and expands headings.

    The router is the worker model. `reply` is the form of its replies: the paper's lines of tag and
    id (`tagged`), or quotes as JSON (`quoted`), with which models that were not trained to route do
    far better; `auto` uses quotes if the worker can follow a schema and has no adapter.
    `on_nothing`: what is read if no block was accepted, the passages of the search or nothing. Each
    `no_...` field leaves one part out, as in section 5.2.
    """

    name: ClassVar[str] = "rdr2"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(10)

    k: int = 5  # section 4.2
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    pool: int = 50  # searched for a reranker, which the paper does not have
    expansions: int = 5  # of a document; Table 9's best row, which the main results equal
    subtree_tokens: int = 1000  # not in the paper: very long lists and hundreds of headings
    reply_tokens: int = 256  # the code: 2,048; an action is a short line
    introduction: bool = True  # lead text under a heading, as in the paper's Appendix D
    skipped: tuple[str, ...] = ()  # titles of sections to leave out; the paper: WIKIPEDIA_SKIPPED
    on_nothing: Literal["passages", "nothing"] = "passages"  # the code: nothing
    form: Form = Form.SHORT
    router_adapter: str | None = None
    reply: Literal["auto", "tagged", "quoted"] = "auto"  # the paper: tagged

    no_router: bool = False
    no_structure: bool = False
    no_similarity: bool = False
    no_content: bool = False
    no_expand: bool = False
    no_refuse: bool = False

    def __post_init__(self) -> None:
        require_min(self, k=1, pool=1, expansions=0, subtree_tokens=1, reply_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Retrieve, route, read."""
        await run.with_adapter(Role.WORKER, self.router_adapter)  # fails before the first call
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        routings = await self.route(question, run, hits)
        evidence = [
            Evidence(passage.span, 1.0, _explain(rank, routing.rounds_of(passage)))
            for rank, routing in enumerate(routings, 1)
            for passage in routing.passages
        ]
        passages = [passage for routing in routings for passage in routing.passages]
        if not passages and hits and self.on_nothing == "passages":
            run.warn("the router accepted nothing: the passages of the search are read instead")
            passages = [hit.passage for hit in hits]
            evidence = [
                Evidence(hit.passage.span, hit.score, f"rank {rank} of the search, not routed")
                for rank, hit in enumerate(hits, 1)
            ]
        passages = await fit_reader(question, passages, run, self.form)
        return await read(
            question,
            passages,
            run,
            strategy=self.name,
            evidence=evidence[: len(passages)],
            form=self.form,
        )

    async def route(
        self, question: str, run: Run, hits: Sequence[Hit] | None = None
    ) -> list[Routing]:
        """Route the documents of these passages, or of those that a search finds, concurrently.

        Documents come in the order of their best passages.
        """
        if hits is None:
            hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        router = await run.with_adapter(Role.WORKER, self.router_adapter)
        by_document: dict[str, list[Hit]] = {}
        for hit in hits:
            by_document.setdefault(hit.passage.document_id, []).append(hit)
        return await gather(
            self._walk(question, router, document_id, found)
            for document_id, found in by_document.items()
        )

    async def _walk(
        self, question: str, run: Run, document_id: str, hits: Sequence[Hit]
    ) -> Routing:
        """Route one document: show the subtrees of its chunks, then the headings to expand."""
        document = await run.document(document_id)
        tree = build_structure_tree(document, introduction=self.introduction, skipped=self.skipped)
        chunks = [tree.map_span(hit.passage.span) for hit in hits]
        retrieved = tree.content_of(dict.fromkeys(node for chunk in chunks for node in chunk))
        routing = Routing(tree, retrieved)
        if self.no_router:
            routing.answers.update(dict.fromkeys(retrieved, 0))
            return routing
        if self.no_similarity:
            chunks = [_draw_group(tree, question, len(chunks))]
        seen = set() if self.no_content else set(retrieved)
        limit = await self._find_limit(question, run)

        # Round 0: S_0 of each chunk, equal ones once
        views = (
            self._build_view(tree, chunk, limit, content=not self.no_content) for chunk in chunks
        )
        first = {view.visible: view for view in views}.values()
        decisions = await gather(self._ask(question, run, view, 0, None) for view in first)
        queue: deque[tuple[int, tuple[int, ...]]] = deque()  # headings, and the blocks under them
        for decision, view in zip(decisions, first, strict=True):
            self._take(decision, view, 0, routing, queue, seen)

        # Round t: S_t of the heading that was named first
        rounds = 0
        while queue and rounds < self.expansions:
            heading, blocks = queue.popleft()
            if seen.issuperset(blocks):
                continue  # shown since, by a heading above it
            rounds += 1
            routing.expanded.setdefault(heading, rounds)
            view = self._build_view(tree, blocks, limit)
            shown = view.visible.intersection(blocks)
            rest = tuple(block for block in blocks if block not in shown)
            if shown and rest:
                queue.appendleft((heading, rest))  # the next part of a long section
            seen.update(shown or blocks)
            decision = await self._ask(question, run, view, rounds, heading)
            self._take(decision, view, rounds, routing, queue, seen)
        return routing

    def _build_view(
        self, tree: StructureTree, nodes: Sequence[int], limit: int, *, content: bool = True
    ) -> SubTree:
        """Build the subtree around some nodes."""
        return build_subtree(
            tree, nodes, structure=not self.no_structure, content=content, most_tokens=limit
        )

    async def _ask(
        self, question: str, run: Run, view: SubTree, round_: int, heading: int | None
    ) -> RouterDecision:
        """Show a subtree S_t to the router and return its actions A_t."""
        quotes = self._quotes(run)
        reply = await run.chat(
            (quoting_router_messages if quotes else router_messages)(question, view.text),
            role=Role.WORKER,
            max_tokens=self.reply_tokens,
            schema=QUOTING_SCHEMA if quotes else None,
        )
        parse = parse_quoting_router_reply if quotes else parse_router_reply
        decision = parse(reply.text, view)
        run.emit(
            Routed(
                document=view.tree.document.id,
                round=round_,
                expanded=heading,
                highlighted=view.highlighted,
                shown=view.text,
                omitted=tuple(sorted(view.omitted)),
                verdict=decision.verdict,
                actions=decision.actions,
                rejected=decision.rejected,
                dropped=decision.dropped,
                cut=reply.cut,
            )
        )
        return decision

    def _take(
        self,
        decision: RouterDecision,
        view: SubTree,
        round_: int,
        routing: Routing,
        queue: deque[tuple[int, tuple[int, ...]]],
        seen: set[int],
    ) -> None:
        """Keep the accepted blocks, and queue the headings under which nothing was seen yet."""
        answers, expansions = decision.answers, () if self.no_expand else decision.expansions
        routing.shown += 1
        if not (answers or expansions):
            routing.refused += 1
            if self.no_refuse:
                answers = view.tree.content_of(view.highlighted)
        for node in answers:
            routing.answers.setdefault(node, round_)
        for heading in expansions:
            under = view.tree.content_under(heading)
            if seen.isdisjoint(under):
                queue.append((heading, view.tree.content_children(heading) or under))

    def _quotes(self, run: Run) -> bool:
        """Return whether the router replies with quotes."""
        if self.reply != "auto":
            return self.reply == "quoted"
        worker = run.model(Role.WORKER)
        adapted = self.router_adapter is not None or split_adapter(worker.name)[1] is not None
        return Capability.STRUCTURED in worker.capabilities and not adapted

    async def _find_limit(self, question: str, run: Run) -> int:
        """Return the tokens that a subtree may have, next to prompt and reply in the window."""
        empty = (quoting_router_messages if self._quotes(run) else router_messages)(question, "")
        room = await run.room(Role.WORKER, empty, self.reply_tokens)
        # Subtrees are measured by an estimate, which a tokenizer may exceed.
        limit = self.subtree_tokens if room is None else min(self.subtree_tokens, room * 3 // 4)
        return max(limit, _SHORTEST_SUBTREE)


_SHORTEST_SUBTREE = 200  # tokens; with fewer a router has nothing to choose from


@dataclass
class Routing:
    """The result of routing one document; nodes are those of `tree`.

    `retrieved` are the blocks of the passages found. `answers` and `expanded` map each accepted
    block and each opened heading to its round: 0 is the search, n the n-th expansion. `refused` of
    the `shown` subtrees gave nothing.
    """

    tree: StructureTree
    retrieved: tuple[int, ...] = ()
    answers: dict[int, int] = field(default_factory=dict)
    expanded: dict[int, int] = field(default_factory=dict)
    shown: int = 0
    refused: int = 0

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The accepted blocks in document order, neighbours of one section together."""
        return self.tree.extract_passages(self.answers)

    @property
    def found(self) -> bool:
        """Return whether the router accepted anything."""
        return bool(self.answers)

    def rounds_of(self, passage: Passage) -> tuple[int, ...]:
        """Return the rounds in which the blocks of a passage were accepted, in order."""
        nodes = self.tree.nodes
        within = (n for n in self.answers if passage.span.contains(nodes[n].span))
        return tuple(sorted({self.answers[n] for n in within}))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; spans count code points of the document's text."""

        def rows(rounds: dict[int, int]) -> list[dict[str, Any]]:
            found = [(self.tree.nodes[node], rounds[node]) for node in sorted(rounds)]
            return [
                {
                    "node": n.id,
                    "text": n.text,
                    "start": n.span.start,
                    "end": n.span.end,
                    "round": at,
                }
                for n, at in found
            ]

        return {
            "document": self.tree.document.id,
            "title": self.tree.document.title,
            "retrieved": list(self.retrieved),
            "answers": rows(self.answers),
            "expanded": rows(self.expanded),
            "subtrees_shown": self.shown,
            "subtrees_refused": self.refused,
            "passages": [
                {"section": list(p.section), "page": p.page, "start": span.start, "end": span.end}
                for p, span in ((p, p.span) for p in self.passages)
            ],
        }


def _explain(rank: int, rounds: Sequence[int]) -> str:
    accepted = ["as found" if round_ == 0 else f"expansion {round_}" for round_ in rounds]
    return f"accepted by the router ({', '.join(accepted)}) in document {rank} of the search"


def _draw_group(tree: StructureTree, question: str, number: int) -> tuple[int, ...]:
    """Draw the blocks directly under some heading, the same ones for the same question."""
    groups = [kids for node in tree.nodes if (kids := tree.content_children(node))]
    chance = random.Random(f"{question}\0{tree.document.id}\0{number}")
    return chance.choice(groups) if groups else ()
