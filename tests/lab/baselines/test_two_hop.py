from colligate.core.events import Retrieved
from colligate.lab.baselines.two_hop import TwoHop
from support.documents import make_all
from support.prompts import titles

QUESTION = "Who composed the anthem?"


def documents():
    return make_all(
        {
            "anthem": "The anthem was composed by Orlov.",
            "orlov": "Orlov lived on Birch Lane.",
            "birch": "Birch Lane crosses the river.",
            "cows": "Cows eat grass.",
        }
    )


async def test_what_was_found_is_looked_up_in_turn(ask):
    answer, run, model = await ask(TwoHop(k=1, mode="sparse"), QUESTION, documents())
    assert titles(model.calls[0].prompt) == ["anthem", "orlov"]
    searches = [e for _, e in run.trace.events if isinstance(e, Retrieved)]
    assert [e.query for e in searches] == [QUESTION, "anthem\n" + documents()[0].text]
    assert [e.reason for e in answer.evidence] == ["found for the question", "found for anthem"]
