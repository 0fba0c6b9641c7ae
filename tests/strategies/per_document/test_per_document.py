"""One question to each document: what follows from the answers, and what of it code computes."""

import json
import re
from unittest.mock import AsyncMock

import pytest

from colligate.core.answer import COMPUTED
from colligate.errors import ServerFailed, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.readers.checks import ModelCheck
from colligate.readers.plain import PlainReader
from colligate.strategies.per_document import PerDocument
from colligate.strategies.per_document.figures import Source, compute, is_stated
from colligate.strategies.per_document.prompts import Combination
from support.runs import document

ASKED = "When does the lease end?"
ENDS = {
    n: f"{28 - n % 20} {('May', 'June')[n % 2]} {2026 + n % 3}"
    for n in range(1, 71)  # every third one in 2026
}
ENDING = [n for n, day in ENDS.items() if day.endswith("2026")]


def lease(number: int):
    text = f"# Lease {number}\n\nThe lease ends on {ENDS[number]}. The rent is {number}50 euros.\n"
    return document(f"l{number:02}", text)


def leases(*numbers: int):
    return [lease(number) for number in numbers]


def who(call) -> str:
    if call.schema is None:
        return "question"
    if "judgements" in call.schema["properties"]:
        return "check"
    return "combine" if "operation" in call.schema["properties"] else "reader"


def models(combination, *, fails=(), silent=()):
    """Models that read a lease and say what follows."""

    def say(call):
        if who(call) == "question":
            return ASKED
        if who(call) == "combine":
            return json.dumps(combination) if isinstance(combination, dict) else combination
        title = re.search(r'title="(Lease \d+)"', call.prompt)[1]
        if title in fails:
            return ServerFailed("the server failed", "503")
        if title in silent:
            return json.dumps({"statements": [], "short_answer": "", "found": False})
        sentence = re.search(r"The lease ends on .* euros\.", call.prompt)[0]
        quoted = {"quotes": [{"passage": 1, "quote": sentence}], "sentence": sentence}
        return json.dumps({"statements": [quoted], "short_answer": "", "found": True})

    return say


def iso(number: int) -> str:
    day, month, year = ENDS[number].split()
    return f"{year}-{'05' if month == 'May' else '06'}-{day}"


def figures(numbers) -> list[dict]:
    return [{"document": at, "value": iso(n)} for at, n in enumerate(numbers, 1)]


def cited(answer) -> list[str]:
    return sorted({citation.span.document_id for citation in answer.citations})


STRATEGY = PerDocument(mode="sparse")


async def test_which_of_thirty_leases_end_this_year_names_exactly_those(ask):
    asked = {"operation": "within", "least": "2026-01-01", "most": "2026-12-31"}
    numbers = range(1, 31)
    say = models({**asked, "figures": figures(numbers), "documents": [7]})
    answer, run, model = await ask(STRATEGY, "Which leases end this year?", leases(*numbers), say)
    named = [f"Lease {n}" for n in ENDING if n <= 30]
    assert answer.short == "; ".join(named)
    assert answer.text.startswith(f"2026-01-01 ≤ … ≤ 2026-12-31: {'; '.join(named)} (of what was")
    assert re.findall(r"(Lease \d+): The lease ends", answer.text) == named
    assert answer.ground == "computed"
    assert (answer.found, run.warnings) == (True, ())
    assert [each.title for each in answer.table] == [f"Lease {n}" for n in numbers]
    assert all(ENDS[n] in row.citation.quote for n, row in zip(numbers, answer.table, strict=True))
    assert [who(call) for call in model.calls] == ["question", *["reader"] * 30, "combine"]
    # The question for each document is asked of each one alone.
    assert all(call.prompt.endswith(ASKED) for call in model.calls if who(call) == "reader")
    assert "30. Lease 30: The lease ends on" in model.calls[-1].prompt


@pytest.mark.parametrize(("operation", "best"), [("highest", 3), ("lowest", 1)])
async def test_the_highest_of_three_is_found_by_comparing(operation, best, ask):
    values = [{"document": n, "value": f"{n}50"} for n in (1, 2, 3)]
    say = models({"operation": operation, "unit": "euros", "figures": values})
    answer, *_ = await ask(STRATEGY, "Which rent is it?", leases(1, 2, 3), say)
    assert answer.short == f"Lease {best}: {best}50 euros"
    line = f"Lease {best}: {best}50 euros is the {operation} of what was found in 3 of 3 documents."
    assert answer.text.startswith(f"{line} [1][2][3] Lease {best}: The lease ends")
    assert {citation.how for citation in answer.citations} == {COMPUTED}
    values[:] = [{"document": n, "value": "250"} for n in (1, 2)]  # Lease 1 does not say so
    answer, run, _ = await ask(STRATEGY, "Which rent is it?", leases(1, 2), say)
    assert "Lease 2: 250 euros" in answer.text
    assert answer.short is None
    assert "not compared: Lease 1" in run.warnings


@pytest.mark.parametrize(("silent", "short"), [((), "750 euros"), (("Lease 3",), None)])
async def test_a_sum_is_computed_and_short_only_if_every_document_has_a_figure(silent, short, ask):
    count = 3 - len(silent)
    values = [{"document": n, "value": f"{n}50"} for n in range(1, count + 1)]
    asked = {"operation": "sum", "unit": "euros", "figures": values}
    say = models(asked, silent=silent)
    numbers = (1, 2, 3)
    answer, run, _ = await ask(STRATEGY, "What do they cost altogether?", leases(*numbers), say)
    total = "400" if silent else "750"
    assert answer.text.startswith(f"{total} euros is the sum of what was found in {count} of 3")
    assert answer.short == short
    assert len(cited(answer)) == count
    assert ("nothing was found in Lease 3" in run.warnings) == bool(silent)


@pytest.mark.parametrize(
    ("asked", "short"),
    [
        ({"documents": [1, 3]}, "2"),
        ({"least": "2027", "figures": figures((1, 2, 3))}, "1"),
        ({"least": "2026", "strict": True, "figures": figures((1, 2, 3))}, "2"),
    ],
    ids=["by what the reader says", "from a year", "after a year"],
)
async def test_documents_are_counted(asked, short, ask):
    assert [iso(n)[:4] for n in (1, 2, 3)] == ["2027", "2028", "2026"]
    if short == "1":
        asked = {**asked, "least": "2028"}
    say = models({"operation": "count", **asked})
    answer, *_ = await ask(STRATEGY, "How many are it?", leases(1, 2, 3), say)
    assert answer.short == short
    assert answer.text.startswith(f"{short} of 3: ")


async def test_a_document_that_fails_is_named_and_stops_no_other(ask):
    asked = {"operation": "within", "least": "2026-01-01", "most": "2026-12-31"}
    numbers = (3, 6, 9)
    say = models({**asked, "figures": figures((3, 9))}, fails=("Lease 6",))
    answer, run, _ = await ask(STRATEGY, "Which end this year?", leases(*numbers), say)
    assert "Lease 3; Lease 9 (of what was found in 2 of 3 documents)" in answer.text
    assert answer.short is None  # of Lease 6 nothing is known
    [warning] = run.warnings
    assert warning.startswith("1 of 3 documents could not be read: 'Lease 6': ")
    assert warning.endswith("the server failed")


async def test_findings_of_all_documents_are_judged_together(make_run):
    figure = {"operation": "highest", "unit": "euros"}

    def say(call):
        if who(call) == "reader":  # in other words than the lease's
            reply = json.loads(rest(call))
            number = re.search(r'title="Lease (\d+)"', call.prompt)[1]
            reply["statements"][0]["sentence"] = f"One pays {number}50 euros."
            return json.dumps({**reply, "short_answer": "It costs money"})
        if who(call) == "check":
            rows = re.findall(r"Statement (\d+): One pays (\d+)50 euros", call.prompt)
            verdicts = {"14": "contradicts", "2": "unclear"}
            judged = [{"number": n, "verdict": verdicts.get(of, "supports")} for n, of in rows]
            return json.dumps({"judgements": judged})
        return rest(call)

    numbers = range(1, 15)
    rents = [{"document": n, "value": f"{n}50"} for n in numbers]
    rest = models({**figure, "figures": rents})
    async with InMemorySources(leases(*numbers)) as sources:
        run, model = make_run(sources, say)
        run.check = ModelCheck()
        answer = await STRATEGY.answer("Which rent is the highest?", run)
    calls = [who(call) for call in model.calls]
    assert calls == ["question", *["reader"] * 14, "check", "check", "combine"]
    assert "Lease 14" not in model.calls[-1].prompt
    assert answer.text.startswith("Lease 13: 1,350 euros is the highest of what was found in 13 ")
    assert {c.span.document_id for c in answer.citations if c.meaning == "unclear"} == {"l02"}
    assert any("'Lease 14': its quotes contradict" in warning for warning in run.warnings)


async def test_a_reader_that_cites_nothing_is_compared_too(make_run):
    asked = {"operation": "within", "most": "2026-12-31", "figures": figures((2, 3))}
    rest = models(asked)

    def say(call):
        if call.schema or "each document" in call.messages[0].content:
            return rest(call)
        return re.search(r"The lease ends on .* euros\.", call.prompt)[0]

    async with InMemorySources(leases(2, 3)) as sources:
        run, _ = make_run(sources, say)
        run.reader = PlainReader()
        answer = await STRATEGY.answer("Which end by 2026?", run)
    assert (answer.found, answer.short, answer.citations) == (True, "Lease 3", ())
    assert "Lease 3: The lease ends on 25 June 2026." in answer.text


async def test_more_documents_than_allowed_need_consent(make_run):
    async with InMemorySources(leases(1, 2, 3)) as sources:
        run, model = make_run(sources, models({"operation": "none", "documents": [1]}))
        with pytest.raises(UsageError, match="most_documents=3 allows it"):
            await PerDocument(mode="sparse", most_documents=2).answer("Which end?", run)
        assert model.calls == []
        run.consent = AsyncMock(return_value=True)
        answer = await PerDocument(mode="sparse", most_documents=2).answer("Which end?", run)
    assert answer.found


async def test_more_than_one_prompt_holds_is_combined_in_several(make_run):
    async with InMemorySources(leases(*range(1, 71))) as sources:
        run, model = make_run(sources, models({}))
        run.models = {Role.READER: model}
        seen = []

        def say(call):
            if who(call) != "combine":
                return models({})(call)
            titles = re.findall(r"^\d+\. Lease (\d+):", call.prompt, re.MULTILINE)
            seen.append(len(titles))
            asked = {"operation": "within", "most": "2026-12-31"}
            return json.dumps({**asked, "figures": figures(map(int, titles))})

        model._reply = say
        answer = await STRATEGY.answer("Which end by 2026?", run)
    assert len(seen) > 1
    assert sum(seen) == 70
    assert answer.short == "; ".join(f"Lease {n}" for n in ENDING)


@pytest.mark.parametrize(
    ("text", "source", "stated"),
    [
        ("4979", "| Net sales | 4,979 |", True),
        ("4978", "| Net sales | 4,979 |", False),
        ("2026-05-30", "It ends on 31 May 2026.", False),
        ("2026-05", "It ends in May 2026.", True),  # a month without a day
    ],
)
def test_a_value_is_taken_only_if_the_document_says_it(text, source, stated):
    assert is_stated(text, Source((source,))) is stated


def test_equal_values_share_the_place_and_part_of_a_year_is_not_sure():
    given = [{"document": n, "value": value} for n, value in ((1, "5"), (2, 7), (3, "7.0"))]
    asked = Combination(operation="highest", unit="m", figures=given)
    assert compute(asked, [Source((each,)) for each in ("5 m", "7 m", "7 m")]).chosen == (1, 2)
    given = [{"document": 1, "value": "2026"}]
    asked = Combination(operation="within", least="2026-06-01", figures=given)
    result = compute(asked, [Source(("in 2026",))])
    assert (result.chosen, result.compared) == ((), ())
