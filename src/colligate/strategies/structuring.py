"""The structure of a document as LongRefiner scores it: worked out once, and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from colligate.documents import Document, Span, Tree, flat_tree
from colligate.documents.skeleton_recovery import Recovered, recover
from colligate.evidence.article import Article, article
from colligate.evidence.structuring import stretches, structuring_messages
from colligate.models import ChatModel, Message, Role
from colligate.strategies.run import Run
from colligate.strategies.trace import Progressed, Structured


class Structuring(StrEnum):
    """Where a document's structure comes from."""

    AUTO = "auto"  # its own headings, the model where it has none
    HEADINGS = "headings"  # its own headings, chunks where it has none
    MODEL = "model"  # the model, whatever headings it has
    CHUNKS = "chunks"  # chunks of six sentences: the paper's "without structuring"


@dataclass(frozen=True)
class Structure:
    """How documents are structured; the fields are those of `Refiner`."""

    source: Structuring
    least_words: int
    most_words: int
    coverage: float
    tokens: int

    async def article(
        self, document: Document, run: Run, within: Sequence[Span] | None = None
    ) -> Article:
        """A document as a tree of abstract, sections, sub-sections and paragraphs.

        Only what lies inside `within`, if given. A document with no more words than one
        paragraph is not worth a call.
        """
        own = any(not node.synthetic for node in document.tree.sections)
        source = self.source
        if source is Structuring.AUTO:
            short = len(document.text.split()) <= self.most_words
            source = Structuring.HEADINGS if own or short else Structuring.MODEL
        event = Structured(document.id, "headings" if own else "chunks", 0)
        tree = document.tree
        if source is Structuring.CHUNKS:
            tree, event = _flat(document), Structured(document.id, "chunks", 0)
        elif source is Structuring.MODEL:
            recovered, known = await self._recovered(document, run)
            enough = recovered.coverage >= self.coverage
            basis = "model" if enough else "chunks"
            tree = recovered.tree if enough else _flat(document)
            event = Structured(document.id, basis, 0, recovered.coverage, recovered.lost, known)
            if not enough:
                run.warn(
                    f"the structure that {run.model(Role.WORKER).name} gave "
                    f"{document.title!r} covers {recovered.coverage:.0%} of it: "
                    "plain chunks are used instead"
                )
        made = await asyncio.to_thread(
            article,
            document,
            tree,
            least_words=self.least_words,
            most_words=self.most_words,
            within=within,
        )
        run.emit(replace(event, nodes=len(made.nodes)))
        return made

    async def _recovered(self, document: Document, run: Run) -> tuple[Recovered, bool]:
        """The structure the worker gives a document, and whether it was known already.

        Each part that was written is kept, so an interrupted run goes on where it was.
        """
        model = run.model(Role.WORKER)
        most = self.tokens
        if model.context_tokens is not None:
            # Of what the instruction leaves: half for the text, whose tokens are estimated, and
            # half of that for the skeleton, which takes a tenth in the paper.
            room = model.context_tokens - await model.count_prompt(structuring_messages(""))
            most = max(_LEAST_TOKENS, min(most, room // 2))
        parts = list(stretches(document, most))
        skeletons, fresh = [], False
        for done, span in enumerate(parts):
            messages = structuring_messages(document.slice(span))
            key = _key(model, messages, most // 2)
            skeleton = await asyncio.to_thread(run.kept.get, key)
            if not isinstance(skeleton, str):
                fresh = True
                run.emit(Progressed("structuring", done, len(parts), document.title))
                reply = await run.chat(messages, role=Role.WORKER, max_tokens=most // 2)
                skeleton = reply.text
                await asyncio.to_thread(run.kept.put, key, skeleton, [document.id])
                run.emit(Progressed("structuring", done + 1, len(parts), document.title))
            skeletons.append(skeleton)
        return await asyncio.to_thread(recover, "\n".join(skeletons), document), not fresh


_LEAST_TOKENS = 256  # of text in one call


def _flat(document: Document) -> Tree:
    """The document's blocks without its headings."""
    return flat_tree(document.id, len(document))


def _key(model: ChatModel, messages: Sequence[Message], max_tokens: int) -> str:
    """SHA-256 of what a skeleton depends on."""
    version = str(getattr(model, "version", ""))
    told = [message.content for message in messages]
    asked = json.dumps(["structuring", model.name, version, max_tokens, *told])
    return hashlib.sha256(asked.encode()).hexdigest()
