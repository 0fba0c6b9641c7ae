"""A strategy as a solver of Inspect (inspect_ai), for the extra `inspect`.

with Library("papers.library", model="openai:gpt-5-mini") as library:
    task = Task(dataset, solver=colligate_solver(library, strategy="dualrag"), scorer=includes())
    eval(task, model="none/none")
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from colligate.core.answer import Answer, Citation
from colligate.core.strategy import Strategy
from colligate.engine import DEFAULT_STRATEGY
from colligate.errors import MissingExtra
from colligate.readers.followup import Turn
from colligate.sync import Library

try:
    from anyio.to_thread import run_sync
    from inspect_ai import model
    from inspect_ai.solver import Generate, Solver, TaskState, solver
except ImportError as error:
    raise MissingExtra.of(error, "the solver needs inspect-ai", "inspect") from error


@solver  # type: ignore[untyped-decorator]
def colligate_solver(
    library: Library,
    *,
    strategy: str | Strategy = DEFAULT_STRATEGY,
    short: bool = False,
    **options: Any,
) -> Solver:
    """Return a solver that asks a sample's last question of a library, which it never closes.

    Inspect's own model is not used; earlier messages are the conversation so far. The reply is the
    answer with its citations: each has its quote, the range of its characters, and the id of its
    document as `internal["document"]`. With `short` it is the short answer where there is one, for
    scorers that compare texts. `metadata["colligate"]` of the output is the object that
    `ask --json` prints. `options` are those of `Engine.ask`.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question, history = state.user_prompt.text, _read_turns(state)
        asking = partial(library.ask, question, strategy=strategy, history=history, **options)
        answer = await run_sync(asking, abandon_on_cancel=True)
        state.output = _to_output(answer, short)
        state.messages.append(state.output.message)
        return state

    return solve


def _read_turns(state: TaskState) -> list[Turn]:
    before = state.messages[: state.messages.index(state.user_prompt) + 1]
    talk = [m for m in before if isinstance(m, model.ChatMessageUser | model.ChatMessageAssistant)]
    return [
        Turn(asked.text, replied.text if replied.role == "assistant" else "")
        for asked, replied in pairwise(talk)
        if asked.role == "user"
    ]


def _to_output(answer: Answer, short: bool) -> model.ModelOutput:
    text = (short and answer.short) or answer.text
    citations = [_to_citation(each) for each in answer.citations]
    content = [model.ContentText(text=text, citations=citations)]
    message = model.ChatMessageAssistant(content=content, model=answer.model, source="generate")
    output, usage = model.ModelOutput.from_message(message), answer.usage
    output.usage = model.ModelUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        total_cost=usage.cost_usd,
    )
    output.metadata = {"colligate": answer.to_json()}
    return output


def _to_citation(citation: Citation) -> model.DocumentCitation:
    span, fields = citation.span, {"cited_text": citation.quote, "title": citation.title}
    place = {"type": "char", "start_index": span.start, "end_index": span.end}
    internal = {"document": span.document_id}
    return model.DocumentCitation.model_validate({**fields, "range": place, "internal": internal})
