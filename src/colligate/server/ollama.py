"""Ollama's API over the same runs as OpenAI's: strategies as models, sources in the text.

Models are named as `server/openai.py` names them, with the tag that Ollama's clients expect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from pydantic import AliasChoices, BaseModel, Field
from starlette.responses import Response

from colligate.server.errors import Refused, RunFailed, ollama_error
from colligate.server.openai import (
    TAG,
    TEXT,
    ChatCompletion,
    ChatCompletionRequest,
    begin_completion,
    list_models,
    parse_model,
    render_draft,
)
from colligate.server.runs import RecordedRun
from colligate.server.state import ServerState, State
from colligate.server.stream import AsciiJSONResponse, encode_json, is_heard

router = APIRouter(prefix="/api", tags=["Ollama"])

# Clients compare it with the oldest Ollama that they work with. This is the first one that tells
# the capabilities of a model.
_VERSION = "0.6.4"
_DETAILS = {
    "parent_model": "",
    "format": "",
    "family": "colligate",
    "families": ["colligate"],
    "parameter_size": "",
    "quantization_level": "",
}
_ABOUT = {"modified_at": "1970-01-01T00:00:00Z", "details": _DETAILS}


class OllamaChatRequest(ChatCompletionRequest):
    """The body of `/api/chat`; fields that are not named here are accepted."""

    stream: bool | None = True
    format: str | dict[str, Any] | None = None

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema that the answer must have; None for text."""
        return self.format if isinstance(self.format, dict) and self.format else None

    def refuse_what_cannot_be_done(self) -> None:
        if isinstance(self.format, str) and self.format:
            raise Refused(400, f"format: {TEXT}")
        super().refuse_what_cannot_be_done()


class ModelName(BaseModel):
    """The body of `/api/show`."""

    model: str = Field(min_length=1, max_length=200, validation_alias=AliasChoices("model", "name"))


@router.get("/version", summary="The version of Ollama whose clients are understood")
async def read_ollama_version() -> dict[str, str]:
    """Return a version of Ollama."""
    return {"version": _VERSION}


@router.get("/tags", summary="Every strategy over every library")
async def list_ollama_models(server: State) -> dict[str, Any]:
    """List the strategies, for clients that let a person choose."""
    names = [name + TAG for name in list_models(server)]
    models = [{"name": name, "model": name, "size": 0, "digest": "", **_ABOUT} for name in names]
    return {"models": models}


@router.post("/show", summary="One strategy")
async def show_ollama_model(body: ModelName, server: State) -> dict[str, Any]:
    """Return what clients ask of a model before they chat with it."""
    parse_model(body.model, server)
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "model_info": {"general.architecture": "colligate"},
        "capabilities": ["completion"],
        **_ABOUT,
    }


@router.post("/chat", summary="Ask a question")
async def chat(request: Request, body: OllamaChatRequest, server: State) -> Response:
    """Answer the user's last message over the documents; its sources are below the answer.

    `colligate` holds the whole answer; a stream has it in the last line, and before the answer, as
    `thinking`, the sentences that are written, each checked.
    """
    stream = body.stream is not False
    run, completion = await begin_completion(request, body, server, stream)
    if stream:
        # A blank keeps the connection open: before a line of JSON it changes nothing, and clients
        # take an empty piece for the end.
        how = {"media_type": "application/x-ndjson", "ping_message_factory": lambda: b" "}
        return server.stream(_stream_lines(server, run, completion), run.cancel, **how)
    if not await is_heard(request, run):
        run.cancel()
        return Response(status_code=499)  # nobody reads it
    whole = completion.to_json(await run.result())
    text = whole["choices"][0]["message"]["content"]
    return AsciiJSONResponse(_reply(completion, text, whole["colligate"]))


async def _stream_lines(
    server: ServerState, run: RecordedRun, completion: ChatCompletion
) -> AsyncIterator[bytes]:
    """Send drafts while the run is under way, then its answer in pieces."""
    async for _, line in server.runs.follow(run):
        if draft := render_draft(json.loads(line)):
            reply = _reply(completion, "")
            reply["message"]["thinking"] = draft
            yield _encode_line(reply)
    try:
        answer = await run.result()
    except RunFailed as error:
        yield _encode_line(ollama_error(error.problem))
        return
    for chunk in completion.chunks(answer):
        text = "".join(choice["delta"].get("content", "") for choice in chunk["choices"])
        if text or "colligate" in chunk:
            yield _encode_line(_reply(completion, text, chunk.get("colligate")))


def _reply(
    completion: ChatCompletion, text: str, whole: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a piece of an answer in Ollama's form, the last one if it has the whole answer."""
    reply = {
        "model": completion.model + TAG,
        "created_at": datetime.fromtimestamp(completion.created, UTC).isoformat(),
        "message": {"role": "assistant", "content": text},
        "done": whole is not None,
    }
    if whole is None:
        return reply
    return reply | {
        "done_reason": "stop",
        "total_duration": round(whole["seconds"] * 1e9),
        "prompt_eval_count": whole["usage"]["input_tokens"],
        "eval_count": whole["usage"]["output_tokens"],
        "colligate": whole,
    }


def _encode_line(value: Mapping[str, Any]) -> bytes:
    return encode_json(value) + b"\n"
