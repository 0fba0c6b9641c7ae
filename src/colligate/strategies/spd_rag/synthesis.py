"""The synthesis of SPD-RAG: from the agents' reports to one answer, level by level (section 3.3).

    S = {o_1, ..., o_n}                                the reports
    repeat
        E = embeddings of S
        D_ij = 1 - cos(E_i, E_j)
        T = UPGMA(D)                                   the merge tree of average linkage
        batches = GROUPBYTOKENS(S, T, B)               maximal subtrees of at most B tokens
        if |batches| >= |S|: batches = {S}             the rule of the released code: progress
        S = {SYNTHESIZE(q, directive, batch) for each batch}
    until |S| = 1

The last SYNTHESIZE is the reader's, who also sees what the reports rest on, to cite it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from colligate.concurrency import map_concurrent
from colligate.core.answer import Answer, Form, Stated
from colligate.core.events import Event, Pruned, pluralize
from colligate.core.fit import split_by_tokens
from colligate.core.linkage import average_linkage
from colligate.core.prompt_files import PromptTemplate
from colligate.core.prompts import render_passages
from colligate.core.run import Run, Shown
from colligate.documents import Span
from colligate.errors import BudgetExceeded, ColligateError, ModelError
from colligate.models import Role
from colligate.readers.citing import locate_statements
from colligate.strategies.spd_rag.prompts import (
    SYNTHESIS,
    list_statements,
    render_notes,
    synthesis_messages,
)

_SHARE = 0.75  # of the window: the paper's 750,000 tokens of a million
_UNKNOWN = 128_000  # the window of a model that does not report it, as in the paper's code
_REPLY = 8000  # tokens of a synthesis below the last level
_BESIDE = 4500  # tokens of the last reply, and of what is beside the texts in its prompt
_SPARE = 0.9  # of what is left beside a batch: its instruction and the question are there too


@dataclass(frozen=True)
class Grouped(Event):
    """The texts of a level, counted from 1, were grouped; a text is its place in the level's list.

    `tokens` are those of each text, `budget` is B. `forced`: no two texts fit it together, or the
    run's token budget is too small for several calls.
    """

    level: int
    groups: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    budget: int
    forced: bool = False

    def line(self) -> str:
        texts = pluralize(sum(map(len, self.groups)), "text")
        groups = pluralize(len(self.groups), "group")
        return f"synthesis level {self.level}: {texts} in {groups}"


@dataclass(frozen=True)
class Synthesised(Event):
    """One group of a level below the last became this text; `passed_on`: it is unchanged."""

    level: int
    group: int
    findings: tuple[Stated, ...]
    passed_on: bool = False
    text: str = ""

    def line(self) -> str:
        return f"synthesis level {self.level}: {pluralize(len(self.findings), 'finding')}"


@dataclass(frozen=True)
class Text:
    """A text of S, from one document or several.

    `relevance` is r_i, of several the largest. `findings` are its lines with places, `sources` the
    places that a reader is shown beside it. `title` is that of a single document.
    """

    text: str
    relevance: float
    findings: tuple[Stated, ...]
    sources: tuple[Span, ...]
    title: str = ""


@dataclass(frozen=True)
class Synthesis:
    """How reports are put together; the fields are those of `SPDRAG` and the coordinator's."""

    run: Run
    question: str
    directive: str
    form: Form
    merge_tokens: int | None
    concurrency: int
    template: PromptTemplate | None

    async def answer(self, reports: Sequence[Text]) -> Answer:
        """Merge similar texts until one batch holds them all, and answer from that."""
        texts, level = list(reports), 1
        while True:
            tokens = await map_concurrent(texts, self._count, self.concurrency)
            groups = await self._group(texts, tokens)
            forced = len(groups) < 2 <= len(texts) and sum(tokens) > self.budget
            self.run.emit(Grouped(level, groups, tuple(tokens), self.budget, forced))
            batches = [[texts[i] for i in group] for group in groups]
            if len(batches) < 2:
                return await self._read(batches[0] if batches else [], reports)
            numbered = [(level, number, batch) for number, batch in enumerate(batches)]
            texts = await map_concurrent(numbered, self._merge, self.concurrency)
            level += 1

    @property
    def _window(self) -> int:
        return self.run.model(Role.READER).context_tokens or _UNKNOWN

    @property
    def _room(self) -> int:
        """The most tokens of texts in a prompt that leaves room for the reply."""
        return min(int(self._window * _SHARE), self._window - min(_BESIDE, self._window // 2))

    @property
    def budget(self) -> int:
        """B, the most tokens of a batch."""
        return min(self.merge_tokens or self._room, self._room)

    async def _count(self, text: Text) -> int:
        """Count the tokens of a text, and of what the last reader is shown beside it."""
        shown = render_passages([each.passage for each in await self._show([text])])
        return await self.run.model(Role.READER).count_tokens(f"{text.text}\n{shown}")

    async def _group(self, texts: Sequence[Text], tokens: Sequence[int]) -> Groups:
        """Return the batches of a level; a single one ends the levels."""
        every = (tuple(range(len(texts))),) if texts else ()
        left = self.run.tokens.left
        if len(texts) < 2 or sum(tokens) <= self.budget:
            return every
        if left is not None and left < 2 * sum(tokens):  # this level, and at least one more
            return every
        try:
            vectors = await self.run.embed([each.text for each in texts])
        except ColligateError as error:
            self.run.warn(f"reports are grouped in their order, not by meaning: {error.what}")
            groups = tuple(tuple(each) for each in split_by_tokens(tokens, self.budget))
            return groups if len(groups) < len(texts) else every
        return await asyncio.to_thread(group_texts, vectors, tokens, self.budget)

    async def _merge(self, batch: tuple[int, int, Sequence[Text]]) -> Text:
        """Synthesise a batch below the last level; if that fails, pass its texts on as one."""
        level, number, given = batch
        findings = tuple(finding for each in given for finding in each.findings)
        sources = tuple(dict.fromkeys(span for each in given for span in each.sources))
        merged = Text(_join(given), max(each.relevance for each in given), findings, sources)
        messages = synthesis_messages(self.question, self.directive, merged.text, self.template)
        most = min(_REPLY, int((self._window - self._room) * _SPARE))
        try:
            with self.run.tokens.reserve_reading():
                text = (await self.run.chat(messages, max_tokens=most)).text.strip()
                passages = [each.passage for each in await self._show(given)]
                found = await locate_statements(
                    self.question, list_statements(text), passages, self.run
                )
        except (ModelError, BudgetExceeded) as error:
            self.run.warn(f"a synthesis failed, its reports are passed on: {error.what}")
            self.run.emit(Synthesised(level, number, findings, True, merged.text))
            return merged
        merged = replace(merged, text=text or merged.text)
        if found:  # otherwise it quotes nothing, and rests on all that it was given
            places = dict.fromkeys(place.span for each in found for place in each.places)
            merged = replace(merged, findings=tuple(found), sources=tuple(places))
        self.run.emit(Synthesised(level, number, merged.findings, False, text))
        return merged

    async def _read(self, batch: Sequence[Text], reports: Sequence[Text]) -> Answer:
        """Synthesise the last batch: the reader answers from it and from what it rests on."""
        texts = await self._cut(batch)
        shown = await self._show(texts)
        findings = _join(texts, shown)
        if self.template is not None:
            turns = self.template.fill(
                question=self.question, directive=self.directive, findings=findings
            )
            instruction, notes = "\n\n".join(turn.content for turn in turns), ""
        else:
            instruction, notes = SYNTHESIS, render_notes(self.directive, findings)
        return await self.run.read(
            self.question,
            shown,
            form=self.form,
            known=[finding for text in reports for finding in text.findings],
            instruction=instruction,
            notes=notes,
        )

    async def _cut(self, batch: Sequence[Text]) -> list[Text]:
        """Return the texts that fit the last prompt, the most relevant of them, in their order."""
        tokens = await map_concurrent(batch, self._count, self.concurrency)
        most, left = self._room, self.run.tokens.left
        if left is not None:
            most = min(most, left - min(_BESIDE, left // 2))
        kept, used = set(), 0
        for at in sorted(range(len(batch)), key=lambda at: -batch[at].relevance):
            if used + tokens[at] <= most:
                kept.add(at)
                used += tokens[at]
        if len(kept) == len(batch):
            return list(batch)
        left_out = [each for at, each in enumerate(batch) if at not in kept]
        why = f"{len(left_out)} of {len(batch)} reports do not fit into one synthesis"
        self.run.emit(Pruned(tuple(span for each in left_out for span in each.sources), why))
        self.run.warn(why)
        if not kept:  # the beginning of the most relevant one
            best = max(batch, key=lambda each: each.relevance)
            share = most / max(1, await self._count(best))
            return [replace(best, text=best.text[: int(len(best.text) * share)])]
        return [batch[at] for at in sorted(kept)]

    async def _show(self, texts: Sequence[Text]) -> list[Shown]:
        """Return what texts rest on, each place once, the most relevant first."""
        shown: list[Shown] = []
        for text in sorted(texts, key=lambda text: -text.relevance):
            reason = (
                f"found by the agent of {text.title!r}" if text.title else "kept by a synthesis"
            )
            for span in text.sources:
                if not any(each.span.contains(span) for each in shown):
                    passage = (await self.run.document(span.document_id)).passage(span)
                    shown.append(Shown(passage, text.relevance, reason))
        return shown


def _join(texts: Sequence[Text], shown: Sequence[Shown] = ()) -> str:
    """Return a batch as prompts show it; each text names the passages that it rests on."""
    parts = []
    for text in texts:
        numbers = [
            str(number)
            for number, each in enumerate(shown, 1)
            if any(each.passage.span.contains(span) for span in text.sources)
        ]
        parts.append(f"{text.text}\nPassages: {', '.join(numbers)}" if numbers else text.text)
    return "\n\n---\n\n".join(parts)


# Batches: arithmetic on vectors and token counts. A text is named by its place in a list.

_SHORTEST = 1e-12  # of a vector that has a direction
_MOST_COMPARED = 1024  # texts whose distances, each to each, are in memory at once

Groups = tuple[tuple[int, ...], ...]
"""The texts of each synthesis, each text in one of them."""


def group_texts(vectors: ArrayLike, tokens: Sequence[int], budget: int) -> Groups:
    """Group similar texts, at most `budget` tokens in each group.

    There are always fewer groups than texts, except for one text, so that the levels end. A text
    that is longer than the budget is a group by itself; if no two fit together, all are one group
    (the rule of the released code). At most `_MOST_COMPARED` texts in their
    order are compared with each other: memory would grow with their square.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    groups = []
    for start in range(0, len(tokens), _MOST_COMPARED):
        part = slice(start, start + _MOST_COMPARED)
        found = group_by_tokens(tokens[part], build_merge_tree(rows[part]), budget)
        groups += [tuple(start + text for text in group) for group in found]
    if len(groups) >= len(tokens) > 1:
        return (tuple(range(len(tokens))),)
    return tuple(groups)


def build_merge_tree(vectors: ArrayLike) -> list[tuple[int, int]]:
    """Return the merges of average linkage (UPGMA) over cosine distance, the nearest first.

    `vectors` is [n, d]. A merge joins two nodes: a text is its place, the k-th merge n + k. A
    vector without direction is at distance 1 from all others.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > _SHORTEST)
    distances = np.maximum(0, 1 - rows @ rows.T).astype(np.float64)
    return [(left, right) for left, right, _ in average_linkage(distances)]


def group_by_tokens(tokens: Sequence[int], tree: Sequence[tuple[int, int]], budget: int) -> Groups:
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
