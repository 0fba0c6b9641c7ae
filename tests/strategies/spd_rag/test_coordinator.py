import pytest

from colligate.models.structured import parse
from colligate.strategies.spd_rag.prompts import WriteTodos


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
