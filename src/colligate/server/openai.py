"""The OpenAI-compatible endpoint: strategies as models, citations as annotations.

The user's last message is a question over the documents; it may point back to the ones before
and their answers. `model` is a strategy's name, alone or
after `colligate/`, and may end in `@` and the name of a library.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette import ServerSentEvent
from starlette.responses import Response

from colligate.core.strategy import list_strategies, load_strategy
from colligate.errors import UnknownStrategy
from colligate.export import describe_place, render_answer, render_event
from colligate.server.config import DEFAULT_LIBRARY
from colligate.server.errors import NotHere, Refused, RunFailed, openai_error
from colligate.server.runs import RecordedRun
from colligate.server.shapes import (
    LONGEST_TURN,
    MOST_TURNS,
    AskRequest,
    Conditions,
    EarlierTurn,
    Risk,
)
from colligate.server.state import ServerState, State
from colligate.server.stream import AsciiJSONResponse, encode_json, is_heard

_OWNER = "colligate/"
TAG = ":latest"  # Ollama's clients add it to a name
router = APIRouter(prefix="/v1", tags=["OpenAI"])


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class ContentPart(_Open):
    """A part of a message; only text can be read."""

    type: str = "text"  # or Responses' "input_text"
    text: str | None = None


class ChatMessage(_Open):
    """A message; its other fields do not change the answer."""

    role: str
    content: str | list[ContentPart | str | None] | None = None
    images: list[Any] | None = None  # Ollama's

    @property
    def text(self) -> str:
        return "\n".join(
            part if isinstance(part, str) else part.text or "" for part in self.parts
        ).strip()

    @property
    def parts(self) -> list[ContentPart | str]:
        given = self.content if isinstance(self.content, list) else [self.content]
        return [part for part in given if part is not None]


class ChatCompletionRequest(_Open):
    """The body of `/v1/chat/completions`; fields that are not named here are accepted."""

    model: str = Field(min_length=1, max_length=200, examples=["auto"])
    messages: list[ChatMessage] = Field(
        min_length=1, max_length=10_000, examples=[[{"role": "user", "content": "Who signed?"}]]
    )
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    audio: dict[str, Any] | None = None
    modalities: list[str] | None = None
    response_format: dict[str, Any] | None = None
    where: Conditions | None = None  # ours
    risk: Risk | None = None  # ours

    @property
    def question(self) -> str:
        """The text of the user's last message."""
        return "" if self._last is None else self._last.text

    @property
    def history(self) -> list[EarlierTurn]:
        """The questions before the last one, each with the reply to it."""
        turns: list[EarlierTurn] = []
        for message in self.messages:
            if message is self._last:
                break
            if message.role == "user" and message.text:
                turns.append(EarlierTurn(question=message.text[:LONGEST_TURN]))
            elif message.role == "assistant" and turns:
                turns[-1].answer = message.text[:LONGEST_TURN]
        return turns[-MOST_TURNS:]

    @property
    def json_schema(self) -> Any:
        """The schema that the answer must have; None for text."""
        form = self.response_format or {}
        named = form.get("json_schema") if form.get("type") == "json_schema" else None
        return named.get("schema") if isinstance(named, dict) else None

    def refuse_what_cannot_be_done(self) -> None:
        """Raise an error for a parameter that cannot be honoured."""
        kind = (self.response_format or {}).get("type", "text")
        form = kind == "text" or isinstance(self.json_schema, dict)
        parts = self._last.parts if self._last else []
        only_text = all(isinstance(part, str) or part.type.endswith("text") for part in parts)
        only_text &= not (self._last and self._last.images)
        for param, possible, why in (
            ("n", self.n in (None, 1), "a question has one answer"),
            ("tool_choice", self.tool_choice in _NO_DEMAND, "no tools are called"),
            ("function_call", self.function_call in _NO_DEMAND, "no functions are called"),
            ("modalities", not self.audio and (self.modalities or ["text"]) == ["text"], TEXT),
            ("response_format", form, "it is text, or json_schema with a schema"),
            ("messages", only_text, "only text can be read"),
            ("messages", self.question, "no question of the user is in them"),
        ):
            if not possible:
                raise Refused(400, f"{param}: {why}", param=param, code="unsupported_value")

    @property
    def warnings(self) -> list[str]:
        """What in the request makes no difference to the answer."""
        found = []
        if any(message.role not in ("user", "assistant") for message in self.messages):
            found.append("only questions and answers are read, no other messages")
        if self.tools or self.functions:
            found.append("no tools are called: the answer comes from the documents")
        given = {name for name, value in (self.model_extra or {}).items() if value is not None}
        if ignored := sorted(given - _NEUTRAL):
            found.append(f"these parameters change nothing here: {', '.join(ignored)}")
        return found

    @property
    def _last(self) -> ChatMessage | None:
        return next((each for each in reversed(self.messages) if each.role == "user"), None)


# Choices of tools that leave it to the model whether it calls one.
_NO_DEMAND = (None, "auto", "none")
TEXT = "answers are text with citations"
# Parameters that say who asks and what becomes of the request, not how to answer.
_NEUTRAL = frozenset(
    "metadata parallel_tool_calls prompt_cache_key prompt_cache_retention safety_identifier"
    " service_tier store stream stream_options user keep_alive".split()
)


@router.get("/models", summary="Every strategy over every library")
async def list_openai_models(server: State) -> dict[str, Any]:
    """List the strategies, for clients that let a person choose."""
    return {"object": "list", "data": [_model_object(name) for name in list_models(server)]}


@router.get("/models/{model:path}", summary="One strategy")
async def retrieve_openai_model(model: str, server: State) -> dict[str, Any]:
    """Return a strategy by the name that `model` takes."""
    return _model_object(_model_name(*parse_model(model, server)))


@router.post("/chat/completions", summary="Ask a question")
async def create_chat_completion(
    request: Request, body: ChatCompletionRequest, server: State
) -> Response:
    """Answer the user's last message over the documents; citations are `annotations`.

    `colligate` holds the whole answer; a stream has it in the chunk with the `finish_reason`, and
    before the answer, as `reasoning_content`, the sentences that are written, each checked.
    """
    run, completion = await begin_completion(request, body, server, bool(body.stream))
    if body.stream:
        return server.stream(_stream_completion(server, run, completion), run.cancel)
    if not await is_heard(request, run):
        run.cancel()
        return Response(status_code=499)  # nobody reads it
    return AsciiJSONResponse(completion.to_json(await run.result()))


async def begin_completion(
    request: Request, body: ChatCompletionRequest, server: ServerState, stream: bool
) -> tuple[RecordedRun, ChatCompletion]:
    """Start the run that a request asks for."""
    strategy, library = parse_model(body.model, server)
    body.refuse_what_cannot_be_done()
    asked = AskRequest(
        question=body.question,
        strategy=strategy,
        where=body.where or [],
        history=body.history,
        risk=body.risk,
        json_schema=body.json_schema,
        stream=stream,
    )
    run = await server.runs.start(library, asked)
    completion = ChatCompletion(
        model=_model_name(strategy, library),
        library=library,
        page_url=_page_url(request, server.config.allow_origins),
        warnings=body.warnings,
        with_usage=bool((body.stream_options or {}).get("include_usage")),
    )
    return run, completion


async def _stream_completion(
    server: ServerState, run: RecordedRun, completion: ChatCompletion
) -> AsyncIterator[ServerSentEvent]:
    """Send comments and drafts while the run is under way, then its answer in chunks.

    A client cannot take text back: only the whole answer, in which all is checked, is `content`.
    """
    yield _data(completion.chunk({"role": "assistant", "content": ""}))
    async for _, line in server.runs.follow(run):
        event = json.loads(line)
        yield ServerSentEvent(comment=render_event(event), sep="\n")
        if draft := render_draft(event):  # clients show it as a model's thoughts
            yield _data(completion.chunk({"reasoning_content": draft}))
    try:
        answer = await run.result()
    except RunFailed as error:
        yield _data(openai_error(error.problem))
        return
    for chunk in completion.chunks(answer):
        yield _data(chunk)
    yield ServerSentEvent("[DONE]", sep="\n")


def render_draft(event: Mapping[str, Any]) -> str:
    """Return the line of an event that says a whole sentence of the reply; of others nothing."""
    whole = event.get("event") == "drafted" and event.get("state") in ("confirmed", "struck")
    return f"{render_event(event)}\n" if whole else ""


def _data(value: Mapping[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(encode_json(value).decode(), sep="\n")


def _page_url(request: Request, origins: Collection[str]) -> str:
    """Return where the client finds the server's page, also behind a proxy that ends TLS."""
    host = request.headers.get("host", "").lower()
    ours = (each for each in origins if each.partition("//")[2] == host)
    return next(ours, str(request.base_url))


def list_models(server: ServerState) -> list[str]:
    """Return the name of each strategy over each library."""
    libraries = server.libraries.list_names()
    return [_model_name(strategy, each) for each in libraries for strategy in list_strategies()]


def parse_model(
    model: str, server: ServerState, check: Callable[[str], object] = load_strategy
) -> tuple[str, str]:
    """Return what `check` accepts, a strategy, and the library that a model's name means."""
    name, _, library = model.strip(" /").removeprefix(_OWNER).removesuffix(TAG).partition("@")
    library = library or DEFAULT_LIBRARY
    try:
        check(name)
        server.libraries.folder(library)
    except (UnknownStrategy, NotHere) as error:
        raise Refused(404, str(error), param="model", code="model_not_found") from error
    return name, library


def _model_name(strategy: str, library: str) -> str:
    return f"{_OWNER}{strategy}" + ("" if library == DEFAULT_LIBRARY else f"@{library}")


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "colligate"}


# Clients that read a stream by lines accept no lines much longer than this.
_MAX_LINE = 1 << 16
_PIECE = 1 << 12  # characters of the answer in a chunk


@dataclass(frozen=True)
class ChatCompletion:
    """A completion under way; with `with_usage` a stream ends with a chunk of the usage."""

    model: str
    library: str
    page_url: str
    warnings: list[str]
    with_usage: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_urlsafe(18)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def to_json(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return a `chat.completion`."""
        message = {"role": "assistant", "refusal": None, **self._content(answer)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
            "colligate": self._own_field(answer),
        }

    def chunks(self, answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a finished answer."""
        content = self._content(answer)
        for at in range(0, len(content["content"]), _PIECE):
            yield self.chunk({"content": content["content"][at : at + _PIECE]})
        if content["annotations"]:
            yield self.chunk({"annotations": content["annotations"]})
        own = self._own_field(answer)
        if len(encode_json(own)) > _MAX_LINE:
            left_out = f"{len(own['evidence']):,} pieces of evidence are left out of this stream"
            own |= {"evidence": [], "warnings": [*own["warnings"], left_out]}
        yield self.chunk({}, "stop") | {"colligate": own}
        if self.with_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": _usage(answer)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self.with_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **usage}

    def _own_field(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {**answer, "warnings": [*answer["warnings"], *self.warnings]}

    def _content(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text, with a link for each span of the answer that rests on a citation."""
        text = render_answer(answer)
        annotations = []
        for citation in answer["citations"]:
            link = {"title": describe_place(citation), "url": self._url_of(citation)}
            for span in citation["answer_spans"]:
                start, end = text.locate(tuple(span))
                link_at = {"start_index": start, "end_index": end, **link}
                annotations.append({"type": "url_citation", "url_citation": link_at})
        return {"content": text.text, "annotations": annotations}

    def _url_of(self, citation: Mapping[str, Any]) -> str:
        """Return the address of the page's view of the document, at the place cited."""
        where = f"{quote(self.library, safe='')}/{quote(citation['document'], safe='')}"
        span = urlencode({"start": citation["start"], "end": citation["end"]})
        return f"{self.page_url.rstrip('/')}/#/document/{where}?{span}"


def _usage(answer: Mapping[str, Any]) -> dict[str, int]:
    usage = answer["usage"]
    tokens = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
    return {**tokens, "total_tokens": sum(tokens.values())}
