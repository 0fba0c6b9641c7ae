"""Samples for DualRAG's three roles: a teacher's runs, kept where they came to a right answer.

The teacher runs the strategy itself. Each run is kept as a file whatever came of it; samples are
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
from colligate.training.curate import Curation, CurationContext, opened
from colligate.training.dualrag_samples import TASKS, Gold, Scored, drawn
from colligate.training.journal import Made
from colligate.training.trajectories import Trajectory, trajectory

SYSTEM = "dualrag"
TRAJECTORIES = "trajectories"
"""Where the runs are kept, below the folder of samples: a packed JSON file each."""

_JUDGED = "A run is used where the judge says that its answer implies a right one."
_CONTAINED = (
    "A run is used where the words of a right answer stand in its answer, in their order; of a "
    "right answer yes or no, where its short answer begins with it. No judge was named."
)
_BY_RERANKER = (
    "An entity means the gold document whose title the reranker {name} scores best, above {over:g}"
)
_BY_WORDS = (
    "An entity means the gold document that shares most words with it, where all words of the one "
    "stand in the other's title"
)
_FILTERS = (
    "{match}; else the one that most of what is known of it rests on.",
    "Reasoner: where all gold documents are in the outline and more is wanted all the same, or a "
    "thought came before, the first sample is corrected to the answer of the run, if the outline "
    "has all places that the answer cites; the others are left out. So is one that misses nothing "
    "before anything was found. Facts are copied from the outline word for word.",
    "Identifier: where each entity means a gold document of its own the run is used as it was. "
    "Else entities of no gold document are left out, with what is known of them; several of one "
    "are called as the best of them; what is asked for again and brought nothing new is left out.",
    "Summarizer: of an entity that means a gold document what was found stays; where nothing was, "
    "it is the gold's first named sentence, or the one that says most of what is looked for, if "
    "the passages have it. Of another entity nothing stays but what rests on a gold document.",
    "A prompt of the Reasoner, or of an Identifier that was used as it was, is one that the "
    "teacher was sent; where its window did not hold the whole outline there is no sample.",
)

_CLOSED = ("yes", "no")
_SIGMOID = 0.5  # of the paper's 0, which is of logits
_COMPRESSION = 3


@dataclass(frozen=True)
class Linking:
    """How entities are held against gold titles, beside the parameters of the strategy.

    `match_over` is the reranker's score above which a title is meant. Without it a cross-encoder,
    in process or behind a server, decides at 0.5, and of other rerankers none.
    """

    match_over: float | None = None

    def scored(self, reranker: Reranker | None) -> tuple[Scored | None, float]:
        """The scores that decide, and above which; without any, words do."""
        if reranker is None:
            return None, 0.0
        trained = reranker.name.startswith(("cross-encoder:", "http:"))
        if self.match_over is None and not trained:
            return None, 0.0
        return reranker.score, _SIGMOID if self.match_over is None else self.match_over


async def curate_dualrag(request: Curation, on_event: Listener) -> Card:
    """Curate samples for Reasoner, Entity Identifier and Knowledge Summarizer.

    `request.settings` are parameters of the strategy `dualrag`, and `match_over` (`Linking`).

    Raises:
        UsageError: the request is wrong, or the folder holds what was made with something else.
        BudgetExceeded, EndpointUnreachable: the work ended before all was done.
        ColligateError: what could not be opened or read.
    """
    tasks = _tasks(request)
    strategy, linking = _set_up(request.settings)
    async with opened(
        request,
        on_event,
        system=SYSTEM,
        needs=strategy.needs,
        tasks=tasks,
        made_by=(DualRAG,),
        settings={**asdict(strategy), **asdict(linking)},
    ) as workshop:
        scored, over = linking.scored(workshop.reranker)

        async def work(question: Question) -> Made:
            if not question.answerable or not question.answers:
                return Made(discarded={"a question without a right answer": 1})
            async with workshop.sources(question) as sources:
                run = workshop.run(sources)
                answer = await strategy.answer(question.text, run)
                steps = await trajectory(question.id, question.text, run, answer)
                golds, unseen = await _golds(question, run)
            right = await _right(question, steps, workshop, run)
            used = workshop.used(run)
            await in_thread(_keep, request.out, steps, question, right)
            counts = Counter(
                [f"runs, {'right' if right else 'wrong'}", f"runs ended: {steps.stop}"]
            )
            counts["gold documents that are not in view"] += unseen
            if not right:
                return Made((), {"a run whose answer was not right": 1}, +counts, used)
            found = await drawn(
                steps, golds, question.answers, tasks=tasks, scored=scored, over=over
            )
            return Made(tuple(found.samples), found.discarded, counts + found.counts, used)

        by_title = _BY_WORDS if scored is None else _BY_RERANKER
        name = workshop.reranker.name if workshop.reranker is not None else ""
        match = by_title.format(name=name, over=over)
        judged = _CONTAINED if workshop.judged_by is None else _JUDGED
        filters = (judged, *(each.format(match=match) for each in _FILTERS))
        calls = 2.0 + 2 * (2 + 2)  # about two rounds of two entities
        return await workshop.curated(workshop.questions, work, filters=filters, calls=calls)


def _tasks(request: Curation) -> tuple[str, ...]:
    if unknown := [task for task in request.tasks if task not in TASKS]:
        raise UsageError(f"{SYSTEM} has no task {unknown[0]!r}", f"it has {', '.join(TASKS)}")
    if request.questions is None:
        why = "the teacher answers questions"
        raise UsageError("no questions are named", why, "give --questions FILE")
    return request.tasks or TASKS


def _set_up(settings: Sequence[str]) -> tuple[DualRAG, Linking]:
    own = {each.name for each in list_parameters(Linking)}
    of_linking = [each for each in settings if each.partition("=")[0].strip() in own]
    of_strategy = [each for each in settings if each not in of_linking]
    return set_parameters(DualRAG, of_strategy), set_parameters(Linking, of_linking)


async def _golds(question: Question, run: Run) -> tuple[list[Gold], int]:
    """The gold documents as they are in view, else as the question has them; how many are these."""
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
    """The sentences of a document that a record in the plain form names by their numbers."""
    facts = question.meta.get("supporting_facts")
    for fact in facts if isinstance(facts, list) else ():
        match fact:
            case [document.title, int(number)]:
                found = split_sentences(document.text, document.language)
                if 0 <= number < len(found):
                    yield document.text[slice(*found[number])]


async def _right(
    question: Question, steps: Trajectory, workshop: CurationContext, run: Run
) -> bool:
    """Whether the answer is right: by the judge where there is one, else by its words."""
    if not steps.found:
        return False
    if workshop.judged_by is None:
        return any(holds(steps.answer, steps.short, gold) for gold in question.answers)
    judge = workshop.judge(run)
    return bool(await implies(judge, question.text, steps.answer, question.answers))


def holds(answer: str, short: str, gold: str) -> bool:
    """Whether the words of a right answer stand together in the answer or its short form.

    Yes and no stand in many a sentence: of them the short answer's first word is asked for.
    """
    wanted = normalise_dual(gold).split()
    if not wanted:
        return False
    if wanted[0] in _CLOSED and len(wanted) == 1:
        return normalise_dual(short).split()[:1] == wanted
    return any(
        words[at : at + len(wanted)] == wanted
        for words in (normalise_dual(answer).split(), normalise_dual(short).split())
        for at in range(len(words) - len(wanted) + 1)
    )


def _keep(out: Path, steps: Trajectory, question: Question, right: bool) -> None:
    """Put a run down whole. Blocks."""
    record: Mapping[str, Any] = {
        **steps.to_json(),
        "answers": list(question.answers),
        "gold": list(question.gold),
        "right": right,
    }
    name = hashlib.sha256(question.id.encode("utf-8", "replace")).hexdigest()[:16]
    file = out / TRAJECTORIES / f"{name}.json.gz"
    file.parent.mkdir(exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_bytes(gzip.compress(json.dumps(record).encode(), _COMPRESSION, mtime=0))
    fresh.replace(file)
