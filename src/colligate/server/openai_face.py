"""The OpenAI-compatible endpoint: strategies as models, citations as annotations.

The user's last message is a question over the documents. `model` is a strategy's name, alone or
after `colligate/`, and may end in `@` and the name of a library.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from colligate.core.strategy import list_strategies, load_strategy
from colligate.errors import ColligateError, UnknownStrategy
from colligate.server.answering import DEFAULT_LIBRARY
from colligate.server.errors import Busy, NotHere, problem_of
from colligate.server.openai_wire import (
    ChatRequest,
    Completion,
    error_object,
    error_of_problem,
    model_object,
)
from colligate.server.routes.asking import Asked
from colligate.server.runs import Run
from colligate.server.served import RunFailed, answer_of
from colligate.server.server import Server, TheServer
from colligate.server.stream import Json, encoded, line, unless_hung_up

_OWNER = "colligate/"
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": what, "content": {"application/json": {}}}
    for status, what in (
        (400, "The request cannot be answered"),
        (404, "There is no such model"),
        (503, "Too many questions at once, or the server is stopping"),
    )
}


class _Refused(Exception):
    """A request that is answered with an error in OpenAI's form."""

    def __init__(self, status: int, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


class _Route(APIRoute):
    """Says what goes wrong as OpenAI does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (_Refused, RequestValidationError, HTTPException, ColligateError) as error:
                return _error(error)

        return handled


router = APIRouter(prefix="/v1", route_class=_Route, tags=["OpenAI"])


@router.get("/models", summary="Every strategy over every library")
async def models(server: TheServer) -> dict[str, Any]:
    """The list that clients let a person choose from."""
    names = [
        _model_name(strategy, library)
        for library in server.libraries.names()
        for strategy in list_strategies()
    ]
    return {"object": "list", "data": [model_object(name) for name in names]}


@router.get("/models/{model:path}", summary="One strategy", responses={404: _ERRORS[404]})
async def one_model(model: str, server: TheServer) -> dict[str, Any]:
    """A strategy by the name that `model` takes."""
    return model_object(_model_name(*_chosen(model, server)))


@router.post("/chat/completions", summary="Ask a question", responses=_ERRORS)
async def chat_completions(request: Request, body: ChatRequest, server: TheServer) -> Response:
    """Answer the user's last message over the documents; citations are `annotations`.

    `colligate` holds the whole answer; a stream has it in the chunk with the `finish_reason`.
    """
    strategy, library = _chosen(body.model, server)
    if body.unanswerable is not None:
        param, why = body.unanswerable
        raise _Refused(400, f"{param}: {why}", param, "unsupported_value")
    if not body.question:
        raise _Refused(400, "the question is empty", "messages")
    asked = Asked(question=body.question, strategy=strategy)
    run = await server.runs.begin(library, asked.ask(server.serving))
    name = _model_name(strategy, library)
    page = _page(request, server.serving.allow_origins)
    completion = Completion(name, library, page, body.warnings, with_usage=body.with_usage)
    if body.stream:
        try:
            return server.stream(_chunks(server, run, completion), run.cancel)
        except Busy:
            run.cancel()
            raise
    if not await unless_hung_up(request, run.wait):
        run.cancel()
        return Response(status_code=499)  # nobody reads it
    return Json(completion.whole(await answer_of(run)))


async def _chunks(server: Server, run: Run, completion: Completion) -> AsyncIterator[bytes]:
    """Comments while the run goes on, then its answer in chunks."""
    yield _data(completion.opening())
    async for _, event in server.runs.follow(run):
        said = line(json.loads(event) if isinstance(event, bytes) else event)
        yield f": {said}\n\n".encode(errors="replace")
    try:
        answer = await answer_of(run)
    except RunFailed as error:
        yield _data(_error_of(error)[1])
        return
    for chunk in completion.chunks(answer):
        yield _data(chunk)
    yield b"data: [DONE]\n\n"


def _page(request: Request, origins: Collection[str]) -> str:
    """Where the client finds the server's page; who ends TLS before it is known by its origin."""
    host = request.headers.get("host", "").lower()
    ours = (each for each in origins if each.partition("//")[2] == host)
    return next(ours, str(request.base_url))


def _chosen(model: str, server: Server) -> tuple[str, str]:
    """The strategy and the library that a model's name means."""
    strategy, _, library = model.removeprefix(_OWNER).partition("@")
    library = library or DEFAULT_LIBRARY
    try:
        load_strategy(strategy)
        server.libraries.folder(library)
    except (UnknownStrategy, NotHere) as error:
        raise _Refused(404, str(error), "model", "model_not_found") from error
    return strategy, library


def _model_name(strategy: str, library: str) -> str:
    return f"{_OWNER}{strategy}" + ("" if library == DEFAULT_LIBRARY else f"@{library}")


def _error(error: Exception) -> Response:
    status, said = _error_of(error)
    headers = {"Retry-After": str(Busy.retry_after)} if status == 503 else {}
    if isinstance(error, HTTPException):
        headers |= dict(error.headers or {})
    if status >= 500 and not isinstance(error, Busy):
        headers["x-should-retry"] = "false"  # a run was paid for: the client asks a person first
    return Json(said, status, headers)


def _error_of(error: Exception) -> tuple[int, dict[str, Any]]:
    if isinstance(error, _Refused):
        return error.status, error_object(error.status, error.message, error.param, error.code)
    if isinstance(error, HTTPException):
        return error.status_code, error_object(error.status_code, str(error.detail), None, None)
    if isinstance(error, RequestValidationError):
        fault = error.errors()[0]
        param = ".".join(str(part) for part in fault["loc"][1:]) or None
        return 400, error_object(400, f"{param or 'the body'}: {fault['msg']}", param, None)
    return error_of_problem(error.problem if isinstance(error, RunFailed) else problem_of(error))


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(value) + b"\n\n"
