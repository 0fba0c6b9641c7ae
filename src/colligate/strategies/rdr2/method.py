"""RDR2: retrieve, route each document's heading tree, read (Xu et al. 2025).

The method in the order of the paper (symbols as there):

1. Retrieve the k best chunks c_i with their documents d_i (equation 1).
2. S_0, the first routing state of a document, is the subtree around the nodes of a chunk: all
   headings, and the content around what was found (equation 3, Algorithm 1; `tree.py`).
3. The router sees S_t and replies with actions A_t: ANSWER with a block, EXPAND a heading, or
   refuse (equation 2; `router.py`).
4. Each EXPAND of a heading v gives another S_t, in which the content under v replaces the content
   seen before (equation 4), until no heading is left or a document had its number of expansions.
   Untrained routers name nearly all headings: of these, a search chooses (`opens`).
5. The blocks with ANSWER, from all rounds (P_d, equation 5), are the routed passage of the
   document, in its order (p_d, equation 6).
6. A reader answers from the routed passages (equation 7).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.apart import WayOfReading, read_ranked, reads_apart
from colligate.core.citing import Evidence
from colligate.core.events import Assembled
from colligate.core.lookup import read_unseen, reserve_for_answer
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.reader import Form, fit_reader, read
from colligate.core.run import Run, lists_references
from colligate.core.strategy import Calls, Needs
from colligate.documents import Hit, Passage, Span
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.models.names import split_adapter
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.router import (
    RouterDecision,
    decide_by_odds,
    enclosing_router_messages,
    label_actions,
    make_quoting_schema,
    odds_router_messages,
    parse_enclosed_router_reply,
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

    The router is the worker model. With quotes, models that were not trained to route do far
    better. `prompts` is read by `core.prompt_files`. Each `no_...` field leaves one part out, as in
    section 5.2.

    Attributes:
        k: passages of the search, whose documents are routed
        pool: passages that a search gives to the reranker, if there is one
        expansions: most headings that are opened in a document
        subtree_tokens: most tokens of a part of the tree that is shown at once
        reply_tokens: most tokens of the router's reply
        introduction: show the text before the first heading as a section, as in Appendix D
        skipped: titles of sections to leave out
        on_nothing: what is read if no block is accepted, or those accepted do not hold the answer:
            the passages of the search, or nothing
        router_adapter: LoRA adapter of the router
        reply: the router's reply: lines of tag and id, as in the paper (tagged), the same enclosed
            by tag (enclosed), quotes as JSON (quoted), or the odds of each node without a reply
            (odds); auto: quotes if the worker can follow a schema and has no adapter
        least_odds: odds from which a node is chosen, with `reply=odds`
        opens: which of the headings that the router names are opened first: in its order (named),
            or those under which a search within the documents finds the best passages, and of a
            document in which it finds any no others (found); auto: found, unless the router was
            trained
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
    calls: ClassVar[Calls] = Calls(10)

    k: int = 5  # section 4.2
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    pool: int = 50  # the paper has no reranker
    expansions: int = 5  # Table 9's best row, which the main results equal
    subtree_tokens: int = 1000  # not in the paper: very long lists and hundreds of headings
    reply_tokens: int = 1024  # the code: 2,048; an action for each line of a subtree fits
    introduction: bool = True
    skipped: tuple[str, ...] = ()  # the paper: WIKIPEDIA_SKIPPED
    on_nothing: Literal["passages", "nothing"] = "passages"  # the code: nothing
    form: Form = Form.SHORT
    reading: WayOfReading = "auto"  # the paper: together
    router_adapter: str | None = None
    reply: Literal["auto", "tagged", "enclosed", "quoted", "odds"] = "auto"  # the paper: tagged
    least_odds: float = 0.1
    opens: Literal["auto", "named", "found"] = "auto"  # the paper: named
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
        require_min(self, k=1, pool=1, expansions=0, subtree_tokens=1, reply_tokens=1)
        require_min(self, least_odds=0)

    async def answer(self, question: str, run: Run) -> Answer:
        """Retrieve, route, read."""
        await run.with_adapter(Role.WORKER, self.router_adapter)  # fails before the first call
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        routings = await self._open(run, hits)
        await self._rank(question, run, routings)
        last_resort = bool(hits) and self.on_nothing == "passages"
        with reserve_for_answer(run, lambda: last_resort or any(each.found for each in routings)):
            await self._route(question, run, routings)
        passages = [passage for routing in routings for passage in routing.passages]
        texts = self._assemble(hits, routings)
        ranked = partial(
            read_ranked,
            question,
            run=run,
            strategy=self.name,
            form=self.form,
            reading=self.reading,
        )
        if not passages and last_resort:
            run.warn("the router accepted nothing: the passages of the search are read instead")
            run.emit(Assembled(tuple(dict.fromkeys(hit.passage.text for hit in hits))))
            return await ranked(hits, why="of the search, not routed")
        run.emit(Assembled(tuple(dict.fromkeys(texts))))
        if reads_apart(run, self.reading, self.form):
            accepted = [
                Hit(each, routing.score) for routing in routings for each in routing.passages
            ]
            answer = await ranked(accepted, why="accepted by the router")
        else:
            evidence = [
                Evidence(passage.span, 1.0, _explain(rank, routing.rounds_of(passage)))
                for rank, routing in enumerate(routings, 1)
                for passage in routing.passages
            ]
            passages = await fit_reader(question, passages, run, self.form)
            answer = await read(
                question,
                passages,
                run,
                strategy=self.name,
                evidence=evidence[: len(passages)],
                form=self.form,
            )
        unseen = hits if last_resort else ()
        return await read_unseen(answer, unseen, passages, run, self.form, self.reading)

    async def route(
        self, question: str, run: Run, hits: Sequence[Hit] | None = None
    ) -> list[Routing]:
        """Route the documents of these passages, or of those that a search finds, concurrently.

        Documents come in the order of their best passages. With given passages nothing is searched:
        headings are opened in the router's order.
        """
        found = hits
        if found is None:
            found = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        routings = await self._open(run, found)
        if hits is None:
            await self._rank(question, run, routings)
        await self._route(question, run, routings)
        return routings

    async def _open(self, run: Run, hits: Sequence[Hit]) -> list[Routing]:
        """Return the trees of the documents, with the nodes of the passages found in each."""
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
        return list(by_document.values())

    async def _rank(self, question: str, run: Run, routings: Sequence[Routing]) -> None:
        """Search within the documents, if the headings to open are chosen by that."""
        trained = self._is_trained(run)
        found = self.opens == "found" or (self.opens == "auto" and not trained)
        if not found or not routings or self.no_router or self.no_expand:
            return
        by_document = {routing.tree.document.id: routing for routing in routings}
        hits = await run.search(question, k=self.pool, mode=self.mode, documents=by_document)
        for rank, hit in enumerate(hits):
            if not lists_references(question, hit.passage):
                by_document[hit.passage.document_id].note_found(hit.passage, rank)

    async def _route(self, question: str, run: Run, routings: Sequence[Routing]) -> None:
        """Route all documents concurrently."""
        router = await run.with_adapter(Role.WORKER, self.router_adapter)
        await gather(self._walk(question, router, routing) for routing in routings)

    async def _walk(self, question: str, run: Run, routing: Routing) -> None:
        """Route one document: show the subtrees of its chunks, then the headings to expand."""
        tree, chunks = routing.tree, routing.chunks
        if self.no_router:
            routing.answers.update(dict.fromkeys(routing.retrieved, 0))
            return
        if self.no_similarity:
            chunks = _draw_leaves(tree, question, len(chunks))
        limit = await self._find_limit(question, run)

        # Round 0: S_0 of each chunk, equal ones once
        views: dict[str, SubTree] = {}
        for chunk in chunks:
            nodes = tree.map_span(chunk)
            view = self._build_view(tree, nodes, limit, chunk, content=not self.no_content)
            if same := views.get(view.text):
                both = {*same.highlighted, *view.highlighted}
                view = replace(view, highlighted=tuple(sorted(both)))
            views[view.text] = view
        first = views.values()
        seen = {node for v in first for node in tree.content_of(v.highlighted) if node in v.visible}
        decisions = await gather(self._ask(question, run, view, 0, None) for view in first)
        queue: deque[tuple[int, tuple[int, ...]]] = deque()  # headings, and the blocks under them
        for decision, view in zip(decisions, first, strict=True):
            self._take(decision, view, 0, routing, queue, seen)

        # Round t: S_t of the heading that was named first, or of the best one of a search
        rounds = 0
        while queue and rounds < self.expansions:
            queue = deque(sorted(queue, key=lambda each: routing.rank_of(each[1])))
            heading, blocks = queue.popleft()
            if seen.issuperset(blocks):
                continue  # shown since, by a heading above it
            rounds += 1
            routing.expanded.setdefault(heading, rounds)
            view = self._build_view(tree, blocks, limit, routing.places.get(blocks[0]))
            shown = view.visible.intersection(blocks)
            rest = tuple(block for block in blocks if block not in shown)
            if shown and rest and routing.may_open(rest):
                queue.appendleft((heading, rest))  # the next part of a long section
            seen.update(shown or blocks)
            decision = await self._ask(question, run, view, rounds, heading)
            self._take(decision, view, rounds, routing, queue, seen)

    def _assemble(self, hits: Sequence[Hit], routings: Sequence[Routing]) -> list[str]:
        """Return the routed passages p_d, as the paper's measures take them.

        Without a router there is one for each chunk, as in the released code.
        """
        if not self.no_router:
            return [routing.text for routing in routings if routing.found]
        trees = {routing.tree.document.id: routing.tree for routing in routings}
        found = [(trees[hit.passage.document_id], hit.passage.span) for hit in hits]
        chunks = [(tree, tree.content_of(tree.map_span(span))) for tree, span in found]
        return [tree.render_routed(blocks) for tree, blocks in chunks if blocks]

    def _build_view(
        self,
        tree: StructureTree,
        nodes: Sequence[int],
        limit: int,
        near: Span | None,
        *,
        content: bool = True,
    ) -> SubTree:
        """Build the subtree around some nodes, in which something was found at `near`."""
        structure = not self.no_structure
        return build_subtree(
            tree, nodes, near=near, structure=structure, content=content, most_tokens=limit
        )

    async def _ask(
        self, question: str, run: Run, view: SubTree, round_: int, heading: int | None
    ) -> RouterDecision:
        """Show a subtree S_t to the router and return its actions A_t."""
        form = self._form(run)
        messages = self._make_prompt(form, question, view.text)
        cut = False
        if form == "odds":
            labels = label_actions(view)
            given = await run.labels(messages, tuple(labels), role=Role.WORKER)
            decision = decide_by_odds(given.odds, labels, self.least_odds)
        else:
            reply = await run.chat(
                messages,
                role=Role.WORKER,
                max_tokens=self.reply_tokens,
                schema=make_quoting_schema(view) if form == "quoted" else None,
            )
            cut, text = reply.cut, reply.text
            if cut and form != "quoted":  # the last number may lack a digit
                text = text.rpartition("\n")[0]
            decision = _PARSERS[form](text, view)
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
                cut=cut,
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
            blocks = view.tree.content_children(heading) or under
            if routing.may_open(blocks) and seen.isdisjoint(under):
                queue.append((heading, blocks))

    def _form(self, run: Run) -> str:
        """Return the form of the router's replies."""
        worker = run.model(Role.WORKER)
        reply = self.reply
        if reply == "odds" and Capability.LABELS not in worker.capabilities:
            run.warn(f"{worker.name} gives no label odds: the router is asked for a reply")
            reply = "auto"
        if reply != "auto":
            return reply
        quotes = Capability.STRUCTURED in worker.capabilities and not self._is_trained(run)
        return "quoted" if quotes else "tagged"

    def _is_trained(self, run: Run) -> bool:
        """Return whether the router has an adapter, or a prompt that it was trained on."""
        adapter = self.router_adapter or split_adapter(run.model(Role.WORKER).name)[1]
        return bool(adapter is not None or self.templates)

    def _make_prompt(self, form: str, question: str, shown: str) -> list[Message]:
        """Return the router's prompt: the one of the user's file, or that of the form."""
        if template := self.templates.get("router"):
            return template.fill(question=question.strip(), document=shown)
        return _PROMPTS[form](question, shown)

    async def _find_limit(self, question: str, run: Run) -> int:
        """Return the tokens that a subtree may have, next to prompt and reply in the window."""
        empty = self._make_prompt(self._form(run), question, "")
        room = await run.room(Role.WORKER, empty, self.reply_tokens)
        # Subtrees are measured by an estimate, which a tokenizer may exceed.
        limit = self.subtree_tokens if room is None else min(self.subtree_tokens, room * 3 // 4)
        return max(limit, _SHORTEST_SUBTREE)


_PROMPTS = {
    "tagged": router_messages,
    "enclosed": enclosing_router_messages,
    "quoted": quoting_router_messages,
    "odds": odds_router_messages,
}
_PARSERS = {
    "tagged": parse_router_reply,
    "enclosed": parse_enclosed_router_reply,
    "quoted": parse_quoting_router_reply,
}
_SHORTEST_SUBTREE = 200  # tokens; with fewer a router has nothing to choose from


@dataclass
class Routing:
    """The result of routing one document; nodes are those of `tree`.

    `score` is that of its best passage in the search. `chunks` are the places of the passages that
    the search found. `answers` and `expanded` map each accepted block and each opened heading to
    its round: 0 is the search, n the n-th expansion. `refused` of `shown` subtrees gave nothing.
    `ranks` are the ranks of blocks in a search within the documents, 0 is the best, and `places`
    those of their best passages; empty without one.
    """

    tree: StructureTree
    score: float = 0.0
    chunks: list[Span] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=dict)
    expanded: dict[int, int] = field(default_factory=dict)
    shown: int = 0
    refused: int = 0
    ranks: dict[int, int] = field(default_factory=dict)
    places: dict[int, Span] = field(default_factory=dict)

    def note_found(self, passage: Passage, rank: int) -> None:
        """Note the blocks of a passage at this place of a search."""
        for node in self.tree.content_of(self.tree.map_span(passage.span)):
            self.ranks.setdefault(node, rank)
            self.places.setdefault(node, passage.span)

    def may_open(self, blocks: Sequence[int]) -> bool:
        """Return whether a search found one of these blocks, or nothing in the document."""
        return not self.ranks or not self.ranks.keys().isdisjoint(blocks)

    def rank_of(self, blocks: Sequence[int]) -> int:
        """Return the rank of the best of these blocks; 0 if none was found."""
        return min((self.ranks[node] for node in blocks if node in self.ranks), default=0)

    @property
    def retrieved(self) -> tuple[int, ...]:
        """The blocks of the passages found."""
        nodes = (node for chunk in self.chunks for node in self.tree.map_span(chunk))
        return self.tree.content_of(dict.fromkeys(nodes))

    @property
    def text(self) -> str:
        """The routed passage p_d (equation 6): title, headings and accepted blocks, as lines."""
        return self.tree.render_routed(self.answers)

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


def _draw_leaves(tree: StructureTree, question: str, number: int) -> list[Span]:
    """Draw a block for each passage, in place of its own; the same ones for the same question."""
    leaves = [node.span for node in tree.nodes.values() if not (node.structure or node.children)]
    chance = random.Random(f"{question}\0{tree.document.id}\0{number}")
    return chance.choices(leaves, k=number) if leaves else []
