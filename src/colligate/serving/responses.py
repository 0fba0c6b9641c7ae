"""JSON that any text can be in."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from colligate.serving.run_files import encoded


class Json(JSONResponse):
    """ASCII alone, so half a surrogate pair in a document does no harm; what is no number, null."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return encoded(content)
