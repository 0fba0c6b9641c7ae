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
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.fit import fit_window
from colligate.core.parameters import require_min
from colligate.core.prompts import NumberedDocument
from colligate.core.reader import FORMS, Form, fit_reader, read
from colligate.core.relevance import score_similarity
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Document, Passage, Span
from colligate.documents.sentences import sentence_spans
from colligate.documents.tokens import CJK
from colligate.errors import UsageError
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.strategies.duquad.events import Agent, DocumentScore, Gated, Listed, Viewed
from colligate.strategies.duquad.prompts import (
    VIEW_SCHEMA,
    DocScore,
    Exhibit,
    debate_messages,
    doc_score_messages,
    doc_score_schema,
    find_important,
    parse_doc_scores,
    parse_quoting_view,
    quoting_view_messages,
    view_messages,
)
from colligate.strategies.duquad.signals import WEIGHTS, AgentPrompt, Fusion, Signal, fuse_signals


@dataclass(frozen=True)
class DuQUAD:
    """Two agents read all documents and the best-scored ones; a judge answers from their findings.

    `units`: with `documents` whole documents are read, the best `documents` of those in view; with
    `passages` the best of a search; `auto` reads whole documents if they are few and short.
    `reply` is the form of the agents' replies: the paper's free text that ends in JSON (`free`), or
    quotes and an answer as JSON (`quoted`), with which small models name documents that they do not
    name otherwise; `auto` uses quotes if the reader can follow a schema. `on_nothing`: what the
    judge sees if no score reaches the threshold, the `best` document (if its score is not 0) or the
    debate alone (`log`). A signal that the models cannot give is left out and the others share its
    weight; `alpha`, `beta` and `gamma` are the fusion's own weights unless set. Each `no_...` field
    leaves one part out.
    """

    name: ClassVar[str] = "duquad"
    needs: ClassVar[Needs] = Needs(
        optional=frozenset({Capability.LIKELIHOOD, Capability.ATTENTION})
    )
    calls: ClassVar[Calls] = Calls(4.1)  # Table 8

    local_documents: int = 6  # m; Figure 5
    important: int = 3  # documents that an agent names; Figure 6
    threshold: float = 0.4  # tau; Table 5
    sentences: int = 2  # of a kept document; section 3.3
    fusion: Fusion = Fusion.SFS
    alpha: float | None = None  # similarity; equation 3 and Table 6: 0.5
    beta: float | None = None  # likelihood; 1
    gamma: float | None = None  # attention; 0.5
    documents: int = 20  # N, as in the paper's files of Natural Questions
    units: Units = "auto"
    mode: SearchMode = SearchMode.HYBRID
    pool: int = 50  # searched for a reranker, which the paper does not have
    on_nothing: Literal["best", "log"] = "best"
    view_tokens: int = 512  # not in the paper, like the next
    score_tokens: int = 384
    form: Form = Form.SHORT
    reply: Literal["auto", "free", "quoted"] = "auto"  # the paper: free

    no_local: bool = False
    no_global: bool = False
    no_pruning: bool = False  # no scores and no sentences: the judge sees the candidates whole
    no_similarity: bool = False
    no_likelihood: bool = False
    no_attention: bool = False

    def __post_init__(self) -> None:
        require_min(self, local_documents=1, important=1, threshold=0, sentences=1)
        require_min(self, documents=1, pool=1, view_tokens=1, score_tokens=1)
        require_min(self, alpha=0, beta=0, gamma=0)
        if self.no_local and self.no_global:
            raise UsageError("no view is left", "no_local and no_global are both set")

    async def answer(self, question: str, run: Run) -> Answer:
        """Fuse the signals, read both views, score what they name, judge."""
        documents = await self._list_documents(question, run)
        if not documents:
            return await read(question, [], run, strategy=self.name, evidence=[])
        shown, overflow = await self._fit_global(question, documents, run)
        ranked = await self._rank(question, shown, run) + overflow
        views = await self._read_views(question, shown, ranked, run)
        candidates = self._unite(documents, ranked, views, run)
        exhibits = await self._gate(question, candidates, run)
        return await self._judge(question, documents, exhibits, views, run)

    async def _list_documents(self, question: str, run: Run) -> list[NumberedDocument]:
        """Return D_1 ... D_N, numbered for all prompts of this run."""
        units, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        spans = tuple(passage.span for passage in passages)
        run.emit(Listed(units, spans, tuple(passage.title for passage in passages)))
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

    async def _rank(
        self, question: str, documents: Sequence[NumberedDocument], run: Run
    ) -> list[NumberedDocument]:
        """Sort the documents by SFS_i; attention is taken on the global agent's own prompt."""
        given = {
            Signal.SIMILARITY: (self.alpha, self.no_similarity),
            Signal.LIKELIHOOD: (self.beta, self.no_likelihood),
            Signal.ATTENTION: (self.gamma, self.no_attention),
        }
        weights = {signal: weight for signal, (weight, _) in given.items() if weight is not None}
        fused = await fuse_signals(
            question,
            [passage for _, passage in documents],
            run,
            fusion=self.fusion,
            weights={**WEIGHTS[Fusion(self.fusion)], **weights},
            without=[signal for signal, (_, left_out) in given.items() if left_out],
            agent_prompt=self._prompt(question, run, documents),
        )
        order = sorted(range(len(documents)), key=lambda at: -fused.scores[at])
        return [documents[at] for at in order]

    # 2. The dual view

    async def _read_views(
        self,
        question: str,
        shown: Sequence[NumberedDocument],
        ranked: Sequence[NumberedDocument],
        run: Run,
    ) -> list[Viewed]:
        """Let both agents read: all documents in their order, and the m best, best first."""
        agents: list[tuple[Agent, Sequence[NumberedDocument]]] = []
        if not self.no_global:
            agents.append(("global", shown))
        if not self.no_local:
            prompt = partial(self._messages, question, run)
            best = ranked[: self.local_documents]
            agents.append(("local", await _fit_documents(best, prompt, self.view_tokens, run)))
        return await gather(
            self._read_view(agent, question, documents, run) for agent, documents in agents
        )

    async def _read_view(
        self, agent: Agent, question: str, shown: Sequence[NumberedDocument], run: Run
    ) -> Viewed:
        """Ask one agent for its log and its important documents."""
        schema = VIEW_SCHEMA if self._quotes(run) else None
        messages = self._messages(question, run, shown)
        reply = await run.chat(messages, max_tokens=self.view_tokens, schema=schema)
        numbers = tuple(number for number, _ in shown)
        if schema:
            log, named = parse_quoting_view(reply.text, shown, self.important)
        else:
            log, named = reply.text, find_important(reply.text, numbers, self.important)
        if named is None and agent == "local":
            run.warn("the local agent named no documents: its best by fused score are used")
        elif named is None:
            run.warn("the global agent named no documents")
        instead = numbers[: self.important] if agent == "local" else ()
        view = Viewed(
            agent,
            numbers,
            log,
            instead if named is None else named,
            named is not None,
            tuple(passage.document_id for _, passage in shown),
        )
        run.emit(view)
        return view

    def _quotes(self, run: Run) -> bool:
        """Return whether the agents reply with quotes."""
        if self.reply != "auto":
            return self.reply == "quoted"
        return Capability.STRUCTURED in run.model(Role.READER).capabilities

    def _prompt(self, question: str, run: Run, numbered: Sequence[NumberedDocument]) -> AgentPrompt:
        return (quoting_view_messages if self._quotes(run) else view_messages)(question, numbered)

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
        self, question: str, candidates: Sequence[NumberedDocument], run: Run
    ) -> list[Exhibit]:
        """Keep the documents with p_i >= tau (equation 5), cut to their evidence sentences."""
        if self.no_pruning:
            return [Exhibit(n, passage, None, (passage.span,)) for n, passage in candidates]
        scores, missing = await self._score(question, candidates, run)
        kept = [number for number, score in scores.items() if score.p >= self.threshold]
        if not kept:
            first = max(scores, key=lambda number: scores[number].p)
            kept = [first] if self.on_nothing == "best" and scores[first].p > 0 else []
            instead = "the best is kept" if kept else "the judge has the agents' debate alone"
            run.warn(f"no document reached the threshold of {self.threshold:g}: {instead}")
        exhibits, rows = [], []
        for number, passage in candidates:
            p, answer = scores[number].p, scores[number].answer
            shown: tuple[Span, ...] = ()
            if number in kept:
                document = await run.document(passage.document_id)
                best = await asyncio.to_thread(
                    find_evidence_sentences, document, passage.span, answer, self.sentences
                )
                shown = tuple(best)
                exhibits.append(Exhibit(number, passage, p, shown))
            rows.append(
                DocumentScore(number, p, answer, number in kept, shown, passage.document_id)
            )
        run.emit(Gated(self.threshold, tuple(rows), missing))
        return exhibits

    async def _score(
        self, question: str, candidates: Sequence[NumberedDocument], run: Run
    ) -> tuple[dict[int, DocScore], tuple[int, ...]]:
        """Return p_i and provisional answer of each document by number, and who got none.

        All documents are scored in one call, as Table 8 counts it; those that the reply leaves out
        are asked for once more. Without a score a document has p = 0 and no answer.
        """
        prompt = partial(doc_score_messages, question)
        wanted = await _fit_documents(candidates, prompt, self.score_tokens, run)
        found: dict[int, DocScore] = {}
        for _ in range(2):
            wanted = [each for each in wanted if each[0] not in found]
            if not wanted:
                break
            numbers = [number for number, _ in wanted]
            reply = await run.chat(
                prompt(wanted), max_tokens=self.score_tokens, schema=doc_score_schema(numbers)
            )
            found |= parse_doc_scores(reply.text, numbers)
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
        )


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
    ranked = sorted(zip(alike, numbered, strict=True), key=lambda pair: -pair[0])
    return [each for _, each in ranked]


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


_ARTICLES = frozenset(("a", "an", "the"))
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")


def find_evidence_sentences(
    document: Document, within: Span, answer: str, most: int = 2
) -> list[Span]:
    """Return the `most` sentences with most of the answer's distinct words, in document order.

    The paper does not define overlap: words are those of SQuAD's normalisation. Of equal sentences
    the earlier one is taken; if no sentence shares a word, the first ones are.
    """
    wanted = distinct_words(answer)
    sentences = sentence_spans(document, within)
    shared = [len(wanted & distinct_words(document.slice(sentence))) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda at: (-shared[at], at))[:most]
    return [sentences[at] for at in sorted(best)]


def distinct_words(text: str) -> set[str]:
    """Return the words of a text as SQuAD compares them: lower case, no punctuation, no articles.

    Characters of scripts without blanks count one by one.

    >>> sorted(distinct_words("The U.S. and an atlas"))
    ['and', 'atlas', 'us']
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    bare = "".join(c for c in folded if unicodedata.category(c)[0] not in "PS")
    return set(_WORD.findall(bare)) - _ARTICLES
