import json

from colligate.lab.baselines.oracle import Oracle
from colligate.library.in_memory import InMemorySources

QUESTION = "What is the rent, and where are bicycles kept?"
RENT = "The tenant pays 900 euros a month for the flat in Mill Street."
YARD = "Bicycles stand in the yard, never in the hall."


def joined(*statements):
    rows = [
        {"quotes": [{"passage": n, "quote": q} for n, q in quotes], "sentence": sentence}
        for quotes, sentence in statements
    ]
    return json.dumps({"statements": rows, "short_answer": "", "found": bool(rows)})


async def test_only_the_supporting_sentences_are_read_in_their_order(documents, ask):
    said = joined(
        ([(2, "pays 900 euros a month")], "The rent is 900 euros."),
        ([(1, "Bicycles stand in the yard")], "Bicycles stand in the yard."),
    )
    gold = Oracle(gold=("lease", "rules"), sentences=(("rules", YARD), ("lease", RENT)))
    answer, _, model = await ask(gold, QUESTION, documents, said)
    prompt = model.calls[0].prompt
    assert "Dogs" not in prompt
    assert "notice" not in prompt
    assert prompt.index(YARD) < prompt.index(RENT)
    assert [c.quote for c in answer.citations] == [RENT, YARD]
    assert [documents[1].slice(answer.evidence[0].span)] == [YARD]


async def test_whole_documents_where_that_is_asked_for_or_no_sentences_are_known(
    documents, make_run
):
    for oracle in (
        Oracle(gold=("rules",)),
        Oracle(gold=("rules",), sentences=(("rules", YARD),), level="documents"),
    ):
        async with InMemorySources(documents) as sources:
            run, model = make_run(sources, [joined()])
            await oracle.answer(QUESTION, run)
        assert "Dogs" in model.calls[0].prompt
        assert "tenant" not in model.calls[0].prompt


async def test_a_sentence_that_is_not_there_is_said(documents, ask):
    oracle = Oracle(sentences=(("rules", "Parrots may be kept in a cage on the balcony."),))
    _, run, model = await ask(oracle, QUESTION, documents, joined())
    assert "Dogs" in model.calls[0].prompt
    assert any("not in rules" in warning for warning in run.warnings)
