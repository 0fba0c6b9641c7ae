import pytest

from colligate.errors import ContextTooSmall
from colligate.library.given import Given
from colligate.strategies.baselines.direct import Direct
from colligate.strategies.baselines.full_context import FullContext


async def test_direct_reads_nothing_and_says_so(make_run):
    async with Given([]) as sources:
        run, model = make_run(sources, ["Paris"])
        answer = await Direct().answer("What is the capital of France?", run)
    assert (answer.text, answer.found, answer.citations) == ("Paris", True, ())
    assert "<passage" not in model.calls[0].prompt
    assert any("no document was read" in warning for warning in run.warnings)


async def test_full_context_shows_every_document_whole_in_order(documents, make_run, reply):
    said = reply((2, "Bicycles stand in the yard", "Bicycles stand in the yard."))
    async with Given(documents) as sources:
        run, model = make_run(sources, [said])
        answer = await FullContext().answer("Where do bicycles stand?", run)
    prompt = model.calls[0].prompt
    assert prompt.index(documents[0].text.strip()) < prompt.index(documents[1].text.strip())
    assert answer.citations[0].quote == "Bicycles stand in the yard, never in the hall."
    assert run.meter.report().retrieval_rounds == 0


async def test_full_context_refuses_what_does_not_fit_before_the_call(documents, make_run, reply):
    async with Given(documents) as sources:
        run, model = make_run(sources, [reply()], context_tokens=700)
        with pytest.raises(ContextTooSmall, match="the window is 700"):
            await FullContext().answer("Where do bicycles stand?", run)
    assert model.calls == []
