"""The audit log: who did what with which documents, a JSON line for each request.

The lines go to a file, or, those of named tokens, to the logger `colligate.audit`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from colligate.errors import UsageError
from colligate.private import make_private_file
from colligate.server.config import ServerConfig
from colligate.server.tokens import CALLER

if TYPE_CHECKING:
    from starlette.types import Scope

AUDIT = logging.getLogger("colligate.audit")
_LONGEST = 200  # characters of a path that is no route, or whose route was not looked for


@dataclass
class Use:
    """What a request has used so far: a library, documents that it opened or cites, a question."""

    library: str = ""
    documents: dict[str, None] = field(default_factory=dict)
    question: str = ""


USE: ContextVar[Use | None] = ContextVar("use", default=None)
"""That of the request that is being answered, shared with the tasks that it starts."""


def note_use(library: str, documents: Iterable[str] = (), question: str = "") -> None:
    """Note what the request of this moment uses, if there is one."""
    if (use := USE.get()) is not None:
        use.library = library
        use.documents.update(dict.fromkeys(documents))
        use.question = question or use.question


class Audit:
    """Writes the lines; a disk that is full is a warning for each line that is lost.

    UsageError if the file cannot be written.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._file = file = config.audit.expanduser() if config.audit else None
        self._questions = config.audit_questions
        if file is not None:
            try:
                make_private_file(file)
                with file.open("ab"):
                    pass
            except OSError as error:
                why = error.strerror or str(error)
                raise UsageError(f"cannot write the audit log {file}", why) from error

    def write(self, scope: Scope, route: str, status: int, use: Use) -> None:
        """Write the line of a request that has ended."""
        caller, given = CALLER.get(), scope.get("path_params", {})
        if self._file is None and caller is None:
            return
        opened = [given["document_id"]] if "document_id" in given else []
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "who": None if caller is None else caller.name,
            "method": scope["method"],
            "route": route or scope["path"][:_LONGEST],
            "library": use.library or given.get("name", ""),
            "documents": [*opened, *use.documents],
            "status": status,
        }
        if self._questions and use.question:
            line["question"] = use.question
        if self._file is None:
            return AUDIT.info("%s", json.dumps(line))
        try:
            # Opened each time, so that the file may be moved away.
            place = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(place, "wb", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            AUDIT.warning("a line is lost, %s cannot be written: %s", self._file, error.strerror)
