"""Asking over some documents of a library, and over several libraries with the same models."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate import Engine
from colligate.core.strategy import load_strategy
from colligate.errors import NoDocuments, UnknownDocument, UsageError
from colligate.models import Capability
from colligate.testing import ScriptedModel

REPLY = '{"statements": [], "short_answer": "", "found": false}'
QUESTION = "Where do bicycles stand?"


class Counted(ScriptedModel):
    """How often it was closed is counted."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    for name in ("yard", "hall"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nBicycles stand in the {name}.\n")
    return Engine(
        model=ScriptedModel(lambda _: REPLY), embedder="static", library=tmp_path / "library"
    )


async def test_only_the_documents_named_are_read(engine, tmp_path):
    async with engine:
        added = await engine.add([tmp_path / "yard.md", tmp_path / "hall.md"])
        hall = added.document_ids[1]
        answer = await engine.ask(QUESTION, documents=[hall])
        assert {evidence.span.document_id for evidence in answer.evidence} == {hall}
        with pytest.raises(UnknownDocument):
            await engine.ask(QUESTION, documents=["nothing"])
        with pytest.raises(NoDocuments):
            await engine.ask(QUESTION, documents=[])
        with pytest.raises(UsageError):
            await engine.ask(QUESTION, [tmp_path / "yard.md"], documents=[hall])


async def test_an_engine_beside_another_has_its_own_library(engine, tmp_path):
    async with engine:
        await engine.add([tmp_path / "yard.md"])
        other = engine.with_library(tmp_path / "other")
        async with other:
            await other.add([tmp_path / "hall.md"])
            answer = await other.ask(QUESTION)
            assert [evidence.span.document_id[:4] for evidence in answer.evidence] == ["hall"]
        assert (await engine.ask(QUESTION)).evidence[0].span.document_id.startswith("yard")


async def test_the_models_opened_by_name_outlive_the_engine_beside(tmp_path, monkeypatch):
    model = Counted(lambda _: REPLY)
    monkeypatch.setattr("colligate.session.open_model", lambda *_, **__: model)
    engine = Engine(model="openai:x@http://127.0.0.1:9/v1", library=tmp_path / "library")
    assert await engine.open_models() == {"reader": "scripted"}
    other = engine.with_library(tmp_path / "other")
    assert await other.open_models() == {"reader": "scripted"}
    await other.aclose()
    assert model.closed == 0
    await engine.aclose()
    assert model.closed == 1


async def test_needs_are_held_to_the_models(engine):
    async with engine:
        needs = {need.capability: need for need in await engine.list_needs(load_strategy("flare"))}
        assert needs[Capability.CHAT].met is True
        assert needs[Capability.LIKELIHOOD].met is False
