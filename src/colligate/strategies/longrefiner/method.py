"""LongRefiner: refine documents to a token budget by their structure, read (Jin et al. 2025).

1. Query analysis (section 3.1): R_q, from the odds of the labels Local and Global, is how much of a
   document the question needs.
2. Document structuring (3.2), before any question: a tree of abstract, sections, sub-sections and
   paragraphs, by headings or by a model (`structuring.py`, `skeleton.py`).
3. Adaptive refinement (3.3): LS(n) is a paragraph's relevance, and the mean of its children for an
   inner node. GS(n) is 1 for a node that the model chose by its title, and shared among what is
   under it. Nodes are kept by Score(n) = LS(n) + R_q GS(n), the best first, until the budget is
   met, in the order of the text (`selection.py`).
4. A reader answers from what was kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer, Evidence, Form, Refined
from colligate.core.events import Event, Noted, pluralize
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.prompts import escape
from colligate.core.relevance import score_relevance
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.core.units import rank_documents
from colligate.documents import Document, Hit, Kind, Span
from colligate.documents.sentences import MOST_WORDS
from colligate.errors import BudgetExceeded, MissingCapability, ModelError, UsageError
from colligate.library.ranking import standardise
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.readers.lookup import reserve_for_answer
from colligate.strategies.longrefiner.selection import (
    TITLES_TOKENS,
    RefinedText,
    list_titles,
    parse_titles,
    refine_to_budget,
    selection_messages,
)
from colligate.strategies.longrefiner.structuring import LEVELS, Article, Structurer, Structuring

Scorer = Literal["auto", "search", "reranker", "embedder", "bm25"]
"""Who scores paragraphs; `auto`: the run's reranker, or the search without one."""


@dataclass(frozen=True)
class LongRefiner:
    """Keep the parts of the best documents that the question needs, then read them.

    Documents are ranked by their best passage (MaxP) and compressed to `budget` tokens by their
    structure. The scorer gives R_q, the worker structures and chooses titles. A structure that the
    model gave is stored for later questions. `prompts` (`core.prompt_files`) has `scope`,
    `structuring` and `selection`. The `no_...` fields are the paper's ablations (Table 3).

    Attributes:
        documents: documents that are refined, the best by their best passage; none: all
        budget: tokens that are kept of all documents together
        structuring: where a document's structure comes from: its headings, or chunks if it has none
            (headings), a model (model), or chunks of six sentences (chunks); auto: its headings, or
            the model if it has none
        scored_by: who scores paragraphs (Table 4): the reranker, the embedder, BM25, or the search;
            auto: the reranker if there is one for the documents' language, or the search
        least_words: paragraphs with fewer words are joined
        most_words: paragraphs with more words are cut
        structuring_tokens: most tokens of text that are structured in one call
        scope_adapter: LoRA adapter that judges how much of a document is needed
        structuring_adapter: LoRA adapter that structures documents
        selection_adapter: LoRA adapter that chooses titles
        prompts: file with the prompts that these models were trained on
        no_query_analysis: do not judge how much is needed: text and titles weigh the same
        no_global: choose no titles: the scores of the text alone
    """

    name: ClassVar[str] = "longrefiner"
    needs: ClassVar[Needs] = Needs(optional=frozenset({Capability.LABELS}))
    PAPER: ClassVar[Mapping[str, str]] = {
        "structuring": "model",
        "mode": "dense",
        "most_words": "100000",
    }

    documents: int | None = 8  # section 4.1
    budget: int = 2048  # section 4.1: "2k", of the refiner's tokenizer
    structuring: Structuring = Structuring.AUTO  # the paper: model, for all documents
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense, as LongRAG
    scored_by: Scorer = "auto"  # section 4.1: a reranker, bge-reranker-v2-m3
    least_words: int = 100  # the code
    most_words: int = MOST_WORDS  # the paper: no limit
    structuring_tokens: int = 22_000  # section 4.1: a window of 25,000
    scope_adapter: str | None = None
    structuring_adapter: str | None = None
    selection_adapter: str | None = None
    prompts: str | None = None
    form: Form = Form.SHORT

    no_query_analysis: bool = False  # R_q is 1
    no_global: bool = False
    templates: Mapping[str, PromptTemplate] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        apply_prompts(self, _PROMPTS)
        require_min(self, budget=0, least_words=1, most_words=self.least_words)
        require_min(self, structuring_tokens=1, documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Find, refine, read."""
        shown: list[Shown] = []
        with reserve_for_answer(run, lambda: run.meter.calls):
            refined = await self.refine(question, run)
            kept = {each.span: each for each in refined.evidence}
            found = ((passage, kept[passage.span]) for passage in refined.passages)
            shown += (Shown(passage, each.score, each.reason) for passage, each in found)
        return await run.read(question, shown, form=self.form)

    async def refine(
        self, question: str, run: Run, *, documents: Sequence[str] | None = None
    ) -> Refined:
        """Keep what the question needs of the documents, without answering.

        They are named by id, best first; without any, the best ones in view, or all in their order.
        """
        if documents is None and self.documents is not None:
            documents = await rank_documents(question, run, self.documents, self.mode)
        if documents is None:
            documents = [info.id for info in await run.sources.documents()]
        texts = [await run.document(name) for name in dict.fromkeys(documents)]
        structurer, scorer, chooser = await self._open_models(run)
        articles = await self._structure(texts, structurer)
        scope: float | None = None
        titles: list[tuple[int, ...]] = [()] * len(articles)
        try:
            scope = await self._analyse_query(question, articles, scorer)
            titles = await self._choose_titles(question, articles, chooser)
        except (BudgetExceeded, ModelError) as error:
            if isinstance(error, MissingCapability) or not run.meter.paid:
                raise
            run.warn(f"parts are kept by the scores of their text alone: {error.what}")
        leaves = await score_leaves(question, articles, run, self.scored_by, self.mode)
        local = normalise_scores(
            [compute_local_scores(*each) for each in zip(articles, leaves, strict=True)]
        )
        global_ = [compute_global_scores(*each) for each in zip(articles, titles, strict=True)]
        scores = [
            [ls + (scope or 0.0) * gs for ls, gs in zip(*rows, strict=True)]
            for rows in zip(local, global_, strict=True)
        ]
        kept = await refine_to_budget(articles, scores, self.budget, run.model(Role.WORKER))
        if kept.of_tokens and not kept.passages:
            run.warn(f"the best paragraph has more than the budget of {self.budget} tokens")
        weighed = [
            _list_scores(*each, scope, kept)
            for each in zip(articles, titles, local, global_, strict=True)
        ]
        for each in weighed:
            run.emit(each)
        spans = tuple(passage.span for passage in kept.passages)
        run.emit(Selected(spans, kept.tokens, self.budget, len(articles)))
        return Refined(
            question=question,
            text=kept.text,
            passages=kept.passages,
            evidence=_collect_evidence(weighed, kept),
            tokens=kept.tokens,
            budget=self.budget,
            documents=tuple(document.id for document in texts),
            of_tokens=kept.of_tokens,
            scope=scope,
            model=run.model(Role.WORKER).name,
        )

    async def retrieve(
        self, query: str, run: Run, *, k: int, documents: Collection[str] | None = None
    ) -> list[Hit]:
        """Return the refined parts, best first: as many as the budget holds, whatever `k` is."""
        named = None
        if documents is not None:
            infos = [each for each in await run.sources.documents() if each.id in documents]
            named = [each.id for each in infos]
            if self.documents is not None and len(named) > self.documents:
                named = await rank_documents(query, run, self.documents, self.mode, named)
        refined = await self.refine(query, run, documents=named)
        passages = {passage.span: passage for passage in refined.passages}
        return [Hit(passages[each.span], each.score) for each in refined.evidence]

    async def _open_models(self, run: Run) -> list[Run]:
        """Return the run with the adapter of each step; fail before the first call if one cannot be
        used, or there is no reranker."""
        if self.scored_by == "reranker" and run.reranker is None:
            raise UsageError("the run has no reranker", "it is to score", "name a --reranker")
        return [
            await run.with_adapter(Role.WORKER, self.structuring_adapter),
            await run.with_adapter(Role.SCORER, self.scope_adapter),
            await run.with_adapter(Role.WORKER, self.selection_adapter),
        ]

    async def _structure(self, documents: Sequence[Document], run: Run) -> list[Article]:
        """Return the trees of the documents that have text: the paper's offline step."""
        structurer = Structurer(
            Structuring(self.structuring),  # also given by its name
            self.least_words,
            self.most_words,
            self.structuring_tokens,
            self.templates.get("structuring"),
        )
        with run.meter.offline():
            made = await gather(structurer.structure(each, run) for each in documents)
        return [article for article in made if article.nodes]

    async def _analyse_query(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> float | None:
        """Return R_q; None if there are no global scores for it to weigh."""
        if self.no_global or not any(map(has_parts, articles)):
            return None
        if self.no_query_analysis:
            return 1.0
        return await estimate_scope(question, run, self.templates.get("scope"))

    async def _choose_titles(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> list[tuple[int, ...]]:
        """Return the nodes of each document that the model chose by title."""
        template = self.templates.get("selection")

        async def choose(article: Article) -> tuple[int, ...]:
            if self.no_global or not has_parts(article):
                return ()
            messages = selection_messages(question, article, template)
            reply = await run.chat(messages, role=Role.WORKER, max_tokens=TITLES_TOKENS)
            return parse_titles(reply.text, article)

        return await gather(choose(article) for article in articles)


_PROMPTS = {
    "scope": ("question",),
    "structuring": ("text",),
    "selection": ("question", "abstract", "outline"),
}
"""The prompts that a user's file may have, with the texts that each must show."""

# 1. Query analysis (section 3.1)

LOCAL, GLOBAL = "Local", "Global"
LABELS = (LOCAL, GLOBAL)
FORCED = "["
"""The beginning of a reply, before its label: the trained target is `[Local]` or `[Global]`."""
LABEL_TOKENS = 8

_SCOPE_TASK = """\
You analyse what a question asks for and say how much of a document its answer takes.
[Local]: the answer is fixed and narrow, such as a name, a date, a number or a yes or no; a few \
sentences somewhere in the document settle it.
[Global]: the answer is broad, such as a summary, an overview, a comparison or an explanation; it \
takes an understanding of much of the document.
Reply with [Local] or [Global] alone."""

_SCOPE_EXAMPLES = (
    ("When was the company founded?", LOCAL),
    ("What does the report say about the risks of the business?", GLOBAL),
    ("Which city hosted the meeting of 1998?", LOCAL),
    ("How did the party's policy change over the years?", GLOBAL),
)


async def estimate_scope(question: str, run: Run, template: PromptTemplate | None = None) -> float:
    """Return R_q in [0, 1] from the scorer's odds of the two labels.

    0: one place of a document settles the question; 1: it takes the whole document. A scorer
    without odds after a forced beginning is asked for the label; if it names neither, R_q is 0.5.
    The trace reports both. `template` is the prompt of a user's file; its reply begins with the
    label in brackets too.
    """
    scorer = run.model(Role.SCORER)
    messages = scope_messages(question)
    if template is not None:
        messages = template.fill(question=question.strip())
    if Capability.LABELS in scorer.capabilities:
        with suppress(MissingCapability):  # a server that gives odds of the first token alone
            return scope_from_odds((await run.labels(messages, LABELS, forced=FORCED)).odds)
    reply = await run.chat(messages, role=Role.SCORER, max_tokens=LABEL_TOKENS)
    scope = parse_scope(reply.text)
    said = {0.0: "one place of a document", 1.0: "the whole document", None: "neither label"}[scope]
    run.emit(Noted(f"{scorer.name} gives no odds for the question's scope, it names {said}"))
    return 0.5 if scope is None else scope


def scope_messages(question: str) -> list[Message]:
    """Return the prompt, examples as turns."""
    messages = [Message("system", _SCOPE_TASK)]
    for example, label in _SCOPE_EXAMPLES:
        messages += [Message("user", example), Message("assistant", f"[{label}]")]
    return [*messages, Message("user", escape(question.strip()))]


def scope_from_odds(odds: Mapping[str, float]) -> float:
    """Return R_q = P_g / (P_g + P_l), in [0, 1]; 0.5 if both are 0.

    The paper writes a softmax over the two probabilities, which would confine R_q to
    [0.27, 0.73]; its code normalises them, as here.
    """
    total = odds[LOCAL] + odds[GLOBAL]
    return odds[GLOBAL] / total if total > 0 else 0.5


def parse_scope(reply: str) -> float | None:
    """Return 1 or 0 by the label that a reply names first, None if it names neither."""
    places = {label: reply.casefold().find(label.casefold()) for label in LABELS}
    named = {place: label for label, place in places.items() if place >= 0}
    return float(named[min(named)] == GLOBAL) if named else None


# 3. Scores (section 3.3)


async def score_leaves(
    question: str,
    articles: Sequence[Article],
    run: Run,
    by: Scorer = "auto",
    mode: SearchMode = SearchMode.HYBRID,
) -> list[list[float]]:
    """Return LS of the paragraphs, in the order of `article.leaves`; higher is better.

    A paragraph is scored under its document's title and its headings. A reranker that counts beside
    a search is added to the search's scores. If a reranker fails once a call was paid for, the
    search scores, with a warning.
    """
    passages = [
        article.document.passage(article.nodes[leaf].span)
        for article in articles
        for leaf in article.leaves
    ]
    if by == "auto":
        by = "reranker" if await run.suits_reranker(passages) else "search"
    found: list[float] = []
    if by != "search":
        try:
            found = list(await score_relevance(question, passages, run, by))
        except ModelError as error:
            run.continue_unranked(error)
    weight: float | None = getattr(run.reranker, "beside_search", None)
    if not found:
        found = await _score_by_search(question, [each.span for each in passages], run, mode)
    elif by == "reranker" and weight is not None:
        searched = await _score_by_search(question, [each.span for each in passages], run, mode)
        found = list(standardise(searched) + weight * standardise(found))
    scores = iter(found)
    return [[next(scores) for _ in article.leaves] for article in articles]


async def _score_by_search(
    question: str, spans: Sequence[Span], run: Run, mode: SearchMode
) -> list[float]:
    """Return the scores of the passages of a search that paragraphs overlap.

    A paragraph has the score of the best one, times the root of the overlap's share of the shorter
    of the two, and 0 if the search found none. The root, because both halves of a good passage are
    good, and a plain share would rank them with the sixtieth passage.
    """
    every = {span.document_id for span in spans}
    infos = [info for info in await run.sources.documents() if info.id in every]
    names = [info.id for info in infos]  # without those that a retriever brought from outside
    count = max(1, sum(info.passages for info in infos))  # all passages: a low rank is a score too
    hits = await run.find(question, k=count, mode=mode, documents=names) if names else []
    by_document: dict[str, list[Hit]] = {}
    for hit in hits:
        by_document.setdefault(hit.passage.document_id, []).append(hit)
    return [_score_overlap(span, by_document.get(span.document_id, ())) for span in spans]


def _score_overlap(leaf: Span, hits: Sequence[Hit]) -> float:
    scores = [0.0]
    for hit in hits:
        if common := leaf.intersection(hit.passage.span):
            share = len(common) / min(len(leaf), len(hit.passage.span))
            scores.append(hit.score * math.sqrt(share))
    return max(scores)


def compute_local_scores(article: Article, leaf_scores: Sequence[float]) -> list[float]:
    """Return LS of each node: a leaf's own of `leaf_scores`, or the mean of the children's."""
    scores = [0.0] * len(article.nodes)
    for leaf, score in zip(article.leaves, leaf_scores, strict=True):
        scores[leaf] = score
    for node in reversed(article.nodes):
        if node.children:
            scores[node.id] = sum(scores[child] for child in node.children) / len(node.children)
    return scores


def normalise_scores(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """Move the scores of all nodes of all documents to [0, 1]; all are 0 if they are equal.

    Only the code has this step: without it local scores, which may be logits, and global ones
    cannot be added.
    """
    pool = [score for row in scores for score in row]
    if not pool:
        return [[] for _ in scores]
    low = min(pool)
    width = max(pool) - low
    return [[(score - low) / width if width else 0.0 for score in row] for row in scores]


def compute_global_scores(article: Article, selected: Collection[int]) -> list[float]:
    """Return GS of each node, from the ids of the nodes that were chosen by title.

    A chosen node has 1; another the score of its parent, divided by the number of the parent's
    children.
    """
    scores = [0.0] * len(article.nodes)
    for node in article.nodes:
        if node.id in selected:
            scores[node.id] = 1.0
        elif node.parent is not None:
            scores[node.id] = scores[node.parent] / len(article.nodes[node.parent].children)
    return scores


def has_parts(article: Article) -> bool:
    """Return whether there is something to choose between by title."""
    return sum(node.parent is None for node in article.nodes) > 1


@dataclass(frozen=True)
class NodeScore:
    """A node's scores, `score` = `local_score` + scope x `global_score`, and if it was kept."""

    span: Span
    level: str
    title: str
    local_score: float
    global_score: float
    score: float
    kept: bool


@dataclass(frozen=True)
class Weighed(Event):
    """Every node of a document has its scores.

    `selected` are the titles that the model chose from the outline; `scope` is R_q, None if there
    was nothing to choose between.
    """

    document: str
    scope: float | None
    selected: tuple[str, ...]
    nodes: tuple[NodeScore, ...]

    def line(self) -> str:
        return f"weighed {pluralize(len(self.nodes), 'part')} of {self.document}"


@dataclass(frozen=True)
class Selected(Event):
    """The spans that were kept, and their tokens against the budget."""

    spans: tuple[Span, ...]
    tokens: int
    budget: int
    documents: int

    def line(self) -> str:
        kept = f"kept {self.tokens:,} of {self.budget:,} tokens"
        return f"{kept} from {pluralize(self.documents, 'document')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"selected": [span.document_id for span in self.spans]}


def _list_scores(
    article: Article,
    titles: Sequence[int],
    local: Sequence[float],
    global_: Sequence[float],
    scope: float | None,
    kept: RefinedText,
) -> Weighed:
    spans = [passage.span for passage in kept.passages]
    nodes = tuple(
        NodeScore(
            span=node.span,
            level="paragraph" if node.kind is Kind.PARAGRAPH else LEVELS[node.level],
            title=node.title,
            local_score=local[node.id],
            global_score=global_[node.id],
            score=local[node.id] + (scope or 0.0) * global_[node.id],
            kept=all(
                any(span.overlaps(article.nodes[leaf].span) for span in spans)
                for leaf in article.leaves_under[node.id]
            ),
        )
        for node in article.nodes
    )
    return Weighed(article.document.id, scope, list_titles(article, titles), nodes)


def _collect_evidence(weighed: Sequence[Weighed], kept: RefinedText) -> tuple[Evidence, ...]:
    """Return the kept passages, each with the score of its best paragraph, best first."""
    leaves = [node for each in weighed for node in each.nodes if node.level == "paragraph"]
    reason = "its paragraphs are among the best that the budget holds"
    evidence = []
    for passage in kept.passages:
        best = max(leaf.score for leaf in leaves if leaf.span.overlaps(passage.span))
        evidence.append(Evidence(passage.span, best, reason))
    return tuple(sorted(evidence, key=lambda one: -one.score))
