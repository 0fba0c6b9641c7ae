import re

from colligate.core.events import Retrieved
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.library import InMemorySources
from colligate.strategies.baselines.two_hop import TwoHop

QUESTION = "Who composed the anthem?"


def documents():
    texts = {
        "anthem": "The anthem was composed by Orlov.",
        "orlov": "Orlov lived on Birch Lane.",
        "birch": "Birch Lane crosses the river.",
        "cows": "Cows eat grass.",
    }
    return [
        Document(name, name, text, markdown_tree(text, name), language="en")
        for name, text in texts.items()
    ]


def titles(prompt):
    return re.findall(r'<passage number="\d+" title="(\w+)"', prompt)


async def test_what_was_found_is_looked_up_in_turn(ask):
    answer, run, model = await ask(TwoHop(k=1, mode="sparse"), QUESTION, documents())
    assert titles(model.calls[0].prompt) == ["anthem", "orlov"]
    searches = [e for _, e in run.trace.events if isinstance(e, Retrieved)]
    assert [e.query for e in searches] == [QUESTION, "anthem\n" + documents()[0].text]
    assert [e.reason for e in answer.evidence] == ["found for the question", "found for anthem"]


async def test_each_passage_is_read_once(ask):
    _, _, model = await ask(
        TwoHop(k=3, mode="sparse"), "Orlov, Birch Lane, the anthem", documents()
    )
    assert sorted(titles(model.calls[0].prompt)) == ["anthem", "birch", "orlov"]


async def test_what_does_not_fit_is_left_out_from_the_end(make_run, reply):
    async with InMemorySources(documents()) as sources:
        run, model = make_run(sources, [reply()])
        await TwoHop(k=1, mode="sparse").answer(QUESTION, run)
        taken = await model.count_prompt(model.calls[0].messages) + model.calls[0].max_tokens
        run, model = make_run(sources, [reply()], context_tokens=taken - 1)
        answer = await TwoHop(k=1, mode="sparse").answer(QUESTION, run)
        assert titles(model.calls[0].prompt) == ["anthem"]
    assert len(answer.evidence) == 1
    assert any("do not fit" in warning for warning in run.warnings)


async def test_nothing_found_costs_no_call(ask):
    answer, run, model = await ask(TwoHop(mode="sparse"), "Xyzzy?", documents())
    assert not answer.found
    assert model.calls == []
    assert run.meter.retrieval_rounds == 1
