"""`list-all` names everything there is, or says how much of the documents it has read."""

import json
import re

import pytest

from colligate.core.run import allow
from colligate.library.in_memory import InMemorySources
from colligate.readers.pointwise import PointwiseReader
from colligate.strategies.list_all import ListAll
from support.prompts import passages_in
from support.runs import document

QUESTION = "List all the boats."
LOGS = {
    "may": "# May\n\nThe boat Heron left at noon.\n\n## Night\n\nThe boat Tern came back.\n",
    "june": "# June\n\nThe boat Heron was painted by Ivo.\n",
    "july": "# July\n\nNobody sailed.\n",
}
DOCUMENTS = [document(*each) for each in LOGS.items()]


def name_boats(call):
    """Name what follows "boat" in each passage, and once a thing that no passage has."""
    if "same" in call.schema["properties"]:
        return json.dumps({"same": []})
    items = [
        {"passage": number, "quote": f"The boat {name}", "item": name}
        for number, text in passages_in(call.prompt).items()
        for name in ("Heron", "Tern")
        if f"boat {name}" in text
    ]
    return json.dumps({"items": [*items, {"passage": 1, "quote": "a raft", "item": "raft"}]})


@pytest.mark.parametrize("part", [100, 3000])
async def test_everything_is_listed_once_and_counted_with_all_its_places(ask, part):
    answer, run, _ = await ask(ListAll(part=part), QUESTION, DOCUMENTS, name_boats)
    assert answer.short == "2: Heron, Tern"
    lines = answer.text.splitlines()
    assert [row.split(" [")[0] for row in lines] == ["2 found in 3 documents:", "- Heron", "- Tern"]
    heron = [c.quote for c in answer.citations if lines[1][2:7] in c.quote]
    assert heron == ["The boat Heron left at noon.", "The boat Heron was painted by Ivo."]
    assert all("not in these words" in warning for warning in run.warnings)


async def test_a_part_is_never_given_as_the_whole(make_run):
    long = document("log", "# Log\n\n" + "The boat Heron left. " * 40 + "\n\n" + "Calm. " * 900)
    for consent, whole in ((None, False), (allow, True)):
        async with InMemorySources([long]) as sources:
            run, _ = make_run(sources, name_boats)
            run.consent = consent or run.consent
            answer = await ListAll(most_tokens=200, mode="sparse").answer("boat", run)
        assert answer.text.startswith("1 found" if whole else "at least 1 found in 1 document, of")
        assert any("may lack" in warning for warning in run.warnings) is not whole


async def test_a_part_that_fails_costs_only_itself(ask):
    def say(call):
        return "no JSON" if "painted" in call.prompt else name_boats(call)

    answer, run, _ = await ask(ListAll(part=100, concurrency=1), QUESTION, LONG, say)
    assert answer.short == "at least 2: Heron, Tern"
    assert "1 of 3 passages" in answer.text or "of which" in answer.text
    assert any("not listed" in warning for warning in run.warnings)


LONG = [document(name, f"{text}\n{'It rained. ' * 40}\n") for name, text in LOGS.items()]


@pytest.mark.parametrize(
    ("same", "items"),
    [([[2, 1, 1, 9]], ["Heron"]), ([], ["Heron", "Tern"]), ("x", ["Heron", "Tern"])],
)
async def test_a_large_reader_says_which_names_are_of_one_thing(ask, same, items):
    def say(call):
        if "same" in call.schema["properties"]:
            return "no JSON" if same == "x" else json.dumps({"same": same})
        return name_boats(call)

    answer, run, _ = await ask(ListAll(), QUESTION, DOCUMENTS, say)
    assert answer.short == f"{len(items)}: {', '.join(items)}"
    assert len(answer.citations) == 3
    assert any("counted twice" in warning for warning in run.warnings) is (same == "x")


async def test_a_part_that_names_more_than_a_reply_holds_is_read_in_halves(ask):
    rows = [document(f"log-{at}", f"# Log {at}\n\nThe boat Heron{at} left.") for at in range(40)]

    def say(call):
        found = re.findall(r"boat (Heron\d+) left", call.prompt)[:30]
        items = [{"passage": 0, "quote": f"boat {each} left", "item": each} for each in found]
        return json.dumps({"items": items, "same": []})

    answer, _, _ = await ask(ListAll(), QUESTION, rows, say)
    assert answer.short.startswith("40: Heron0, Heron1, ")


async def test_a_thing_is_named_in_the_words_of_the_passage(ask):
    items = [{"passage": 1, "quote": "The boat Heron left at noon.", "item": "1 departure"}]
    replies = json.dumps({"items": items, "same": []})
    answer, _, _ = await ask(ListAll(), QUESTION, DOCUMENTS[:1], lambda _: replies)
    assert answer.short == "1: The boat Heron left at noon"


async def test_nothing_of_the_kind_is_a_refusal(make_run):
    async with InMemorySources(DOCUMENTS) as sources:
        run, _ = make_run(sources, lambda _: json.dumps({"items": []}))
        run.reader = PointwiseReader()
        answer = await ListAll().answer(QUESTION, run)
    assert not answer.found
    assert len(answer.evidence) == 4
