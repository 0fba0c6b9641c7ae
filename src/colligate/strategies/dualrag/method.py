"""DualRAG: reason about what is missing, look it up by entity, keep an outline (Cheng et al. 2025).

Two processes in turn, with the question x, the outline K and the thoughts R:

1. Reasoning-augmented querying: the Reasoner has a thought r_t and decides whether knowledge is
   missing (f_t; equation 3). If so, the Entity Identifier names entities e with queries Q_e
   (equation 5); the passages of all queries of an entity are united and ranked (equations 6 to 8).
2. Progressive knowledge aggregation: the Knowledge Summarizer states what the new passages say of
   each entity (equation 9), and the statements are appended to the outline (equation 10).

When nothing is missing the reader answers from x, K_T and R_T (equation 4).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from colligate.concurrency import gather
from colligate.core.answer import NOT_FOUND, Answer, Form
from colligate.core.events import Event, pluralize, to_plain
from colligate.core.fit import Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.prompts import Reasoning, parse_sentence
from colligate.core.run import Run, show_ranked
from colligate.core.strategy import Needs
from colligate.core.units import join_rankings
from colligate.documents import Document, Hit, Passage, Span
from colligate.documents.locating import locate
from colligate.documents.sentences import split_sentences
from colligate.errors import BudgetExceeded, ColligateError, MalformedOutput, ModelError
from colligate.library.sources import SearchMode
from colligate.models import Message, Role
from colligate.readers.citing import Cited, finish, locate_statements
from colligate.readers.lookup import reserve_for_answer
from colligate.strategies.dualrag.knowledge import ELSE, Fragment, Knowledge, Stop
from colligate.strategies.dualrag.prompts import (
    IDENTIFIER_TOKENS,
    QUERY_TOKENS,
    REASONER_TOKENS,
    SENTENCE_TOKENS,
    STEPS,
    SUMMARY_TOKENS,
    Entities,
    Query,
    Summary,
    clean_entities,
    identifier_messages,
    query_messages,
    reasoner_messages,
    sentence_messages,
    summarizer_messages,
)

_RAW = "knowledge"  # the only heading if passages are not summarised
_LONGEST_THOUGHT = 1000  # characters


@dataclass(frozen=True)
class DualRAG:
    """Reason over an outline of knowledge and look up by entity what it misses, until it suffices.

    The rounds end when the Reasoner misses nothing, which may be at once, or after `rounds`. An
    outline that stays empty is a refusal, unless the reader answers from outline and thoughts alone
    (`reader_tokens` 0). Without a reranker the rankings of an entity's queries are joined by
    reciprocal rank fusion.

    `prompts` is read by `core.prompt_files`. The `..._adapter` fields put a LoRA adapter on the
    reader for a step; a model that was trained by the recipe `dualrag` needs none. The `no_...`
    fields, `ei2` and `flat_outline` are the paper's ablations.

    Attributes:
        rounds: most rounds of reasoning and looking up
        retrieved: passages of the search for each query
        k: passages that are read for each entity
        summaries: statements, each with a quote that is verified (quoted), or a text in the model's
            own words (free)
        reader_tokens: most tokens of the passages behind the outline that the reader is shown
            whole, beside outline and thoughts; 0: outline and thoughts alone
        reasoner_adapter: LoRA adapter of the step that reasons
        identifier_adapter: LoRA adapter of the step that names entities
        summarizer_adapter: LoRA adapter of the step that summarises
        prompts: file with prompts of your own for reasoner, identifier, summarizer
        no_reasoner: leave out the reasoning: a chain of single sentences, as IRCoT (w/o R)
        no_entities: leave out entities: the thought is the query (w/o EI)
        ei2: leave out entities: the model writes one query (EI2)
        no_outline: leave out summaries: the passages themselves are kept (w/o KO)
        flat_outline: do not sort summaries by entity (w/o KO*)
        no_rerank: leave out the reranker
    """

    name: ClassVar[str] = "dualrag"
    needs: ClassVar[Needs] = Needs(reranker="minilm")
    PAPER: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"mode": "dense", "summaries": "free", "reader_tokens": "0"}
    )

    rounds: int = 5  # T; section 4.3
    retrieved: int = 50  # section 4.3, equation 6
    k: int = 10  # section 4.3, equation 8
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    summaries: Literal["quoted", "free"] = "quoted"  # the paper: free
    reader_tokens: int = 6000  # the paper: 0
    form: Form = Form.JOINED
    reasoner_adapter: str | None = None
    identifier_adapter: str | None = None
    summarizer_adapter: str | None = None
    prompts: str | None = None

    no_reasoner: bool = False
    no_entities: bool = False
    ei2: bool = False
    no_outline: bool = False
    flat_outline: bool = False
    no_rerank: bool = False
    templates: Mapping[str, PromptTemplate] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        apply_prompts(self, STEPS)
        require_min(self, rounds=0, retrieved=1, k=1, reader_tokens=0)

    async def answer(self, question: str, run: Run) -> Answer:
        """Learn, then answer from what is known (equation 4)."""
        refused = Answer(question, "", NOT_FOUND, False)
        if not (run.composed or any(i.passages for i in await run.sources.documents())):
            return finish(refused, Cited("", (), ()), run)
        knowledge = await self.learn(question, run)
        if self.reader_tokens and not knowledge.rounds:
            # The paper answers from memory then, for which nothing can be cited.
            hits = await run.search(question, k=self.k, pool=self.retrieved, mode=self.mode)
            return await run.read(question, show_ranked(hits), form=self.form)
        if self.reader_tokens and not knowledge.size:
            run.warn("nothing was learnt from the documents: the outline is empty")
            return finish(refused, Cited("", (), ()), run)
        kept = not self.no_outline
        shown, notes = await knowledge.for_reader(run, self.reader_tokens, outline=kept)
        return await run.read(
            question, shown, form=self.form, known=knowledge.stated if kept else (), notes=notes
        )

    async def learn(self, question: str, run: Run) -> Knowledge:
        """Reason, look up and summarise in rounds, with tokens reserved for the answer."""
        adapters = (self.reasoner_adapter, self.identifier_adapter, self.summarizer_adapter)
        runs = [await run.with_adapter(Role.READER, adapter) for adapter in adapters]
        knowledge = Knowledge(question, flat=self.no_outline or self.flat_outline)  # K_0
        with reserve_for_answer(run, lambda: run.meter.calls or knowledge.size):
            knowledge.stop = await self._rounds(knowledge, *runs)
        run.emit(Stopped(knowledge.rounds, knowledge.stop))
        return knowledge

    async def _rounds(
        self, knowledge: Knowledge, reasoner: Run, identifier: Run, summarizer: Run
    ) -> Stop:
        """Alternate the two processes (equations 1 and 2); return why they ended.

        Each step has its own adapter. The last round is not reasoned over, as in the code.
        """
        for t in range(1, self.rounds + 1):
            need = await self._reason(knowledge, reasoner)  # r_t, f_t (3)
            if not need:
                return Stop.ENOUGH
            sought = await self._query(knowledge, identifier)  # Q_e (5), D'_e (6 to 8)
            await self._aggregate(knowledge, summarizer, sought)  # k_t^e (9), K_t (10)
            knowledge.rounds = t
        return Stop.ROUNDS

    # 1. Reasoning-augmented querying

    async def _reason(self, knowledge: Knowledge, run: Run) -> bool:
        """Add r_t to the thoughts and return f_t (equation 3); true if the reply cannot be read."""
        question, thoughts = knowledge.question, knowledge.thoughts
        readable = True
        with run.meter.step("reasoner"):
            if self.no_reasoner:
                ask = partial(sentence_messages, question, thoughts=thoughts)
                outline = await knowledge.render_outline(run, ask, SENTENCE_TOKENS)
                reply = await run.chat(ask(outline), max_tokens=SENTENCE_TOKENS)
                made = parse_sentence(reply.text)
            else:
                template = self.templates.get("reasoner")
                ask = partial(reasoner_messages, question, thoughts=thoughts, template=template)
                outline = await knowledge.render_outline(run, ask, REASONER_TOKENS, Reasoning)
                try:
                    made = (
                        await run.structured(ask(outline), Reasoning, max_tokens=REASONER_TOKENS)
                    ).value
                except MalformedOutput as error:
                    prose = "" if "{" in error.reply else error.reply
                    made, readable = Reasoning(thought=prose, need_retrieve=True), False
        thought = " ".join(made.thought.split())[:_LONGEST_THOUGHT]
        run.emit(Reasoned(knowledge.rounds + 1, thought, made.need_retrieve, readable))
        if thought and thought not in thoughts:
            thoughts.append(thought)
        return made.need_retrieve

    async def _query(self, knowledge: Knowledge, run: Run) -> list[_Sought]:
        """Return what to look up by entity, with the passages for each (equations 5 to 8)."""
        with run.meter.step("identifier"):
            if self.ei2 or self.no_entities:
                query = await make_single_query(knowledge, run, written=self.ei2)
                entities: dict[str, tuple[str, ...]] = {
                    knowledge.question if self.ei2 else ELSE: (query,)
                }
            else:
                template = self.templates.get("identifier")
                entities = await identify_entities(knowledge, run, template)
        sought = await gather(self._retrieve(*each, run) for each in entities.items())
        if self.no_entities and not self.ei2:
            sought = _group_by_title(sought[0])
        for each in sought:
            each.new = knowledge.unseen(self._heading(each), [hit.passage for hit in each.hits])
            redundant = knowledge.count_redundant([best[: self.k] for best in each.ranked])
            run.emit(
                Gathered(
                    round=knowledge.rounds + 1,
                    entity=each.entity,
                    queries=each.queries,
                    spans=tuple(hit.passage.span for hit in each.hits),
                    scores=tuple(hit.score for hit in each.hits),
                    how=each.how,
                    unseen=tuple(passage.span for passage in each.new),
                    redundant=redundant,
                )
            )
        return sought

    async def _retrieve(self, name: str, queries: tuple[str, ...], run: Run) -> _Sought:
        """Return D'_e, the best passages for an entity (equations 6 to 8)."""
        ranked = await gather(  # D_q
            run.search(query, k=self.retrieved, mode=self.mode) for query in queries
        )
        hits = join_rankings(ranked)  # D_e
        how = "search" if len(queries) == 1 else "reciprocal rank fusion"
        if not self.no_rerank and await run.suits_reranker([hit.passage for hit in hits]):
            by = ", ".join(queries) if name == ELSE else name  # e, as in the code
            hits = await run.reorder(by, hits, mode=self.mode)
            how = f"reranked for “{by}”"
        return _Sought(name, queries, hits[: self.k], how, ranked)

    def _heading(self, sought: _Sought) -> str:
        return _RAW if self.no_outline else sought.entity

    # 2. Progressive knowledge aggregation

    async def _aggregate(self, knowledge: Knowledge, run: Run, sought: Sequence[_Sought]) -> None:
        """Summarise what is new for each entity (equation 9) and append it (equation 10).

        The summaries beside one that fails are appended before its error is raised.
        """
        sought = [each for each in sought if each.new]
        with run.meter.step("summarizer"):
            summaries = await gather(self._summarise(knowledge, run, each) for each in sought)
        # Merge in the order of the entities, whichever summary came first.
        for each, summary in zip(sought, summaries, strict=True):
            if not isinstance(summary, ColligateError):
                knowledge.merge(self._heading(each), *summary)
        outline = {name: tuple(each.fragments) for name, each in knowledge.entities.items()}
        run.emit(Outlined(knowledge.rounds + 1, outline))
        if failed := [each for each in summaries if isinstance(each, ColligateError)]:
            raise failed[0]

    async def _summarise(
        self, knowledge: Knowledge, run: Run, sought: _Sought
    ) -> tuple[list[Fragment], list[Passage]] | ColligateError:
        """Return k_t^e (equation 9) and the new passages that it is of; or the failure."""
        passages = sought.new
        if self.no_outline:
            raw = (f"{each.full_title}\n{each.text.strip()}" for each in passages)
            spans = ((each.span,) for each in passages)
            return list(map(Fragment, raw, spans)), passages
        free = self.summaries == "free"
        ask = partial(
            summarizer_messages,
            knowledge.question,
            knowledge.thoughts,
            (sought.entity, sought.queries),
            free=free,
            template=self.templates.get("summarizer"),
        )
        schema = None if free else Summary
        said, fragments, readable = 0, list[Fragment](), True
        try:
            passages = await fit_window(passages, ask, run, Room(SUMMARY_TOKENS, schema=schema))
            write = write_freely if free else write_statements
            said, fragments = await write(knowledge.question, passages, ask(passages), run)
        except MalformedOutput as error:
            readable = False
            run.warn(f"what was found for “{sought.entity}” is not summarised: {error.what}")
        except (BudgetExceeded, ModelError) as error:
            return error
        found = tuple(fragments)
        run.emit(Summarised(knowledge.rounds + 1, sought.entity, said, found, readable))
        return fragments, passages


@dataclass
class _Sought:
    """An entity, its queries, its best passages D'_e, how they are ranked, what each query found.

    `new` are the passages not read for the entity yet: D'_e without seen_e.
    """

    entity: str
    queries: tuple[str, ...]
    hits: Sequence[Hit]
    how: str
    ranked: Sequence[Sequence[Hit]] = ()
    new: list[Passage] = field(default_factory=list)


async def identify_entities(
    knowledge: Knowledge, run: Run, template: PromptTemplate | None = None
) -> dict[str, tuple[str, ...]]:
    """Return Q_e by entity (equation 5); the latest thought if the reply names no entity."""
    ask = partial(
        identifier_messages,
        knowledge.question,
        thoughts=knowledge.thoughts,
        names=knowledge.shown_entities,
        template=template,
    )
    outline = await knowledge.render_outline(run, ask, IDENTIFIER_TOKENS, Entities)
    try:
        made = await run.structured(ask(outline), Entities, max_tokens=IDENTIFIER_TOKENS)
        wanted, readable = made.value.entities, True
    except MalformedOutput:
        wanted, readable = [], False
    queries = dict(clean_entities(wanted, knowledge.latest))
    run.emit(Identified(knowledge.rounds + 1, tuple(queries), tuple(queries.values()), readable))
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


def _group_by_title(found: _Sought) -> list[_Sought]:
    """Group passages by the title of their document, in the order of the best of each."""
    groups: dict[str, list[Hit]] = {}
    for hit in found.hits:
        title = " ".join(hit.passage.full_title.split()) or hit.passage.document_id
        groups.setdefault(title, []).append(hit)
    return [
        _Sought(title, found.queries, hits, found.how, () if at else found.ranked)
        for at, (title, hits) in enumerate(groups.items())
    ]


async def write_statements(
    question: str, passages: Sequence[Passage], messages: Sequence[Message], run: Run
) -> tuple[int, list[Fragment]]:
    """Return how many statements a summary has, and those whose quotes are in the passages."""
    reply = (await run.structured(messages, Summary, max_tokens=SUMMARY_TOKENS)).value
    stated = await locate_statements(question, reply.statements, passages, run)
    fragments = [Fragment(each.sentence, tuple(p.span for p in each.places)) for each in stated]
    return len(reply.statements), fragments


async def write_freely(
    question: str, passages: Sequence[Passage], messages: Sequence[Message], run: Run
) -> tuple[int, list[Fragment]]:
    """Return the sentences of a free summary; those that are copied have their place."""
    text = (await run.chat(messages, max_tokens=SUMMARY_TOKENS)).text.strip()
    if re.fullmatch(r"\W*(?:none|null)?\W*", text, re.IGNORECASE):
        return 0, []
    documents = await run.documents_of(passages)
    language = documents[passages[0].document_id].language
    sentences = [text[start:end].strip() for start, end in split_sentences(text, language)]
    fragments = await asyncio.to_thread(_place, sentences, passages, documents)
    return len(fragments), fragments


def _place(
    sentences: Sequence[str], passages: Sequence[Passage], documents: Mapping[str, Document]
) -> list[Fragment]:
    fragments = []
    for sentence in filter(None, sentences):
        found = (
            locate(sentence, documents[each.document_id], within=each.span, verbatim=True)
            for each in passages
        )
        spans = tuple(location.span for location in found if location is not None)
        made_from = tuple(each.span for each in passages)
        fragments.append(Fragment(sentence, spans or made_from, located=bool(spans)))
    return fragments


@dataclass(frozen=True)
class Reasoned(Event):
    """The Reasoner had a thought. `readable` is False if its reply was used as it was.

    Rounds count from 1 in all these events.
    """

    round: int
    thought: str
    need_retrieve: bool
    readable: bool = True

    def line(self) -> str:
        return f"round {self.round}: {self.thought}"


@dataclass(frozen=True)
class Identified(Event):
    """The entities that will be looked up, and the queries of each.

    `readable` is False if the Entity Identifier's reply could not be read: the thought itself is
    looked up then.
    """

    round: int
    entities: tuple[str, ...]
    queries: tuple[tuple[str, ...], ...]
    readable: bool = True

    def line(self) -> str:
        names = self.entities or [query for row in self.queries for query in row]
        return f"round {self.round}: looking up {', '.join(names)}"

    @property
    def counts(self) -> Mapping[str, float]:
        return {"queries": sum(map(len, self.queries))}

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "links": [{"name": name} for name in self.entities]}


@dataclass(frozen=True)
class Gathered(Event):
    """The passages kept for an entity, best first, and those of them not yet read for it.

    `redundant` queries found nothing that earlier queries of the run had not found.
    """

    round: int
    entity: str
    queries: tuple[str, ...]
    spans: tuple[Span, ...]
    scores: tuple[float, ...]
    how: str
    unseen: tuple[Span, ...]
    redundant: int = 0

    def line(self) -> str:
        return f"reading {pluralize(len(self.unseen), 'passage')} about {self.entity}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"gathered": [span.document_id for span in self.spans]}

    @property
    def counts(self) -> Mapping[str, float]:
        return {"redundant_queries": self.redundant}


@dataclass(frozen=True)
class Summarised(Event):
    """New passages were summarised: the model made `said` statements, these are in the outline."""

    round: int
    entity: str
    said: int
    fragments: tuple[Fragment, ...]
    readable: bool = True

    def line(self) -> str:
        said = pluralize(self.said, "statement")
        return f"{self.entity}: {len(self.fragments)} of {said} found in the passages"


@dataclass(frozen=True)
class Outlined(Event):
    """The outline after a round: the fragments of each entity."""

    round: int
    entities: Mapping[str, tuple[Fragment, ...]]

    def line(self) -> str:
        fragments = pluralize(sum(map(len, self.entities.values())), "fragment")
        return (
            f"the outline has {fragments} of {pluralize(len(self.entities), 'entity', 'entities')}"
        )

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        fragments = (each for known in self.entities.values() for each in known)
        return {"outlined": [span.document_id for each in fragments for span in each.spans]}

    def to_json(self) -> dict[str, Any]:
        known = [{"name": name, "fragments": to_plain(f)} for name, f in self.entities.items()]
        return {**super().to_json(), "entities": known}


@dataclass(frozen=True)
class Stopped(Event):
    """The loop ended after so many rounds."""

    rounds: int
    reason: Stop

    def line(self) -> str:
        return f"stopped after {pluralize(self.rounds, 'round')}: {_WHY[self.reason]}"


_WHY = {
    Stop.ENOUGH: "nothing is missing",
    Stop.ROUNDS: "the limit of rounds is reached",
    Stop.BUDGET: "the rest of the token budget is reserved for the answer",
}
