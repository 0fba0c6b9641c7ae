"""The engine behind HTTP: the API, the web page, OpenAI's endpoint and MCP (extra `serve`).

`create_app(ServerConfig(...), make_engine)` is an ASGI app; `colligate serve` runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colligate.server.config import ServerConfig

if TYPE_CHECKING:
    from colligate.server.app import create_app as create_app

__all__ = ["ServerConfig", "create_app"]


def __getattr__(name: str) -> Any:
    # The app needs FastAPI; the constants beside it are wanted without.
    if name == "create_app":
        return import_module("colligate.server.app").create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
