"""LongRefiner's refiner: long documents in, the spans a question needs out, under a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.documents import Document, Passage, Span
from colligate.documents.paragraphs import LEAST_WORDS, MOST_WORDS
from colligate.evidence.article import Article
from colligate.evidence.citing import Evidence
from colligate.evidence.node_scores import GSMode, combined, global_scores, local_scores, min_max
from colligate.evidence.outline import nodes_titled, selected, selection_messages
from colligate.library.sources import SearchMode
from colligate.models import Role
from colligate.strategies.at_least import at_least
from colligate.strategies.leaf_scores import leaf_scores
from colligate.strategies.query_scope import query_scope
from colligate.strategies.refined import Refined
from colligate.strategies.run import Run
from colligate.strategies.side_by_side import side_by_side
from colligate.strategies.structuring import Structure, Structuring
from colligate.strategies.token_budget import Kept, under_budget
from colligate.strategies.trace import NodeScore, Selected, Weighed

TITLES_TOKENS = 256  # of the reply that names titles


@dataclass(frozen=True)
class Refiner:
    """Compress documents to `budget` tokens by their structure (LongRefiner, Jin et al. 2025).

    Each document is a tree of abstract, sections, sub-sections and paragraphs. A paragraph's
    local score is its relevance to the question, an inner node's the mean of its children's; a
    node's global score says that the model chose it, or what it stands in, by title from the
    outline. Score = local + R_q x global, and the best nodes are kept while they fit.

    Local scores are the reranker's where the run has one, else those of the search in `mode`.
    R_q is asked of the scorer, structure and titles of the worker; the `..._adapter` fields put
    a LoRA adapter on each. A structure that the model gave is kept for later questions. The
    `no_...` fields are the paper's ablations.

    Raises:
        UsageError: if the budget or another number is negative.
    """

    budget: int = 2048  # section 4.1: "2k", of the refiner's tokenizer
    structuring: Structuring = Structuring.AUTO
    mode: SearchMode = SearchMode.HYBRID
    least_words: int = LEAST_WORDS  # of a paragraph; 100 in the code, and worse here
    most_words: int = MOST_WORDS  # not in the paper: longer blocks are cut
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

    def __post_init__(self) -> None:
        at_least(
            self,
            budget=0,
            least_words=1,
            most_words=self.least_words,
            coverage=0,
            structuring_tokens=1,
            outline_tokens=1,
        )

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
            documents = [passage.document_id for passage in passages]
        elif documents is None:
            documents = [info.id for info in await run.sources.documents()]
        read = [await run.document(name) for name in dict.fromkeys(documents)]
        within = None if passages is None else [passage.span for passage in passages]

        for role, adapter in self._adapters():
            await run.adapted(role, adapter)  # a wrong one before the first call
        articles = await self._articles(read, within, run)
        scope = await self._scope(question, articles, run)
        leaves = await leaf_scores(question, articles, run, self.mode)
        local = min_max([local_scores(*each) for each in zip(articles, leaves, strict=True)])
        titles = await self._titles(question, articles, run)
        mode = GSMode(self.gs_mode)
        global_ = [global_scores(*each, mode) for each in zip(articles, titles, strict=True)]
        scores = [combined(ls, scope or 0.0, gs) for ls, gs in zip(local, global_, strict=True)]
        kept = await under_budget(
            articles,
            scores,
            self.budget,
            run.model(Role.WORKER),
            stop_at_first_overflow=self.stop_at_first_overflow,
        )

        for each in zip(articles, titles, local, global_, scores, strict=True):
            run.emit(_weighed(*each, scope, kept))
        spans = tuple(passage.span for passage in kept.passages)
        run.emit(Selected(spans, kept.tokens, self.budget, len(articles)))
        return Refined(
            question=question,
            text=kept.text,
            passages=kept.passages,
            evidence=_evidence(articles, scores, kept),
            tokens=kept.tokens,
            budget=self.budget,
            documents=tuple(document.id for document in read),
            of_tokens=kept.of_tokens,
            scope=scope,
            model=run.model(Role.WORKER).name,
        )

    async def _articles(
        self, documents: Sequence[Document], within: Sequence[Span] | None, run: Run
    ) -> list[Article]:
        """The documents' structures, of those that have text."""
        run = await run.adapted(Role.WORKER, self.structuring_adapter)
        structure = Structure(
            Structuring(self.structuring),  # its name will do
            self.least_words,
            self.most_words,
            self.coverage,
            self.structuring_tokens,
        )
        made = await side_by_side(
            structure.article(document, run, within) for document in documents
        )
        return [article for article in made if article.nodes]

    def _adapters(self) -> list[tuple[Role, str | None]]:
        return [
            (Role.WORKER, self.structuring_adapter),
            (Role.SCORER, self.scope_adapter),
            (Role.WORKER, self.selection_adapter),
        ]

    async def _scope(self, question: str, articles: Sequence[Article], run: Run) -> float | None:
        """R_q; None where it would weigh nothing."""
        if self.no_global or not any(map(has_parts, articles)):
            return None
        if self.no_query_analysis:
            return 1.0
        return await query_scope(question, await run.adapted(Role.SCORER, self.scope_adapter))

    async def _titles(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> list[tuple[int, ...]]:
        """The nodes of each document that the model chose by title."""
        run = await run.adapted(Role.WORKER, self.selection_adapter)

        async def choose(article: Article) -> tuple[int, ...]:
            if self.no_global or not has_parts(article):
                return ()
            messages = selection_messages(question, article, most_tokens=self.outline_tokens)
            reply = await run.chat(messages, role=Role.WORKER, max_tokens=TITLES_TOKENS)
            return selected(reply.text, article)

        return await side_by_side(choose(article) for article in articles)


def has_parts(article: Article) -> bool:
    """Whether there is something to choose between by title."""
    return sum(node.parent is None for node in article.nodes) > 1


def _weighed(
    article: Article,
    titles: Sequence[int],
    local: Sequence[float],
    global_: Sequence[float],
    scores: Sequence[float],
    scope: float | None,
    kept: Kept,
) -> Weighed:
    spans = [passage.span for passage in kept.passages]
    nodes = tuple(
        NodeScore(
            span=node.span,
            level=node.level,
            title=node.title,
            local_score=local[node.id],
            global_score=global_[node.id],
            score=scores[node.id],
            kept=all(
                any(span.overlaps(article.nodes[leaf].span) for span in spans)
                for leaf in article.leaves_under[node.id]
            ),
        )
        for node in article.nodes
    )
    return Weighed(article.document.id, scope, nodes_titled(article, titles), nodes)


def _evidence(
    articles: Sequence[Article], scores: Sequence[Sequence[float]], kept: Kept
) -> tuple[Evidence, ...]:
    """What was kept, each passage with the score of its best paragraph, best first."""
    leaves = [
        (article.nodes[leaf].span, row[leaf])
        for article, row in zip(articles, scores, strict=True)
        for leaf in article.leaves
    ]
    evidence = [
        Evidence(
            passage.span,
            max(score for span, score in leaves if span.overlaps(passage.span)),
            "its paragraphs are among the best that the budget holds",
        )
        for passage in kept.passages
    ]
    return tuple(sorted(evidence, key=lambda one: -one.score))
