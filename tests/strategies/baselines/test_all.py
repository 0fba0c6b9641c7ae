import dataclasses

import pytest

from colligate.core.reader import FORMS, Form
from colligate.core.strategy import list_strategies, load_strategy
from colligate.errors import ContextTooSmall
from colligate.library.in_memory import InMemorySources
from colligate.strategies.baselines.direct import Direct
from colligate.strategies.baselines.full_context import FullContext
from colligate.strategies.baselines.retrieve_read import RetrieveRead


async def test_direct_reads_nothing_and_says_so(make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, ["Paris"])
        answer = await Direct().answer("What is the capital of France?", run)
    assert (answer.text, answer.found, answer.citations) == ("Paris", True, ())
    assert "<passage" not in model.calls[0].prompt
    assert any("no document was read" in warning for warning in run.warnings)


async def test_full_context_shows_every_document_whole_in_order(documents, make_run, reply):
    said = reply((2, "Bicycles stand in the yard", "Bicycles stand in the yard."))
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, [said])
        answer = await FullContext().answer("Where do bicycles stand?", run)
    prompt = model.calls[0].prompt
    assert prompt.index(documents[0].text.strip()) < prompt.index(documents[1].text.strip())
    assert answer.citations[0].quote == "Bicycles stand in the yard, never in the hall."
    assert run.meter.report().retrieval_rounds == 0


async def test_full_context_refuses_what_does_not_fit_before_the_call(documents, make_run, reply):
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, [reply()], context_tokens=700)
        with pytest.raises(ContextTooSmall, match="the window is 700"):
            await FullContext().answer("Where do bicycles stand?", run)
    assert model.calls == []


@pytest.mark.parametrize("name", list_strategies())
def test_every_strategy_can_be_asked_for_a_list_or_a_paragraph(name):
    # Or a table of QAMPARI or ASQA would compare lists and paragraphs with few words.
    kind = load_strategy(name)
    forms = [field.default for field in dataclasses.fields(kind) if field.name == "form"]
    assert forms
    assert isinstance(forms[0], Form)


@pytest.mark.parametrize("strategy", [RetrieveRead, FullContext])
@pytest.mark.parametrize("form", [Form.LIST, Form.LONG, Form.JOINED])
async def test_the_reader_is_asked_in_the_form_that_is_wanted(
    documents, minilm, make_run, reply, strategy, form
):
    async with InMemorySources(documents, minilm) as sources:
        run, model = make_run(sources, [reply()])
        await strategy(form=form).answer("Where do bicycles stand?", run)
    assert FORMS[form].instruction in model.calls[0].prompt


async def test_direct_lists_with_commas_and_explains_without_a_short_answer(make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, ["Ann, Bob", "They did."])
        listed = await Direct(form=Form.LIST).answer("Who?", run)
        told = await Direct(form=Form.LONG).answer("Why?", run)
    assert "separated by commas" in model.calls[0].prompt
    assert "one paragraph" in model.calls[1].prompt
    assert (listed.short, told.short, told.text) == ("Ann, Bob", None, "They did.")
