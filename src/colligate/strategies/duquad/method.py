"""DuQUAD: signals of three kinds, two views, scored documents, a judge."""

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
from colligate.core.events import Pruned
from colligate.core.fit import first_that_fit
from colligate.core.parameters import require_min
from colligate.core.prompts import Numbered
from colligate.core.reader import FORMS, Form, fitting, read
from colligate.core.relevance import similarities
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import Units, unit_passages
from colligate.documents import Document, Passage, Span
from colligate.documents.sentences import sentence_spans
from colligate.documents.tokens import CJK
from colligate.errors import UsageError
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role
from colligate.strategies.duquad.events import Agent, DocumentScore, Gated, Listed, Viewed
from colligate.strategies.duquad.prompts import (
    SCHEMA,
    Exhibit,
    Score,
    document_scores,
    important,
    judge_messages,
    quoted_view,
    quoting_messages,
    score_messages,
    score_schema,
    view_messages,
)
from colligate.strategies.duquad.signals import WEIGHTS, Fusion, Shared, Signal, fused_scores

# DuQUAD's supporting sentences: those of a document that share most words with an answer.

_ARTICLES = frozenset(("a", "an", "the"))
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")


def supporting(document: Document, within: Span, answer: str, most: int = 2) -> list[Span]:
    """The `most` sentences with the most of the answer's distinct words, in document order.

    Of equals the earlier one is taken; where no sentence has any, the first ones are.
    """
    wanted = words(answer)
    sentences = sentence_spans(document, within)
    shared = [len(wanted & words(document.slice(sentence))) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda at: (-shared[at], at))[:most]
    return [sentences[at] for at in sorted(best)]


def words(text: str) -> set[str]:
    """The distinct words of a text as SQuAD compares them: lower case, without marks and articles.

    Characters that no blanks divide count one by one.

    >>> sorted(words("The U.S. and an atlas"))
    ['and', 'atlas', 'us']
    """
    bare = "".join(c for c in unicodedata.normalize("NFKC", text).lower() if not _mark(c))
    return set(_WORD.findall(bare)) - _ARTICLES


def _mark(character: str) -> bool:
    """Whether it is punctuation or another mark, such as `$` and `+`."""
    return unicodedata.category(character)[0] in "PS"


async def by_similarity(question: str, numbered: Sequence[Numbered], run: Run) -> list[Numbered]:
    """The documents, those most like the question first; as they come without an embedder."""
    if run.embedder is None:
        return list(numbered)
    alike = await similarities(question, [passage for _, passage in numbered], run)
    ranked = sorted(zip(alike, numbered, strict=True), key=lambda pair: -pair[0])
    return [each for _, each in ranked]


async def fitting_documents(
    ranked: Sequence[Numbered],
    prompt: Callable[[Sequence[Numbered]], list[Message]],
    max_tokens: int,
    run: Run,
    call: str,
) -> list[Numbered]:
    """The first documents whose prompt fits the reader's window; those left out are said.

    One is always kept: whether it fits is the call's to say.
    """
    kept = await first_that_fit(ranked, prompt, run, role=Role.READER, max_tokens=max_tokens)
    if left_out := ranked[len(kept) :]:
        reason = f"{len(left_out)} of {len(ranked)} documents do not fit the window of {call}"
        run.emit(Pruned(tuple(passage.span for _, passage in left_out), reason))
        run.warn(reason)
    return kept


async def scored(
    question: str, candidates: Sequence[Numbered], run: Run, *, max_tokens: int
) -> tuple[dict[int, Score], tuple[int, ...]]:
    """How likely each document answers the question alone, all in one call; which got no score.

    What the reply leaves out is asked for once more. Without a score a document has 0 and no
    answer.
    """
    prompt = partial(score_messages, question)
    wanted = await fitting_documents(candidates, prompt, max_tokens, run, "the scores' call")
    found: dict[int, Score] = {}
    for _ in range(2):
        wanted = [each for each in wanted if each[0] not in found]
        if not wanted:
            break
        numbers = [number for number, _ in wanted]
        reply = await run.chat(prompt(wanted), max_tokens=max_tokens, schema=score_schema(numbers))
        found |= document_scores(reply.text, numbers)
    missing = tuple(number for number, _ in candidates if number not in found)
    if missing:
        run.warn(f"{len(missing)} of {len(candidates)} documents got no score: it is taken as 0")
    return {number: found.get(number, Score(0.0, "")) for number, _ in candidates}, missing


@dataclass(frozen=True)
class DuQUAD:
    """Two agents read all documents and the likeliest ones, a judge answers from what they find.

    Each document is scored by similarity to the question, by the likelihood of the question after
    it, and by the attention it gets beside its neighbours; the fused scores choose the documents
    of the local view, best first, while the global view has all in their order. The documents that
    either agent names are scored by how well they answer the question alone; of those above the
    `threshold` the judge sees the sentences nearest to their answer, beside the agents' debate.

    `units`: `documents` are read whole, the best `documents` of those in view; `passages` are the
    best of a search; `auto` takes documents where there are few and all are short.
    `reply` is the form of the agents' replies: the paper's free text that ends in JSON, or quotes
    and an answer as JSON, by which small models name documents that they otherwise do not. `auto`
    takes quotes where the reader can be held to a schema.
    `on_nothing`: what the judge sees where no score reaches the threshold, the `best` document if
    its score is not 0, or the debate (`log`) alone. A signal that the models in use cannot give is
    left out, and the others weigh more; `alpha`, `beta` and `gamma` are the fusion's own weights
    unless given. The `no_...` fields each leave one part out.
    """

    name: ClassVar[str] = "duquad"
    needs: ClassVar[Needs] = Needs(
        optional=frozenset({Capability.LIKELIHOOD, Capability.ATTENTION})
    )
    calls: ClassVar[Calls] = Calls(4.1)

    local_documents: int = 6  # Figure 5
    important: int = 3  # an agent; with quotes it is 3 at most
    threshold: float = 0.4  # Table 5
    sentences: int = 2  # a document
    fusion: Fusion = Fusion.SFS
    alpha: float | None = None  # similarity; equation 3 and Table 6: 0.5
    beta: float | None = None  # likelihood; 1
    gamma: float | None = None  # attention; 0.5
    documents: int = 20  # as in the paper's files of Natural Questions
    units: Units = "auto"
    mode: SearchMode = SearchMode.HYBRID
    pool: int = 50  # searched for a reranker, which the paper has none of
    on_nothing: Literal["best", "log"] = "best"
    view_tokens: int = 512  # not in the paper, as are the next
    score_tokens: int = 384
    form: Form = Form.SHORT
    reply: Literal["auto", "free", "quoted"] = "auto"  # the paper: free

    no_local: bool = False
    no_global: bool = False
    no_pruning: bool = False  # neither scores nor sentences: the judge sees the candidates whole
    no_similarity: bool = False
    no_likelihood: bool = False
    no_attention: bool = False

    def __post_init__(self) -> None:
        require_min(self, local_documents=1, important=1, threshold=0, sentences=1)
        require_min(self, documents=1, pool=1, view_tokens=1, score_tokens=1)
        given = [name for name in ("alpha", "beta", "gamma") if getattr(self, name) is not None]
        require_min(self, **dict.fromkeys(given, 0))
        if self.no_local and self.no_global:
            raise UsageError("no view is left", "no_local and no_global are both set")

    async def answer(self, question: str, run: Run) -> Answer:
        """Fuse the signals, read both views, score what they name, judge."""
        documents = await self._documents(question, run)
        if not documents:
            return await read(question, [], run, strategy=self.name, evidence=[])
        everything, beyond = await self._in_one_prompt(question, documents, run)
        ranked = await self._ranked(question, everything, run) + beyond
        views = await self._views(question, everything, ranked, run)
        candidates = self._named(documents, ranked, views, run)
        exhibits = await self._gated(question, candidates, run)
        return await self._judged(question, documents, exhibits, views, run)

    async def _documents(self, question: str, run: Run) -> list[Numbered]:
        """The documents of the question, numbered from 1."""
        units, passages = await unit_passages(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        spans = tuple(passage.span for passage in passages)
        run.emit(Listed(units, spans, tuple(passage.title for passage in passages)))
        return list(enumerate(passages, 1))

    async def _in_one_prompt(
        self, question: str, documents: list[Numbered], run: Run
    ) -> tuple[list[Numbered], list[Numbered]]:
        """The documents that fit the global agent's prompt, and those that do not: the least
        similar ones, best first."""
        prompt = partial(self._prompt, question, run)
        room = await run.room(Role.READER, prompt(documents), self.view_tokens)
        if room is None or room >= 0:
            return documents, []
        ranked = await by_similarity(question, documents, run)
        kept = await fitting_documents(ranked, prompt, self.view_tokens, run, "the global agent")
        return sorted(kept, key=lambda numbered: numbered[0]), ranked[len(kept) :]

    async def _ranked(
        self, question: str, documents: Sequence[Numbered], run: Run
    ) -> list[Numbered]:
        """The documents by fused score; attention is taken on the global agent's prompt."""
        given = {
            Signal.SIMILARITY: (self.alpha, self.no_similarity),
            Signal.LIKELIHOOD: (self.beta, self.no_likelihood),
            Signal.ATTENTION: (self.gamma, self.no_attention),
        }
        weights = {signal: weight for signal, (weight, _) in given.items() if weight is not None}
        fused = await fused_scores(
            question,
            [passage for _, passage in documents],
            run,
            fusion=self.fusion,
            weights={**WEIGHTS[Fusion(self.fusion)], **weights},
            without=[signal for signal, (_, left_out) in given.items() if left_out],
            shared=Shared(*self._framed(question, run, documents)),
        )
        order = sorted(range(len(documents)), key=lambda at: -fused.scores[at])
        return [documents[at] for at in order]

    async def _views(
        self, question: str, everything: Sequence[Numbered], ranked: Sequence[Numbered], run: Run
    ) -> list[Viewed]:
        """What both agents say: of all documents in their order, of the likeliest, best first."""
        agents: list[tuple[Agent, Sequence[Numbered]]] = []
        if not self.no_global:
            agents.append(("global", everything))
        if not self.no_local:
            prompt = partial(self._prompt, question, run)
            best = ranked[: self.local_documents]
            local = await fitting_documents(best, prompt, self.view_tokens, run, "the local agent")
            agents.append(("local", local))
        return await gather(self._view(agent, question, shown, run) for agent, shown in agents)

    async def _view(
        self,
        agent: Agent,
        question: str,
        shown: Sequence[Numbered],
        run: Run,
    ) -> Viewed:
        schema = SCHEMA if self._quotes(run) else None
        messages = self._prompt(question, run, shown)
        reply = await run.chat(messages, max_tokens=self.view_tokens, schema=schema)
        numbers = tuple(number for number, _ in shown)
        if schema:
            log, named = quoted_view(reply.text, shown, self.important)
        else:
            log, named = reply.text, important(reply.text, numbers, self.important)
        if named is None and agent == "local":
            run.warn("the local agent named no documents: its best by fused score stand for them")
        elif named is None:
            run.warn("the global agent named no documents")
        instead = numbers[: self.important] if agent == "local" else ()
        chosen = instead if named is None else named
        view = Viewed(
            agent,
            numbers,
            log,
            chosen,
            named is not None,
            tuple(passage.document_id for _, passage in shown),
        )
        run.emit(view)
        return view

    def _quotes(self, run: Run) -> bool:
        """Whether the agents reply with quotes."""
        if self.reply != "auto":
            return self.reply == "quoted"
        return Capability.STRUCTURED in run.model(Role.READER).capabilities

    def _framed(
        self, question: str, run: Run, numbered: Sequence[Numbered]
    ) -> tuple[list[Message], list[tuple[int, int]]]:
        """An agent's prompt, and where the documents stand in it."""
        return (quoting_messages if self._quotes(run) else view_messages)(question, numbered)

    def _prompt(self, question: str, run: Run, numbered: Sequence[Numbered]) -> list[Message]:
        return self._framed(question, run, numbered)[0]

    def _named(
        self,
        documents: Sequence[Numbered],
        ranked: Sequence[Numbered],
        views: Sequence[Viewed],
        run: Run,
    ) -> list[Numbered]:
        """The documents that an agent named, the global one's first."""
        numbers = list(dict.fromkeys(number for view in views for number in view.important))
        if not numbers:
            run.warn("no agent named a document: the best by fused score stand for them")
            return list(ranked[: self.important])
        return [documents[number - 1] for number in numbers]

    async def _gated(
        self, question: str, candidates: Sequence[Numbered], run: Run
    ) -> list[Exhibit]:
        """The documents that reach the threshold, cut to the sentences nearest their answers."""
        if self.no_pruning:
            return [Exhibit(n, passage, None, (passage.span,)) for n, passage in candidates]
        scores, missing = await scored(question, candidates, run, max_tokens=self.score_tokens)
        kept = [number for number, score in scores.items() if score.p >= self.threshold]
        if not kept:
            best = max(scores, key=lambda number: scores[number].p)
            kept = [best] if self.on_nothing == "best" and scores[best].p > 0 else []
            instead = "the best is kept" if kept else "the judge has the agents' debate alone"
            run.warn(f"no document reached the threshold of {self.threshold:g}: {instead}")
        exhibits = []
        for number, passage in candidates:
            if number in kept:
                document = await run.document(passage.document_id)
                answer = scores[number].answer
                shown = await asyncio.to_thread(
                    supporting, document, passage.span, answer, self.sentences
                )
                exhibits.append(Exhibit(number, passage, scores[number].p, tuple(shown)))
        sentences = {each.number: each.shown for each in exhibits}
        rows = [
            DocumentScore(
                n,
                scores[n].p,
                scores[n].answer,
                n in kept,
                sentences.get(n, ()),
                passage.document_id,
            )
            for n, passage in candidates
        ]
        run.emit(Gated(self.threshold, tuple(rows), missing))
        return exhibits

    async def _judged(
        self,
        question: str,
        documents: Sequence[Numbered],
        exhibits: Sequence[Exhibit],
        views: Sequence[Viewed],
        run: Run,
    ) -> Answer:
        """The judge's answer; it may quote all documents, as the debate may."""
        logs = [(view.agent, view.log) for view in views if view.log.strip()]
        best = sorted(exhibits, key=lambda each: -(each.p or 0.0))

        def prompt(passages: Sequence[Passage]) -> list[Message]:
            return judge_messages(question, best[: len(passages)], logs, self.form)

        passages = [each.passage for each in best]
        wanted = FORMS[self.form]
        room = await run.room(Role.READER, prompt(passages), wanted.tokens, schema=wanted.reply)
        if logs and passages and room is not None and room < 0:
            logs = []
            run.warn("the agents' debate does not fit the judge's window and is left out")
        fit = await fitting(question, passages, run, self.form, messages=prompt)
        best = best[: len(fit)]
        evidence = [
            Evidence(span, each.p or 0.0, _reason(each, views))
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


def _reason(each: Exhibit, views: Sequence[Viewed]) -> str:
    agents = [view.agent for view in views if each.number in view.important]
    by = f"named by the {' and the '.join(agents)} agent" if agents else "best by fused score"
    score = "" if each.p is None else f", DocScore {each.p:.2f}"
    return f"document {each.number}, {by}{score}"
