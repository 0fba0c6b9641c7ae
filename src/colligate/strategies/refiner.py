"""LongRefiner's refiner: long documents in, the spans a question needs out, under a budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from colligate.documents import Document, Hit, Passage, Span
from colligate.errors import MissingCapability
from colligate.evidence.article import Article
from colligate.evidence.citing import Evidence
from colligate.evidence.node_scores import GSMode, combined, global_scores, local_scores, min_max
from colligate.evidence.outline import nodes_titled, selected, selection_messages
from colligate.evidence.query_scope import (
    FORCED,
    LABELS,
    scope_messages,
    scope_of_odds,
    scope_of_reply,
)
from colligate.evidence.selection import Selection, passages, pieces, render, select
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role
from colligate.models.truncation import truncated
from colligate.strategies.refined import Refined
from colligate.strategies.run import Run
from colligate.strategies.side_by_side import side_by_side
from colligate.strategies.structuring import Structure, Structuring
from colligate.strategies.trace import NodeScore, Selected, Weighed


@dataclass(frozen=True)
class Refiner:
    """Compress documents to `budget` tokens by their structure (LongRefiner, Jin et al. 2025).

    Each document is a tree of abstract, sections, sub-sections and paragraphs. A paragraph's
    local score is its relevance to the question, an inner node's the mean of its children's; a
    node's global score says that the model chose it, or what it stands in, by title from the
    outline. Score = local + R_q x global, and the best nodes are kept while they fit.

    Local scores are the reranker's where the run has one, else those of the search in `mode`.
    R_q is asked of the scorer, structure and titles of the worker; the `..._adapter` fields put
    a LoRA adapter on each. `structuring` is worked out once a document and kept.
    """

    budget: int = 2048  # section 4.1: "2k", of the refiner's tokenizer
    structuring: Structuring = Structuring.AUTO
    mode: SearchMode = SearchMode.HYBRID
    least_words: int = 100  # the code's paragraphs
    most_words: int = 250  # not in the paper: longer blocks are cut
    coverage: float = 0.5  # below it a model's structure is not used
    structuring_tokens: int = 22_000  # of text in one call; the paper's window is 25,000
    outline_tokens: int = 1500  # of title, abstract and headings
    gs_mode: GSMode = GSMode.PAPER
    stop_at_first_overflow: bool = False
    scope_adapter: str | None = None
    structuring_adapter: str | None = None
    selection_adapter: str | None = None

    no_query_analysis: bool = False  # R_q is 1: local and global scores weigh the same
    no_global: bool = False  # no titles are chosen: local scores alone

    async def refine(
        self,
        question: str,
        run: Run,
        *,
        documents: Sequence[str] | None = None,
        passages: Sequence[Passage] | None = None,
    ) -> Refined:
        """Keep what the question needs of the documents, or of these passages of theirs.

        Documents are named by id, best first; without any, all in view in their order. With
        `passages` only what lies inside them is kept, their documents in order of appearance.
        """
        if passages is not None:
            documents = list(dict.fromkeys(passage.document_id for passage in passages))
        elif documents is None:
            documents = [info.id for info in await run.sources.documents()]
        within: dict[str, list[Span]] | None = None
        if passages is not None:
            within = {name: [] for name in documents}
            for passage in passages:
                within[passage.document_id].append(passage.span)
        read = [await run.document(name) for name in dict.fromkeys(documents)]
        structurer = await run.adapted(Role.WORKER, self.structuring_adapter)
        structure = Structure(
            self.structuring,
            self.least_words,
            self.most_words,
            self.coverage,
            self.structuring_tokens,
        )
        made = await side_by_side(
            structure.article(document, structurer, None if within is None else within[document.id])
            for document in read
        )
        articles = [each for each in made if each.nodes]
        scope = await self._scope(question, run) if articles and not self.no_global else 0.0
        local = await self._local(question, articles, run)
        chosen = await self._chosen(question, articles, run)
        global_ = [
            global_scores(a, ids, self.gs_mode) for a, ids in zip(articles, chosen, strict=True)
        ]
        scores = [combined(a, scope, b) for a, b in zip(local, global_, strict=True)]
        kept, text, tokens, of_tokens = await self._under_budget(articles, scores, run)
        for a, ids, ls, gs, total, leaves, inner in zip(
            articles, chosen, local, global_, scores, kept.chosen, kept.promoted, strict=True
        ):
            here = {*leaves, *inner}
            nodes = tuple(
                NodeScore(n.span, n.level, n.title, ls[n.id], gs[n.id], total[n.id], n.id in here)
                for n in a.nodes
            )
            run.emit(Weighed(a.document.id, scope, nodes_titled(a, ids), nodes))
        return await self._refined(
            question, run, read, articles, scores, scope, kept, text, tokens, of_tokens
        )

    # Scores

    async def _scope(self, question: str, run: Run) -> float:
        """R_q: odds of the two labels, else the label the model names, else an even weight."""
        if self.no_query_analysis:
            return 1.0
        run = await run.adapted(Role.SCORER, self.scope_adapter)
        if Capability.LABELS in run.model(Role.SCORER).capabilities:
            try:
                odds = await run.labels(scope_messages(question), LABELS, forced=FORCED)
            except MissingCapability:
                # Servers give odds of the first token alone, so it must be the label's.
                odds = await run.labels(scope_messages(question, bare=True), LABELS)
            return scope_of_odds(odds.odds)
        reply = await run.chat(scope_messages(question), role=Role.SCORER, max_tokens=8)
        scope = scope_of_reply(reply.text)
        name = run.model(Role.SCORER).name
        if scope is None:
            run.warn(f"{name} does not say how much the question asks for: R_q is taken as 0.5")
            return 0.5
        run.warn(f"{name} gives no label odds: R_q is its word, {int(scope)}, not a probability")
        return scope

    async def _local(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> list[list[float]]:
        """Local scores of all nodes, between 0 and 1 over the whole pool."""
        shown = [
            [made.document.passage(made.nodes[leaf].span) for leaf in made.leaves]
            for made in articles
        ]
        if run.reranker is not None:
            flat = await run.rerank_scores(question, [p for each in shown for p in each])
            ends = iter(flat)
            leaves = [[next(ends) for _ in each] for each in shown]
        else:
            leaves = await self._searched(question, shown, run)
        return min_max([local_scores(a, each) for a, each in zip(articles, leaves, strict=True)])

    async def _searched(
        self, question: str, shown: Sequence[Sequence[Passage]], run: Run
    ) -> list[list[float]]:
        """The search's score of each leaf: the best of the passages that it shares text with."""
        names = [each[0].document_id for each in shown if each]
        if not names:
            return [[] for _ in shown]
        most = sum(i.passages for i in await run.sources.documents() if i.id in set(names))
        hits = await run.search(question, k=max(1, most), mode=self.mode, documents=names)
        by_document: dict[str, list[Hit]] = {}
        for hit in hits:
            by_document.setdefault(hit.passage.document_id, []).append(hit)
        least = min((hit.score for hit in hits), default=0.0)
        return [
            [
                _overlapping(p.span, by_document.get(p.document_id, ()), min(0.0, least))
                for p in each
            ]
            for each in shown
        ]

    async def _chosen(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> list[tuple[int, ...]]:
        """The nodes of each document that the model chose by title."""
        if self.no_global:
            return [() for _ in articles]
        run = await run.adapted(Role.WORKER, self.selection_adapter)

        async def choose(made: Article) -> tuple[int, ...]:
            titled = sum(node.parent is None for node in made.nodes)
            if titled < 2:  # one part: there is nothing to choose between
                return ()
            messages = selection_messages(question, made, most_tokens=self.outline_tokens)
            reply = await run.chat(messages, role=Role.WORKER, max_tokens=256)
            return selected(reply.text, made)

        return await side_by_side(choose(made) for made in articles)

    # Budget

    async def _under_budget(
        self, articles: Sequence[Article], scores: Sequence[Sequence[float]], run: Run
    ) -> tuple[Selection, str, int, int]:
        """What is kept, its text and tokens, and the tokens of all.

        Pieces are counted apart; should they take more together, less is selected.
        """
        model = run.model(Role.WORKER)
        counts: dict[str, int] = {}
        of_tokens = 0
        for made in articles:
            all_pieces = list(pieces(made))
            ends = list(accumulate(map(len, all_pieces)))
            spans = await model.token_spans("".join(all_pieces))
            firsts = [start for start, _ in spans]
            for piece, end in zip(all_pieces, ends, strict=True):
                counts[piece] = bisect_left(firsts, end) - bisect_left(firsts, end - len(piece)) + 1
            of_tokens += len(spans)
        room = self.budget
        while True:
            kept = select(
                articles,
                scores,
                room,
                counts.__getitem__,
                stop_at_first_overflow=self.stop_at_first_overflow,
            )
            text = render(articles, kept)
            tokens = await model.count_tokens(text) if text else 0
            if tokens <= self.budget:
                return kept, text, tokens, of_tokens
            room -= max(1, tokens - self.budget)

    async def _refined(
        self,
        question: str,
        run: Run,
        read: Sequence[Document],
        articles: Sequence[Article],
        scores: Sequence[Sequence[float]],
        scope: float,
        kept: Selection,
        text: str,
        tokens: int,
        of_tokens: int,
    ) -> Refined:
        shown = [p for each in passages(articles, kept) for p in each]
        best = {
            made.nodes[leaf].span: score[leaf]
            for made, score in zip(articles, scores, strict=True)
            for leaf in made.leaves
        }
        if not shown and best and self.budget > 0:
            # Not even the best paragraph fits: its beginning does.
            span = max(best, key=lambda s: (best[s], s.document_id, -s.start))
            document = await run.document(span.document_id)
            cut = await truncated(run.model(Role.WORKER), document.slice(span), self.budget)
            if cut.text.strip():
                shown = [document.passage(document.span(span.start, span.start + len(cut.text)))]
                text = cut.text
                tokens = await run.model(Role.WORKER).count_tokens(text)
        evidence = sorted(
            (
                Evidence(
                    p.span,
                    max(score for span, score in best.items() if span.overlaps(p.span)),
                    "refined: its score is local + scope x global",
                )
                for p in shown
            ),
            key=lambda e: -e.score,
        )
        run.emit(Selected(tuple(p.span for p in shown), tokens, self.budget, len(read)))
        return Refined(
            question=question,
            text=text,
            passages=tuple(shown),
            evidence=tuple(evidence),
            tokens=tokens,
            budget=self.budget,
            documents=tuple(document.id for document in read),
            of_tokens=of_tokens,
            scope=None if self.no_global else scope,
            model=run.model(Role.WORKER).name,
        )


def _overlapping(leaf: Span, hits: Sequence[Hit], otherwise: float) -> float:
    """The best score of the passages that share text with a leaf, by how much of either they do."""
    scores = []
    for hit in hits:
        if shared := leaf.intersection(hit.passage.span):
            part = len(shared) / min(len(leaf), len(hit.passage.span))
            scores.append(otherwise + part * (hit.score - otherwise))
    return max(scores, default=otherwise)
