"""A run is read from its events so that its prompts can be rendered again."""

from colligate.lab.training.trajectories import replay
from colligate.strategies.dualrag.prompts import (
    SUMMARY_TOKENS,
    identifier_messages,
    reasoner_messages,
    summarizer_messages,
)


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
    assert (found.stop, found.warnings) == ("enough", ())


async def test_a_prompt_that_was_cut_to_the_window_is_a_warning(answered, world):
    _, model = await answered(world())
    first = next(call for call in model.calls if call.schema["title"] == "Summary")
    room = await model.count_prompt(first.messages) + SUMMARY_TOKENS
    short, _ = await answered(world(), context_tokens=room - 1)
    assert short.warnings
