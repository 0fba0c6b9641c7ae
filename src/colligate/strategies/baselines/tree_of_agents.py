"""Tree of Agents: agents of parts read each other's parts in several orders, and vote (2025)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from pydantic import BaseModel

from colligate.documents import Passage
from colligate.documents.chunking import Structural
from colligate.errors import MalformedOutput
from colligate.evidence.citing import Evidence
from colligate.evidence.material import material
from colligate.evidence.merging import split_by_tokens
from colligate.evidence.reader import Form, Statement
from colligate.evidence.tree_of_agents import (
    Decision,
    Helpers,
    Judged,
    Opinion,
    Perception,
    ReadOn,
    decide_messages,
    exchange_messages,
    judge_messages,
    perceive_messages,
    read_on_messages,
    vote,
)
from colligate.library.passages import passages_of
from colligate.models import Message, Role
from colligate.strategies.answer import Answer
from colligate.strategies.at_least import at_least
from colligate.strategies.looking_up import Source, answered, before_the_answer
from colligate.strategies.reading import located
from colligate.strategies.run import Run
from colligate.strategies.side_by_side import side_by_side
from colligate.strategies.strategy import Needs
from colligate.token_estimate import estimate_tokens

T = TypeVar("T", bound=BaseModel)


@dataclass
class _Agent:
    """One agent: its part, what it found and where, and what it came to.

    `opinions` are (parts read, findings, conclusion) of each way through others' parts.
    """

    number: int
    part: list[Passage]
    findings: list[str] = field(default_factory=list)
    answer: str = ""
    grounds: list[Passage] = field(default_factory=list)
    opinions: list[tuple[int, Opinion]] = field(default_factory=list)
    result: str = ""

    @property
    def opinion(self) -> Opinion:
        """What its own part gave."""
        return self.findings, self.answer

    @property
    def vote(self) -> str:
        """What it decided; what its own part gave where it did not come to that."""
        return self.result or self.answer


@dataclass(frozen=True)
class TreeOfAgents:
    """Agents of one part each read the helpful others' parts in every order, decide, and vote.

    The documents are cut, between passages, into `agents` parts of about as many tokens. Each
    agent (the worker) finds what helps in its part; sees what all found and names up to `helpers`
    others; reads their parts in every order, where a part found useless ends that order; and
    decides from the longest ways. Most agents win, and a tie is the judge's.

    The code names as many helpers as there are and carries what was found from one order to the
    next; here each order has what its own beginning gave, and a beginning that two orders share is
    read once. The reader answers from the passages that the winners' findings quote, or their
    parts where they quote none, with the votes as notes; in the code the result is the answer.
    """

    name: ClassVar[str] = "toa"
    needs: ClassVar[Needs] = Needs(searches=False)

    agents: int = 5  # the paper
    helpers: int = 3  # the code: all others; orders grow with the factorial
    reply_tokens: int = 800  # not in the paper
    form: Form = Form.JOINED

    def __post_init__(self) -> None:
        at_least(self, agents=1, helpers=0, reply_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Perceive, exchange, read on, decide, vote, read."""
        agents = await self._agents(run)
        with before_the_answer(run, lambda: any(agent.vote for agent in agents)):
            await side_by_side(self._perceive(question, agent, run) for agent in agents)
            if len(agents) > 1 and self.helpers:
                await side_by_side(self._explore(question, agent, agents, run) for agent in agents)
            await side_by_side(self._decide(question, agent, run) for agent in agents)
        winners = await self._winners(question, agents, run)
        return await answered(
            question,
            _sources(winners),
            run,
            strategy=self.name,
            form=self.form,
            notes=_log(agents, winners),
        )

    async def _agents(self, run: Run) -> list[_Agent]:
        """An agent for each part of all documents, in their order."""
        passages: list[Passage] = []
        for info in await run.sources.documents():
            document = await run.document(info.id)
            spans = await asyncio.to_thread(passages_of, document, Structural())
            passages += [document.passage(span) for span in spans]
        parts = _parts([estimate_tokens(passage.text) for passage in passages], self.agents)
        return [
            _Agent(number, passages[part.start : part.stop]) for number, part in enumerate(parts, 1)
        ]

    async def _perceive(self, question: str, agent: _Agent, run: Run) -> None:
        made = await self._ask(perceive_messages(question, agent.part), Perception, run)
        if made is not None:
            agent.answer = made.answer.strip()
            agent.findings = await self._found(question, made.statements, agent.part, agent, run)

    async def _explore(
        self, question: str, agent: _Agent, agents: Sequence[_Agent], run: Run
    ) -> None:
        """Read the helpful others' parts in every order."""
        opinions = [each.opinion for each in agents]
        made = await self._ask(exchange_messages(question, agent.number, opinions), Helpers, run)
        others = {each.number: each for each in agents if each is not agent}
        named = dict.fromkeys(made.ids if made else ())
        helpers = [others[number] for number in named if number in others][: self.helpers]
        await self._read_on(question, agent, helpers, 0, agent.opinion, run)

    async def _read_on(
        self,
        question: str,
        agent: _Agent,
        helpers: Sequence[_Agent],
        read: int,
        so_far: Opinion,
        run: Run,
    ) -> None:
        """All orders of `helpers` after `read` parts that gave `so_far`."""
        for helper in helpers:
            messages = read_on_messages(question, helper.part, so_far)
            made = await self._ask(messages, ReadOn, run)
            if made is None or made.utility == "useless":
                continue
            new = await self._found(question, made.statements, helper.part, agent, run)
            opinion = [*so_far[0], *new], made.conclusion.strip() or so_far[1]
            agent.opinions.append((read + 1, opinion))
            rest = [each for each in helpers if each is not helper]
            await self._read_on(question, agent, rest, read + 1, opinion, run)

    async def _decide(self, question: str, agent: _Agent, run: Run) -> None:
        """The agent's vote, from its longest ways."""
        longest = max((read for read, _ in agent.opinions), default=0)
        opinions = [opinion for read, opinion in agent.opinions if read == longest]
        made = await self._ask(
            decide_messages(question, opinions or [agent.opinion]), Decision, run
        )
        agent.result = made.result.strip() if made else ""

    async def _winners(self, question: str, agents: Sequence[_Agent], run: Run) -> list[_Agent]:
        """The agents whose result most voted for; the judge says which, if there are several."""
        tied = vote([agent.vote for agent in agents])
        if not tied:
            return []
        chosen = tied[0]
        if len(tied) > 1:
            opinions = [(_findings(agents, places), agents[places[0]].vote) for places in tied]
            messages = judge_messages(question, opinions)
            with before_the_answer(run, lambda: tied):
                made = await self._ask(messages, Judged, run, role=Role.JUDGE)
                if made is not None and 1 <= made.id <= len(tied):
                    chosen = tied[made.id - 1]
        return [agents[place] for place in chosen]

    async def _found(
        self,
        question: str,
        statements: Sequence[Statement],
        part: Sequence[Passage],
        agent: _Agent,
        run: Run,
    ) -> list[str]:
        """The statements that stand in a part; their passages are the agent's grounds."""
        stood = await located(question, statements, part, run)
        spans = [place.span for each in stood for place in each.places]
        agent.grounds += [each for each in part if any(each.span.contains(span) for span in spans)]
        return [each.sentence for each in stood]

    async def _ask(
        self, messages: Sequence[Message], schema: type[T], run: Run, role: Role = Role.WORKER
    ) -> T | None:
        """A reply; None, and said, where it cannot be read."""
        try:
            made = await run.structured(messages, schema, role=role, max_tokens=self.reply_tokens)
        except MalformedOutput as error:
            run.warn(f"an agent's reply counts for nothing: {error.what}")
            return None
        return made.value


def _parts(tokens: Sequence[int], most: int) -> list[range]:
    """At most `most` runs of passages, of about as many tokens each."""
    if not tokens:
        return []
    size = max(-(-sum(tokens) // most), *tokens, 1)
    while len(parts := split_by_tokens(tokens, size)) > most:
        size += max(1, size // 20)
    return parts


def _sources(winners: Sequence[_Agent]) -> list[Source]:
    """The passages that the winners' findings quote, in their order; else their parts."""
    quoted = dict.fromkeys(passage for agent in winners for passage in agent.grounds)
    if quoted:
        return [(each, Evidence(each.span, 1.0, "quoted by an agent that won")) for each in quoted]
    parts = dict.fromkeys(passage for agent in winners for passage in agent.part)
    return [(each, Evidence(each.span, 0.0, "read by an agent that won")) for each in parts]


def _findings(agents: Sequence[_Agent], places: Sequence[int]) -> list[str]:
    return list(dict.fromkeys(each for place in places for each in agents[place].findings))


def _log(agents: Sequence[_Agent], winners: Sequence[_Agent]) -> str:
    """The votes, as the reader is told them."""
    if not winners:
        return ""
    lines = [f"Agent {agent.number}: {' '.join(agent.vote.split()) or 'none'}" for agent in agents]
    lines.append(f"Voted for: {' '.join(winners[0].vote.split())}")
    return f"<log>\n{material(chr(10).join(lines))}\n</log>"
