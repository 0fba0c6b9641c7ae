"""DuQUAD: dual-view reading with quality-aware evidence pruning.

The method in the order of the paper (symbols as there):

1. Fuse three signals of each document D_i into its Structural Fusion Score SFS_i (`signals.py`,
   equations 1 to 3); the m best are the local view.
2. Two agents read: the global one all N documents in their order, the local one the m best, best
   first. Each names up to three important documents; D_imp is their union (equation 4).
3. Score each document of D_imp by how well it answers the question alone: p_i, with a provisional
   answer. Keep those with p_i >= tau (equation 5).
4. Of each kept document take the sentences that share most words with its provisional answer.
5. A judge answers from scores, sentences and both agents' logs (equation 6).

Ours: the fusion, the DocScore by label odds, the exit where both agents agree, how a small reader
reads (`_answer_apart`), and what happens if a step fails (`answer`). The suites of the paper's
tables turn off the first four.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.apart import WayOfReading, judge, read_ranked, reads_apart
from colligate.core.citing import Cited, Evidence, Stated, find_short_answer, write_answer
from colligate.core.events import Answered, Noted
from colligate.core.fit import fit_window
from colligate.core.lookup import reserve_for_answer
from colligate.core.parameters import require_min
from colligate.core.prompts import NumberedDocument
from colligate.core.reader import FORMS, Form, fit_reader, is_small, locate_statements, read
from colligate.core.relevance import score_relevance, score_similarity
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Hit, Passage, Span
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    MalformedOutput,
    MissingCapability,
    ModelError,
    UsageError,
)
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.strategies.duquad.events import Agent, DocumentScore, Gated, Listed, Viewed
from colligate.strategies.duquad.prompts import (
    AgentView,
    DocScore,
    Exhibit,
    debate_messages,
    distinct_words,
    doc_score_messages,
    doc_score_schema,
    find_evidence_sentences,
    parse_doc_scores,
    parse_quoting_view,
    parse_view,
    quoting_view_messages,
    view_messages,
    view_schema,
)
from colligate.strategies.duquad.signals import WEIGHTS, AgentPrompt, Fusion, Signal, fuse_signals


@dataclass(frozen=True)
class DuQUAD:
    """Two agents read all documents and the best-scored ones; a judge answers from their findings.

    A signal that the models cannot give is left out and the others share its weight.

    Attributes:
        local_documents: documents of the local view, those with the best scores
        important: documents that each agent names as important
        threshold: score from which a named document is shown to the judge
        sentences: sentences of such a document that the judge sees
        rank_by: what orders the local view: the fused score, or one score alone (Figure 4)
        fusion: how scores are fused; none: reranked if there is a reranker and the reader scores,
            else calibrated
        alpha: weight of the similarity of meaning; none: the fusion's own
        beta: weight of the likelihood of the question after the document; none: the fusion's own
        gamma: weight of the model's attention; none: the fusion's own
        delta: weight of the reranker; none: the fusion's own
        documents: documents (or passages, by `units`) that the agents read
        pool: passages that a search gives to the reranker, if there is one
        on_nothing: what the judge sees if no score reaches the threshold: the best document, unless
            its score is 0, or the agents' replies alone (log)
        view_tokens: most tokens of an agent's reply
        score_tokens: most tokens of the reply with the scores
        reply: the agents reply in free text that ends in JSON, as in the paper (free), or in quotes
            (quoted); auto: quotes if the model is small
        scores: scores are the odds of Yes for each document (odds), or written by the model
            (reply); auto: odds if the reader gives them exactly
        early_exit: ask nothing more if both agents name the same document first and give the same
            short answer
        reading: together: both agents read and a judge decides; apart: each document of the local
            view is scored alone and the surest is read; auto: apart by a small reader that gives
            odds
        no_local: leave out the agent that reads the best documents
        no_global: leave out the agent that reads all documents
        no_pruning: leave out scores and sentences: the judge sees the named documents whole
        no_similarity: leave out the similarity of meaning
        no_likelihood: leave out the likelihood of the question
        no_attention: leave out the model's attention
    """

    name: ClassVar[str] = "duquad"
    needs: ClassVar[Needs] = Needs(
        optional=frozenset({Capability.LIKELIHOOD, Capability.ATTENTION}), reranker="minilm"
    )
    calls: ClassVar[Calls] = Calls(4.1)  # Table 8

    local_documents: int = 6  # m; Figure 5
    important: int = 3  # Figure 6
    threshold: float = 0.4  # tau; Table 5
    sentences: int = 2  # section 3.3
    rank_by: Literal["fused", "embedder", "bm25", "reranker"] = "fused"
    fusion: Fusion | None = None  # the paper: sfs
    alpha: float | None = None  # equation 3 and Table 6: 0.5
    beta: float | None = None  # 1
    gamma: float | None = None  # 0.5
    delta: float | None = None  # not in the paper
    documents: int = 20  # N, as in the paper's files of Natural Questions
    units: Units = "auto"
    mode: SearchMode = SearchMode.HYBRID
    pool: int = 50  # the paper has no reranker
    on_nothing: Literal["best", "log"] = "best"
    view_tokens: int = 800  # not in the paper, like the next; more than the largest valid reply
    score_tokens: int = 800
    form: Form = Form.JOINED
    reply: Literal["auto", "free", "quoted"] = "auto"  # the paper: free
    scores: Literal["auto", "odds", "reply"] = "auto"  # the paper: reply
    early_exit: bool = True  # ours
    reading: WayOfReading = "auto"  # the paper: together

    no_local: bool = False
    no_global: bool = False
    no_pruning: bool = False
    no_similarity: bool = False
    no_likelihood: bool = False
    no_attention: bool = False

    def __post_init__(self) -> None:
        require_min(self, local_documents=1, important=1, threshold=0, sentences=1)
        require_min(self, documents=1, pool=1, view_tokens=1, score_tokens=1)
        require_min(self, alpha=0, beta=0, gamma=0, delta=0)
        if self.no_local and self.no_global:
            raise UsageError("no view is left", "no_local and no_global are both set")

    async def answer(
        self, question: str, run: Run, passages: Sequence[Passage] | None = None
    ) -> Answer:
        """Fuse the signals, read both views, score what they name, judge.

        `passages` are read in place of what a search finds. A signal, view or scores that fail are
        left out; the judge falls back to what the agents quoted, and a refusal to reading the best
        documents once more.
        """
        documents = await self._list_documents(question, run, passages)
        if not documents:
            return await read(question, [], run, strategy=self.name, evidence=[])
        ranked: Sequence[NumberedDocument] = documents
        scores: Mapping[int, float] = {}
        views: Sequence[Viewed] = []
        exhibits: Sequence[Exhibit] = []
        apart = reads_apart(run, self.reading, self.form) and not (self.no_local or self.no_pruning)
        with reserve_for_answer(run, lambda: documents):
            shown, overflow = documents, list[NumberedDocument]()
            if not (apart or self.no_global):
                shown, overflow = await self._fit_global(question, documents, run)
            scores = await self._score_all(question, shown, run)
            ranked = [*sort_by(list(scores.values()), shown), *overflow]
            if not apart:
                views = await self._read_views(question, documents, shown, ranked, run)
                if self.early_exit and find_agreement(documents, views):
                    agreed = await self._answer_agreed(question, views, run)
                    if agreed is not None:
                        return agreed
                candidates = self._unite(documents, ranked, views, run)
                exhibits = await self._gate(question, candidates, views, run)
        if apart:  # the answer itself: what was reserved is for it
            return await self._answer_apart(question, ranked, scores, run)
        known, short = choose_known(views, exhibits)
        answer = await self._judge(question, documents, exhibits, views, known, run)
        if not answer.found:
            run.emit(Noted("no answer was found so far: reading the best documents once more"))
            best = ranked[: self.local_documents]
            answer = await self._read_best(question, best, scores, known, run)
        if answer.found and not answer.short and short:
            cited = await _write(question, known, short, run)
            if cited.text == answer.text:  # what the agent states, and so its short answer too
                answer = replace(answer, short=cited.short or None)
        return answer

    async def _list_documents(
        self, question: str, run: Run, passages: Sequence[Passage] | None
    ) -> list[NumberedDocument]:
        """Return D_1 ... D_N, numbered for all prompts of this run."""
        units: Literal["documents", "passages"] = "passages"
        if passages is None:
            units, passages = await choose_units(
                question, run, self.units, self.documents, pool=self.pool, mode=self.mode
            )
        spans = tuple(passage.span for passage in passages)
        run.emit(Listed(units, spans, tuple(passage.full_title for passage in passages)))
        return list(enumerate(passages, 1))

    async def _fit_global(
        self, question: str, documents: list[NumberedDocument], run: Run
    ) -> tuple[list[NumberedDocument], list[NumberedDocument]]:
        """Return the documents that fit the global prompt, and the least similar others, ranked."""
        prompt = partial(self._messages, question, run)
        room = await run.room(Role.READER, prompt(documents), self.view_tokens)
        if room is None or room >= 0:
            return documents, []
        ranked = await _sort_by_similarity(question, documents, run)
        kept = await _fit_documents(ranked, prompt, self.view_tokens, run)
        return sorted(kept, key=lambda numbered: numbered[0]), ranked[len(kept) :]

    # 1. The Structural Fusion Score

    async def _score_all(
        self, question: str, documents: Sequence[NumberedDocument], run: Run
    ) -> dict[int, float]:
        """Return SFS_i by number; SFS takes attention on the global agent's own prompt."""
        numbers = [number for number, _ in documents]
        passages = [passage for _, passage in documents]
        if len(documents) == 1:
            return dict.fromkeys(numbers, 0.0)
        if self.rank_by != "fused":
            scores = await score_relevance(question, passages, run, self.rank_by)
            return dict(zip(numbers, scores, strict=True))
        given = {
            Signal.SIMILARITY: (self.alpha, self.no_similarity),
            Signal.LIKELIHOOD: (self.beta, self.no_likelihood),
            Signal.ATTENTION: (self.gamma, self.no_attention),
            Signal.RERANKER: (self.delta, False),
        }
        weights = {signal: weight for signal, (weight, _) in given.items() if weight is not None}
        # A scorer that was named is there to give its signals.
        own = run.model(Role.SCORER) is not run.model(Role.READER)
        reranked = not own and await run.suits_reranker(passages)
        fusion = Fusion(self.fusion or (Fusion.RERANKED if reranked else Fusion.CALIBRATED))
        fused = await fuse_signals(
            question,
            passages,
            run,
            fusion=fusion,
            weights={**WEIGHTS[fusion], **weights},
            without=[signal for signal, (_, left_out) in given.items() if left_out],
            agent_prompt=self._prompt(question, run, documents),
        )
        if fused.missing and not fused.weights and len(documents) > self.local_documents:
            run.warn("the documents keep their order: no model gives a signal to rank them by")
        return dict(zip(numbers, fused.scores, strict=True))

    # 2. The dual view

    async def _read_views(
        self,
        question: str,
        documents: Sequence[NumberedDocument],
        shown: Sequence[NumberedDocument],
        ranked: Sequence[NumberedDocument],
        run: Run,
    ) -> list[Viewed]:
        """Let both agents read: all documents in their order, and the m best, best first.

        If these are the same documents, the local agent reads alone.

        Raises:
            BudgetExceeded, ModelError: no agent could read.
        """
        agents: list[tuple[Agent, Sequence[NumberedDocument]]] = []
        same = len(ranked) <= self.local_documents and not self.no_local
        if same and not self.no_global:
            run.emit(Noted("one agent reads: both views would show the same documents"))
        elif not self.no_global:
            agents.append(("global", shown))
        if not self.no_local:
            prompt = partial(self._messages, question, run)
            best = ranked[: self.local_documents]
            agents.append(("local", await _fit_documents(best, prompt, self.view_tokens, run)))
        read = await gather(
            self._read_view(agent, question, documents, seen, run) for agent, seen in agents
        )
        views = [view for view in read if isinstance(view, Viewed)]
        for (agent, _), failed in zip(agents, read, strict=True):
            if isinstance(failed, ColligateError):
                if not views:
                    raise failed
                run.warn(f"the {agent} agent is left out: {failed}")
        return views

    async def _answer_apart(
        self,
        question: str,
        ranked: Sequence[NumberedDocument],
        scores: Mapping[int, float],
        run: Run,
    ) -> Answer:
        """Answer from the m best documents, each scored and read alone.

        The scores take the place of the judge; the local agent names the documents that its answer
        cites. A global view of the other documents gave wrong answers (docs/benchmarks.md).
        """
        best = ranked[: self.local_documents]
        answer = await self._read_best(question, best, scores, (), run)
        cited = {citation.span.document_id for citation in answer.citations}
        named = tuple(number for number, passage in best if passage.document_id in cited)
        numbers = tuple(number for number, _ in best)
        ids = tuple(passage.document_id for _, passage in best)
        log, short = (answer.text, answer.short or "") if answer.found else ("", "")
        run.emit(Viewed("local", numbers, log, named, bool(named), ids, short=short))
        return answer

    async def _read_view(
        self,
        agent: Agent,
        question: str,
        documents: Sequence[NumberedDocument],
        shown: Sequence[NumberedDocument],
        run: Run,
    ) -> Viewed | ColligateError:
        """Ask one agent for its log and its important documents; return the error if it fails."""
        quotes = self._quotes(run)
        schema = view_schema(self.important) if quotes else None
        messages = self._messages(question, run, shown)
        try:
            reply = await run.chat(messages, max_tokens=self.view_tokens, schema=schema)
        except (BudgetExceeded, ModelError) as error:
            return error
        numbers = tuple(number for number, _ in shown)
        view = (parse_quoting_view if quotes else parse_view)(reply.text, shown, self.important)
        instead = numbers[: self.important] if agent == "local" else ()
        viewed = Viewed(
            agent,
            numbers,
            view.log,
            instead if view.named is None else view.named,
            view.named is not None,
            tuple(passage.document_id for _, passage in shown),
            tuple((each.passage, each.quote) for each in view.quotes),
            tuple(await _locate_claims(question, view, documents, run)),
            view.short,
        )
        run.emit(viewed)
        if not viewed.named:
            best = ": its best by fused score are used" if instead else ""
            run.warn(f"the {agent} agent named no documents{best}")
        return viewed

    def _quotes(self, run: Run) -> bool:
        """Return whether the agents reply with quotes."""
        reader = run.model(Role.READER)
        if self.reply == "auto":
            return Capability.STRUCTURED in reader.capabilities and is_small(reader)
        return self.reply == "quoted"

    def _prompt(self, question: str, run: Run, numbered: Sequence[NumberedDocument]) -> AgentPrompt:
        if self._quotes(run):
            return quoting_view_messages(question, numbered)
        return view_messages(question, numbered, self.important)

    def _messages(
        self, question: str, run: Run, numbered: Sequence[NumberedDocument]
    ) -> list[Message]:
        return self._prompt(question, run, numbered)[0]

    def _unite(
        self,
        documents: Sequence[NumberedDocument],
        ranked: Sequence[NumberedDocument],
        views: Sequence[Viewed],
        run: Run,
    ) -> list[NumberedDocument]:
        """Return D_imp = D_G + D_L (equation 4), the global agent's documents first."""
        numbers = list(dict.fromkeys(number for view in views for number in view.important))
        if not numbers:
            run.warn("no agent named a document: the best by fused score are used")
            return list(ranked[: self.important])
        return [documents[number - 1] for number in numbers]

    # 3. and 4. The gate, and the evidence sentences

    async def _gate(
        self,
        question: str,
        candidates: Sequence[NumberedDocument],
        views: Sequence[Viewed],
        run: Run,
    ) -> list[Exhibit]:
        """Keep the documents with p_i >= tau (equation 5), cut to their evidence sentences.

        A provisional answer that the score does not come with is what the agents quoted of the
        document; a document without either is not cut. If the scores fail all are kept.
        """
        if self.no_pruning:
            return [Exhibit(n, passage, None, (passage.span,)) for n, passage in candidates]
        scores, missing = await self._score(question, candidates, run)
        kept = [number for number, score in scores.items() if score.p >= self.threshold]
        if scores and not kept:
            first = max(scores, key=lambda number: scores[number].p)
            kept = [first] if self.on_nothing == "best" and scores[first].p > 0 else []
            instead = "the best is kept" if kept else "the judge has the agents' debate alone"
            run.warn(f"no document reached the threshold of {self.threshold:g}: {instead}")
        exhibits, rows = [], []
        for number, passage in candidates:
            score = scores.get(number)
            quoted = " ".join(q for view in views for n, q in view.quotes if n == number)
            answer = (score.answer if score else "") or quoted
            shown: tuple[Span, ...] = ()
            if score is None or number in kept:
                document = await run.document(passage.document_id)
                shown = (passage.span,)
                if answer or (score is not None and self.scores == "reply"):
                    best = await asyncio.to_thread(
                        find_evidence_sentences, document, passage.span, answer, self.sentences
                    )
                    shown = tuple(best)
                exhibits.append(Exhibit(number, passage, score.p if score else None, shown))
            if score is not None:
                rows.append(
                    DocumentScore(
                        number, score.p, answer, number in kept, shown, passage.document_id
                    )
                )
        if rows:
            run.emit(Gated(self.threshold, tuple(rows), missing))
        return exhibits

    async def _score(
        self, question: str, candidates: Sequence[NumberedDocument], run: Run
    ) -> tuple[dict[int, DocScore], tuple[int, ...]]:
        """Return p_i and provisional answer by number, but of documents that a failing call left
        out, and who got none."""
        try:
            if self.scores != "reply":
                odds = await self._ask_odds(question, candidates, run)
                if odds is not None:
                    return odds, ()
            return await self._ask_scores(question, candidates, run)
        except (BudgetExceeded, ModelError) as error:
            run.warn(f"the documents are not scored: {error}")
            return {}, ()

    async def _ask_odds(
        self, question: str, candidates: Sequence[NumberedDocument], run: Run
    ) -> dict[int, DocScore] | None:
        """Return the odds that each document answers; None if the reader has no exact ones.

        A document whose odds cannot be read is left out; after another failure so are the rest.
        """
        scores: dict[int, DocScore] = {}
        failed: ColligateError | None = None
        for each in candidates:
            try:
                found = await judge(question, each[1], run)
            except (BudgetExceeded, ModelError) as error:
                if not scores:
                    absent = isinstance(error, (MissingCapability, MalformedOutput))
                    if self.scores == "auto" and absent:
                        return None
                    raise
                failed = error
                if isinstance(error, MalformedOutput):
                    continue
                break
            if found.bounded and self.scores == "auto":
                return None
            scores[each[0]] = DocScore(found.odds["Yes"], "")
        if failed is not None:
            run.warn(f"{len(candidates) - len(scores)} documents are not scored: {failed}")
        return scores

    async def _ask_scores(
        self, question: str, candidates: Sequence[NumberedDocument], run: Run
    ) -> tuple[dict[int, DocScore], tuple[int, ...]]:
        """Let the reader write the scores, and return who got none.

        All documents are scored in one call, as Table 8 counts it; those that the reply leaves out
        are asked for once more. Without a score a document has p = 0 and no answer. A reply without
        any score says nothing of the documents: none is scored.
        """
        prompt = partial(doc_score_messages, question)
        wanted = await _fit_documents(candidates, prompt, self.score_tokens, run)
        found: dict[int, DocScore] = {}
        for _ in range(2):
            wanted = [each for each in wanted if each[0] not in found]
            if not wanted:
                break
            numbers = [number for number, _ in wanted]
            schema = doc_score_schema(numbers)
            try:
                reply = await run.chat(prompt(wanted), max_tokens=self.score_tokens, schema=schema)
            except (BudgetExceeded, ModelError):
                if not found:
                    raise
                break
            found |= parse_doc_scores(reply.text, numbers)
            if not found:
                run.warn("the documents are not scored: the reply has no scores")
                return {}, ()
        missing = tuple(number for number, _ in candidates if number not in found)
        if missing:
            run.warn(f"{len(missing)} of {len(candidates)} documents got no score: it counts as 0")
        return {n: found.get(n, DocScore(0.0, "")) for n, _ in candidates}, missing

    # 5. The judge

    async def _judge(
        self,
        question: str,
        documents: Sequence[NumberedDocument],
        exhibits: Sequence[Exhibit],
        views: Sequence[Viewed],
        known: Sequence[Stated],
        run: Run,
    ) -> Answer:
        """Answer from p, S, H_G and H_L (equation 6); all that was read may be quoted."""
        logs = [(view.agent, view.log) for view in views if view.log.strip()]
        best = sorted(exhibits, key=lambda each: -(each.p or 0.0))

        def prompt(passages: Sequence[Passage]) -> list[Message]:
            return debate_messages(question, best[: len(passages)], logs, self.form)

        passages = [each.passage for each in best]
        wanted = FORMS[self.form]
        room = await run.room(Role.READER, prompt(passages), wanted.tokens, schema=wanted.reply)
        if logs and passages and room is not None and room < 0:
            logs = []
            run.warn("the agents' debate does not fit the judge's window and is left out")
        fit = await fit_reader(question, passages, run, self.form, messages=prompt)
        best = best[: len(fit)]
        evidence = [
            Evidence(span, each.p or 0.0, _explain(each, views))
            for each in best
            for span in each.shown
        ]
        shown = [passage for _, passage in documents] if best or logs else []
        return await read(
            question,
            shown,
            run,
            strategy=self.name,
            evidence=evidence,
            form=self.form,
            messages=lambda _: prompt(fit),
            known=known,
        )

    async def _read_best(
        self,
        question: str,
        ranked: Sequence[NumberedDocument],
        scores: Mapping[int, float],
        known: Sequence[Stated],
        run: Run,
    ) -> Answer:
        """Answer from the best documents by score, whole and without scores or debate."""
        least = min(scores.values(), default=0.0)  # of documents that fit no prompt
        best = [Hit(passage, scores.get(number, least)) for number, passage in ranked]
        return await read_ranked(
            question,
            best,
            run,
            strategy=self.name,
            why="by score",
            form=self.form,
            reading=self.reading,
            known=known,
        )

    async def _answer_agreed(
        self, question: str, views: Sequence[Viewed], run: Run
    ) -> Answer | None:
        """Answer what both agents say, without scores and judge; None if nothing cited says it."""
        first = views[0]
        number = first.important[0]
        cited = await _write(question, first.stated, first.short, run)
        if not cited.short:
            return None
        run.emit(Noted(f"both agents answer “{cited.short}” from document {number}"))
        run.emit(Answered(True, cited.text, tuple(each.span for each in cited.citations)))
        reason = f"document {number}, named first by both agents"
        return Answer(
            question,
            self.name,
            cited.text,
            True,
            short=cited.short,
            citations=cited.citations,
            evidence=tuple(Evidence(each.span, 0.0, reason) for each in cited.citations),
        )


def find_agreement(documents: Sequence[NumberedDocument], views: Sequence[Viewed]) -> bool:
    """Return whether two agents quote the same document first and give the same short answer.

    The quotes of both must support what they say.
    """
    if len(views) < 2 or not all(view.named and view.important for view in views):
        return False
    passages = dict(documents)
    firsts = {view.important[0] for view in views}
    shorts = {frozenset(distinct_words(view.short)) for view in views}
    return (
        len(firsts) == len(shorts) == 1
        and frozenset() not in shorts
        and all(
            any(
                passages[view.important[0]].span.contains(place.span)
                for each in view.stated
                for place in each.places
            )
            for view in views
        )
    )


def choose_known(
    views: Sequence[Viewed], exhibits: Sequence[Exhibit]
) -> tuple[tuple[Stated, ...], str]:
    """Return what an agent states with places in the documents, and its short answer.

    The agent is the one that names the document with the best score; of equal ones the local.
    """

    def rate(view: Viewed) -> float:
        return max((each.p or 0.0 for each in exhibits if each.number in view.important), default=0)

    answering = [view for view in reversed(views) if view.stated]
    if not answering:
        return (), ""
    best = max(answering, key=rate)
    return best.stated, best.short


async def _write(question: str, stated: Sequence[Stated], short: str, run: Run) -> Cited:
    """Return statements as one text, and the short answer if they say it."""
    names = {place.span.document_id for each in stated for place in each.places}
    documents = {name: await run.document(name) for name in names}
    return write_answer(stated, documents, (), short=short, question=question)


async def _locate_claims(
    question: str, view: AgentView, documents: Sequence[NumberedDocument], run: Run
) -> list[Stated]:
    """Return what an agent says that its quotes support, else the sentence of a quoted document
    that holds its short answer and enough of the question's words."""
    passages = [passage for _, passage in documents]
    if stated := await locate_statements(question, view.claims, passages, run):
        return stated
    quoted = [passages[number - 1] for number in dict.fromkeys(q.passage for q in view.quotes)]
    sources = await run.documents_of(quoted)
    found, problem = await asyncio.to_thread(
        find_short_answer, view.short, question, quoted, sources
    )
    if problem:
        run.warn(problem)
    return [found] if found else []


def sort_by(
    scores: Sequence[float], documents: Sequence[NumberedDocument]
) -> list[NumberedDocument]:
    """Return documents best first; of equal ones the earlier comes first."""
    order = sorted(range(len(documents)), key=lambda at: -scores[at])
    return [documents[at] for at in order]


def _explain(each: Exhibit, views: Sequence[Viewed]) -> str:
    agents = [view.agent for view in views if each.number in view.important]
    by = f"named by the {' and the '.join(agents)} agent" if agents else "best by fused score"
    score = "" if each.p is None else f", DocScore {each.p:.2f}"
    return f"document {each.number}, {by}{score}"


async def _sort_by_similarity(
    question: str, numbered: Sequence[NumberedDocument], run: Run
) -> list[NumberedDocument]:
    """Sort documents by similarity to the question; keep their order without an embedder."""
    if run.embedder is None:
        return list(numbered)
    alike = await score_similarity(question, [passage for _, passage in numbered], run)
    return sort_by(alike, numbered)


async def _fit_documents(
    ranked: Sequence[NumberedDocument],
    prompt: Callable[[Sequence[NumberedDocument]], list[Message]],
    max_tokens: int,
    run: Run,
) -> list[NumberedDocument]:
    """Return the first documents whose prompt fits the reader's window."""
    return await fit_window(
        ranked, prompt, run, max_tokens=max_tokens, span=lambda numbered: numbered[1].span
    )
