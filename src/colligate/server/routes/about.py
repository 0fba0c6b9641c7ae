"""What there is: the version, strategies, limits."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from colligate import __version__
from colligate.core.parameters import list_parameters
from colligate.core.strategy import Need, list_strategies, load_strategy, summarize
from colligate.models.names import redact_name
from colligate.server.answering import DEFAULT_LIBRARY
from colligate.server.server import TheServer

router = APIRouter(prefix="/api", tags=["about"])


@router.get("/about", summary="Version, models, strategies, limits, libraries")
async def about(server: TheServer) -> dict[str, Any]:
    """What this server has and what it takes."""
    engine = server.libraries.engine(DEFAULT_LIBRARY)
    strategies = []
    for name in list_strategies():
        kind = load_strategy(name)
        needs = await engine.needs(kind)
        lacking = [need for need in needs if need.required and need.met is not True]
        strategies.append(
            {
                "name": name,
                "summary": summarize(kind),
                # None: only the model's server knows, and was not asked.
                "runs": not lacking or (None if all(n.met is None for n in lacking) else False),
                "why_not": "; ".join(_lack(need) for need in lacking),
                "needs": [
                    {
                        "capability": need.capability.value,
                        "required": need.required,
                        "met": need.met,
                        "role": need.role.value,
                    }
                    for need in needs
                ],
                "parameters": [each.to_json() for each in list_parameters(kind)],
            }
        )
    serving = server.serving
    return {
        "version": __version__,
        "models": {role: redact_name(name) for role, name in (await engine.open_models()).items()},
        "search": {
            what: redact_name(name) for what, name in (await engine.search_models()).items()
        },
        "strategies": strategies,
        "limits": {
            "upload_bytes": serving.upload_bytes,
            "upload_files": serving.upload_files,
            "question_characters": serving.question_characters,
            "runs": serving.runs,
            "waiting": serving.waiting,
        },
        "libraries": server.libraries.names(),
    }


def _lack(need: Need) -> str:
    whose = f"the {need.role.value} model"
    if need.met is None:
        return f"only its server knows whether {whose} offers {need.capability.value}"
    return f"{whose} does not offer {need.capability.value}"
