"""RDR2: retrieve, route each document's heading tree, read (Xu et al. 2025; symbols as there).

1. Retrieve the k best chunks c_i with their documents d_i (equation 1).
2. S_0 of a document: all headings, and the content around a chunk (equation 3, Algorithm 1;
   `tree.py`).
3. The router sees S_t and replies with actions A_t: ANSWER with a block, EXPAND a heading, or
   refuse (equation 2; `router.py`). Each EXPAND of v gives another S_t, with the content under v
   in place of the content before (equation 4), up to a number of expansions for a document.
4. The blocks with ANSWER of all rounds (P_d, equation 5) are the routed passage, in the document's
   order and under its headings (p_d, equation 6). A reader answers from those (equation 7).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer, Evidence, Form
from colligate.core.events import Assembled
from colligate.core.fit import Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.documents import Hit, Span
from colligate.library.sources import SearchMode
from colligate.models import Message, Role
from colligate.readers.lookup import reserve_for_answer
from colligate.strategies.rdr2.router import (
    Routed,
    RouterDecision,
    parse_enclosed_router_reply,
    parse_router_reply,
    router_messages,
)
from colligate.strategies.rdr2.tree import (
    StructureNode,
    StructureTree,
    SubTree,
    build_structure_tree,
    build_subtree,
)


@dataclass(frozen=True)
class RDR2:
    """A router walks each document's heading tree, accepts blocks and expands headings.

    The router is the worker model. A subtree that its window does not hold is cut, with a warning.
    `prompts` is read by `core.prompt_files`. Each `no_...` field leaves one part out, as in section
    5.2.

    Attributes:
        k: passages of the search, whose documents are routed
        pool: passages that a search gives to the reranker, if there is one
        expansions: most headings that are opened in a document
        reply_tokens: most tokens of the router's reply
        introduction: show the text before the first heading as a section, as in Appendix D; the
            released code does not
        skipped: titles of sections to leave out; wikipedia: the ten of its pages
        router_adapter: LoRA adapter of the router
        reply: the router's reply: lines of tag and id (tagged), or the same enclosed by tag
            (enclosed)
        prompts: file with the prompt that a router was trained on
        no_router: leave out the router: the passages of the search are read
        no_structure: leave out the headings in what the router sees
        no_similarity: begin at random blocks, not at those of the search
        no_content: leave out the text of blocks in what the router sees first
        no_expand: the router opens no headings
        no_refuse: the router refuses nothing: where it accepts nothing, the blocks found are read
    """

    name: ClassVar[str] = "rdr2"
    needs: ClassVar[Needs] = Needs()
    # The paper's corpus is cut into passages of 100 words: --chunker words:100.
    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense", "pool": "5", "skipped": "wikipedia"}

    k: int = 5  # section 4.2
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    pool: int = 50  # the paper has no reranker: 5
    expansions: int = 5  # Table 9's best row, which the main results equal
    reply_tokens: int = 2048  # the code
    introduction: bool = True
    skipped: tuple[str, ...] = ()  # the paper: wikipedia
    form: Form = Form.SHORT
    router_adapter: str | None = None
    reply: Literal["tagged", "enclosed"] = "tagged"  # Table 4's better form
    prompts: str | None = None

    no_router: bool = False
    no_structure: bool = False
    no_similarity: bool = False
    no_content: bool = False
    no_expand: bool = False
    no_refuse: bool = False
    templates: Mapping[str, PromptTemplate] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        apply_prompts(self, {"router": ("question", "document")})
        require_min(self, k=1, pool=1, expansions=0, reply_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Retrieve, route, read."""
        router = await run.with_adapter(Role.WORKER, self.router_adapter)
        hits, routings = await self._open(question, run)
        with reserve_for_answer(run, lambda: run.meter.calls):
            await gather(self._walk(question, router, each) for each in routings)
        routed = self._assemble(hits, routings)
        if hits and not routed:
            run.warn("the router accepted nothing in the documents that the search found")
        run.emit(Assembled(tuple(routed)))
        answer = await run.read(question, [each for each, _ in routed.values()], form=self.form)
        blocks = {each.span: evidence for each, evidence in routed.values()}
        evidence = (
            replace(one, score=each.score) for each in answer.evidence for one in blocks[each.span]
        )
        return replace(answer, evidence=tuple(evidence))

    async def retrieve(
        self, query: str, run: Run, *, k: int, documents: Collection[str] | None = None
    ) -> list[Hit]:
        """Return the accepted blocks of the documents found, however many, best document first."""
        hits = await run.search(
            query, k=self.k, pool=self.pool, mode=self.mode, documents=documents
        )
        routings = await self.route(query, run, hits)
        return [
            Hit(passage, each.score)
            for each in routings
            for passage in each.tree.extract_passages(each.answers)
        ]

    async def route(self, question: str, run: Run, hits: Sequence[Hit]) -> list[Routing]:
        """Route the documents of these passages, in the order of the best."""
        router = await run.with_adapter(Role.WORKER, self.router_adapter)
        _, routings = await self._open(question, run, hits)
        await gather(self._walk(question, router, each) for each in routings)
        return routings

    async def _open(
        self, question: str, run: Run, hits: Sequence[Hit] | None = None
    ) -> tuple[Sequence[Hit], list[Routing]]:
        """Return the chunks c_i, and the trees of their documents d_i with them (equation 1)."""
        if hits is None:
            hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        by_document: dict[str, Routing] = {}
        for hit in hits:
            name = hit.passage.document_id
            if name not in by_document:
                document = await run.document(name)
                tree = build_structure_tree(
                    document, introduction=self.introduction, skipped=self.skipped
                )
                by_document[name] = Routing(tree, hit.score)
            by_document[name].chunks.append(hit.passage.span)
        return hits, list(by_document.values())

    async def _walk(self, question: str, run: Run, routing: Routing) -> None:
        """Route one document: show the subtrees of its chunks, then the headings to expand."""
        tree, chunks = routing.tree, routing.chunks
        if self.no_router:
            routing.answers.update(dict.fromkeys(routing.retrieved, 0))
            return
        if self.no_similarity:
            chunks = _draw_leaves(tree, question, len(chunks))

        # Round 0: S_0 of each chunk, equal ones once
        views: dict[str, SubTree] = {}
        for chunk in chunks:
            nodes = tree.map_span(chunk)
            view = await self._build_view(question, run, tree, nodes, content=not self.no_content)
            if same := views.get(view.text):
                both = {*same.highlighted, *view.highlighted}
                view = replace(view, highlighted=tuple(sorted(both)))
            views[view.text] = view
        first = views.values()
        seen = {node for v in first for node in tree.content_of(v.highlighted) if node in v.visible}
        decisions = await gather(self._ask(question, run, view, 0, None) for view in first)
        queue: deque[int] = deque()
        for decision, view in zip(decisions, first, strict=True):
            queue += self._take(decision, view, 0, routing, seen)

        # Round t: S_t of the heading that was named first
        rounds = 0
        while queue and rounds < self.expansions:
            heading = queue.popleft()
            # The code spends a round on a heading over headings alone, and shows nothing.
            blocks = tree.content_children(heading) or tree.content_under(heading)
            if seen.issuperset(blocks):
                continue  # shown since, by another heading
            rounds += 1
            routing.expanded[heading] = rounds
            seen.update(blocks)
            view = await self._build_view(question, run, tree, blocks)
            decision = await self._ask(question, run, view, rounds, heading)
            queue += self._take(decision, view, rounds, routing, seen)

    async def _build_view(
        self,
        question: str,
        run: Run,
        tree: StructureTree,
        nodes: Sequence[int],
        *,
        content: bool = True,
    ) -> SubTree:
        """Build the subtree around some nodes, as much of it as the router's window holds."""
        structure = not self.no_structure
        view = build_subtree(tree, nodes, structure=structure, content=content)
        messages = self._make_prompt(question, view.text)
        room = await run.room(Role.WORKER, messages, self.reply_tokens)
        if room is None or room >= 0:
            return view

        async def narrow(structure: bool) -> SubTree:
            """Build it around the first nodes that fit, without what is only beside them."""

            def build(found: Sequence[StructureNode]) -> SubTree:
                ids = [node.id for node in found]
                return build_subtree(tree, ids, structure=structure, content=content, beside=False)

            fitting = await fit_window(
                [tree.nodes[node] for node in nodes],
                lambda found: self._make_prompt(question, build(found).text),
                run,
                Room(self.reply_tokens, Role.WORKER),
                least=0,
                warning=warning,
            )
            return build(fitting)

        async def cut() -> SubTree:
            """Build it around the beginning of the first node, under its headings."""
            node, kept = tree.nodes[nodes[0]], tree.nodes[nodes[0]].text
            while True:
                part = {**tree.nodes, node.id: replace(node, text=f"{kept}…")}
                view = build_subtree(
                    replace(tree, nodes=part), nodes[:1], structure=False, content=content
                )
                messages = self._make_prompt(question, view.text)
                room = await run.room(Role.WORKER, messages, self.reply_tokens)
                if room is None or room >= 0 or not kept:
                    return replace(view, tree=tree)
                starts = [start for start, _ in await run.model(Role.WORKER).token_spans(kept)]
                kept = kept[: starts[room - 1]] if len(starts) > -room else ""

        warning = f"the router's window holds only a part of {tree.document.title!r} at once"
        run.warn(warning)
        for headings in (structure, False):
            view = await narrow(headings)
            if view.highlighted:
                return view
        return await cut()

    async def _ask(
        self, question: str, run: Run, view: SubTree, round_: int, heading: int | None
    ) -> RouterDecision:
        """Show a subtree S_t to the router and return its actions A_t."""
        messages = self._make_prompt(question, view.text)
        reply = await run.chat(messages, role=Role.WORKER, max_tokens=self.reply_tokens)
        # Of a reply that was cut the last number may lack a digit.
        text = reply.text.rpartition("\n")[0] if reply.cut else reply.text
        parse = parse_enclosed_router_reply if self.reply == "enclosed" else parse_router_reply
        decision = parse(text, view)
        run.emit(
            Routed(
                **vars(decision),
                document=view.tree.document.id,
                round=round_,
                expanded=heading,
                highlighted=view.highlighted,
                shown=view.text,
                cut=reply.cut,
            )
        )
        return decision

    def _take(
        self, decision: RouterDecision, view: SubTree, round_: int, routing: Routing, seen: set[int]
    ) -> list[int]:
        """Keep the accepted blocks; return the headings under which nothing was seen yet."""
        answers, expansions = decision.answers, () if self.no_expand else decision.expansions
        if self.no_refuse and not (answers or expansions):
            answers = view.tree.content_of(view.highlighted)
        for node in answers:
            routing.answers.setdefault(node, round_)
        under = view.tree.content_under
        return [heading for heading in expansions if seen.isdisjoint(under(heading))]

    def _make_prompt(self, question: str, shown: str) -> list[Message]:
        """Return the router's prompt: the one of the user's file, or that of the form."""
        if template := self.templates.get("router"):
            return template.fill(question=question.strip(), document=shown)
        return router_messages(question, shown, enclosed=self.reply == "enclosed")

    def _assemble(
        self, hits: Sequence[Hit], routings: Sequence[Routing]
    ) -> dict[str, tuple[Shown, list[Evidence]]]:
        """Return the routed passages p_d by their text, each with its blocks as evidence.

        Without a router there is one for each chunk, as in the released code.
        """
        ranked = {each.tree.document.id: (at, each) for at, each in enumerate(routings, 1)}
        chosen = [(*each, tuple(each[1].answers)) for each in ranked.values()]
        if self.no_router:
            found = [(*ranked[hit.passage.document_id], hit.passage.span) for hit in hits]
            chosen = [
                (at, routing, routing.tree.content_of(routing.tree.map_span(chunk)))
                for at, routing, chunk in found
            ]
        made: dict[str, tuple[Shown, list[Evidence]]] = {}
        for rank, routing, blocks in chosen:
            text = routing.tree.render_routed(blocks)
            if blocks and text not in made:
                score, passage = routing.score, routing.tree.extract_routed(blocks)
                spans = [each.span for each in routing.tree.extract_passages(blocks)]
                evidence = [Evidence(span, score, routing.explain(span, rank)) for span in spans]
                made[text] = Shown(passage, score, routing.explain(passage.span, rank)), evidence
        return made


@dataclass
class Routing:
    """The result of routing one document; nodes are those of `tree`.

    `score` is that of its best passage in the search. `chunks` are the places of the passages that
    the search found. `answers` and `expanded` map each accepted block and each opened heading to
    its round: 0 is the search, n the n-th expansion.
    """

    tree: StructureTree
    score: float = 0.0
    chunks: list[Span] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    expanded: dict[int, int] = field(default_factory=dict)

    @property
    def retrieved(self) -> tuple[int, ...]:
        """The blocks of the passages found."""
        nodes = (node for chunk in self.chunks for node in self.tree.map_span(chunk))
        return self.tree.content_of(dict.fromkeys(nodes))

    def explain(self, span: Span, rank: int) -> str:
        """Return why a span is read; `rank` is that of its document in the search."""
        nodes = self.tree.nodes
        rounds = {at for node, at in self.answers.items() if span.contains(nodes[node].span)}
        accepted = [f"expansion {at}" if at else "as found" for at in sorted(rounds)]
        return f"accepted by the router ({', '.join(accepted)}) in document {rank} of the search"


def _draw_leaves(tree: StructureTree, question: str, number: int) -> list[Span]:
    """Draw a block for each passage, in place of its own; the same ones for the same question."""
    leaves = [node.span for node in tree.nodes.values() if not (node.structure or node.children)]
    chance = random.Random(f"{question}\0{tree.document.id}\0{number}")
    return chance.choices(leaves, k=number) if leaves else []
