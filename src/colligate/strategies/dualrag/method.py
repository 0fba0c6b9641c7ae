"""DualRAG: reason about what is missing, look it up by entity, keep an outline (Cheng et al. 2025).

Two processes in turn, with the question x, the outline K and the thoughts R:

1. Reasoning-augmented querying: the Reasoner has a thought r_t and decides whether knowledge is
   missing (f_t; equation 3). If so, the Entity Identifier names entities e with queries Q_e
   (equation 5); the passages of all queries of an entity are united and ranked (equations 6 to 8).
2. Progressive knowledge aggregation: the Knowledge Summarizer states what the new passages say of
   each entity (equation 9), and the statements are appended to the outline (equation 10).

The reader answers from K_T and R_T (equation 4), and from the passages: those behind the outline
first, then the others that were gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.apart import cites_as_small, read_ranked
from colligate.core.citing import Stated
from colligate.core.fit import fit_window
from colligate.core.lookup import Lookup, answer_from, reserve_for_answer
from colligate.core.parameters import require_min
from colligate.core.prompts import Reasoning, parse_sentence
from colligate.core.reader import Form, ask_statements
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.subject import check_subject
from colligate.core.units import join_rankings
from colligate.documents import Hit, Passage
from colligate.documents.sentences import sentence_spans
from colligate.errors import BudgetExceeded, ColligateError, MalformedOutput, ModelError
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role
from colligate.strategies.dualrag.events import (
    Gathered,
    Identified,
    Outlined,
    OutlineEntity,
    QuestionSplit,
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
    quote_sentence,
)
from colligate.strategies.dualrag.plan import QuestionPlan, answer_plan, split_question
from colligate.strategies.dualrag.prompts import (
    CHOICE_TOKENS,
    IDENTIFIER_TOKENS,
    QUERY_TOKENS,
    REASONER_TOKENS,
    SENTENCE_TOKENS,
    STEP_TOKENS,
    SUMMARY_TOKENS,
    Choice,
    Entities,
    FactsFirst,
    FactsStep,
    NumberedPassage,
    Query,
    Summary,
    Wanted,
    chooser_messages,
    clean_entities,
    identifier_messages,
    query_messages,
    reasoner_messages,
    reasoner_schema,
    recover_thought,
    sentence_messages,
    step_messages,
    step_schema,
    summarizer_messages,
)

_LONGEST_QUERY = 300  # characters of a passage that is looked up
_READ = 6  # passages for a step of a plan; what a small reader is shown of a search
_RAW = "knowledge"  # the only heading if passages are not summarised


@dataclass(frozen=True)
class DualRAG:
    """Reason over an outline of knowledge and look up by entity what it misses, until it suffices.

    Knowledge has its place in the documents. Of the statements that the Knowledge Summarizer
    writes, those that the passages support go into the outline, the rest is dropped. Sentences
    that it names instead go in as they are.

    The reader is shown the passages behind the outline, then the others that were gathered, best
    first by turns of the entities, up to `reader_tokens` together; outline and thoughts are notes.
    Among them are those that the question finds, and the text of the `bridges` best passages: the
    next step of a chain is often named there, and a search costs no call.

    In the `first_round` the verdict of the Reasoner does not count (`retrieve_first`): `identify`
    asks the Entity Identifier alone, `question` neither; it looks up the question itself, and its
    `bridges`. With `plan` there are no rounds of thoughts (`plan.py`).

    The rounds end when the Reasoner misses nothing, when it repeats itself and nothing was new,
    after `patience` rounds without anything new, or after `rounds`. Without a reranker the rankings
    of an entity's queries are joined by reciprocal rank fusion.

    The `..._adapter` fields put a LoRA adapter on the reader for a step. The `no_...` fields and
    `ei2` are the paper's ablations.

    Attributes:
        rounds: most rounds of reasoning and looking up
        retrieved: passages of the search for each query
        k: passages that are read for each entity
        rerank_by: rerank by the name of the entity, or by its queries
        least_score: leave out passages whose reranker's score is not above this; none: keep all
        linking: when two names mean one entity: same characters, same words, or similar meaning
        link_threshold: cosine similarity from which names have a similar meaning
        patience: rounds in a row without anything new after which it ends
        retrieve_first: look something up before the model may say that nothing is missing
        first_round: what the first round looks up: what reasoning asks for (reason), entities
            (identify), or the question (question); or split the question into simple ones, answered
            in turn (plan); auto: plan for small readers without adapters, else question
        one_reply: ask for thought and entities in one call; auto: if the reader can follow schemas
            and neither step has an adapter
        summaries: the model writes statements, each with a quote (written), or names sentences
            (chosen); auto: chosen, unless the step has an adapter
        bridges: best passages whose own text is searched for, which costs no call
        reader_tokens: most tokens of the passages that the answer is read from
        reasoner_adapter: LoRA adapter of the step that reasons
        identifier_adapter: LoRA adapter of the step that names entities
        summarizer_adapter: LoRA adapter of the step that summarises
        no_reasoner: leave out the reasoning: a chain of single sentences, as IRCoT (w/o R)
        no_entities: leave out entities: the thought is the query (w/o EI)
        ei2: leave out entities: the model writes one query (EI2)
        no_outline: leave out summaries: the passages themselves are kept (w/o KO)
        flat_outline: do not sort summaries by entity (w/o KO*)
        no_rerank: leave out the reranker
    """

    name: ClassVar[str] = "dualrag"
    needs: ClassVar[Needs] = Needs(reranker="minilm")
    calls: ClassVar[Calls] = Calls(10)

    rounds: int = 5  # section 4.1
    retrieved: int = 50
    k: int = 10
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    rerank_by: Literal["entity", "queries"] = "entity"  # the code; not in the paper
    least_score: float | None = None  # the code: 0, of a reranker whose scores are logits
    linking: Linking = "similar"  # the code: exact
    link_threshold: float = 0.95
    patience: int = 2  # the code: always runs to the last round
    retrieve_first: bool = True  # the paper: may answer without looking anything up
    first_round: Literal["auto", "reason", "identify", "question", "plan"] = "auto"  # paper: reason
    one_reply: Literal["auto", "true", "false"] = "auto"  # the paper: two calls
    summaries: Literal["auto", "written", "chosen"] = "auto"  # the paper: written
    bridges: int = 2  # 2HopRAG (appendix H.1) looks up every passage; DualRAG none
    reader_tokens: int = 3000  # the paper's reader sees no passages
    form: Form = Form.JOINED
    reasoner_adapter: str | None = None
    identifier_adapter: str | None = None
    summarizer_adapter: str | None = None

    no_reasoner: bool = False
    no_entities: bool = False
    ei2: bool = False
    no_outline: bool = False
    flat_outline: bool = False
    no_rerank: bool = False

    def __post_init__(self) -> None:
        require_min(self, rounds=1, retrieved=1, k=1, patience=1, reader_tokens=1, bridges=0)

    async def answer(self, question: str, run: Run, known: Knowledge | None = None) -> Answer:
        """Learn, then answer from what was learnt (equation 4).

        Rounds begin with what is `known`; a plan has steps of its own.
        """
        found = Lookup(run, self.k, self.retrieved, self.mode)
        if not await found.possible():
            return await answer_from(question, [], run, strategy=self.name, form=self.form)
        if self._plans(run):
            return await self._answer_by_plan(question, run)
        knowledge = await self.learn(question, run, known)
        found.searches = list(knowledge.gathered)
        if self.bridges or not knowledge.outline.size:  # the last resort: the question itself
            with reserve_for_answer(run, lambda: True):
                await self._bridge(question, found, knowledge.behind)
        sources, notes = await knowledge.for_reader(
            run,
            self.form,
            found.by_turns(len(found.passages)),
            tokens=self.reader_tokens,
            outline=not self.no_outline,
        )
        with run.meter.step("answer"):
            return await answer_from(
                question,
                sources,
                run,
                strategy=self.name,
                form=self.form,
                notes=notes,
                known=[] if self.no_outline else knowledge.stated,
            )

    def _plans(self, run: Run) -> bool:
        """Return whether the question is split into simple ones before anything is looked up."""
        if self.first_round != "auto":
            return self.first_round == "plan"
        adapted = self.reasoner_adapter or self.identifier_adapter or self.summarizer_adapter
        ablated = self.no_reasoner or self.no_entities or self.ei2 or self.no_outline
        return cites_as_small(run) and not (adapted or ablated or self.flat_outline)

    async def _answer_by_plan(self, question: str, run: Run) -> Answer:
        """Answer the simple questions of a plan one after the other, and put them together.

        If a step has no answer, or their answers give none together, the passages behind the
        outline are read with the best ones for the question itself and, if these are few, of the
        steps.
        """
        knowledge, made = Knowledge(question), QuestionPlan(question, [question])
        answer: Answer | None = None
        with reserve_for_answer(run, lambda: knowledge.gathered):
            with run.meter.step("reasoner"):
                made.steps = await split_question(question, run)
            run.emit(QuestionSplit(tuple(made.steps)))
            for number in range(1, len(made.steps) + 1):
                answer = await self._take_step(number, made, knowledge, run)
                if number not in made.answers:
                    break
            knowledge.stop = Stop.ENOUGH if made.complete else Stop.NOTHING_NEW
        run.emit(Stopped(knowledge.rounds, knowledge.stop))
        if answer is not None and len(made.steps) == 1:
            return replace(answer, question=question)
        evidence = [piece for _, piece in knowledge.sources]
        if made.complete:
            answer = await answer_plan(made, run, strategy=self.name, evidence=evidence)
            if answer is not None:
                return answer
        found = Lookup(run, _READ, self.retrieved, self.mode)
        with reserve_for_answer(run, lambda: True):
            await found.search(question)
        best = dict.fromkeys([*knowledge.behind, *found.passages])
        if len(best) < _READ:  # more would mislead a small reader
            found.searches = list(knowledge.gathered)
            best |= dict.fromkeys(passage for passage, _ in found.by_turns(_READ))
        hits = [Hit(passage, 1 / rank) for rank, passage in enumerate(best, 1)]
        with run.meter.step("answer"):
            return await self._read_found(question, hits[:_READ], run, knowledge.stated)

    async def _take_step(
        self, number: int, made: QuestionPlan, knowledge: Knowledge, run: Run
    ) -> Answer:
        """Look up a simple question, add its answer to plan and outline, and return it."""
        asked = made.fill(number)
        run.emit(Identified(number, (), ((asked,),)))
        hits = await run.search(asked, k=_READ, pool=self.retrieved, mode=self.mode)
        passages = tuple(hit.passage for hit in hits)
        sought = _Sought(asked, asked, (asked,), passages)
        self._note_gathered(knowledge, sought, hits, "search", [hits], run)
        with run.meter.step("summarizer"):
            answer = await check_subject(await self._read_found(asked, hits, run), run)
        stated = made.record(number, answer)
        fragments = []
        if stated is not None:
            fragments = [Fragment(stated.sentence, tuple(each.span for each in stated.places))]
        run.emit(Summarised(number, asked, int(answer.found), tuple(fragments)))
        _note_outlined(knowledge, knowledge.merge(asked, fragments, passages), run)
        knowledge.rounds = number
        return answer

    async def _read_found(
        self, question: str, hits: Sequence[Hit], run: Run, known: Sequence[Stated] = ()
    ) -> Answer:
        """Answer from passages, best first: a small reader reads each alone first."""
        return await read_ranked(
            question,
            hits,
            run,
            strategy=self.name,
            why=f"of the search for “{question}”",
            form=self.form,
            known=known,
        )

    async def learn(self, question: str, run: Run, known: Knowledge | None = None) -> Knowledge:
        """Reason, look up and summarise in rounds, with tokens reserved for the answer.

        A budget that ends, or a model that fails, before a first thought raises the error.
        """
        adapters = (self.reasoner_adapter, self.identifier_adapter, self.summarizer_adapter)
        runs = [await run.with_adapter(Role.READER, adapter) for adapter in adapters]
        knowledge = known or Knowledge(question, flat=self.no_outline or self.flat_outline)
        with reserve_for_answer(run, lambda: knowledge.thoughts or knowledge.gathered):
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
            repeated, wanted = False, None
            if number > 1 or self.first_round == "reason" or not self.retrieve_first:
                reasoning, wanted = await self._reason(knowledge, reasoner)
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
            sought = await self._query(knowledge, identifier, wanted)
            new = await self._aggregate(knowledge, summarizer, sought)
            knowledge.rounds = number
            barren = 0 if new else barren + 1
            if barren == self.patience:
                return Stop.NOTHING_NEW
        return Stop.ROUNDS  # the last round is not reasoned over, as in the code

    async def _reason(
        self, knowledge: Knowledge, run: Run
    ) -> tuple[Reasoning, Sequence[Wanted] | None]:
        """Return r_t and f_t (equation 3); if asked for in one reply, also the entities."""
        with run.meter.step("reasoner"):
            if self._asks_in_one(run):
                return await reason_and_identify(knowledge, run)
            return await reason(knowledge, run, sentences=self.no_reasoner), None

    @property
    def _asks_question_first(self) -> bool:
        return self.retrieve_first and self.first_round in ("auto", "question", "plan")

    def _asks_in_one(self, run: Run) -> bool:
        if self.no_reasoner or self.no_entities or self.ei2:
            return False
        if self.one_reply == "auto":
            adapted = self.reasoner_adapter or self.identifier_adapter
            return not adapted and Capability.STRUCTURED in run.model(Role.READER).capabilities
        return self.one_reply == "true"

    async def _query(
        self, knowledge: Knowledge, run: Run, wanted: Sequence[Wanted] | None
    ) -> list[_Sought]:
        """Return what to look up by entity, with the passages for each (equations 5 to 8).

        `wanted` are the entities if the Reasoner has named them.
        """
        if self.no_entities or self.ei2:
            with run.meter.step("identifier"):
                query = await make_single_query(knowledge, run, written=self.ei2)
            name = knowledge.question if self.ei2 else ELSE
            hits, how, ranked = await self._retrieve(name, (query,), run)
            groups = {name: hits} if self.ei2 else group_by_title(hits)
            entities: dict[str, tuple[str, ...]] = dict.fromkeys(groups, (query,))
            retrieved = [
                (of_it, how, ranked if not n else []) for n, of_it in enumerate(groups.values())
            ]
        elif self._asks_question_first and not knowledge.rounds:
            entities = {ELSE: (knowledge.question,)}
            found = Lookup(run, self.k, self.retrieved, self.mode)
            hits = await self._bridge(knowledge.question, found)
            retrieved = [(hits, "search and bridges", [hits])]
            run.emit(Identified(1, (), ((knowledge.question,),)))
        else:
            with run.meter.step("identifier"):
                entities = await identify_entities(
                    knowledge, run, wanted, linking=self.linking, threshold=self.link_threshold
                )
            retrieved = await gather(
                self._retrieve(name, queries, run) for name, queries in entities.items()
            )
        sought = []
        for (name, queries), (hits, how, ranked) in zip(entities.items(), retrieved, strict=True):
            heading = _RAW if self.no_outline else name
            unseen = knowledge.outline.unseen(heading, [hit.passage for hit in hits])
            sought.append(_Sought(name, heading, queries, tuple(unseen)))
            self._note_gathered(knowledge, sought[-1], hits, how, ranked, run)
        return sought

    def _note_gathered(
        self,
        knowledge: Knowledge,
        sought: _Sought,
        hits: list[Hit],
        how: str,
        ranked: Sequence[Sequence[Hit]],
        run: Run,
    ) -> None:
        """Remember and report the passages for an entity; `ranked` are those of each query."""
        knowledge.gathered.append((sought.name, hits))
        run.emit(
            Gathered(
                round=knowledge.rounds + 1,
                entity=sought.name,
                queries=sought.queries,
                spans=tuple(hit.passage.span for hit in hits),
                scores=tuple(hit.score for hit in hits),
                how=how,
                unseen=tuple(passage.span for passage in sought.unseen),
                redundant=knowledge.count_redundant([best[: self.k] for best in ranked]),
            )
        )

    async def _retrieve(
        self, name: str, queries: Sequence[str], run: Run
    ) -> tuple[list[Hit], str, list[list[Hit]]]:
        """Return D'_e (equations 6 to 8), the best passages for an entity, how they are ranked, and
        D_q, what each query found.

        With a reranker they are ranked by its score, after those at or below `least_score` are
        left out; otherwise the rankings of the queries are joined by reciprocal rank fusion. So are
        they if the reranker counts beside a search.
        """
        beside = run.weight_beside_search is not None and not self.no_rerank
        found = await gather(
            run.search(
                query, k=self.k if beside else self.retrieved, pool=self.retrieved, mode=self.mode
            )
            for query in queries
        )
        passages = {hit.passage.id: hit.passage for hits in found for hit in hits}
        suits = not self.no_rerank and await run.suits_reranker(list(passages.values()))
        how = "search" if len(queries) == 1 else "reciprocal rank fusion"
        if beside or not suits or not passages:
            return join_rankings(found)[: self.k], how, found
        by_queries = self.rerank_by == "queries" or name == ELSE
        rerank_query = ", ".join(queries) if by_queries else name
        try:
            scores = await run.rerank(rerank_query, list(passages.values()))
        except ModelError as error:
            run.continue_unranked(error)
            return join_rankings(found)[: self.k], how, found
        hits = [Hit(passage, s) for passage, s in zip(passages.values(), scores, strict=True)]
        if self.least_score is not None:
            hits = [hit for hit in hits if hit.score > self.least_score]
        hits.sort(key=lambda hit: -hit.score)
        return hits[: self.k], f"reranked for “{rerank_query}”", found

    async def _bridge(
        self, question: str, found: Lookup, first: Sequence[Passage] = ()
    ) -> list[Hit]:
        """Look up the question, then the text of the best passages, those of `first` first.

        Return half of `k` for the question, then by turns what the passages lead to, `k` together.
        """
        passages = dict.fromkeys([*first, *await found.search(question)])
        own, before = found.searches[-1][1], len(found.searches)
        for passage in list(passages)[: self.bridges]:
            await found.search(" ".join(passage.text.split())[:_LONGEST_QUERY])
        turns = zip_longest(*(hits for _, hits in found.searches[before:]))
        led = [hit for turn in turns for hit in turn if hit is not None]
        half = -(-self.k // 2)
        best: dict[str, Hit] = {}
        for hit in [*own[:half], *led, *own[half:]]:
            best.setdefault(hit.passage.id, hit)
        return list(best.values())[: self.k]

    async def _aggregate(self, knowledge: Knowledge, run: Run, sought: Sequence[_Sought]) -> bool:
        """Summarise what is new for each entity and append it (equation 10); return if K grew.

        The summaries beside one that fails are appended before its error is raised.
        """
        sought = [each for each in sought if each.unseen]
        with run.meter.step("summarizer"):
            summaries = await gather(self._summarise(knowledge, run, each) for each in sought)
        new: list[Fragment] = []
        failed: list[ColligateError] = []
        # Merge in the order of the entities, whichever summary came first.
        for each, summary in zip(sought, summaries, strict=True):
            if isinstance(summary, ColligateError):
                failed.append(summary)
                continue
            if summary.event is not None:
                run.emit(summary.event)
            new += knowledge.merge(each.heading, summary.fragments, summary.passages)
        _note_outlined(knowledge, new, run)
        if failed:
            raise failed[0]
        return bool(new)

    async def _summarise(
        self, knowledge: Knowledge, run: Run, sought: _Sought
    ) -> _Summarised | ColligateError:
        """Return k_t^e: what the new passages say of an entity (equation 9); or the failure."""
        if self.no_outline:
            raw = [
                Fragment(f"{each.full_title}\n{each.text.strip()}", (each.span,))
                for each in sought.unseen
            ]
            return _Summarised(raw, sought.unseen)

        written = self.summaries == "written"
        if self.summaries == "auto":
            written = self.summarizer_adapter is not None
        step = write_statements if written else choose_sentences
        said, readable, passages = 0, True, list(sought.unseen)
        fragments: list[Fragment] = []
        try:
            said, fragments, passages = await step(knowledge, run, sought)
        except MalformedOutput as error:
            readable = False
            run.warn(f"what was found for “{sought.name}” is not summarised: {error.what}")
        except (BudgetExceeded, ModelError) as error:
            return error
        event = Summarised(knowledge.rounds + 1, sought.name, said, tuple(fragments), readable)
        return _Summarised(fragments, passages, event)


def _note_outlined(knowledge: Knowledge, new: Sequence[Fragment], run: Run) -> None:
    """Report the outline, and what of it is new."""
    outline = tuple(
        OutlineEntity(name, tuple(entity.fragments))
        for name, entity in knowledge.outline.entities.items()
    )
    run.emit(Outlined(knowledge.rounds + 1, outline, tuple(new)))


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
    if sentences:
        ask = partial(sentence_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.render_outline(run, ask, SENTENCE_TOKENS)
        reply = await run.chat(ask(outline), max_tokens=SENTENCE_TOKENS)
        return _note_thought(knowledge, run, parse_sentence(reply.text))
    ask = partial(reasoner_messages, knowledge.question, thoughts=knowledge.thoughts)
    outline = await knowledge.render_outline(run, ask, REASONER_TOKENS, FactsFirst)
    schema = reasoner_schema(outline)
    try:
        made = (await run.structured(ask(outline), schema, max_tokens=REASONER_TOKENS)).value
    except MalformedOutput as error:
        return _note_thought(knowledge, run, error)
    return _note_thought(knowledge, run, made)


async def reason_and_identify(
    knowledge: Knowledge, run: Run
) -> tuple[Reasoning, Sequence[Wanted] | None]:
    """Return r_t and f_t (equation 3) and the entities (equation 5) of one reply.

    None for the entities means that the reply could not be read.
    """
    ask = partial(
        step_messages,
        knowledge.question,
        thoughts=knowledge.thoughts,
        names=knowledge.shown_entities,
    )
    outline = await knowledge.render_outline(run, ask, STEP_TOKENS, FactsStep)
    schema = step_schema(outline)
    try:
        made = (await run.structured(ask(outline), schema, max_tokens=STEP_TOKENS)).value
    except MalformedOutput as error:
        return _note_thought(knowledge, run, error), None
    return _note_thought(knowledge, run, made), made.entities


def _note_thought(
    knowledge: Knowledge, run: Run, made: Reasoning | FactsFirst | MalformedOutput
) -> Reasoning:
    """Record a thought and return it; a reply that cannot be read does not end the rounds."""
    if isinstance(made, MalformedOutput):
        text, need = recover_thought(made.reply), True
    else:
        text, need = made.thought, made.need_retrieve
    thought = " ".join(text.split())[:_LONGEST]
    facts = tuple(made.facts) if isinstance(made, FactsFirst) else ()
    readable = not isinstance(made, MalformedOutput)
    run.emit(Reasoned(knowledge.rounds + 1, thought, need, facts, readable))
    return Reasoning(thought=thought, need_retrieve=need)


async def identify_entities(
    knowledge: Knowledge,
    run: Run,
    wanted: Sequence[Wanted] | None = None,
    *,
    linking: Linking,
    threshold: float,
) -> dict[str, tuple[str, ...]]:
    """Return Q_e by entity (equation 5); the latest thought if the reply names no entity.

    The Entity Identifier is asked unless the entities that are `wanted` are given.
    """
    readable = True
    if wanted is None:
        ask = partial(
            identifier_messages,
            knowledge.question,
            thoughts=knowledge.thoughts,
            names=knowledge.shown_entities,
        )
        outline = await knowledge.render_outline(run, ask, IDENTIFIER_TOKENS, Entities)
        try:
            made = await run.structured(ask(outline), Entities, max_tokens=IDENTIFIER_TOKENS)
            wanted = made.value.entities
        except MalformedOutput:
            readable, wanted = False, []
    asked = clean_entities(wanted, knowledge.latest)
    known = [name for name in knowledge.outline.entities if name != ELSE]
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
        messages = query_messages(knowledge.question, knowledge.thoughts)
        try:
            made = await run.structured(messages, Query, max_tokens=QUERY_TOKENS)
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


def group_by_title(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Group passages by the title of their document, in the order of the best of each."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        title = " ".join(hit.passage.full_title.split()) or hit.passage.document_id
        groups.setdefault(title, []).append(hit)
    return groups


# 2. Progressive knowledge aggregation

_Knowledge = tuple[int, list[Fragment], list[Passage]]
"""How much the model named, what of it has a place, and the passages that were read."""


async def write_statements(knowledge: Knowledge, run: Run, sought: _Sought) -> _Knowledge:
    """Return what the passages say of an entity, in the model's words with the places of quotes."""
    ask = partial(
        summarizer_messages, knowledge.question, knowledge.thoughts, sought.name, sought.queries
    )
    passages = await fit_window(sought.unseen, ask, run, max_tokens=SUMMARY_TOKENS, schema=Summary)
    reply, found = await ask_statements(
        knowledge.question,
        passages,
        run,
        messages=ask(passages),
        schema=Summary,
        max_tokens=SUMMARY_TOKENS,
    )
    fragments = [Fragment(each.sentence, tuple(p.span for p in each.places)) for each in found]
    return len(reply.statements), fragments, passages


async def choose_sentences(knowledge: Knowledge, run: Run, sought: _Sought) -> _Knowledge:
    """Return the sentences of the passages that say something of an entity, as they are."""
    documents = await run.documents_of(sought.unseen)
    numbered: list[NumberedPassage] = []
    places: dict[int, Fragment] = {}
    for passage in sought.unseen:
        rows = []
        for span in sentence_spans(documents[passage.document_id], passage.span):
            number = len(places) + 1
            text = documents[passage.document_id].slice(span)
            places[number] = quote_sentence(passage, span, text)
            rows.append((number, text))
        numbered.append((passage, rows))

    ask = partial(
        chooser_messages, knowledge.question, knowledge.thoughts, sought.name, sought.queries
    )
    shown = await fit_window(
        numbered,
        ask,
        run,
        max_tokens=CHOICE_TOKENS,
        schema=Choice,
        span=lambda each: each[0].span,
    )
    reply = (await run.structured(ask(shown), Choice, max_tokens=CHOICE_TOKENS)).value
    last = max((number for _, rows in shown for number, _ in rows), default=0)
    chosen = [n for n in dict.fromkeys(reply.sentences) if 0 < n <= last]
    passages = [passage for passage, _ in shown]
    return len(reply.sentences), [places[number] for number in chosen], passages
