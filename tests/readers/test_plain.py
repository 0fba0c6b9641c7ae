"""The plain reader answers in free words and cites nothing."""

from colligate.core.answer import Form
from colligate.core.run import show_ranked
from colligate.library.in_memory import InMemorySources
from colligate.readers.plain import PlainReader, take_final_answer


async def read(make_run, documents, reply, **task):
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, [reply])
        run.reader = PlainReader()
        hits = await run.search("tenant", k=2, mode="sparse")
        return await run.read("How much is the rent?", show_ranked(hits), **task), model.calls[0]


async def test_the_reply_is_the_answer_and_its_end_the_short_one(make_run, documents):
    said = "The lease says 900. So the final answer is: 900 euros"
    answer, call = await read(make_run, documents, said)
    assert (answer.text, answer.short, answer.found) == (said, "900 euros", True)
    assert answer.citations == ()
    assert call.schema is None
    assert answer.evidence


async def test_a_methods_own_instruction_stays_without_a_form_of_the_reply(make_run, documents):
    _, call = await read(
        make_run, documents, "900", instruction="You are the judge.", notes="<log>\nx\n</log>"
    )
    assert call.messages[0].content == "You are the judge."
    assert "<log>" in call.messages[1].content
    assert "JSON" not in call.prompt


async def test_an_explanation_has_no_short_answer(make_run, documents):
    answer, _ = await read(make_run, documents, "It is 900 euros.", form=Form.LONG)
    assert answer.short is None


def test_the_last_final_answer_counts():
    assert take_final_answer("So the final answer is: a. So the final answer is b") == "b"
