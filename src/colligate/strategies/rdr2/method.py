"""RDR2: retrieve, route each document's heading tree, read (Xu et al. 2025)."""

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
from colligate.documents import Document, Hit, Passage
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role
from colligate.models.names import split_adapter
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.router import (
    SCHEMA,
    Decision,
    decision,
    quoted_decision,
    quoting_messages,
    router_messages,
)
from colligate.strategies.rdr2.tree import StructureTree, SubTree, structure_tree, subtree

# Where a router went in a document, and what it accepted (RDR2).


@dataclass
class Routing:
    """Where routing went in one document; nodes are those of `tree`.

    `retrieved` are the blocks of the passages found. `answers` and `expanded` map a block
    accepted and a heading opened to the round it was in: 0 is the search, n the n-th expansion.
    `refused` of `shown` subtrees gave nothing. `passages` are the blocks accepted, in document
    order, neighbours of one section together.
    """

    tree: StructureTree
    retrieved: tuple[int, ...] = ()
    answers: dict[int, int] = field(default_factory=dict)
    expanded: dict[int, int] = field(default_factory=dict)
    shown: int = 0
    refused: int = 0

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What the reader is given of this document."""
        return self.tree.passages(self.answers)

    @property
    def found(self) -> bool:
        """Whether the router accepted anything."""
        return bool(self.answers)

    def rounds_of(self, passage: Passage) -> tuple[int, ...]:
        """The rounds in which the blocks of a passage were accepted, in order."""
        nodes = self.tree.nodes
        within = (n for n in self.answers if passage.span.contains(nodes[n].span))
        return tuple(sorted({self.answers[n] for n in within}))

    def to_json(self) -> dict[str, Any]:
        """For programs; spans count code points of the document's text."""

        def node(number: int, found: int) -> dict[str, Any]:
            at = self.tree.nodes[number]
            return {
                "node": number,
                "text": at.text,
                "start": at.span.start,
                "end": at.span.end,
                "round": found,
            }

        return {
            "document": self.tree.document.id,
            "title": self.tree.document.title,
            "retrieved": list(self.retrieved),
            "answers": [node(number, found) for number, found in sorted(self.answers.items())],
            "expanded": [node(number, found) for number, found in sorted(self.expanded.items())],
            "subtrees_shown": self.shown,
            "subtrees_refused": self.refused,
            "passages": [
                {
                    "section": list(p.section),
                    "page": p.page,
                    "start": p.span.start,
                    "end": p.span.end,
                }
                for p in self.passages
            ],
        }


_SHORTEST = 200  # tokens of a subtree below which a router has nothing to go by


@dataclass(frozen=True)
class RDR2:
    """Retrieve, then route: a model walks each document's heading tree, accepts and expands.

    The `k` best passages are aligned to their documents' trees. Of each document a router sees
    subtrees, all headings and the blocks around what was found, and answers with blocks, expands
    headings or refuses; each expansion shows the blocks under one heading. What it accepted, in
    document order, is read. The router is the worker model.

    `reply` is the form the router replies in: the paper's lines of tag and id, or quotes as JSON,
    which models that were not trained to route do far better. `auto` takes quotes where the
    worker can be held to a schema and has no adapter.

    `on_nothing`: what is read when no block was accepted, the passages found or nothing. The
    `no_...` fields are the paper's ablations, each leaving one part out.
    """

    name: ClassVar[str] = "rdr2"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(10)

    k: int = 5  # section 4.2
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    pool: int = 50  # searched for a reranker, which the paper has none of
    expansions: int = 5  # a document; Table 9's best row, which the main results equal
    subtree_tokens: int = 1000  # not in the paper: very long lists and hundreds of headings
    reply_tokens: int = 256  # the code: 2,048; an action is a short line
    introduction: bool = True  # lead text under a heading, as in the paper's Appendix D
    skipped: tuple[str, ...] = ()  # titles of sections left out; the paper's are WIKIPEDIA_SKIPPED
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
        await run.with_adapter(
            Role.WORKER, self.router_adapter
        )  # a wrong one before the first call
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        routings = await self.route(question, run, hits)
        evidence = [
            Evidence(passage.span, 1.0, _reason(rank, routing.rounds_of(passage)))
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
        """Walk the documents of these passages, else of those that a search finds, side by side.

        Documents come in the order of their best passages.
        """
        if hits is None:
            hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        router = await run.with_adapter(Role.WORKER, self.router_adapter)
        found: dict[str, list[Hit]] = {}
        for hit in hits:
            found.setdefault(hit.passage.document_id, []).append(hit)
        return await gather(
            self._walk(question, router, document_id, of_document)
            for document_id, of_document in found.items()
        )

    async def _walk(
        self, question: str, run: Run, document_id: str, hits: Sequence[Hit]
    ) -> Routing:
        """One document: a subtree for each passage, then one for each heading to expand."""
        tree = self.tree(await run.document(document_id))
        chunks = [tree.mapped(hit.passage.span) for hit in hits]
        retrieved = tuple(dict.fromkeys(n for chunk in chunks for n in chunk if _content(tree, n)))
        routing = Routing(tree, retrieved)
        if self.no_router:
            routing.answers.update(dict.fromkeys(retrieved, 0))
            return routing
        if self.no_similarity:
            chunks = [_random_group(tree, question, len(chunks))]
        seen = set() if self.no_content else set(retrieved)
        most = await self._room(question, run)

        views = (self._view(tree, chunk, most, content=not self.no_content) for chunk in chunks)
        first = {view.visible: view for view in views}
        decisions = await gather(self._ask(question, run, view, 0, None) for view in first.values())
        queue: deque[tuple[int, tuple[int, ...]]] = deque()
        for made, view in zip(decisions, first.values(), strict=True):
            self._take(made, view, 0, routing, queue, seen)

        rounds = 0
        while queue and rounds < self.expansions:
            heading, blocks = queue.popleft()
            if seen.issuperset(blocks):
                continue  # shown since, by a heading above it
            rounds += 1
            routing.expanded.setdefault(heading, rounds)
            view = self._view(tree, blocks, most)
            shown = view.visible.intersection(blocks)
            rest = tuple(block for block in blocks if block not in shown)
            if shown and rest:
                queue.appendleft((heading, rest))  # the next part of a long section
            seen.update(shown or blocks)
            made = await self._ask(question, run, view, rounds, heading)
            self._take(made, view, rounds, routing, queue, seen)
        return routing

    def tree(self, document: Document) -> StructureTree:
        """A document as the router sees it."""
        return structure_tree(document, introduction=self.introduction, skipped=self.skipped)

    def _view(
        self, tree: StructureTree, lit: Sequence[int], most: int, *, content: bool = True
    ) -> SubTree:
        return subtree(
            tree, lit, structure=not self.no_structure, content=content, most_tokens=most
        )

    async def _ask(
        self, question: str, run: Run, view: SubTree, round_: int, heading: int | None
    ) -> Decision:
        if self._quotes(run):
            messages, schema = quoting_messages(question, view.text), SCHEMA
        else:
            messages, schema = router_messages(question, view.text), None
        reply = await run.chat(
            messages, role=Role.WORKER, max_tokens=self.reply_tokens, schema=schema
        )
        made = (quoted_decision if schema else decision)(reply.text, view)
        verdict = "refused" if made.refused else "collapsed" if made.collapsed else "routed"
        run.emit(
            Routed(
                document=view.tree.document.id,
                round=round_,
                expanded=heading,
                lit=view.mapped,
                shown=view.text,
                omitted=tuple(sorted(view.omitted)),
                verdict=verdict,
                actions=made.actions,
                expelled=made.expelled,
                dropped=made.dropped,
                cut=reply.cut,
            )
        )
        return made

    def _take(
        self,
        made: Decision,
        view: SubTree,
        round_: int,
        routing: Routing,
        queue: deque[tuple[int, tuple[int, ...]]],
        seen: set[int],
    ) -> None:
        """Keep what was accepted, and queue the headings under which nothing was seen yet."""
        answers, expansions = made.answers, () if self.no_expand else made.expansions
        routing.shown += 1
        if not (answers or expansions):
            routing.refused += 1
            if self.no_refuse:
                answers = tuple(n for n in view.mapped if _content(view.tree, n))
        for node in answers:
            routing.answers.setdefault(node, round_)
        for heading in expansions:
            if seen.isdisjoint(view.tree.content_under(heading)):
                blocks = view.tree.content_children(heading) or view.tree.content_under(heading)
                if all(heading != queued for queued, _ in queue):
                    queue.append((heading, blocks))

    def _quotes(self, run: Run) -> bool:
        """Whether the router replies with quotes."""
        if self.reply != "auto":
            return self.reply == "quoted"
        worker = run.model(Role.WORKER)
        adapted = self.router_adapter is not None or split_adapter(worker.name)[1] is not None
        return Capability.STRUCTURED in worker.capabilities and not adapted

    async def _room(self, question: str, run: Run) -> int:
        """The tokens a subtree may have beside prompt and reply in the router's window."""
        empty = (quoting_messages if self._quotes(run) else router_messages)(question, "")
        room = await run.room(Role.WORKER, empty, self.reply_tokens)
        # Subtrees are measured by an estimate, which a tokenizer may exceed.
        most = self.subtree_tokens if room is None else min(self.subtree_tokens, room * 3 // 4)
        return max(most, _SHORTEST)


def _reason(rank: int, rounds: Sequence[int]) -> str:
    said = ["as found" if found == 0 else f"expansion {found}" for found in rounds]
    return f"accepted by the router ({', '.join(said)}) in document {rank} of the search"


def _content(tree: StructureTree, node: int) -> bool:
    return not tree.nodes[node].structure


def _random_group(tree: StructureTree, question: str, number: int) -> tuple[int, ...]:
    """The blocks directly under some heading, the same one for the same question."""
    groups = [kids for node in tree.nodes if (kids := tree.content_children(node))]
    chosen = random.Random(f"{question}\0{tree.document.id}\0{number}")
    return chosen.choice(groups) if groups else ()
