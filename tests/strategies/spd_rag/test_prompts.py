import pytest

from colligate.models.structured import parse
from colligate.strategies.spd_rag.prompts import WriteTodos, list_statements


def test_tasks_are_taken_once_each_and_without_blanks():
    plan = WriteTodos.model_validate(
        {"sub_agent_todos": [{"task": " Find  the rent. ", "status": "pending"}, "Find the rent."]}
    )
    assert plan.tasks("Who pays?") == ("Find the rent.",)


@pytest.mark.parametrize("reply", ["{}", '{"sub_agent_todos": []}', '{"sub_agent_todos": [" "]}'])
def test_without_a_task_the_question_is_the_task(reply):
    if reply == "{}":
        plan = WriteTodos()
    else:
        plan, _ = parse(reply, WriteTodos)
    assert plan.tasks(" Who pays? ") == ("Who pays?",)
    assert plan.synthesis_directive == ""


def test_the_lines_of_a_report_that_quote_are_its_statements():
    report = (
        "1. Found: the rent is 900 euros: “900 euros a month”, “in advance”.\n"
        "2. Not found in this document.\n"
        '3) A dog is kept "on a lead".'
    )
    first, second = list_statements(report)
    assert first.sentence == "the rent is 900 euros: “900 euros a month”, “in advance”."
    assert [quote.quote for quote in first.quotes] == ["900 euros a month", "in advance"]
    assert [quote.quote for quote in second.quotes] == ["on a lead"]
