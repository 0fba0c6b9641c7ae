"""DualRAG: reason about what is missing, look it up by entity, keep an outline (Cheng et al. 2025).

Two processes in turn, with the question x, the outline K and the thoughts R:

1. Reasoning-augmented querying: the Reasoner has a thought r_t and decides whether knowledge is
   missing (f_t; equation 3). If so, the Entity Identifier names entities e with queries Q_e
   (equation 5); the passages of all queries of an entity are united and ranked (equations 6 to 8).
2. Progressive knowledge aggregation: the Knowledge Summarizer states what the new passages say of
   each entity (equation 9), and the statements are appended to the outline (equation 10).

The reader answers from K_T and R_T (equation 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.lookup import answer_from, reserve_for_answer
from colligate.core.parameters import require_min
from colligate.core.prompts import Reasoning, parse_sentence
from colligate.core.reader import Form, ask_statements, fit_reader
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.documents import Hit, Passage
from colligate.errors import MalformedOutput
from colligate.library.sources import SearchMode
from colligate.models import Message, Role
from colligate.strategies.dualrag.events import (
    Gathered,
    Identified,
    Outlined,
    OutlineEntity,
    Reasoned,
    Stopped,
    Summarised,
)
from colligate.strategies.dualrag.knowledge import (
    ELSE,
    Fragment,
    Knowledge,
    Link,
    Linking,
    Stop,
    link_names,
)
from colligate.strategies.dualrag.prompts import (
    IDENTIFIER_TOKENS,
    QUERY_TOKENS,
    REASONER_TOKENS,
    SENTENCE_TOKENS,
    SUMMARY_TOKENS,
    Entities,
    FactsFirst,
    Query,
    Summary,
    clean_entities,
    identifier_messages,
    query_messages,
    reasoner_messages,
    reasoner_schema,
    sentence_messages,
    summarizer_messages,
)

_RAW = "knowledge"  # the only heading if passages are not summarised


@dataclass(frozen=True)
class DualRAG:
    """Reason over an outline of knowledge and look up by entity what it misses, until it suffices.

    Each statement of the Knowledge Summarizer has a quote: what the passages support goes into the
    outline with its spans, the rest is dropped. The reader answers from the passages behind the
    outline, with outline and thoughts as notes.

    The rounds end when the Reasoner misses nothing, when it repeats itself and nothing was new,
    after `patience` rounds without anything new, or after `rounds`. `linking` is when a name
    means an entity that the outline already has (`Linking`). Without a reranker the rankings of an
    entity's queries are joined by reciprocal rank fusion.

    The `..._adapter` fields put a LoRA adapter on the reader for a step. The `no_...` fields and
    `ei2` are the paper's ablations; each leaves one part out.
    """

    name: ClassVar[str] = "dualrag"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(15)

    rounds: int = 5  # section 4.1
    retrieved: int = 50  # for each query
    k: int = 10  # for each entity
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    rerank_by: Literal["entity", "queries"] = "entity"  # the code; not in the paper
    least_score: float | None = None  # the code: 0, of a reranker whose scores are logits
    linking: Linking = "similar"  # the code: exact
    link_threshold: float = 0.95  # cosine of names
    patience: int = 2  # the code: always runs to the last round
    retrieve_first: bool = True  # the paper: may answer without looking anything up
    question_too: bool = False  # the first round also looks up the question itself
    form: Form = Form.JOINED
    reasoner_adapter: str | None = None
    identifier_adapter: str | None = None
    summarizer_adapter: str | None = None

    no_reasoner: bool = False  # w/o R: a chain of single sentences (IRCoT)
    no_entities: bool = False  # w/o EI: the thought is the query, titles are the entities
    ei2: bool = False  # w/o EI, with a query that the model writes
    no_outline: bool = False  # w/o KO: the passages themselves, not summaries
    flat_outline: bool = False  # w/o KO*: summaries, but not by entity
    no_rerank: bool = False

    def __post_init__(self) -> None:
        require_min(self, rounds=1, retrieved=1, k=1, patience=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Learn, then answer from what was learnt (equation 4)."""
        knowledge = await self.learn(question, run)
        sources, notes = await knowledge.for_reader(run, self.form, outline=not self.no_outline)
        return await answer_from(
            question, sources, run, strategy=self.name, form=self.form, notes=notes
        )

    async def learn(self, question: str, run: Run) -> Knowledge:
        """Reason, look up and summarise in rounds, with tokens reserved for the answer.

        A budget that ends before anything is known raises `BudgetExceeded`.
        """
        adapters = (self.reasoner_adapter, self.identifier_adapter, self.summarizer_adapter)
        runs = [await run.with_adapter(Role.READER, adapter) for adapter in adapters]
        knowledge = Knowledge(question, flat=self.no_outline or self.flat_outline)
        with reserve_for_answer(run, lambda: knowledge.outline.size):
            knowledge.stop = await self._rounds(knowledge, *runs)
        run.emit(Stopped(knowledge.rounds, knowledge.stop))
        return knowledge

    async def _rounds(
        self, knowledge: Knowledge, reasoner: Run, identifier: Run, summarizer: Run
    ) -> Stop:
        """Run the loop of section 3 until it stops; return why. Each step has its own adapter."""
        barren = 0
        missing: set[str] = set()
        for number in range(1, self.rounds + 1):
            reasoning = await reason(knowledge, reasoner, sentences=self.no_reasoner)
            repeated = reasoning.thought in knowledge.thoughts
            if reasoning.thought and not repeated:
                knowledge.thoughts.append(reasoning.thought)
            if reasoning.need_retrieve:
                missing.add(reasoning.thought)
            # The same thought cannot first miss something and then miss nothing.
            elif reasoning.thought not in missing and (number > 1 or not self.retrieve_first):
                return Stop.ENOUGH
            if repeated and barren:
                return Stop.REPEATED
            sought = await self._query(knowledge, identifier)
            new = await self._aggregate(knowledge, summarizer, sought)
            knowledge.rounds = number
            barren = 0 if new else barren + 1
            if barren == self.patience:
                return Stop.NOTHING_NEW
        return Stop.ROUNDS  # the last round is not reasoned over, as in the code

    async def _query(self, knowledge: Knowledge, run: Run) -> list[_Sought]:
        """Return what to look up by entity, with the passages for each (equations 5 to 8)."""
        if self.no_entities or self.ei2:
            query = await make_single_query(knowledge, run, written=self.ei2)
            hits, how = await self._retrieve(ELSE, (query,), run)
            groups = group_by_title(hits)
            entities: dict[str, tuple[str, ...]] = dict.fromkeys(groups, (query,))
            retrieved = [(of_it, how) for of_it in groups.values()]
        else:
            entities = await identify_entities(
                knowledge, run, linking=self.linking, threshold=self.link_threshold
            )
            if self.question_too and not knowledge.rounds:
                asked = (knowledge.question, *entities.get(ELSE, ()))
                entities[ELSE] = tuple(dict.fromkeys(asked))
            retrieved = await gather(
                self._retrieve(name, queries, run) for name, queries in entities.items()
            )
        sought = []
        for (name, queries), (hits, how) in zip(entities.items(), retrieved, strict=True):
            heading = _RAW if self.no_outline else name
            unseen = knowledge.outline.unseen(heading, [hit.passage for hit in hits])
            sought.append(_Sought(name, heading, queries, tuple(unseen)))
            run.emit(
                Gathered(
                    round=knowledge.rounds + 1,
                    entity=name,
                    queries=queries,
                    spans=tuple(hit.passage.span for hit in hits),
                    scores=tuple(hit.score for hit in hits),
                    how=how,
                    unseen=tuple(passage.span for passage in unseen),
                )
            )
        return sought

    async def _retrieve(self, name: str, queries: Sequence[str], run: Run) -> tuple[list[Hit], str]:
        """Return D'_e (equations 6 to 8), the best passages for an entity, and how they are ranked.

        With a reranker they are ranked by its score, after those at or below `least_score` are
        left out; otherwise the rankings of the queries are joined by reciprocal rank fusion.
        """
        found = await gather(
            run.search(query, k=self.retrieved, mode=self.mode) for query in queries
        )
        passages = {hit.passage.id: hit.passage for hits in found for hit in hits}
        if run.reranker is None or self.no_rerank or not passages:
            how = "search" if len(queries) == 1 else "reciprocal rank fusion"
            return join_rankings(found)[: self.k], how
        by_queries = self.rerank_by == "queries" or name == ELSE
        rerank_query = ", ".join(queries) if by_queries else name
        scores = await run.rerank(rerank_query, list(passages.values()))
        hits = [Hit(passage, s) for passage, s in zip(passages.values(), scores, strict=True)]
        if self.least_score is not None:
            hits = [hit for hit in hits if hit.score > self.least_score]
        hits.sort(key=lambda hit: -hit.score)
        return hits[: self.k], f"reranked for “{rerank_query}”"

    async def _aggregate(self, knowledge: Knowledge, run: Run, sought: Sequence[_Sought]) -> bool:
        """Summarise what is new for each entity and append it (equation 10); return if K grew."""
        sought = [each for each in sought if each.unseen]
        summaries = await gather(self._summarise(knowledge, run, each) for each in sought)
        new: list[Fragment] = []
        # Merge in the order of the entities, whichever summary came first.
        for each, summary in zip(sought, summaries, strict=True):
            if summary.event is not None:
                run.emit(summary.event)
            new += knowledge.merge(each.heading, summary.fragments, summary.passages)
        outline = tuple(
            OutlineEntity(name, tuple(entity.fragments))
            for name, entity in knowledge.outline.entities.items()
        )
        run.emit(Outlined(knowledge.rounds + 1, outline, tuple(new)))
        return bool(new)

    async def _summarise(self, knowledge: Knowledge, run: Run, sought: _Sought) -> _Summarised:
        """Return k_t^e: what the new passages say of an entity (equation 9)."""
        if self.no_outline:
            raw = [Fragment(each.text.strip(), (each.span,)) for each in sought.unseen]
            return _Summarised(raw, sought.unseen)

        def ask(passages: Sequence[Passage]) -> list[Message]:
            return summarizer_messages(
                knowledge.question, knowledge.thoughts, sought.name, sought.queries, passages
            )

        passages = await fit_reader(
            knowledge.question, sought.unseen, run, Form.JOINED, messages=ask
        )
        said, readable, fragments = 0, True, []
        try:
            reply, found = await ask_statements(
                knowledge.question,
                passages,
                run,
                messages=ask(passages),
                schema=Summary,
                max_tokens=SUMMARY_TOKENS,
            )
            said = len(reply.statements)
            fragments = [Fragment(f.sentence, tuple(p.span for p in f.places)) for f in found]
        except MalformedOutput as error:
            readable = False
            run.warn(f"what was found for “{sought.name}” is not summarised: {error.what}")
        event = Summarised(knowledge.rounds + 1, sought.name, said, tuple(fragments), readable)
        return _Summarised(fragments, passages, event)


@dataclass(frozen=True)
class _Sought:
    """An entity of a round, its heading in the outline, its queries, and the passages to read."""

    name: str
    heading: str
    queries: tuple[str, ...]
    unseen: tuple[Passage, ...]


@dataclass(frozen=True)
class _Summarised:
    """The summary of an entity's passages; without an event if they are used as they are."""

    fragments: Sequence[Fragment]
    passages: Sequence[Passage]
    event: Summarised | None = None


# 1. Reasoning-augmented querying

_LONGEST = 1000  # characters of a thought


async def reason(knowledge: Knowledge, run: Run, *, sentences: bool = False) -> Reasoning:
    """Return r_t and f_t (equation 3); with `sentences`, of a chain without a Reasoner."""
    facts: list[str] = []
    readable = True
    if sentences:
        ask = partial(sentence_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.render_outline(run, ask, SENTENCE_TOKENS)
        reply = await run.chat(ask(outline), max_tokens=SENTENCE_TOKENS)
        reasoning = parse_sentence(reply.text)
    else:
        ask = partial(reasoner_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.render_outline(run, ask, REASONER_TOKENS, FactsFirst)
        schema = reasoner_schema(outline)
        try:
            made = (await run.structured(ask(outline), schema, max_tokens=REASONER_TOKENS)).value
            reasoning = Reasoning(thought=made.thought, need_retrieve=made.need_retrieve)
            facts = made.facts if isinstance(made, FactsFirst) else []
        except MalformedOutput as error:
            # The reply still counts as a thought; it does not end the rounds.
            readable = False
            reasoning = Reasoning(thought=error.reply, need_retrieve=True)
    thought = " ".join(reasoning.thought.split())[:_LONGEST]
    need = reasoning.need_retrieve
    run.emit(Reasoned(knowledge.rounds + 1, thought, need, tuple(facts), readable))
    return Reasoning(thought=thought, need_retrieve=need)


async def identify_entities(
    knowledge: Knowledge, run: Run, *, linking: Linking, threshold: float
) -> dict[str, tuple[str, ...]]:
    """Return Q_e by entity (equation 5); the latest thought if the reply names no entity."""
    known = [name for name in knowledge.outline.entities if name != ELSE]
    names = [] if knowledge.flat else known
    ask = partial(identifier_messages, knowledge.question, thoughts=knowledge.thoughts, names=names)
    outline = await knowledge.render_outline(run, ask, IDENTIFIER_TOKENS, Entities)
    readable, entities = True, []
    try:
        made = await run.structured(ask(outline), Entities, max_tokens=IDENTIFIER_TOKENS)
        entities = made.value.entities
    except MalformedOutput:
        readable = False
    asked = clean_entities(entities, knowledge.latest)
    linked = await _link_entities([name for name, _ in asked], known, run, linking, threshold)
    queries: dict[str, tuple[str, ...]] = {}
    for link, (_, of_link) in zip(linked, asked, strict=True):
        so_far = queries.get(link.name, ())
        queries[link.name] = tuple(dict.fromkeys([*so_far, *of_link]))
    run.emit(
        Identified(knowledge.rounds + 1, tuple(linked), tuple(each for _, each in asked), readable)
    )
    return queries


async def make_single_query(knowledge: Knowledge, run: Run, *, written: bool) -> str:
    """Return the query without an Entity Identifier: the latest thought, or a `written` one."""
    query, readable = knowledge.latest, True
    if written:
        ask = partial(query_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.render_outline(run, ask, QUERY_TOKENS, Query)
        try:
            made = await run.structured(ask(outline), Query, max_tokens=QUERY_TOKENS)
            query = " ".join(made.value.query.split()) or query
        except MalformedOutput:
            readable = False
    run.emit(Identified(knowledge.rounds + 1, (), ((query,),), readable))
    return query


async def _link_entities(
    asked: Sequence[str], known: Sequence[str], run: Run, linking: Linking, threshold: float
) -> list[Link]:
    vectors = None
    if linking == "similar" and run.embedder is None:
        linking = "name"
        run.warn("entities are linked by their words alone: the run has no embedder")
    if linking == "similar":
        names = list(dict.fromkeys([*known, *asked]))
        vectors = dict(zip(names, await run.embed(names), strict=True))
    return link_names(asked, known, linking=linking, vectors=vectors, threshold=threshold)


_RRF = 60  # Cormack, Clarke and Buettcher (SIGIR 2009)


def join_rankings(found: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Join several rankings into one; equal scores keep the order of the queries."""
    if len(found) == 1:
        return list(found[0])
    sums: dict[str, Hit] = {}
    for hits in found:
        for place, hit in enumerate(hits, 1):
            so_far = sums.get(hit.passage.id)
            score = (so_far.score if so_far else 0.0) + 1 / (_RRF + place)
            sums[hit.passage.id] = replace(hit, score=score)
    return sorted(sums.values(), key=lambda hit: -hit.score)


def group_by_title(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Group passages by the title of their document, in the order of the best of each."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        title = " ".join(hit.passage.title.split()) or hit.passage.document_id
        groups.setdefault(title, []).append(hit)
    return groups
