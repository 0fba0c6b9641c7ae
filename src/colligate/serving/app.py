"""The app: paths, limits, and what is opened and closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from colligate import __version__
from colligate.engine import Engine
from colligate.serving import openai_face
from colligate.serving.api import about, asking, documents, jobs, libraries, runs
from colligate.serving.auth import Guard
from colligate.serving.bodies import BodyLimits
from colligate.serving.mcp_http import McpEndpoint
from colligate.serving.measured import Measured
from colligate.serving.metrics import CONTENT_TYPE
from colligate.serving.problems import DESCRIBED, NotHere, Unexpected, add_handlers
from colligate.serving.reference import reference
from colligate.serving.responses import Json
from colligate.serving.server import Server, TheServer
from colligate.serving.settings import Serving

PAGE = Path(__file__).parent / "page"


def create_app(serving: Serving, make_engine: Callable[[], Engine]) -> FastAPI:
    """An ASGI app over the engine's library and models; it makes and closes the engine itself.

    `app.state.server` is its `Server`, open while the app runs.
    """
    server = Server(serving)
    mcp = McpEndpoint(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.over(make_engine()), mcp.open():
            yield

    app = FastAPI(
        title="colligate",
        version=__version__,
        summary="Answers over many long documents, every claim cited to its exact place.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
    )
    app.state.server = server
    add_handlers(app)
    for router in (
        about.router,
        libraries.router(serving.upload_files),
        documents.router,
        asking.router,
        jobs.router,
        runs.router,
    ):
        app.include_router(router, responses=DESCRIBED)
    app.include_router(openai_face.router)
    # A stream of the server's own (GET) has nothing to say, and would stay open for ever.
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"]))
    app.include_router(_plain())
    if (PAGE / "assets").is_dir():
        app.mount("/assets", _Assets(directory=PAGE / "assets"), name="assets")
    # The one added last comes first.
    app.add_middleware(Unexpected)
    app.add_middleware(BodyLimits, serving=serving)
    app.add_middleware(Guard, serving=serving)
    if serving.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=serving.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    app.add_middleware(Measured, metrics=server.metrics)
    return app


class _Assets(StaticFiles):
    """The page's parts. Their names carry a digest of what they hold, so they never change."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _plain() -> APIRouter:
    routes = APIRouter(tags=["about"])

    @routes.get("/healthz", summary="Whether the server answers")
    async def healthz(server: TheServer) -> dict[str, str]:
        return {"status": "ok", "version": __version__, "instance": server.instance}

    @routes.get("/api/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(reference(request.app.openapi()))

    @routes.get("/metrics", summary="Numbers for Prometheus")
    async def metrics(server: TheServer) -> Response:
        return Response(server.metrics.shown(), media_type=CONTENT_TYPE)

    @routes.get("/index.html", include_in_schema=False)
    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        if not (PAGE / "index.html").is_file():
            raise NotHere("no page", "it is not in this installation", "the API is under /api")
        return FileResponse(PAGE / "index.html")

    return routes
