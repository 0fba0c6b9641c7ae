from colligate.core.prompts import Reasoning
from colligate.lab.training.trajectories import replay
from colligate.models import Capability
from colligate.strategies.dualrag.knowledge import NOTHING
from colligate.strategies.dualrag.prompts import (
    SUMMARY_TOKENS,
    Summary,
    identifier_messages,
    reasoner_messages,
    summarizer_messages,
)


async def test_a_run_is_kept_step_by_step(answered, world, texts, facts):
    found, _ = await answered(world())
    assert [step.round for step in found.steps] == [1, 2, 3, 4]
    assert [step.need_retrieve for step in found.steps] == [True, True, True, False]
    assert [[looked.entity for looked in step.looked] for step in found.steps] == [
        ["Silver Harbour"],
        ["Ada Mercer"],
        ["Lund"],
        [],
    ]
    (looked,) = found.steps[1].looked
    assert looked.queries == ("Where was Ada Mercer born?",)
    for fragment in looked.fragments:
        (span,) = fragment.spans
        assert facts[texts[span.document_id][span.start : span.end]] == fragment.text
    assert (found.stop, found.short) == ("enough", "Sweden")
    assert "[1]" not in found.answer


async def test_the_outline_grows_again_as_it_grew(answered, world):
    found, model = await answered(world())
    states = list(replay(found.steps))
    outlines = [world.outline(call) for call in model.calls if "Facts found" in call.prompt]
    assert [state.outline for state in states] == list(dict.fromkeys(outlines))
    assert states[0].outline == NOTHING
    assert states[3].names == ("Silver Harbour", "Ada Mercer", "Lund")
    assert states[1].before == (found.steps[0].thought,)
    assert states[1].thoughts == (found.steps[0].thought, found.steps[1].thought)


async def test_every_call_but_the_readers_is_rendered_again_byte_by_byte(answered, world):
    found, model = await answered(world())
    rendered = []
    for step, state in zip(found.steps, replay(found.steps), strict=True):
        rendered.append(reasoner_messages(found.question, state.outline, state.before))
        if step.looked:
            rendered.append(
                identifier_messages(found.question, state.outline, state.thoughts, state.names)
            )
        for each in step.looked:
            rendered.append(
                summarizer_messages(
                    found.question, state.thoughts, (each.entity, each.queries), each.passages
                )
            )
    assert len(rendered) == 4 + 3 + 3
    assert [tuple(messages) for messages in rendered] == [
        call.messages for call in model.calls[:-1]
    ]
    assert all(found.was_asked(each, Summary) for each in rendered)


async def test_a_call_with_the_schema_in_its_prompt_is_the_same_call(answered, world):
    found, model = await answered(world(), capabilities=[Capability.CHAT])
    assert "JSON schema" in model.calls[0].prompt
    first, *_ = replay(found.steps)
    prompt = reasoner_messages(found.question, first.outline, first.before)
    assert found.was_asked(prompt, Reasoning)
    assert not found.was_asked(prompt, Summary)
    assert not found.was_asked(prompt[:1], Reasoning)
    assert all(looked.passages for step in found.steps for looked in step.looked)


async def test_only_the_passages_that_the_call_had_room_for_are_kept(answered, world):
    whole, model = await answered(world())
    assert len(whole.steps[0].looked[0].passages) == 2
    first = next(call for call in model.calls if call.schema["title"] == "Summary")
    room = await model.count_prompt(first.messages) + SUMMARY_TOKENS
    short, model = await answered(world(), context_tokens=room - 1)
    (looked,) = short.steps[0].looked
    assert len(looked.passages) == 1
    shown = [call for call in model.calls if call.schema["title"] == "Summary"]
    assert shown[0].prompt.count("<passage number") == 1


async def test_what_an_entity_is_called_instead_moves_what_is_known_of_it(answered, world):
    found, _ = await answered(world())
    called = {"Silver Harbour": "Ada Mercer", "Ada Mercer": "Ada Mercer", "Lund": None}
    *_, last = replay(found.steps, called.get)
    assert last.names == ("Ada Mercer",)
    assert last.outline == (
        "#### Ada Mercer\n\nThe director of Silver Harbour was Ada Mercer.\n\n"
        "Ada Mercer was born in Lund."
    )


async def test_replies_that_could_not_be_read_are_marked(answered, world):
    found, _ = await answered(world(Entities="no JSON", Summary={"statements": []}), rounds=1)
    (step,) = found.steps
    assert (step.readable, step.identified) == (True, False)
    assert step.looked[0].entity == "else"
    assert not found.answer
