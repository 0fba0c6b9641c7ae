"""OpenAI's chat completions on the wire: what is asked, and an answer in their form."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field

from colligate.server.sourced import Sourced, place_of, sourced
from colligate.server.stream import encoded

# What says who asks and what becomes of the request, not how to answer.
_NEUTRAL = frozenset(
    "metadata parallel_tool_calls prompt_cache_key prompt_cache_retention safety_identifier"
    " service_tier store stream stream_options user".split()
)
# Choices of tools that leave it to the model whether it calls one.
_FREE = (None, "auto", "none")
# Content goes out in pieces of about this many characters.
_PIECE = 48
# Clients that read a stream by lines take no longer one than this or a little more.
_LONGEST_LINE = 1 << 16


class Part(BaseModel):
    """A part of a message; only text can be read."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message; of its other fields none changes the answer."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[Part] | None = None


class StreamOptions(BaseModel):
    """What a stream ends with."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool | None = None


class ResponseFormat(BaseModel):
    """The form of the answer; there is only text."""

    model_config = ConfigDict(extra="allow")

    type: str


class ChatRequest(BaseModel):
    """The body of `/v1/chat/completions`; what is not named here is taken and ignored."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1, max_length=200, examples=["retrieve-read"])
    messages: list[ChatMessage] = Field(
        min_length=1, max_length=10_000, examples=[[{"role": "user", "content": "Who signed?"}]]
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    audio: dict[str, Any] | None = None
    modalities: list[str] | None = None
    response_format: ResponseFormat | None = None

    @property
    def unanswerable(self) -> tuple[str, str] | None:
        """What of it cannot be done: the parameter, and why not."""
        if self.n is not None and self.n != 1:
            return "n", "there is one answer to a question"
        if self.tool_choice not in _FREE:
            return "tool_choice", "no tools are called"
        if self.function_call not in _FREE:
            return "function_call", "no functions are called"
        if self.audio or (self.modalities and self.modalities != ["text"]):
            return "modalities", "answers are text"
        if self.response_format is not None and self.response_format.type != "text":
            return "response_format", "answers are text with citations"
        if self._last is None:
            return "messages", "none is the user's"
        parts = self._last.content
        if isinstance(parts, list) and any(part.type != "text" for part in parts):
            return "messages", "only text can be read"
        return None

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with what was used."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def question(self) -> str:
        """The text of the user's last message."""
        content = None if self._last is None else self._last.content
        if isinstance(content, list):
            return "\n".join(part.text or "" for part in content).strip()
        return (content or "").strip()

    @property
    def _last(self) -> ChatMessage | None:
        return next((each for each in reversed(self.messages) if each.role == "user"), None)

    @property
    def warnings(self) -> list[str]:
        """What of it makes no difference to the answer."""
        said = []
        if len(self.messages) > 1:
            said.append("only the user's last message is answered, the others are not read")
        if self.tools or self.functions:
            said.append("no tools are called here: the answer stands in the documents")
        given = {name for name, value in (self.model_extra or {}).items() if value is not None}
        if ignored := sorted(given - _NEUTRAL):
            said.append(f"these parameters change nothing here: {', '.join(ignored)}")
        return said


@dataclass(frozen=True)
class Completion:
    """A completion under way: who was asked, and where its citations lead."""

    model: str
    library: str
    base_url: str
    warnings: list[str]
    with_usage: bool = False
    """Whether a stream says what was used, in a chunk of its own after the others."""
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_urlsafe(18)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """A `chat.completion`."""
        text = sourced(answer)
        message = {
            "role": "assistant",
            "content": text.text,
            "refusal": None,
            "annotations": self._annotations(answer, text),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
            "colligate": self._own(answer),
        }

    def opening(self) -> dict[str, Any]:
        """The first chunk: who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def chunks(self, answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of an answer that stands."""
        text = sourced(answer)
        for piece in _pieces(text.text):
            yield self._chunk({"content": piece})
        if annotations := self._annotations(answer, text):
            yield self._chunk({"annotations": annotations})
        yield self._chunk({}, "stop") | {"colligate": self._own_in_a_line(answer)}
        if self.with_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": _usage(answer)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(
        self, delta: Mapping[str, Any], finish_reason: Literal["stop"] | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        unsaid = {"usage": None} if self.with_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **unsaid}

    def _own(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {**answer, "warnings": [*answer["warnings"], *self.warnings]}

    def _own_in_a_line(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The same, without the list of the evidence where that makes it too long for a stream."""
        own = self._own(answer)
        if len(encoded(own)) <= _LONGEST_LINE:
            return own
        left_out = f"{len(own['evidence']):,} pieces of evidence are left out of this stream"
        return {**own, "evidence": [], "warnings": [*own["warnings"], left_out]}

    def _annotations(self, answer: Mapping[str, Any], text: Sourced) -> list[dict[str, Any]]:
        """A link for each stretch of the answer that a citation stands behind."""
        found = []
        for citation in answer["citations"]:
            for stretch in citation["answer_spans"]:
                start, end = text.place(tuple(stretch))
                link = {
                    "start_index": start,
                    "end_index": end,
                    "title": place_of(citation),
                    "url": self._url(citation),
                }
                found.append({"type": "url_citation", "url_citation": link})
        return found

    def _url(self, citation: Mapping[str, Any]) -> str:
        """The page's view of the document, at the place cited."""
        where = f"{quote(self.library, safe='')}/{quote(citation['document'], safe='')}"
        span = urlencode({"start": citation["start"], "end": citation["end"]})
        return f"{self.base_url.rstrip('/')}/#/document/{where}?{span}"


def model_object(name: str) -> dict[str, Any]:
    """A strategy as `/v1/models` lists it; when it was made is not known."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "colligate"}


def error_object(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    """What went wrong, in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "invalid_api_key" if status == 401 else code
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_of_problem(problem: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """A problem of RFC 9457 in OpenAI's form, and its status there: what is 422 here is 400."""
    status = 400 if problem["status"] == 422 else int(problem["status"])
    message = problem["detail"] + (f"; {problem['hint']}" if problem.get("hint") else "")
    kind = str(problem["type"]).removeprefix("urn:colligate:")
    return status, error_object(status, message, None, None if kind == "about:blank" else kind)


def _usage(answer: Mapping[str, Any]) -> dict[str, int]:
    usage = answer["usage"]
    tokens = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
    return {**tokens, "total_tokens": sum(tokens.values())}


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that end at blanks, so that no mark or word is torn."""
    start = 0
    while start < len(text):
        end = text.find(" ", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end
