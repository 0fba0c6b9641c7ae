"""The synthesis of SPD-RAG: from the agents' findings to one answer, level by level (stage 3).

    S = the findings of each document
    while S does not fit one call:
        E = embeddings of S
        D = max(0, 1 - cos(E))
        T = the merge tree of average linkage over D
        batches = the maximal subtrees of T of at most B tokens
        S = the synthesis of each batch
    answer from S

If no two texts fit one batch together, all of S is one batch (the released code's rule). A
synthesis keeps its statements' places in the documents.

The answer grows with the findings. If one reply can hold them, the answer is that reply. Otherwise
the statements of the first level's batches, in their order, are its body, and the last call writes
only its head. A finding that no statement repeats is added as it is: it is verified already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colligate.concurrency import check_in_thread, map_concurrent
from colligate.core.answer import Answer
from colligate.core.citing import (
    NOT_FOUND,
    Evidence,
    Joined,
    Place,
    Stated,
    Statement,
    resolve,
    write_answer,
)
from colligate.core.events import Answered, Pruned
from colligate.core.fit import split_by_tokens
from colligate.core.reader import FORMS, Form, ask_statements, render_passages
from colligate.core.run import Run
from colligate.core.support import has_all_numbers
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ColligateError, ModelError
from colligate.models import Capability, Role
from colligate.models.structured import json_schema_of, with_schema
from colligate.strategies.spd_rag.events import Grouped, Synthesised, list_found
from colligate.strategies.spd_rag.prompts import (
    CONDENSED,
    GROWING,
    REPLY_TOKENS,
    STATEMENT_TOKENS,
    Brief,
    Combined,
    FindingGroup,
    Head,
    allow_statements,
    answering_messages,
    collect_sources,
    combining_messages,
    concluding_messages,
    count_statements,
    render_notes,
)

_SHARE = 0.75  # of the window: the paper's 750,000 tokens of a million
_UNKNOWN = 128_000  # the window of a model that does not report it, as in the paper's code
_SPARE = 0.97  # of what a prompt may take: parts counted apart have more tokens when joined
_DIRECTIVE = 200  # tokens of a directive that is not written yet
_REPORT = 250  # tokens of a document's findings and their statements, estimated before any is read


@dataclass(frozen=True)
class Comparison:
    """What follows from comparing the figures of findings: a statement with all their places, a
    short answer if every document has a figure (titles, their number or a sum), and the places of
    the findings that are asked for."""

    statement: Stated
    short: str
    asked: tuple[int, ...]


@dataclass(frozen=True)
class Synthesis:
    """How findings are put together; the fields are those of `SPDRAG` and the brief."""

    run: Run
    question: str
    brief: Brief
    form: Form
    merge_tokens: int | None
    answer_tokens: int
    keep_findings: bool
    concurrency: int
    strategy: str
    _counted: dict[FindingGroup, int] = field(default_factory=dict, repr=False)

    async def answer(self, gathered: Sequence[FindingGroup]) -> Answer:
        """Put similar findings together until one prompt holds them all, and answer from that.

        If the reader gives no valid reply, the findings themselves are the answer, with a warning.
        """
        growing = self.form in GROWING
        overhead = await self._count_overhead()
        budget, most = self._limit_batch(overhead)
        # The answer's statements are written at the first level: a batch has no more findings
        # than its reply has statements.
        least = -(-budget // most) if growing else 0
        texts = await self._split(gathered, budget, least)
        body: list[Stated] = []
        level = 1
        while True:
            tokens = await self._weigh_all(texts, least=least)
            grouping = await self._group(texts, tokens, budget, overhead)
            self.run.emit(Grouped(level, grouping.groups, tuple(tokens), budget, grouping.forced))
            if len(grouping.groups) < 2:
                break
            batches = [
                (level, number, [texts[i] for i in group])
                for number, group in enumerate(grouping.groups)
            ]
            with self.run.tokens.reserve(overhead):
                combined = await map_concurrent(batches, self._combine, self.concurrency)
            texts = [text for text in combined if text.findings]
            if level == 1 and growing:
                body = [
                    each
                    for text, (_, _, given) in zip(combined, batches, strict=True)
                    for each in self._complete(text.findings, given)
                ]
            least = 0
            level += 1
        order = [i for group in grouping.groups for i in group]
        texts = [texts[i] for i in order]
        if not texts:
            return await self._write([], gathered, "", ())
        if body:
            return await self._conclude(texts, body, gathered)
        return await self._answer(texts, gathered)

    async def _group(
        self, texts: Sequence[FindingGroup], tokens: Sequence[int], budget: int, overhead: int
    ) -> Grouping:
        """Group what is put together next; one group ends the levels."""
        every = Grouping((tuple(range(len(texts))),))
        total, left = sum(tokens), self.run.tokens.left
        if total <= budget or len(texts) < 2:
            return every
        # Every group is a call, and most likely there is one more level.
        if left is not None and left < total + 2 * (total // budget + 2) * overhead:
            return replace(every, forced=True)
        try:
            vectors = await self.run.embed([text.text for text in texts])
        except ColligateError as error:
            self.run.warn(f"findings are grouped in their order, not by meaning: {error.what}")
            groups = tuple(tuple(each) for each in split_by_tokens(tokens, budget))
            return Grouping(groups) if len(groups) < len(texts) else replace(every, forced=True)
        return await asyncio.to_thread(group_texts, vectors, tokens, budget)

    async def _combine(self, batch: tuple[int, int, Sequence[FindingGroup]]) -> FindingGroup:
        """Synthesise one group below the last level; if that fails, pass its findings on.

        The released code synthesises a group of one again at each level; here that is done once.
        """
        level, number, given = batch
        if len(given) == 1 and given[0].combined:
            return given[0]
        overhead = await self._count_overhead()
        room = self._limit_findings(overhead, last=False)
        growing = level == 1 and self.form in GROWING
        texts = await self._fit(given, room, each=STATEMENT_TOKENS if growing else 0)
        passages = await self._collect_sources(texts)
        title = given[0].title if len(given) == 1 else ""
        relevance = max(text.relevance for text in given)
        whole = tuple(finding for text in texts for finding in text.findings)
        # The first level's statements may be the answer's; above it texts have to become shorter.
        most = min(count_statements(len(whole)), self._most_statements) if growing else CONDENSED
        try:
            reply, found = await ask_statements(
                self.question,
                passages,
                self.run,
                messages=combining_messages(self.question, passages, texts, self.brief, most),
                schema=allow_statements(Combined, most),
                max_tokens=REPLY_TOKENS + most * STATEMENT_TOKENS,
            )
        except (ModelError, BudgetExceeded) as error:
            self.run.warn(f"a synthesis failed, its findings are passed on: {error.what}")
            found, passed_on = list(whole), True
        else:
            # A reply without statements says that nothing helps; unsupported statements do not.
            passed_on = bool(reply.statements) and not found
        findings = whole if passed_on else tuple(found)
        self.run.emit(Synthesised(level, number, list_found(findings), passed_on))
        return FindingGroup(findings, relevance, title, combined=True)

    async def _answer(
        self, texts: Sequence[FindingGroup], gathered: Sequence[FindingGroup]
    ) -> Answer:
        """Answer from the texts of the last level, in the wanted form."""
        spec, growing = FORMS[self.form], self.form in GROWING
        most = self._limit_findings(await self._count_overhead(), last=True)
        kept = await self._fit(texts, most, each=STATEMENT_TOKENS if growing else 0)
        passages = await self._collect_sources(kept)
        schema, tokens = spec.reply, spec.tokens
        if growing:
            count = count_statements(sum(len(text.findings) for text in kept))
            schema = allow_statements(spec.reply, min(count, self._most_statements))
            tokens = REPLY_TOKENS + min(count, self._most_statements) * STATEMENT_TOKENS
        messages = answering_messages(self.question, passages, kept, self.brief, self.form)
        try:
            reply = (await self.run.structured(messages, schema, max_tokens=tokens)).value
        except (ModelError, BudgetExceeded) as error:
            self.run.warn(f"the last synthesis failed, so the answer lists the findings: {error}")
            return await self.list_findings(gathered)
        stated, dropped = await self._resolve(reply.statements, passages)
        if not any(each.places for each in stated):
            if not reply.found:
                return await self._write([], gathered, "", dropped)
            self.run.warn("the last synthesis quotes nothing, so the answer lists the findings")
            return await self.list_findings(gathered)
        if growing:
            stated = self._complete(stated, gathered)
        return await self._write(stated, gathered, reply.short_answer, dropped)

    async def _conclude(
        self,
        texts: Sequence[FindingGroup],
        body: Sequence[Stated],
        gathered: Sequence[FindingGroup],
    ) -> Answer:
        """Write the head of an answer whose statements are written already."""
        kept = await self._fit(texts, self._limit_findings(await self._count_overhead(), last=True))
        passages = await self._collect_sources(kept)
        messages = concluding_messages(self.question, passages, kept, self.brief)
        tokens = REPLY_TOKENS + CONDENSED * STATEMENT_TOKENS
        try:
            head = (await self.run.structured(messages, Head, max_tokens=tokens)).value
        except (ModelError, BudgetExceeded) as error:
            self.run.warn(f"the introduction of the answer could not be written: {error}")
            return await self._write(body, gathered, "", ())
        stated, dropped = await self._resolve(head.statements, passages)
        whole = [*(each for each in stated if each.places), *body]
        return await self._write(whole, gathered, head.short_answer, dropped)

    async def list_findings(
        self, gathered: Sequence[FindingGroup], compared: Comparison | None = None
    ) -> Answer:
        """Return the findings as the answer, each with its citations, without a model.

        What follows from comparing them comes first, and then those that it says are asked for.
        """
        if compared is None:
            findings = [finding for text in gathered for finding in text.findings]
            return await self._write(findings, gathered, "", ())
        computed = {place.span: place for place in compared.statement.places}
        asked = [
            replace(each, places=tuple(computed.get(place.span, place) for place in each.places))
            for at in compared.asked
            for each in gathered[at].findings
        ]
        return await self._write([compared.statement, *asked], gathered, compared.short, ())

    async def _resolve(
        self, statements: Sequence[Statement | Joined], passages: Sequence[Passage]
    ) -> tuple[list[Stated], tuple[str, ...]]:
        documents = await self.run.documents_of(passages)
        return await check_in_thread(
            resolve, self.question, statements, passages, documents, self.run.verifier
        )

    def _complete(self, stated: Sequence[Stated], groups: Sequence[FindingGroup]) -> list[Stated]:
        """Add the findings that no statement repeats; nothing if nothing was stated.

        A statement repeats a finding if it rests on the same place and has the finding's numbers.
        """
        if not (stated and self.keep_findings):
            return list(stated)
        said: dict[str, list[tuple[Span, str]]] = {}
        for each in stated:
            for place in each.places:
                said.setdefault(place.span.document_id, []).append((place.span, each.sentence))

        def is_repeated(finding: Stated) -> bool:
            there = [
                sentence
                for place in finding.places
                for span, sentence in said.get(place.span.document_id, ())
                if span.overlaps(place.span)
            ]
            return bool(there) and has_all_numbers(finding.sentence, " ".join(there), self.question)

        findings = (finding for group in groups for finding in group.findings)
        return [*stated, *(finding for finding in findings if not is_repeated(finding))]

    async def _write(
        self,
        stated: Sequence[Stated],
        gathered: Sequence[FindingGroup],
        short: str,
        dropped: tuple[str, ...],
    ) -> Answer:
        """Write statements as the answer; without any, nothing is found."""
        passages = await self._collect_sources(gathered)
        documents = await self.run.documents_of(passages)
        once: dict[str, dict[Place, None]] = {}
        for each in stated:
            once.setdefault(each.sentence, {}).update(dict.fromkeys(each.places))
        joined = [Stated(sentence, tuple(places)) for sentence, places in once.items()]
        cited = await asyncio.to_thread(
            write_answer, joined, documents, dropped, short=short, question=self.question
        )
        for problem in cited.dropped:
            self.run.warn(problem)
        spans = tuple(citation.span for citation in cited.citations)
        self.run.emit(Answered(bool(spans), cited.text, spans, cited.dropped))
        named = len({span.document_id for span in spans})
        if 0 < named < len(documents):
            self.run.warn(f"{named} of {len(documents)} documents with findings are cited")
        return Answer(
            question=self.question,
            strategy=self.strategy,
            text=cited.text or NOT_FOUND,
            found=bool(spans),
            short=cited.short or None,
            citations=cited.citations,
            evidence=_rate(gathered, passages),
        )

    # Tokens

    @property
    def _most_statements(self) -> int:
        """The most statements of one reply."""
        return max(1, (self.answer_tokens - REPLY_TOKENS) // STATEMENT_TOKENS)

    async def estimate_reserve(self, documents: int) -> int:
        """Return the tokens to reserve for the synthesis before any document is read.

        They are those of a call without findings, and of a short report of each document as far as
        that leaves half of the budget to the agents.
        """
        left = self.run.tokens.left
        last = await self._count_overhead() + _DIRECTIVE
        return last if left is None else last + max(0, min(documents * _REPORT, left // 2 - last))

    async def _count_overhead(self) -> int:
        """Count the tokens of a call without findings, with the reply to a few."""
        wanted = FORMS[self.form]
        messages = answering_messages(self.question, [], [], self.brief, self.form)
        reader = self.run.model(Role.READER)
        if Capability.STRUCTURED not in reader.capabilities:
            messages = with_schema(messages, json_schema_of(wanted.reply))
        reply = max(wanted.tokens, REPLY_TOKENS + CONDENSED * STATEMENT_TOKENS)
        return await reader.count_prompt(messages) + reply

    def _limit_batch(self, overhead: int) -> tuple[int, int]:
        """Return B, the most tokens of a batch below the last level, and its most findings.

        At most half of the room in the window is for the statements of a reply.
        """
        window, most = self.run.model(Role.READER).context_tokens, self._most_statements
        budget = self.merge_tokens or int((window or _UNKNOWN) * _SHARE)
        if window is None:
            return budget, most
        room = int((window - overhead) * _SPARE)
        if self.form in GROWING:
            most = max(1, min(most, room // (2 * STATEMENT_TOKENS)))
            room -= most * STATEMENT_TOKENS
        return max(1, min(budget, room)), most

    def _limit_findings(self, overhead: int, *, last: bool) -> int | None:
        """Return the most tokens of findings in one call, by the window and at last the budget."""
        window, left = self.run.model(Role.READER).context_tokens, self.run.tokens.left
        free = [window] if window is not None else []
        free += [left] if left is not None and last else []
        return int((min(free) - overhead) * _SPARE) if free else None

    async def _weigh_all(
        self, texts: Sequence[FindingGroup], *, each: int = 0, least: int = 0
    ) -> list[int]:
        """Return the tokens of texts, and `each` for every finding; at least `least` for each."""
        counts = await map_concurrent(texts, self._count, self.concurrency)
        return [
            max(count + each * len(text.findings), least * len(text.findings))
            for text, count in zip(texts, counts, strict=True)
        ]

    async def _fit(
        self, texts: Sequence[FindingGroup], most: int | None, *, each: int = 0
    ) -> list[FindingGroup]:
        """Return the findings that fit `most` tokens, a fair share of each text."""
        tokens = await self._weigh_all(texts, each=each)
        if most is None or sum(tokens) <= most:
            return list(texts)
        weights = [_weigh(text, count) for text, count in zip(texts, tokens, strict=True)]
        ranked = sorted(range(len(texts)), key=lambda i: -texts[i].relevance)
        shares = dict(zip(ranked, share_fairly([weights[i] for i in ranked], most), strict=True))
        if not any(shares.values()):
            shares[ranked[0]] = 1  # the call itself reports that it does not fit
        kept = [replace(text, findings=text.findings[: shares[i]]) for i, text in enumerate(texts)]
        rest = [text.findings[shares[i] :] for i, text in enumerate(texts)]
        spans = tuple(p.span for findings in rest for each in findings for p in each.places)
        count, of = sum(map(len, rest)), sum(len(text.findings) for text in texts)
        why = f"{count} of {of} findings do not fit into one synthesis"
        self.run.emit(Pruned(spans, why))
        self.run.warn(why)
        return [text for text in kept if text.findings]

    async def _split(
        self, gathered: Sequence[FindingGroup], budget: int, least: int
    ) -> list[FindingGroup]:
        """Split findings of a document that are too many for one call, into as few parts as fit."""
        counts = await self._weigh_all(gathered, least=least)
        return [
            replace(text, findings=text.findings[part.start : part.stop])
            for text, count in zip(gathered, counts, strict=True)
            for part in split_by_tokens(_weigh(text, count), budget)
        ]

    async def _count(self, text: FindingGroup) -> int:
        """Count the tokens of findings and of their passages in a prompt."""
        if text not in self._counted:
            passages = await self._collect_sources([text])
            shown = f"{render_passages(passages)}\n{render_notes([text], passages, Brief())}"
            self._counted[text] = await self.run.model(Role.READER).count_tokens(shown)
        return self._counted[text]

    async def _collect_sources(self, texts: Sequence[FindingGroup]) -> list[Passage]:
        ids = dict.fromkeys(span.document_id for text in texts for span in text.spans)
        return collect_sources(texts, {name: await self.run.document(name) for name in ids})


# Batches: arithmetic on vectors and token counts. A text is named by its place in a list.

_SHORTEST = 1e-12  # of a vector that has a direction
_MOST_COMPARED = 1024  # texts whose distances, each to each, are in memory at once


@dataclass(frozen=True)
class Grouping:
    """The texts of each synthesis, each text in one of them.

    `forced`: no two texts fit the budget together, and all are put together anyway.
    """

    groups: tuple[tuple[int, ...], ...]
    forced: bool = False


def group_texts(vectors: ArrayLike, tokens: Sequence[int], budget: int) -> Grouping:
    """Group similar texts, at most `budget` tokens in each group unless `forced`.

    There are always fewer groups than texts, except for one text, so that the levels end. A text
    that is longer than the budget is a group by itself. More than `_MOST_COMPARED` texts are first
    halved across the direction in which they differ most: memory would grow with their square.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    groups = []
    for part in _halve(rows, np.arange(len(tokens))):
        tree = build_merge_tree(rows[part])
        found = group_by_tokens([tokens[i] for i in part], tree, budget)
        groups += [tuple(int(part[i]) for i in group) for group in found]
    if len(groups) >= len(tokens) > 1:
        return Grouping((tuple(range(len(tokens))),), forced=True)
    return Grouping(tuple(sorted(groups, key=min)))


def _halve(rows: NDArray[np.float32], places: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Halve the places until each part of similar rows is small enough to compare all pairs."""
    if len(places) <= _MOST_COMPARED:
        return [places]
    centred = rows[places] - rows[places].mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(centred @ axes[:, -1], kind="stable")
    half = len(places) // 2
    return [
        part
        for side in (order[:half], order[half:])
        for part in _halve(rows, np.sort(places[side]))
    ]


def build_merge_tree(vectors: ArrayLike) -> list[tuple[int, int]]:
    """Return the merges of average linkage (UPGMA) over cosine distance, the nearest first.

    `vectors` is [n, d]. A merge joins two nodes: a text is its place, the k-th merge n + k. A
    vector without direction is at distance 1 from all others.
    """
    from fastcluster import linkage  # imports scipy where it is installed: 0.3 s

    rows = np.asarray(vectors, dtype=np.float32)
    count = len(rows)
    if count < 2:
        return []
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > _SHORTEST)
    distances: NDArray[np.float64] = np.empty(count * (count - 1) // 2)
    at = 0
    for i in range(count - 1):  # row by row: the full matrix is never in memory
        distances[at : at + count - 1 - i] = 1 - rows[i + 1 :] @ rows[i]
        at += count - 1 - i
    merges = linkage(np.maximum(distances, 0, out=distances), method="average")
    return [(int(left), int(right)) for left, right in merges[:, :2]]


def group_by_tokens(
    tokens: Sequence[int], tree: Sequence[tuple[int, int]], budget: int
) -> tuple[tuple[int, ...], ...]:
    """Return the maximal subtrees of at most `budget` tokens, in the order of their first text.

    A merge beyond the budget is refused, and with it all merges built on it. The texts of a group
    are in the order of the tree.
    """
    nodes: dict[int, tuple[tuple[int, ...], int]] = {
        text: ((text,), count) for text, count in enumerate(tokens)
    }
    roots = set(nodes)
    for number, (left, right) in enumerate(tree, len(tokens)):
        if left not in nodes or right not in nodes:
            continue
        count = nodes[left][1] + nodes[right][1]
        if count <= budget:
            nodes[number] = nodes[left][0] + nodes[right][0], count
            roots -= {left, right}
            roots.add(number)
    return tuple(sorted((nodes[root][0] for root in roots), key=min))


def share_fairly(tokens: Sequence[Sequence[int]], budget: int) -> list[int]:
    """Return how many of the first parts of each text are kept within a common budget.

    The first parts of all come before any second one. A text whose next part does not fit gets no
    more.
    """
    kept = [0] * len(tokens)
    used = 0
    ended: set[int] = set()
    for turn in range(max(map(len, tokens), default=0)):
        for text, parts in enumerate(tokens):
            if text in ended or turn >= len(parts):
                continue
            if used + parts[turn] > budget:
                ended.add(text)
            else:
                used += parts[turn]
                kept[text] += 1
    return kept


def _weigh(text: FindingGroup, tokens: int) -> list[int]:
    """Share the tokens of a text among its findings, by their characters."""
    sizes = [
        len(finding.sentence) + sum(len(place.span) for place in finding.places)
        for finding in text.findings
    ]
    return [-(-tokens * size // max(1, sum(sizes))) for size in sizes]


def _rate(texts: Sequence[FindingGroup], passages: Sequence[Passage]) -> tuple[Evidence, ...]:
    """Return the passages with the relevance of the findings that rest on them, the best first."""
    located: dict[str, list[tuple[Span, FindingGroup]]] = {}
    for text in texts:
        for span in text.spans:
            located.setdefault(span.document_id, []).append((span, text))
    rated = []
    for passage in passages:
        there = located[passage.document_id]
        of = [text for span, text in there if passage.span.contains(span)]
        best = max(of, key=lambda text: text.relevance)
        reason = f"found by the agent of {best.title!r}" if best.title else "kept by a synthesis"
        rated.append(Evidence(passage.span, best.relevance, reason))
    return tuple(sorted(rated, key=lambda evidence: -evidence.score))
