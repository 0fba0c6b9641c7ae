"""The three strategies with a real model of 135 million parameters: what holds whatever it says."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colligate import Engine
from colligate.core.events import Asked, Measured
from colligate.core.strategy import load_strategy
from colligate.models import ChatRequest, Completion
from colligate.models.llama.model import LlamaCpp
from colligate.models.weights import pull

pytestmark = [pytest.mark.model, pytest.mark.real]

QUESTION = "When was the tower built?"
SMALL = {"duquad": {}, "dualrag": {"rounds": 1, "k": 2}, "spd-rag": {"searches": 1, "k": 2}}
TOWER = "# The lighthouse\n\nThe tower was built in 1871 by Ada Mercer. It is 41 metres high.\n"
HARBOUR = "# The harbour\n\nThe harbour was dredged in 1902. It takes ships of nine metres.\n"


class Brief(LlamaCpp):
    """The real model, held to short replies: one this small writes until it is stopped."""

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Completion:
        schema = request.schema and brief(request.schema)
        return await super().chat(replace(request, schema=schema), on_token)


def brief(schema: Any) -> Any:
    """The same schema with texts of at most 30 characters, and lists as short as they may be."""
    if isinstance(schema, list):
        return [brief(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    shorter = {name: brief(value) for name, value in schema.items()}
    if schema.get("type") == "string":
        shorter["maxLength"] = min(30, schema.get("maxLength", 30))
    if schema.get("type") == "array":
        shorter["maxItems"] = max(1, schema.get("minItems", 1))
    return shorter


@pytest.fixture(scope="module")
def file() -> Path:
    return pull("smollm2-135m")["model"]


@pytest.fixture(scope="module")
def reader(file: Path) -> Iterator[Brief]:
    model = Brief(file, name="gguf:smollm2-135m", context_tokens=2048)
    yield model
    asyncio.run(model.aclose())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    (made / "tower.md").write_text(TOWER, encoding="utf-8")
    (made / "harbour.md").write_text(HARBOUR, encoding="utf-8")
    return made


@pytest.mark.parametrize("name", SMALL)
async def test_it_ends_with_slices_and_all_that_it_cost(reader, folder, tmp_path, name):
    events: list[Any] = []
    chosen = load_strategy(name)(**SMALL[name])
    async with Engine(model=reader, embedder="static", library=tmp_path / "library") as engine:
        answer = await engine.ask(QUESTION, [folder], strategy=chosen, on_event=events.append)
        library = await engine.open_library()
        for citation in answer.citations:
            document = await library.document(citation.span.document_id)
            assert document.slice(citation.span) == citation.quote
    assert answer.found == bool(answer.citations)
    usage = answer.usage
    assert usage.calls == sum(isinstance(event, Asked) for event in events)
    assert usage.calls + usage.scoring_passes > 0  # a small reader may refuse by its odds alone
    used = [event.usage for event in events if isinstance(event, Asked | Measured)]
    assert answer.usage.input_tokens == sum(usage.input_tokens for usage in used)
    assert answer.usage.output_tokens == sum(usage.output_tokens for usage in used)
    assert not any("attention" in warning for warning in answer.warnings), "the reader has it"
