"""DuQUAD: dual-view reading with quality-aware evidence pruning (Algorithm 1, symbols as there).

1. Fuse three signals of each document D_i into its Structural Fusion Score Phi_i (`signals.py`,
   equations 1 to 3); the m best are D_local.
2. Two agents read in parallel: D_1 ... D_N in their order, and D_local, best first. Each writes a
   log, H_G or H_L, and names up to three important documents; D_imp is their union (equation 4).
3. Score each document of D_imp by how likely it answers the question alone: p_i, with a
   provisional answer a_i. D_keep are those with p_i >= tau (equation 5).
4. S are the two sentences of each kept document that share most words with a_i.
5. A judge answers from S, p, H_G and H_L (equation 6); without a kept document, from what the
   logs quote. The reader shows S before p and the logs; Figure 7 has p first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import NOT_FOUND, Answer, Form, Place, Stated
from colligate.core.events import Answered, Event, pluralize
from colligate.core.fit import Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.prompts import Numbered, NumberedDocument
from colligate.core.relevance import score_relevance
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Document, Passage, Span
from colligate.documents.compress import compress
from colligate.documents.locating import locate
from colligate.documents.sentences import widen_to_sentences
from colligate.errors import BudgetExceeded, ModelError, UsageError
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message
from colligate.strategies.duquad.prompts import (
    TEMPLATES,
    DocScore,
    doc_score_messages,
    doc_score_schema,
    find_evidence_sentences,
    find_important,
    find_quotes,
    judge_instruction,
    parse_doc_scores,
    render_debate,
    view_messages,
)
from colligate.strategies.duquad.signals import Signal, fuse_signals

Agent = Literal["global", "local"]


@dataclass(frozen=True)
class DuQUAD:
    """Two agents read all documents and the best-scored ones; a judge answers from their findings.

    A signal that the models cannot give is left out and the others share its weight; a weight of 0
    leaves one out too (Figure 3).

    Attributes:
        local_documents: documents of the local view, those with the best scores
        important: documents that each agent names as important
        threshold: score from which a named document is shown to the judge
        sentences: sentences of such a document that the judge sees
        rank_by: what orders the local view: the fused score, or one score alone (Figure 4)
        alpha: weight of the similarity of meaning
        beta: weight of the likelihood of the question after the document
        gamma: weight of the model's attention, compared with that to the neighbours
        documents: documents (or passages, by `units`) that the agents read
        pool: passages that a search gives to the reranker, if there is one
        reply_tokens: most tokens of an agent's reply, and of the reply with the scores
        form: kind of answer that the judge gives
        prompts: file with prompts of your own for the steps global, local, score and judge
        no_local: leave out the agent that reads the best documents
        no_global: leave out the agent that reads all documents
        no_pruning: leave out scores and sentences: the judge sees the named documents whole
    """

    name: ClassVar[str] = "duquad"
    needs: ClassVar[Needs] = Needs(
        optional=frozenset({Capability.LIKELIHOOD, Capability.ATTENTION})
    )
    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense", "pool": "20"}

    local_documents: int = 6  # m; Figure 5
    important: int = 3  # Figure 6
    threshold: float = 0.4  # tau; Table 5
    sentences: int = 2  # section 3.3
    rank_by: Literal["fused", "embedder", "bm25"] = "fused"
    alpha: float = 0.5  # equation 3 and Table 6, as the next two
    beta: float = 1.0
    gamma: float = 0.5
    documents: int = 20  # N, as in the paper's files of Natural Questions
    units: Units = "auto"
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense, as its files were made
    pool: int = 50  # the paper: 20, all are read and none is reranked
    reply_tokens: int = 800  # not in the paper
    form: Form = Form.SHORT
    prompts: str | None = None

    no_local: bool = False  # Table 3
    no_global: bool = False
    no_pruning: bool = False  # Table 3
    templates: Mapping[str, PromptTemplate] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        apply_prompts(self, TEMPLATES)
        require_min(self, local_documents=1, important=1, threshold=0, sentences=1)
        require_min(self, documents=1, pool=1, reply_tokens=1, alpha=0, beta=0, gamma=0)
        if self.no_local and self.no_global:
            raise UsageError("no view is left", "no_local and no_global are both set")

    async def answer(self, question: str, run: Run) -> Answer:
        """Run Algorithm 1."""
        documents = await self._list_documents(question, run)  # D_1 ... D_N
        if not documents:
            return _refuse(question, run)
        with run.tokens.reserve_reading():
            ranked = await self._rank(question, documents, run)
            views = await self._read_views(question, ranked, run)  # H_G, D_G; H_L, D_L
            important = self._unite(ranked, views, run)  # D_imp
            scores = await self._score(question, important, run)  # p_i, a_i
            evidence = await self._extract(important, scores, views, run)  # S of D_keep, by p_i
            known = await _locate_quotes(documents, evidence, views, run)
        logs = [(view.agent, view.log) for view in views if view.log.strip()]
        if not evidence:
            if not logs:
                return _refuse(question, run)
            run.warn(
                f"no document reached the threshold of {self.threshold:g}: "
                "the judge decides from what the agents wrote"
            )
            evidence = _show_quoted(documents, known)
        return await self._judge(question, evidence, scores, logs, known, run)

    async def _list_documents(self, question: str, run: Run) -> list[NumberedDocument]:
        """Return D_1 ... D_N, numbered for all prompts of this run."""
        units, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        spans = tuple(passage.span for passage in passages)
        run.emit(Listed(units, spans, tuple(passage.full_title for passage in passages)))
        return [NumberedDocument(*each) for each in enumerate(passages, 1)]

    # 1. Local selection by the Structural Fusion Score

    async def _rank(self, question: str, documents: Numbered, run: Run) -> list[NumberedDocument]:
        """Return the documents by Phi_i, best first; of equal ones the earlier comes first."""
        passages = [passage for _, passage in documents]
        if len(documents) == 1:
            return list(documents)
        if self.rank_by != "fused":
            phi: Sequence[float] = await score_relevance(question, passages, run, self.rank_by)
        else:
            weights = dict(zip(Signal, (self.alpha, self.beta, self.gamma), strict=True))
            fused = await fuse_signals(question, passages, run, weights)
            phi = fused.scores
            if fused.missing and not fused.weights:
                run.warn("the documents keep their order: no model gives a signal to rank them by")
        order = sorted(range(len(documents)), key=lambda at: -phi[at])
        return [documents[at] for at in order]

    # 2. The dual view

    async def _read_views(self, question: str, ranked: Numbered, run: Run) -> list[Viewed]:
        """Let both agents read in parallel: all documents in their order, and the m best."""
        agents: list[tuple[Agent, Numbered]] = []
        room = Room(self.reply_tokens)
        if not self.no_global:
            prompt = partial(self._messages, question, "global")
            fit = await fit_window(ranked, prompt, run, room)
            agents.append(("global", sorted(fit, key=lambda numbered: numbered[0])))
        if not self.no_local:
            prompt = partial(self._messages, question, "local")
            local = ranked[: self.local_documents]
            agents.append(("local", await fit_window(local, prompt, run, room)))
        views = await gather(self._read_view(question, *each, run) for each in agents)
        return [view for view in views if view is not None]

    async def _read_view(
        self, question: str, agent: Agent, shown: Numbered, run: Run
    ) -> Viewed | None:
        """Ask one agent for its log and its important documents; None if it fails."""
        messages = self._messages(question, agent, shown)
        try:
            log = (await run.chat(messages, max_tokens=self.reply_tokens)).text
        except (BudgetExceeded, ModelError) as error:
            run.warn(f"the {agent} agent is left out: {error}")
            return None
        numbers = tuple(number for number, _ in shown)
        named = find_important(log, numbers, self.important)
        instead = numbers[: self.important] if agent == "local" else ()
        if named is None:
            best = ": its best by fused score are used" if instead else ""
            run.warn(f"the {agent} agent named no documents{best}")
        important = instead if named is None else named
        documents = tuple(passage.document_id for _, passage in shown)
        viewed = Viewed(agent, numbers, log, important, named is not None, documents)
        run.emit(viewed)
        return viewed

    def _messages(self, question: str, agent: Agent, shown: Numbered) -> list[Message]:
        return view_messages(question, shown, self.important, self.templates.get(agent))

    def _unite(self, ranked: Numbered, views: Sequence[Viewed], run: Run) -> list[NumberedDocument]:
        """Return D_imp = D_G + D_L (equation 4), the global agent's documents first."""
        numbers = dict.fromkeys(number for view in views for number in view.important)
        if not numbers:
            run.warn("no agent named a document: the best by fused score are used")
            return list(ranked[: self.important])
        passages = dict(ranked)
        return [NumberedDocument(number, passages[number]) for number in numbers]

    # 3. The gate

    async def _score(self, question: str, important: Numbered, run: Run) -> dict[int, DocScore]:
        """Return p_i and a_i by number, in one call, as Table 8 counts it.

        Documents that the reply leaves out are asked for once more; without a score a document has
        p = 0. If the call fails, or no reply has a score, no document is scored.
        """
        if self.no_pruning:
            return {}
        prompt = partial(doc_score_messages, question, template=self.templates.get("score"))
        wanted = await fit_window(important, prompt, run, Room(self.reply_tokens))
        found: dict[int, DocScore] = {}
        problem = "no reply has a score"
        for _ in range(2):
            wanted = [each for each in wanted if each[0] not in found]
            if not wanted:
                break
            numbers = [number for number, _ in wanted]
            schema, most = doc_score_schema(numbers), self.reply_tokens
            try:
                reply = await run.chat(prompt(wanted), max_tokens=most, schema=schema)
            except (BudgetExceeded, ModelError) as error:
                problem = str(error)
                break
            found |= parse_doc_scores(reply.text, numbers)
        if not found:
            run.warn(f"the documents are not scored: {problem}")
        elif missing := len(important) - len(found):
            run.warn(f"{missing} of {len(important)} documents got no score: it counts as 0")
        return found

    # 4. Evidence sentences

    async def _extract(
        self, important: Numbered, scores: Mapping[int, DocScore], views: Sequence[Viewed], run: Run
    ) -> list[Shown]:
        """Return D_keep (equation 5), best p first, each cut to the sentences nearest its a_i.

        If no document has a score all are kept, and whole.
        """
        kept: list[Shown] = []
        rows = []
        for number, passage in important:
            score = scores.get(number, DocScore())
            name = passage.document_id
            keep = not scores or score.p >= self.threshold
            sentences = [passage.span] if keep else []
            if scores and keep:
                document = await run.document(name)
                sentences = await asyncio.to_thread(
                    find_evidence_sentences, document, passage.span, score.answer, self.sentences
                )
            if keep:
                reason = _explain(number, scores, views)
                kept.append(Shown(_cut(passage, sentences), score.p, reason, number))
            shown = tuple(sentences)
            rows.append(DocumentScore(number, score.p, score.answer, keep, shown, name))
        if scores:
            missing = tuple(number for number, _ in important if number not in scores)
            run.emit(Gated(self.threshold, tuple(rows), missing))
        best = sorted(kept, key=lambda each: -each.score)
        return [each for each in best if each.passage.text.strip()]

    # 5. The final decision

    async def _judge(
        self,
        question: str,
        evidence: Sequence[Shown],
        scores: Mapping[int, DocScore],
        logs: Sequence[tuple[str, str]],
        known: Sequence[Stated],
        run: Run,
    ) -> Answer:
        """Answer from S, p, H_G and H_L (equation 6)."""
        p = {each.number: scores[each.number].p for each in evidence if each.number in scores}
        kept = {number: each for number, each in p.items() if each >= self.threshold}
        task = judge_instruction(bool(kept), self.templates.get("judge"))
        notes = render_debate(kept, logs)
        return await run.read(
            question, evidence, form=self.form, known=known, instruction=task, notes=notes
        )


def _refuse(question: str, run: Run) -> Answer:
    run.emit(Answered(False, "", ()))
    return Answer(question, "", NOT_FOUND, False)


def _explain(number: int, scores: Mapping[int, DocScore], views: Sequence[Viewed]) -> str:
    agents = [view.agent for view in views if number in view.important]
    by = f"named by the {' and the '.join(agents)} agent" if agents else "best by fused score"
    score = f", DocScore {scores[number].p:.2f}" if number in scores else ""
    return f"document {number}, {by}{score}"


def _cut(passage: Passage, spans: Sequence[Span]) -> Passage:
    """Return a passage of which only these spans are shown."""
    if list(spans) == [passage.span]:
        return passage
    start = passage.span.start
    return compress(passage, [(each.start - start, each.end - start) for each in spans])


async def _locate_quotes(
    documents: Numbered, evidence: Sequence[Shown], views: Sequence[Viewed], run: Run
) -> list[Stated]:
    """Return the sentences that the agents quote of the documents kept, or of any if none is."""
    texts = await run.documents_of([passage for _, passage in documents])
    kept = [each.passage.span for each in evidence]

    def locate_all() -> list[Stated]:
        quotes = [quote for view in views for quote in find_quotes(view.log)]
        places = dict.fromkeys(_locate(*quote, documents, texts) for quote in quotes)
        return [
            Stated(" ".join(texts[place.span.document_id].slice(place.span).split()), (place,))
            for place in places
            if place and (not kept or any(span.contains(place.span) for span in kept))
        ]

    return await asyncio.to_thread(locate_all)


def _locate(
    number: int, quote: str, documents: Numbered, texts: Mapping[str, Document]
) -> Place | None:
    """Return the sentences around a quote: in its document, or word for word in another."""
    for at, passage in sorted(documents, key=lambda each: each[0] != number):
        document = texts[passage.document_id]
        found = locate(quote, document, within=passage.span, verbatim=at != number)
        if found is not None:
            span = widen_to_sentences(document, found.span, passage.span)
            return Place(span, found.how.value)
    return None


def _show_quoted(documents: Numbered, stated: Sequence[Stated]) -> list[Shown]:
    """Return the sentences that the logs quote: a reader can cite what it is shown alone."""
    spans = [place.span for each in stated for place in each.places]
    shown = []
    for number, passage in documents:
        if own := [each for each in spans if passage.span.contains(each)]:
            reason = f"document {number}, quoted by an agent"
            shown.append(Shown(_cut(passage, own), 0.0, reason, number))
    return shown


# Events: what a run reports. The signals behind the local view are `signals.Weighted`.


@dataclass(frozen=True)
class Listed(Event):
    """The documents of the question, numbered from 1 in this order for the whole run.

    `units` is "documents" if they are whole, "passages" if a search found them.
    """

    units: Literal["documents", "passages"]
    spans: tuple[Span, ...]
    titles: tuple[str, ...]

    def line(self) -> str:
        return f"comparing {pluralize(len(self.spans), self.units.removesuffix('s'))}"


@dataclass(frozen=True)
class Viewed(Event):
    """An agent read documents and named the important ones.

    `shown` are their numbers in the order it saw them and `documents` their ids; `log` is its
    reply. `named` is False if it named none: `important` is then the replacement.
    """

    agent: Agent
    shown: tuple[int, ...]
    log: str
    important: tuple[int, ...]
    named: bool
    documents: tuple[str, ...] = ()

    def line(self) -> str:
        named = ", ".join(f"#{number}" for number in self.important) or "none"
        return (
            f"the {self.agent} agent read {pluralize(len(self.shown), 'document')}, named {named}"
        )

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        ids = dict(zip(self.shown, self.documents, strict=False))
        named = [ids[number] for number in self.important if number in ids]
        return {self.agent: self.documents, "named": named}


@dataclass(frozen=True)
class DocumentScore:
    """A candidate's DocScore, the answer it would give, and the sentences shown if it was kept."""

    number: int
    p: float
    answer: str
    kept: bool
    sentences: tuple[Span, ...] = ()
    document: str = ""


@dataclass(frozen=True)
class Gated(Event):
    """The candidates were scored and compared with the threshold; `missing` got no score."""

    threshold: float
    scores: tuple[DocumentScore, ...]
    missing: tuple[int, ...] = ()

    def line(self) -> str:
        kept = sum(score.kept for score in self.scores)
        total = pluralize(len(self.scores), "candidate")
        return f"{kept} of {total} scored {self.threshold:g} or more"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"kept": [score.document for score in self.scores if score.kept]}

    @property
    def ratings(self) -> Mapping[str, Mapping[str, float]]:
        return {"docscore": {score.document: score.p for score in self.scores}}
