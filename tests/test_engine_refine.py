"""Refining through the engine: what `longrefiner` does before it reads."""

import pytest

from colligate import Engine, LongRefiner
from colligate.errors import BudgetExceeded, MissingPath, UsageError
from colligate.strategies.longrefiner.structuring import Structured, Structuring
from colligate.testing import ScriptedModel
from support.prompts import task_of

QUESTION = "Where do bicycles stand?"
RULES = """# Rules

## Yard

Bicycles stand in the yard, never in the hall.

## Hall

The hall is swept on Mondays.
"""
LEASE = "# Lease\n\n## Rent\n\nThe tenant pays 900 euros a month.\n"


def says(call):
    """Refines: wants what has to do with the yard."""
    task = task_of(call.messages)
    if task == "longrefiner.scope_task":
        return "[Local]"
    if task == "longrefiner.structuring_instruction":
        return "<section: All>" + call.prompt.split("<document>\n")[1].split("\n</document>")[0]
    return "['Yard']"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "rules.md").write_text(RULES)
    (folder / "lease.md").write_text(LEASE)
    return folder


@pytest.fixture
def engine(tmp_path):
    return {"model": ScriptedModel(says), "embedder": "static", "library": tmp_path / "library"}


async def test_what_a_question_needs_of_a_folder(folder, engine):
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    async with Engine(**engine) as opened:
        refined = await opened.refine(QUESTION, folder, budget=40)
        library = await opened.open_library()
        for passage in refined.passages:
            document = await library.document(passage.document_id)
            assert document.slice(passage.span) == passage.text
    assert "Bicycles stand in the yard, never in the hall." in refined.text
    assert 0 < refined.tokens <= refined.budget == 40
    assert (refined.model, refined.usage.calls) == ("scripted", len(engine["model"].calls))
    assert any("broken.pdf" in warning for warning in refined.warnings)


async def test_a_structure_made_once_is_kept_and_goes_with_its_document(folder, engine):
    model, refiner = engine["model"], LongRefiner(structuring=Structuring.MODEL, documents=1)

    def asked() -> int:
        tasks = [task_of(call.messages) for call in model.calls]
        return tasks.count("longrefiner.structuring_instruction")

    long = "\n\n".join(f"Bicycle {n} stands in the yard for {n} days." for n in range(60))
    (folder / "rules.md").write_text(long)
    events = []
    for kept in (False, True):
        events.clear()
        async with Engine(**engine, on_event=events.append) as opened:
            refined = await opened.refine(QUESTION, [folder / "rules.md"], refiner=refiner)
            library = await opened.open_library()
        assert refined.text
        assert [event.kept for event in events if isinstance(event, Structured)] == [kept]
    assert asked() == 1
    assert b"<section: All>" in _bytes(library.path)
    async with Engine(**engine) as opened:
        library = await opened.open_library()
        await library.remove(refined.documents)
    assert b"<section: All>" not in _bytes(library.path)


def _bytes(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_limits_and_wrong_calls_are_those_of_asking(folder, engine, tmp_path):
    async with Engine(**engine) as opened:
        with pytest.raises(UsageError, match="the question is empty"):
            await opened.refine(" ", [folder])
        with pytest.raises(MissingPath):
            await opened.refine(QUESTION, [tmp_path / "absent.md"])
        with pytest.raises(BudgetExceeded, match="token budget"):
            await opened.refine(QUESTION, [folder], max_tokens_total=20)
        with pytest.raises(BudgetExceeded, match="within"):
            await opened.refine(QUESTION, [folder], timeout=1e-6)
    assert engine["model"].calls == []
