"""Curate samples for DualRAG's three roles from a teacher's runs that gave a right answer.

The teacher runs the strategy itself. Each run is stored as a file, right or wrong; samples are
drawn from those that were right (`dualrag_samples`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from colligate.bench.metrics.answers import normalise_dual
from colligate.bench.metrics.judging import implies
from colligate.bench.question import Question
from colligate.concurrency import in_thread
from colligate.core.events import Listener
from colligate.core.parameters import list_parameters, set_parameters
from colligate.core.run import Run
from colligate.documents import Document
from colligate.documents.sentences import split_sentences
from colligate.errors import UnknownDocument, UsageError
from colligate.models import Reranker
from colligate.strategies.dualrag.method import DualRAG
from colligate.training.card import Card
from colligate.training.curate import Curation, CurationContext, open_curation
from colligate.training.dualrag_samples import TASKS, Gold, Scored, drawn
from colligate.training.samples import CuratedItem
from colligate.training.trajectories import Trajectory, read_trajectory


async def curate_dualrag(request: Curation, on_event: Listener) -> Card:
    """Curate samples for Reasoner, Entity Identifier and Knowledge Summarizer.

    `request.settings` are parameters of the strategy `dualrag`, and `match_over` (`TitleMatching`).

    Raises:
        UsageError: the request is wrong, or the folder was begun with something else.
        BudgetExceeded, EndpointUnreachable: the work ended before all was done.
        ColligateError: something cannot be opened or read.
    """
    tasks = _check_tasks(request)
    strategy, matching = _configure(request.settings)
    async with open_curation(
        request,
        on_event,
        system=DualRAG.name,
        needs=strategy.needs,
        tasks=tasks,
        prompts_of=(DualRAG,),
        settings={**asdict(strategy), **asdict(matching)},
    ) as context:
        scored, over = matching.scores(context.reranker)

        async def work(question: Question) -> CuratedItem:
            if not question.answerable or not question.answers:
                return CuratedItem(discarded={"a question without a right answer": 1})
            async with context.sources(question) as sources:
                run = context.start_run(sources)
                answer = await strategy.answer(question.text, run)
                steps = await read_trajectory(question.id, question.text, run, answer)
                golds, unseen = await _load_golds(question, run)
            right = await _is_right(question, steps, context, run)
            usage = context.usage_of(run)
            await in_thread(_write_trajectory, request.out, steps, question, right)
            counts = Counter(
                [f"runs, {'right' if right else 'wrong'}", f"runs ended: {steps.stop}"]
            )
            counts["gold documents that are not in view"] += unseen
            if not right:
                return CuratedItem((), {"a run whose answer was not right": 1}, +counts, usage)
            found = await drawn(
                steps, golds, question.answers, tasks=tasks, scored=scored, over=over
            )
            counts += found.counts
            return CuratedItem(tuple(found.samples), found.discarded, counts, usage)

        name = context.reranker.name if context.reranker is not None else ""
        match = (_BY_WORDS if scored is None else _BY_RERANKER).format(name=name, over=over)
        judged = _CONTAINED if context.judge is None else _JUDGED
        filters = (judged, *(each.format(match=match) for each in _FILTERS))
        calls = 2.0 + 2 * (2 + 2)  # about two rounds of two entities
        return await context.curate(context.questions, work, filters=filters, calls=calls)


_JUDGED = "A run is used if the judge says that its answer implies a right one."
_CONTAINED = (
    "A run is used if the words of a right answer are in its answer, in their order; for a right "
    "answer yes or no, if its short answer begins with it. No judge was named."
)
_BY_RERANKER = (
    "An entity means the gold document whose title the reranker {name} scores best, above {over:g}"
)
_BY_WORDS = (
    "An entity means the gold document that shares most words with it, if all words of the one "
    "are in the other's title"
)
_FILTERS = (
    "{match}; otherwise the one that most of what is known of it rests on.",
    "Reasoner: if all gold documents are in the outline and more is still wanted, or a thought "
    "came before, the first sample is corrected to the answer of the run, if the outline has all "
    "places that the answer cites; the others are left out. A sample that misses nothing before "
    "anything was found is left out too. Facts are copied from the outline word for word.",
    "Identifier: if each entity means a gold document of its own the run is used as it was. "
    "Otherwise entities of no gold document are left out, with what is known of them; several of "
    "one document get the name of the best of them; what is asked for again and brought nothing "
    "new is left out.",
    "Summarizer: of an entity that means a gold document, what was found is kept; if nothing was "
    "found, it is the gold's first named sentence, or the one that says most of what is looked "
    "for, if the passages have it. Of another entity only what rests on a gold document is kept.",
    "A prompt of the Reasoner, or of an Identifier that was used as it was, is one that the "
    "teacher was sent; if its window did not hold the whole outline there is no sample.",
)


# The request.

_SIGMOID = 0.5  # the paper's threshold is 0, of logits


@dataclass(frozen=True)
class TitleMatching:
    """How entities are matched with gold titles, in addition to the strategy's parameters.

    `match_over` is the reranker's score above which a title is meant. Without it a cross-encoder,
    in process or behind a server, decides at 0.5, and other rerankers do not decide.
    """

    match_over: float | None = None

    def scores(self, reranker: Reranker | None) -> tuple[Scored | None, float]:
        """Return the scores that decide, and their threshold; None if words decide."""
        if reranker is None:
            return None, 0.0
        trained = reranker.name.startswith(("cross-encoder:", "http:"))
        if self.match_over is None and not trained:
            return None, 0.0
        return reranker.score, _SIGMOID if self.match_over is None else self.match_over


def _check_tasks(request: Curation) -> tuple[str, ...]:
    if unknown := [task for task in request.tasks if task not in TASKS]:
        raise UsageError(f"{DualRAG.name} has no task {unknown[0]!r}", f"it has {', '.join(TASKS)}")
    if request.questions is None:
        why = "the teacher answers questions"
        raise UsageError("no questions are named", why, "give --questions FILE")
    return request.tasks or TASKS


def _configure(settings: Sequence[str]) -> tuple[DualRAG, TitleMatching]:
    own = {each.name for each in list_parameters(TitleMatching)}
    of_matching = [each for each in settings if each.partition("=")[0].strip() in own]
    of_strategy = [each for each in settings if each not in of_matching]
    return set_parameters(DualRAG, of_strategy), set_parameters(TitleMatching, of_matching)


# One question: its gold documents, whether the answer is right, and the stored run.


async def _load_golds(question: Question, run: Run) -> tuple[list[Gold], int]:
    """Return the gold documents, and how many of them are not in view.

    Those that are not in view have the title that the question gives them.
    """
    titles = {candidate.id: candidate.title for candidate in question.documents}
    golds, unseen = [], 0
    for id_ in question.gold:
        named = [text for document, text in question.gold_texts if document == id_]
        try:
            document = await run.document(id_)
        except UnknownDocument:
            unseen += 1
            golds.append(Gold(id_, titles.get(id_, ""), tuple(named)))
        else:
            named = named or list(_facts(question, document))
            golds.append(Gold(id_, document.title, tuple(named)))
    return golds, unseen


def _facts(question: Question, document: Document) -> Iterator[str]:
    """Yield the sentences of a document that a record in the plain form names by number."""
    facts = question.meta.get("supporting_facts")
    for fact in facts if isinstance(facts, list) else ():
        match fact:
            case [document.title, int(number)]:
                found = split_sentences(document.text, document.language)
                if 0 <= number < len(found):
                    yield document.text[slice(*found[number])]


async def _is_right(
    question: Question, steps: Trajectory, context: CurationContext, run: Run
) -> bool:
    """Whether the answer is right: by the judge if there is one, otherwise by its words."""
    if not steps.found:
        return False
    if context.judge is None:
        return any(contains_answer(steps.answer, steps.short, gold) for gold in question.answers)
    judge = context.judge_of(run)
    return bool(await implies(judge, question.text, steps.answer, question.answers))


def contains_answer(answer: str, short: str, gold: str) -> bool:
    """Whether the words of a right answer are together in the answer or its short form.

    Yes and no are in many sentences: for them the short answer's first word counts.
    """
    wanted = normalise_dual(gold).split()
    if not wanted:
        return False
    if wanted in (["yes"], ["no"]):
        return normalise_dual(short).split()[:1] == wanted
    return any(
        words[at : at + len(wanted)] == wanted
        for words in (normalise_dual(answer).split(), normalise_dual(short).split())
        for at in range(len(words) - len(wanted) + 1)
    )


_COMPRESSION = 3


def _write_trajectory(out: Path, steps: Trajectory, question: Question, right: bool) -> None:
    """Write a run, whole or not at all. Blocks."""
    record: Mapping[str, Any] = {
        **steps.to_json(),
        "answers": list(question.answers),
        "gold": list(question.gold),
        "right": right,
    }
    name = hashlib.sha256(question.id.encode("utf-8", "replace")).hexdigest()[:16]
    file = out / "trajectories" / f"{name}.json.gz"
    file.parent.mkdir(exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_bytes(gzip.compress(json.dumps(record).encode(), _COMPRESSION, mtime=0))
    fresh.replace(file)
