"""From what the agents found to one answer, level by level (SPD-RAG's synthesis)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ContextTooSmall, MalformedOutput
from colligate.evidence.citing import Evidence, written
from colligate.evidence.merging import Grouping, fair_shares, grouped, split_by_tokens
from colligate.evidence.reader import FORMS, Form, render
from colligate.evidence.synthesis import (
    COMBINED_TOKENS,
    Combined,
    Gathered,
    answering_messages,
    combining_messages,
    notes,
    sources,
)
from colligate.models import Capability, Role
from colligate.models.schema_prompt import with_schema
from colligate.models.structured import json_schema_of
from colligate.strategies.answer import Answer
from colligate.strategies.fan_out import pooled
from colligate.strategies.reading import read, stated
from colligate.strategies.run import Run
from colligate.strategies.spd_rag_trace import Grouped, Synthesised, places_of
from colligate.strategies.trace import Answered, Pruned

_SHARE = 0.75  # of the window: the paper's 750,000 tokens of a million
_UNKNOWN = 128_000  # the window of a model that does not tell, as in the paper's code
_SPARE = 0.97  # of what a prompt may take: tokens across the seams of what was counted
_DIRECTIVE = 200  # tokens of one that is not written yet
_REPORT = 150  # tokens of what is found in a document, guessed before any is read


@dataclass(frozen=True)
class Synthesis:
    """How findings are put together; the fields are those of `SPDRAG` and the directive."""

    run: Run
    question: str
    directive: str
    form: Form
    merge_tokens: int | None
    concurrency: int
    strategy: str
    _counted: dict[Gathered, int] = field(default_factory=dict, repr=False)

    async def answer(self, gathered: Sequence[Gathered], silent: Sequence[str]) -> Answer:
        """Put similar findings together until one prompt holds them all, and answer from that.

        `silent` are the titles of documents in which nothing was found. Where no reply can be had
        from the reader the findings themselves are the answer, and a warning says so.
        """
        overhead = await self._overhead(silent)
        budget = self._budget(overhead)
        texts = await self._split(gathered, budget)
        level = 1
        while True:
            tokens = await pooled(texts, self._tokens, self.concurrency)
            grouping = await self._grouping(texts, tokens, budget, overhead)
            self.run.emit(Grouped(level, grouping.groups, tuple(tokens), budget, grouping.forced))
            if len(grouping.groups) < 2:
                break
            batches = [
                (level, number, [texts[i] for i in group])
                for number, group in enumerate(grouping.groups)
            ]
            with self.run.purse.reserve(overhead):
                combined = await pooled(batches, self._combined, self.concurrency)
            texts = [text for text in combined if text.findings]
            level += 1
        return await self._answered([texts[i] for i in _members(grouping)], silent, overhead)

    async def as_found(self, gathered: Sequence[Gathered]) -> Answer:
        """The findings as they are, each with its citations; no model is asked."""
        passages = await self._sources(gathered)
        documents = await self.run.documents_of(passages)
        findings = [finding for text in gathered for finding in text.findings]
        cited = await asyncio.to_thread(written, findings, documents, ())
        spans = tuple(citation.span for citation in cited.citations)
        self.run.emit(Answered(True, cited.text, spans))
        return Answer(
            question=self.question,
            strategy=self.strategy,
            text=cited.text,
            found=True,
            citations=cited.citations,
            evidence=_evidence(gathered, passages),
        )

    async def least(self, documents: int) -> int:
        """Tokens to keep for the synthesis of so many documents, before any of them is read.

        What a call without findings takes, and a modest report of each document as far as that
        leaves half of the budget to the agents.
        """
        left = self.run.purse.left
        last = await self._overhead(()) + _DIRECTIVE
        return last if left is None else last + max(0, min(documents * _REPORT, left // 2 - last))

    async def _overhead(self, silent: Sequence[str]) -> int:
        """Tokens of a call without any finding, the reply's included."""
        wanted = FORMS[self.form]
        messages = answering_messages(self.question, [], [], self.directive, self.form, silent)
        reader = self.run.model(Role.READER)
        if Capability.STRUCTURED not in reader.capabilities:
            messages = with_schema(messages, json_schema_of(wanted.reply))
        return await reader.count_prompt(messages) + max(wanted.tokens, COMBINED_TOKENS)

    def _budget(self, overhead: int) -> int:
        """Tokens of the findings of one call below the last level: B of the paper."""
        window = self.run.model(Role.READER).context_tokens
        budget = self.merge_tokens or int((window or _UNKNOWN) * _SHARE)
        return budget if window is None else max(1, min(budget, _spared(window - overhead)))

    def _most(self, overhead: int, *, last: bool) -> int | None:
        """Tokens of findings that one call can take: the window's and, at last, the budget's."""
        window, left = self.run.model(Role.READER).context_tokens, self.run.purse.left
        free = [window] if window is not None else []
        free += [left] if left is not None and last else []
        return _spared(min(free) - overhead) if free else None

    async def _grouping(
        self, texts: Sequence[Gathered], tokens: Sequence[int], budget: int, overhead: int
    ) -> Grouping:
        """What is put together next; all in one group ends the levels."""
        every = Grouping((tuple(range(len(texts))),))
        total, left = sum(tokens), self.run.purse.left
        if total <= budget or len(texts) < 2:
            return every
        # Every group is a call, and most likely there is one level more.
        if left is not None and left < total + 2 * (total // budget + 2) * overhead:
            return replace(every, forced=True)
        vectors = await self.run.embed([text.text for text in texts])
        return await asyncio.to_thread(grouped, vectors, tokens, budget)

    async def _combined(self, batch: tuple[int, int, Sequence[Gathered]]) -> Gathered:
        """One group below the last level, as fewer findings; as it was where that fails.

        In the released code a group of one is synthesised again at each level. Here once: what is
        a synthesis already only waits for its level.
        """
        level, number, given = batch
        if len(given) == 1 and given[0].combined:
            return given[0]
        overhead = await self._overhead(())
        texts = await self._fitting(given, self._most(overhead, last=False))
        passages = await self._sources(texts)
        title = given[0].title if len(given) == 1 else ""
        relevance = max(text.relevance for text in given)
        whole = tuple(finding for text in texts for finding in text.findings)
        try:
            reply, found = await stated(
                self.question,
                passages,
                self.run,
                messages=combining_messages(self.question, passages, texts, self.directive),
                schema=Combined,
                max_tokens=COMBINED_TOKENS,
            )
        except (MalformedOutput, ContextTooSmall, BudgetExceeded) as error:
            self.run.warn(f"findings go on as they are, a synthesis failed: {error.what}")
            found, passed_on = list(whole), True
        else:
            # A model that says that nothing helps is believed; one that garbles it is not.
            passed_on = bool(reply.statements) and not found
        findings = whole if passed_on else tuple(found)
        self.run.emit(Synthesised(level, number, places_of(findings), passed_on))
        return Gathered(findings, relevance, title, combined=True)

    async def _answered(
        self, texts: Sequence[Gathered], silent: Sequence[str], overhead: int
    ) -> Answer:
        """The last level: an answer as the form asks for it."""
        kept = await self._fitting(texts, self._most(overhead, last=True))
        passages = await self._sources(kept)
        try:
            return await read(
                self.question,
                passages,
                self.run,
                strategy=self.strategy,
                evidence=_evidence(kept, passages),
                form=self.form,
                messages=lambda shown: answering_messages(
                    self.question, shown, kept, self.directive, self.form, silent
                ),
            )
        except (MalformedOutput, ContextTooSmall, BudgetExceeded) as error:
            self.run.warn(f"the findings are given as they are, put together by no model: {error}")
            return await self.as_found(texts)

    async def _fitting(self, texts: Sequence[Gathered], most: int | None) -> list[Gathered]:
        """The findings that fit `most` tokens, of every text a fair share; the others are said."""
        tokens = await pooled(texts, self._tokens, self.concurrency)
        if most is None or sum(tokens) <= most:
            return list(texts)
        weights = [_weights(text, count) for text, count in zip(texts, tokens, strict=True)]
        ranked = sorted(range(len(texts)), key=lambda i: -texts[i].relevance)
        shares = dict(zip(ranked, fair_shares([weights[i] for i in ranked], most), strict=True))
        if not any(shares.values()):
            shares[ranked[0]] = 1  # whether it fits is the call's to say
        kept = [replace(text, findings=text.findings[: shares[i]]) for i, text in enumerate(texts)]
        rest = [text.findings[shares[i] :] for i, text in enumerate(texts)]
        spans = tuple(p.span for findings in rest for each in findings for p in each.places)
        count, of = sum(map(len, rest)), sum(len(text.findings) for text in texts)
        why = f"{count} of {of} findings do not fit into one synthesis"
        self.run.emit(Pruned(spans, why))
        self.run.warn(why)
        return [text for text in kept if text.findings]

    async def _split(self, gathered: Sequence[Gathered], budget: int) -> list[Gathered]:
        """The findings of a document that are too many for one call, in as few parts as will do."""
        counts = await pooled(gathered, self._tokens, self.concurrency)
        return [
            replace(text, findings=text.findings[part.start : part.stop])
            for text, count in zip(gathered, counts, strict=True)
            for part in split_by_tokens(_weights(text, count), budget)
        ]

    async def _tokens(self, text: Gathered) -> int:
        """Tokens of findings and of their passages as a prompt has them."""
        if text not in self._counted:
            passages = await self._sources([text])
            shown = f"{render(passages)}\n{notes([text], passages, '')}"
            self._counted[text] = await self.run.model(Role.READER).count_tokens(shown)
        return self._counted[text]

    async def _sources(self, texts: Sequence[Gathered]) -> list[Passage]:
        ids = dict.fromkeys(span.document_id for text in texts for span in text.spans)
        return sources(texts, {name: await self.run.document(name) for name in ids})


def _members(grouping: Grouping) -> tuple[int, ...]:
    return tuple(i for group in grouping.groups for i in group)


def _spared(tokens: int) -> int:
    return int(tokens * _SPARE)


def _weights(text: Gathered, tokens: int) -> list[int]:
    """The tokens of a text shared out over its findings, by their characters."""
    sizes = [
        len(finding.sentence) + sum(len(place.span) for place in finding.places)
        for finding in text.findings
    ]
    return [-(-tokens * size // max(1, sum(sizes))) for size in sizes]


def _evidence(texts: Sequence[Gathered], passages: Sequence[Passage]) -> tuple[Evidence, ...]:
    """The passages with the relevance of the findings that stand there, the best first."""
    standing: dict[str, list[tuple[Span, Gathered]]] = {}
    for text in texts:
        for span in text.spans:
            standing.setdefault(span.document_id, []).append((span, text))
    shown = []
    for passage in passages:
        there = standing[passage.document_id]
        of = [text for span, text in there if passage.span.contains(span)]
        best = max(of, key=lambda text: text.relevance)
        reason = f"found by the agent of {best.title!r}" if best.title else "kept by a synthesis"
        shown.append(Evidence(passage.span, best.relevance, reason))
    return tuple(sorted(shown, key=lambda evidence: -evidence.score))
