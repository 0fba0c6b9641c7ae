"""A model with scripted replies, and the suite of what every model promises.

Each check of `backend_suite` takes a model and raises AssertionError if a promise of its protocol
is broken. The model should answer in a few seconds.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypedDict, Unpack

from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import MissingCapability, ModelError, UsageError
from colligate.models.base import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    ChatRequest,
    Completion,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Usage,
)
from colligate.models.thinking import ThinkingFilter, split_thinking

Reply = str | Completion | BaseException


class Scripts(TypedDict, total=False):
    """What a scripted model gives instead of words: functions of what it is asked.

    `likelihood` takes prefix and continuation and returns a log-probability for each token;
    `labels` takes messages, labels and the forced beginning of the reply; `attention` takes a text
    and spans and returns a number for each span.
    """

    likelihood: Callable[[str, str], Sequence[float]]
    labels: Callable[[Sequence[Message], Sequence[str], str], LabelOdds]
    attention: Callable[[str, Sequence[tuple[int, int]]], Sequence[float]]


class ScriptedModel:
    """Replies with the given replies in turn, or with what a function of the request returns.

    A reply is a text, a whole `Completion`, or an exception to raise. `calls` records every
    request. Each of `scripts` adds its capability.
    """

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[ChatRequest], Reply] = (),
        name: str = "scripted",
        *,
        capabilities: Iterable[Capability] = (Capability.CHAT,),
        context_tokens: int | None = None,
        **scripts: Unpack[Scripts],
    ) -> None:
        self._reply = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self.name = name
        self.context_tokens = context_tokens
        self.capabilities = frozenset({*capabilities, *map(Capability, scripts)})
        self._scripts = scripts
        self.calls: list[ChatRequest] = []

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Return the next reply; `on_token` gets it word by word. UsageError if none is left."""
        self.calls.append(request)
        await asyncio.sleep(0)  # like any other model, it lets others run
        if self._reply is not None:
            reply = self._reply(request)
        elif self._replies:
            reply = self._replies.pop(0)
        else:
            what = f"model {self.name!r} has no reply left"
            raise UsageError(what, f"this is call {len(self.calls)}", "script more replies")
        if isinstance(reply, BaseException):
            raise reply
        if on_token is not None:
            await _stream(reply if isinstance(reply, str) else reply.text, on_token)
        if isinstance(reply, Completion):
            return reply
        text, thinking = split_thinking(reply)
        written = estimate_tokens(text) + estimate_tokens(thinking)
        usage = Usage(await self.count_prompt(request.messages), written)
        return Completion(text, usage, self.name, thinking=thinking)

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        if "likelihood" not in self._scripts:
            raise MissingCapability(f"{self.name} gives no likelihoods")
        await asyncio.sleep(0)
        return [list(self._scripts["likelihood"](*pair)) for pair in pairs]

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        if "labels" not in self._scripts:
            raise MissingCapability(f"{self.name} gives no label probabilities")
        await asyncio.sleep(0)
        return self._scripts["labels"](messages, labels, forced)

    async def attention(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        if "attention" not in self._scripts:
            raise MissingCapability(f"{self.name} gives no attention")
        await asyncio.sleep(0)
        return list(self._scripts["attention"](text, spans))

    async def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """Estimate the tokens of messages, with four per message for a template."""
        return sum(estimate_tokens(message.content) + 4 for message in messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return token_spans(text)

    async def aclose(self) -> None: ...


async def _stream(text: str, on_token: OnToken) -> None:
    visible = ThinkingFilter()
    for word in re.findall(r"\S*\s*", text):
        if piece := visible.feed(word):
            on_token(piece)
            await asyncio.sleep(0)
    if last := visible.close():
        on_token(last)


QUESTION = (
    Message("system", "You answer questions."),
    Message("user", "Which colours has a flag?"),
)
"""The messages that the checks of a chat model send."""

SCHEMA = {
    "type": "object",
    "properties": {"found": {"type": "boolean"}},
    "required": ["found"],
    "additionalProperties": False,
}
"""The JSON schema that the checks of a chat model ask for."""


async def check_properties(model: ChatModel) -> None:
    """Check that a model has a name, a window and the capability to chat."""
    assert isinstance(model, ChatModel)
    assert model.name
    assert Capability.CHAT in model.capabilities
    assert model.context_tokens is None or model.context_tokens > 0


async def check_completion(model: ChatModel) -> None:
    """Check what a completion contains, and that greedy decoding repeats itself."""
    completion, again = [await _ask(model) for _ in range(2)]
    assert completion.text
    assert "<think" not in completion.text, "thinking belongs in `thinking`"
    assert completion.model == model.name
    assert completion.finish_reason in ("stop", "length")
    assert completion.usage.input_tokens > 5
    assert 0 < completion.usage.output_tokens <= 12, "max_tokens was 12"
    assert (again.text, again.thinking) == (completion.text, completion.thinking)
    assert again.usage.output_tokens == completion.usage.output_tokens


async def check_stream(model: ChatModel) -> None:
    """Check that a stream has the same text, and that `on_token` runs in the caller's thread."""
    pieces: list[str] = []
    threads: set[int] = set()

    def note(piece: str) -> None:
        pieces.append(piece)
        threads.add(threading.get_ident())

    whole = await _ask(model)
    streamed = await model.chat(ChatRequest(QUESTION, max_tokens=12), note)
    assert streamed.text == whole.text == "".join(pieces)
    assert all(pieces), "a piece is empty"
    assert threads == {threading.get_ident()}


async def check_error_in_stream(model: ChatModel) -> None:
    """Check that what `on_token` raises reaches the caller and leaves the model usable."""

    def refuse(piece: str) -> None:
        raise ValueError("enough")

    error = await _error(model.chat(ChatRequest(QUESTION, max_tokens=12), refuse))
    assert isinstance(error, ValueError)
    assert (await _ask(model)).text


async def check_schema(model: ChatModel) -> None:
    """Check that a model with `Capability.STRUCTURED` satisfies a JSON schema."""
    if Capability.STRUCTURED not in model.capabilities:
        return
    for _ in range(2):
        completion = await model.chat(ChatRequest(QUESTION, max_tokens=40, schema=SCHEMA))
        assert set(json.loads(completion.text)) == {"found"}


async def check_likelihoods(model: ChatModel) -> None:
    """Check that likelihoods are exact to the token and independent of one another."""
    if Capability.LIKELIHOOD not in model.capabilities:
        if isinstance(model, LikelihoodModel):
            error = await _error(model.likelihoods([("a", "b")]))
            assert isinstance(error, MissingCapability)
        return
    assert isinstance(model, LikelihoodModel)
    question = " Who built it?"
    pairs = [
        ("The bridge was built by Ada Lind.", question),
        ("The bridge was built by Ada Lind. It is of stone, and long.", question),
        ("Otters eat fish.", question),
        ("Otters eat fish.", " Otters eat crabs."),
        ("Otters eat fish.", ""),
        ("Otters eat fish.", question),
        ("", "Once upon a time"),
    ]
    together = await model.likelihoods(pairs)
    for (prefix, continuation), scores in zip(pairs, together, strict=True):
        assert all(score <= 0 for score in scores)
        [alone] = await model.likelihoods([(prefix, continuation)])
        assert len(scores) == len(alone)
        assert all(math.isclose(*each, abs_tol=0.05) for each in zip(scores, alone, strict=True))
        if prefix:
            assert len(scores) == await model.count_tokens(continuation)
    assert len(together[-1]) > 2, "an empty prefix is the beginning of a text"
    assert await model.likelihoods([]) == []


async def check_relevance(model: ChatModel) -> None:
    """Check that a question is likelier after the text it is about; random weights may fail."""
    if isinstance(model, LikelihoodModel) and Capability.LIKELIHOOD in model.capabilities:
        texts = ("The bridge was built by Ada Lind.", "Otters eat fish.")
        near, far = await model.likelihoods([(text, " Who built it?") for text in texts])
        assert sum(near) > sum(far)


async def check_labels(model: ChatModel) -> None:
    """Check that label odds are odds, in the order of the labels."""
    if Capability.LABELS not in model.capabilities:
        if isinstance(model, LabelModel):
            error = await _error(model.labels(QUESTION, ["Yes", "No"]))
            assert isinstance(error, MissingCapability)
        return
    assert isinstance(model, LabelModel)
    for _ in range(2):
        found = await model.labels(QUESTION, ["Yes", "No"])
        assert list(found.odds) == ["Yes", "No"]
        assert math.isclose(sum(found.odds.values()), 1, rel_tol=1e-6)
        assert all(0 <= odd <= 1 for odd in found.odds.values())
        assert 0 < found.mass <= 1
        assert set(found.bounded) <= {"Yes", "No"}
    for wrong in ([], ["Yes", ""], ["Yes", "Yes"]):
        assert isinstance(await _error(model.labels(QUESTION, wrong)), ValueError)


async def check_attention(model: ChatModel) -> None:
    """Check that attention is one share per span, and that wrong spans are refused."""
    if Capability.ATTENTION not in model.capabilities:
        if isinstance(model, AttentionModel):
            error = await _error(model.attention("Who?", [(0, 3)]))
            assert isinstance(error, MissingCapability)
        return
    assert isinstance(model, AttentionModel)
    text = QUESTION[-1].content
    values = await model.attention(text, [(0, 5), (6, len(text)), (3, 3)])
    assert len(values) == 3
    assert all(0 < value < 1 for value in values[:2])
    assert values[2] == 0, "an empty span has no attention"
    for wrong in ((0, len(text) + 1), (-1, 2), (4, 2)):
        assert isinstance(await _error(model.attention(text, [wrong])), ValueError)


async def check_adapters(model: ChatModel) -> None:
    """Check that a folder without an adapter is refused."""
    if not isinstance(model, AdapterModel):
        assert Capability.ADAPTERS not in model.capabilities
        return
    offered = Capability.ADAPTERS in model.capabilities
    with tempfile.TemporaryDirectory() as empty:
        error = await _error(model.with_adapter(empty))
    assert isinstance(error, ModelError if offered else MissingCapability)


async def check_concurrency(model: ChatModel) -> None:
    """Check that streams made at the same time are whole, and those of calls alone."""
    requests = [
        ChatRequest([Message("user", f"Name {count} colours.")], max_tokens=4 * count)
        for count in (1, 3, 2, 1)
    ]
    alone = [await model.chat(request) for request in requests]

    async def stream(request: ChatRequest) -> Completion:
        pieces: list[str] = []
        completion = await model.chat(request, lambda piece: pieces.append(piece))
        assert "".join(pieces) == completion.text
        return completion

    together = await asyncio.gather(*map(stream, requests))
    assert [each.text for each in together] == [each.text for each in alone]


async def check_cancelling(model: ChatModel) -> None:
    """Check that cancelling a call leaves the model usable, and other calls alone."""
    whole = await _ask(model, 8)
    task = asyncio.create_task(_ask(model, 300))
    other = asyncio.create_task(_ask(model, 8))
    await asyncio.sleep(0)
    task.cancel()
    assert isinstance(await _error(task), asyncio.CancelledError)
    assert (await other).text == whole.text


async def check_counting(model: ChatModel) -> None:
    """Check that token counts grow with the text, and that a prompt costs more than its text."""
    counts = [await model.count_tokens(text) for text in ("", "one", "one two three" * 50)]
    assert counts[0] == 0
    assert 0 < counts[1] < counts[2]
    content = [await model.count_tokens(message.content) for message in QUESTION]
    assert await model.count_prompt(QUESTION) > sum(content)


async def check_token_spans(model: ChatModel) -> None:
    """Check that token spans are in order and leave out nothing but blanks."""
    for text in ("", "Otters eat fish.", "  two\n\nparts ", "naïve 東京 🦦́", _NOT_UNICODE):
        spans = await model.token_spans(text)
        assert len(spans) == await model.count_tokens(text)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
        assert [end for _, end in spans] == sorted(end for _, end in spans)
        covered = {at for start, end in spans for at in range(start, end)}
        assert all(char.isspace() for at, char in enumerate(text) if at not in covered)


async def check_any_text(model: ChatModel) -> None:
    """Check that text with lone surrogates, as arguments that are not UTF-8 have, is accepted."""
    request = ChatRequest([Message("user", _NOT_UNICODE)], max_tokens=8)
    assert (await model.chat(request)).text
    assert await model.count_tokens(_NOT_UNICODE) > 3


backend_suite: tuple[Callable[[ChatModel], Awaitable[None]], ...] = (
    check_properties,
    check_completion,
    check_stream,
    check_error_in_stream,
    check_schema,
    check_likelihoods,
    check_relevance,
    check_labels,
    check_attention,
    check_adapters,
    check_concurrency,
    check_cancelling,
    check_counting,
    check_token_spans,
    check_any_text,
)

_NOT_UNICODE = "<|im_end|> caf\udce9 and half a pair \ud83d"


async def _ask(model: ChatModel, max_tokens: int = 12) -> Completion:
    return await model.chat(ChatRequest(QUESTION, max_tokens=max_tokens))


async def _error(call: Awaitable[object]) -> BaseException:
    try:
        await call
    except (Exception, asyncio.CancelledError) as error:
        return error
    raise AssertionError("an error was expected")
