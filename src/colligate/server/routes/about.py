"""What the server is: version, strategies, limits, health, metrics."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from colligate import __version__
from colligate.core.parameters import list_parameters
from colligate.core.strategy import list_strategies, load_strategy, summarize
from colligate.models import Role
from colligate.models.advice import find_machine, suggest
from colligate.models.names import redact_name
from colligate.server.metrics import CONTENT_TYPE
from colligate.server.state import State

router = APIRouter(tags=["about"])


@router.get("/api/about", summary="Version, models, strategies, limits, libraries")
async def describe_server(server: State) -> dict[str, Any]:
    """Return what this server offers and accepts."""
    session = server.libraries.models
    strategies = []
    for name in list_strategies():
        kind = load_strategy(name)
        needs = await session.list_needs(kind)
        lacking = [need for need in needs if need.required and need.met is not True]
        strategies.append(
            {
                "name": name,
                "summary": summarize(kind),
                # None: only the model's server knows, and was not asked.
                "runs": not lacking or (None if all(n.met is None for n in lacking) else False),
                "why_not": "; ".join(need.explain("model") for need in lacking),
                "needs": [need.to_json() for need in needs],
                "parameters": [each.to_json() for each in list_parameters(kind)],
            }
        )
    config = server.config
    models = await session.open_models()
    by_default = models[Role.READER].name == "bundled" and session.named.reader is None
    machine = await asyncio.to_thread(find_machine)
    return {
        "version": __version__,
        "models": {role.value: redact_name(model.name) for role, model in models.items()},
        "advice": suggest(machine) if by_default else "",
        "strategies": strategies,
        "limits": {
            "upload_bytes": config.upload_bytes,
            "upload_files": config.upload_files,
            "question_characters": config.question_characters,
            "runs": config.runs,
            "waiting": config.waiting,
        },
        "libraries": server.libraries.list_names(),
    }


@router.get("/healthz", summary="Whether the server answers")
async def check_health(server: State) -> dict[str, str]:
    """Return the version."""
    return {"status": "ok", "version": __version__}


@router.get("/metrics", summary="Numbers for Prometheus")
async def read_metrics(server: State) -> Response:
    """Return counts and times, without text of questions or documents."""
    return Response(server.metrics.render(), media_type=CONTENT_TYPE)
