"""LongRefiner: structure documents once, refine them to a token budget per question, read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from colligate.concurrency import gather
from colligate.core.answer import Answer, Refined
from colligate.core.citing import Evidence
from colligate.core.events import Noted
from colligate.core.parameters import require_min
from colligate.core.prompts import escape
from colligate.core.reader import Form, fit_reader, read
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import rank_documents
from colligate.documents import Document, Hit, Passage, Span
from colligate.documents.sentences import LEAST_WORDS, MOST_WORDS
from colligate.errors import MissingCapability
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.strategies.longrefiner.events import NodeScore, Selected, Weighed
from colligate.strategies.longrefiner.selection import Kept, under_budget
from colligate.strategies.longrefiner.structuring import Structurer, Structuring
from colligate.strategies.longrefiner.tree import (
    Article,
    Level,
    nodes_titled,
    selected,
    selection_messages,
)

# LongRefiner's scores of the nodes of an article (sections 4.2 to 4.4 of its specification).


class GSMode(StrEnum):
    """How a selected title's weight reaches what stands under it."""

    PAPER = "paper"  # all the way down, shared among the children at each step
    CODE = "code"  # as the released code has it: one step, by L + 1


def local_scores(article: Article, leaf_scores: Sequence[float]) -> list[float]:
    """A score for each node: a paragraph's own, else the mean of the children's.

    `leaf_scores` are in the order of `article.leaves`.
    """
    scores = [0.0] * len(article.nodes)
    for leaf, score in zip(article.leaves, leaf_scores, strict=True):
        scores[leaf] = score
    for node in reversed(article.nodes):
        if node.children:
            scores[node.id] = sum(scores[child] for child in node.children) / len(node.children)
    return scores


def min_max(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """The scores of all nodes of all articles of a question, moved to [0, 1]; all equal are 0.

    The paper leaves this step out, its code has it: without it local scores, which may be
    logits, and global ones are of no common measure.
    """
    pool = [score for row in scores for score in row]
    if not pool:
        return [[] for _ in scores]
    low = min(pool)
    width = max(pool) - low
    return [[(score - low) / width if width else 0.0 for score in row] for row in scores]


def global_scores(
    article: Article, selected: Collection[int], mode: GSMode = GSMode.PAPER
) -> list[float]:
    """A score for each node, from the titles that were selected as helpful (ids of their nodes).

    `PAPER`: a selected node has 1; any other the score of its parent, divided by the number of
    the parent's children. `CODE`: 1 for a selected node, and for each node whose parent is
    selected 1 / (L + 1) besides, where L counts the sub-sections of a parent that is a section
    and the paragraphs of one that is a sub-section; a selected abstract gives its paragraphs
    nothing.
    """
    scores = [0.0] * len(article.nodes)
    for node in article.nodes:
        own = 1.0 if node.id in selected else 0.0
        if node.parent is None:
            scores[node.id] = own
        elif mode is GSMode.CODE:
            inherited = _one_step(article, node.parent) if node.parent in selected else 0.0
            scores[node.id] = own + inherited
        else:
            inherited = scores[node.parent] / len(article.nodes[node.parent].children)
            scores[node.id] = max(own, inherited)
    return scores


def combined(local: Sequence[float], scope: float, global_: Sequence[float]) -> list[float]:
    """LS + R_q * GS for each node; `scope` is R_q, the share of the whole in what is asked."""
    return [ls + scope * gs for ls, gs in zip(local, global_, strict=True)]


def _one_step(article: Article, parent: int) -> float:
    node = article.nodes[parent]
    if node.level is Level.ABSTRACT:
        return 0.0
    counted = Level.SUBSECTION if node.level is Level.SECTION else Level.PARAGRAPH
    return 1 / (sum(article.nodes[child].level is counted for child in node.children) + 1)


# How relevant each paragraph of some documents is: LongRefiner's local scores of the leaves.


async def leaf_scores(
    question: str, articles: Sequence[Article], run: Run, mode: SearchMode
) -> list[list[float]]:
    """A score for each of `article.leaves`, higher is better, an article a row.

    The reranker's, of every leaf, where the run has one. Else the search's: a leaf has the score
    of the best passage that it shares text with, times the root of how much of the one lies in
    the other, and 0 where the search found none. The root, as the halves of a good passage are
    both good, and a straight share would rank them with the sixtieth.
    """
    spans = [[article.nodes[leaf].span for leaf in article.leaves] for article in articles]
    if run.reranker is not None:
        passages = [
            article.document.passage(span)
            for article, row in zip(articles, spans, strict=True)
            for span in row
        ]
        scores = iter(await run.rerank(question, passages) if passages else ())
        return [[next(scores) for _ in row] for row in spans]
    names = {article.document.id for article in articles}
    infos = [info for info in await run.sources.documents() if info.id in names]
    # All of them: how far down a paragraph comes is its score too.
    count = max(1, sum(info.passages for info in infos))
    hits = await run.search(question, k=count, mode=mode, documents=names) if names else []
    found: dict[str, list[Hit]] = {}
    for hit in hits:
        found.setdefault(hit.passage.document_id, []).append(hit)
    return [[_shared(span, found.get(span.document_id, ())) for span in row] for row in spans]


def _shared(leaf: Span, hits: Sequence[Hit]) -> float:
    """The best score among passages, weighed by the larger part that is common."""
    scores = [0.0]
    for hit in hits:
        if common := leaf.intersection(hit.passage.span):
            part = len(common) / min(len(leaf), len(hit.passage.span))
            scores.append(hit.score * math.sqrt(part))
    return max(scores)


# How much a question wants to know: LongRefiner's query analysis.
#
# The probabilities of the two labels become R_q, the weight of what the outline says against what
# single paragraphs say: 0 for a fact that one place settles, 1 for what the whole document tells.

LOCAL, GLOBAL = "Local", "Global"
LABELS = (LOCAL, GLOBAL)
FORCED = "["
"""How the reply begins before its label: the trained target is `[Local]` or `[Global]`."""

_TASK = """\
You analyse what a question asks for and say how much of a document its answer takes.
[Local]: the answer is fixed and narrow, such as a name, a date, a number or a yes or no; a few \
sentences somewhere in the document settle it.
[Global]: the answer is broad, such as a summary, an overview, a comparison or an explanation; it \
takes an understanding of much of the document."""

_EXAMPLES = (
    ("When was the company founded?", LOCAL),
    ("What does the report say about the risks of the business?", GLOBAL),
    ("Which city hosted the meeting of 1998?", LOCAL),
    ("How did the party's policy change over the years?", GLOBAL),
)


def scope_messages(question: str, *, bare: bool = False) -> list[Message]:
    """The prompt, examples as turns. `bare` asks for the label without its brackets."""
    left, right = ("", "") if bare else ("[", "]")
    task = _TASK.replace("[", "").replace("]", "") if bare else _TASK
    messages = [
        Message("system", f"{task}\nReply with {left}Local{right} or {left}Global{right} alone.")
    ]
    for example, label in _EXAMPLES:
        messages += [Message("user", example), Message("assistant", f"{left}{label}{right}")]
    return [*messages, Message("user", escape(question.strip()))]


def scope_of_odds(odds: Mapping[str, float]) -> float:
    """R_q = P_g / (P_g + P_l), in [0, 1]; 0.5 where the model gives neither label any chance.

    The paper writes a softmax over the two probabilities, which would confine R_q to
    [0.27, 0.73]; its code normalises them, as here.
    """
    total = odds[LOCAL] + odds[GLOBAL]
    return odds[GLOBAL] / total if total > 0 else 0.5


def scope_of_reply(reply: str) -> float | None:
    """1 or 0 by the label that a reply names first, None where it names neither."""
    places = {label: reply.casefold().find(label.casefold()) for label in LABELS}
    named = {place: label for label, place in places.items() if place >= 0}
    return float(named[min(named)] == GLOBAL) if named else None


# How much a question asks for, by a model: R_q of LongRefiner.

LABEL_TOKENS = 8


async def query_scope(question: str, run: Run) -> float:
    """R_q in [0, 1]: the odds of the two labels.

    A scorer that gives none is asked for the label; where it names neither the two weigh the same.
    The trace says so.
    """
    scorer = run.model(Role.SCORER)
    if Capability.LABELS in scorer.capabilities:
        try:
            odds = await run.labels(scope_messages(question), LABELS, forced=FORCED)
        except MissingCapability:
            # A server that gives odds of the first token alone: it must be the label's own.
            odds = await run.labels(scope_messages(question, bare=True), LABELS)
        return scope_of_odds(odds.odds)
    messages = scope_messages(question)
    reply = await run.chat(messages, role=Role.SCORER, max_tokens=LABEL_TOKENS)
    scope = scope_of_reply(reply.text)
    if scope is None:
        run.emit(Noted(f"{scorer.name} does not say how much the question asks for: R_q is 0.5"))
        return 0.5
    run.emit(Noted(f"{scorer.name} gives no label odds: R_q is {scope:g} by the label it names"))
    return scope


# LongRefiner's refiner: long documents in, the spans a question needs out, under a budget.

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

    name: ClassVar[str] = "refining"
    needs: ClassVar[Needs] = Needs(optional=frozenset({Capability.LABELS}))
    calls: ClassVar[Calls] = Calls(6)

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
        require_min(
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
            await run.with_adapter(role, adapter)  # a wrong one before the first call
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
        run = await run.with_adapter(Role.WORKER, self.structuring_adapter)
        structure = Structurer(
            Structuring(self.structuring),  # its name will do
            self.least_words,
            self.most_words,
            self.coverage,
            self.structuring_tokens,
        )
        made = await gather(structure.article(document, run, within) for document in documents)
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
        return await query_scope(question, await run.with_adapter(Role.SCORER, self.scope_adapter))

    async def _titles(
        self, question: str, articles: Sequence[Article], run: Run
    ) -> list[tuple[int, ...]]:
        """The nodes of each document that the model chose by title."""
        run = await run.with_adapter(Role.WORKER, self.selection_adapter)

        async def choose(article: Article) -> tuple[int, ...]:
            if self.no_global or not has_parts(article):
                return ()
            messages = selection_messages(question, article, most_tokens=self.outline_tokens)
            reply = await run.chat(messages, role=Role.WORKER, max_tokens=TITLES_TOKENS)
            return selected(reply.text, article)

        return await gather(choose(article) for article in articles)


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


@dataclass(frozen=True)
class LongRefiner(Refiner):
    """The best documents, refined to a token budget by their structure, then read.

    Documents are ranked by their best passage (MaxP); the first `documents` are refined as
    `Refiner` says.
    """

    name: ClassVar[str] = "longrefiner"

    documents: int = 8  # section 4.1
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, documents=1)

    async def refine(
        self,
        question: str,
        run: Run,
        *,
        documents: Sequence[str] | None = None,
        passages: Sequence[Passage] | None = None,
    ) -> Refined:
        """As `Refiner.refine`; without documents or passages, of the best documents in view."""
        if documents is None and passages is None:
            documents = await rank_documents(question, run, self.documents, self.mode)
        return await super().refine(question, run, documents=documents, passages=passages)

    async def answer(self, question: str, run: Run) -> Answer:
        """Find, refine, read."""
        refined = await self.refine(question, run)
        by_score = {evidence.span: place for place, evidence in enumerate(refined.evidence)}
        ranked = sorted(refined.passages, key=lambda passage: by_score[passage.span])
        # Where the window is too small the worst are left out; the rest stay in their order.
        fit = {passage.span for passage in await fit_reader(question, ranked, run, self.form)}
        passages = [passage for passage in refined.passages if passage.span in fit]
        evidence = [each for each in refined.evidence if each.span in fit]
        return await read(
            question, passages, run, strategy=self.name, evidence=evidence, form=self.form
        )
