import gzip
import json

import pytest

from colligate.bench.participants import ModelNames
from colligate.errors import BudgetExceeded, MalformedOutput, UsageError
from colligate.models.base import Capability, Role
from colligate.testing import ScriptedModel
from colligate.training.curate import Curation
from colligate.training.curate_dualrag import TitleMatching, contains_answer, curate_dualrag
from colligate.training.samples import read_samples
from support.embedders import SameEmbedder

SETTINGS = ("mode=sparse", "linking=name", "k=2")


@pytest.fixture
def records(question, texts):
    """Questions as a file has them: the same one, with several golds of answers."""

    def record(id_, *answers, **fields):
        documents = [
            {"id": name, "title": name.capitalize(), "text": text} for name, text in texts.items()
        ]
        gold = ["film", "mercer", "lund"]
        whole = {"id": id_, "question": question, "answers": list(answers)}
        return {**whole, "documents": documents, "gold_document_ids": gold, **fields}

    return record


@pytest.fixture
def curate(tmp_path):
    """`await curate(records, script)` is the card of a curation."""

    async def done(records, script, *, judge=None, events=None, **fields):
        questions = tmp_path / "questions.jsonl"
        questions.write_text("".join(json.dumps(each) + "\n" for each in records))
        teacher = ScriptedModel(
            script, "teacher", capabilities=(Capability.CHAT, Capability.STRUCTURED)
        )
        models = {Role.READER: teacher}
        if judge is not None:
            models[Role.JUDGE] = judge
        request = Curation(
            out=tmp_path / "out",
            questions=questions,
            names=ModelNames(models=models, embedder=SameEmbedder()),
            **{"settings": SETTINGS, "held_out": 0.5} | fields,
        )
        return await curate_dualrag(request, lambda event: None), teacher

    return done


def samples(folder) -> list:
    return [
        each for name in ("train", "held_out") for each in read_samples(folder / f"{name}.jsonl")
    ]


async def test_right_runs_are_taught_and_every_run_is_kept(curate, records, world, tmp_path):
    asked = [records("a", "Sweden"), records("b", "Norway"), records("c", answerable=False)]
    card, teacher = await curate(asked, world())
    made = samples(tmp_path / "out")
    assert {sample.meta["question"] for sample in made} == {"a"}
    assert {task: sum(n.values()) for task, n in card.samples.items()} == {
        "reasoner": 4,
        "identifier": 3,
        "summarizer": 3,
    }
    assert card.discarded == {
        "a run whose answer was not right": 1,
        "a question without a right answer": 1,
    }
    assert (card.counts["runs, right"], card.counts["runs, wrong"]) == (1, 1)
    assert card.counts["runs ended: enough"] == 2
    assert card.usage["calls"] == len(teacher.calls) == 2 * 11
    sent = {call.messages for call in teacher.calls}
    assert all(sample.prompt in sent for sample in made)
    kept = [
        json.loads(gzip.decompress(file.read_bytes()))
        for file in (tmp_path / "out" / "trajectories").iterdir()
    ]
    assert {each["id"]: each["right"] for each in kept} == {"a": True, "b": False}
    assert all(len(each["steps"]) == 4 for each in kept)
    assert "No judge was named" in card.filters[0]
    assert "shares most words" in card.filters[1]


async def test_a_sentence_that_a_record_names_by_its_number_repairs(
    curate, records, world, tmp_path
):
    def blind(call):
        return {"statements": [] if "<entity>Lund" in call.prompt else world.facts(call)}

    meta = {"supporting_facts": [["Lund", 1], ["Lund", 9], ["Boats", 0]]}
    asked = [records("a", "Lund", meta=meta), records("b", "Lund", meta={"supporting_facts": 1})]
    await curate(asked, world(Summary=blind), settings=(*SETTINGS, "rounds=3"))
    repaired = {
        sample.meta["question"]: json.loads(sample.target)["statements"][0]["sentence"]
        for sample in samples(tmp_path / "out")
        if sample.meta["class"] == "repaired"
    }
    assert repaired == {"a": "It has a cathedral.", "b": "Lund is a town in Sweden."}


async def test_golds_that_nobody_can_read_are_counted(curate, records, world, tmp_path):
    asked = records("a", "Sweden")
    asked["gold_document_ids"].append("elsewhere")
    card, _ = await curate([asked], world())
    assert card.counts["gold documents that are not in view"] == 1
    assert set(card.samples) == {"reasoner", "identifier", "summarizer"}


async def test_a_judge_says_what_is_right_where_one_is_named(curate, records, world, tmp_path):
    judge = ScriptedModel(lambda call: "Yes" if "Norway" in call.prompt else "No", "judge")
    card, _ = await curate([records("a", "Sweden"), records("b", "Norway")], world(), judge=judge)
    assert {sample.meta["question"] for sample in samples(tmp_path / "out")} == {"b"}
    assert card.usage["calls"] == 2 * 11 + len(judge.calls)
    assert "judge says" in card.filters[0]


async def test_the_same_command_resumes_and_another_is_refused(curate, records, world):
    both = [records("a", "Sweden"), records("b", "Sweden")]
    with pytest.raises(BudgetExceeded):
        await curate(both, world(), max_tokens_total=9000)
    card, teacher = await curate(both, world())
    assert card.items == {"asked": 2, "done": 2, "failed": 0}
    assert len(teacher.calls) < 2 * 11
    with pytest.raises(UsageError, match="k was 2 and is 1"):
        await curate(both, world(), settings=("mode=sparse", "linking=name", "k=1"))


async def test_a_question_that_fails_can_be_tried_again(curate, records, world):
    broken = MalformedOutput("teacher gives no valid JoinedReply")
    card, _ = await curate([records("a", "Sweden")], world(JoinedReply=broken))
    assert card.items == {"asked": 1, "done": 1, "failed": 1}
    assert not card.samples
    card, _ = await curate([records("a", "Sweden")], world(), retry_failed=True)
    assert card.items["failed"] == 0
    assert sum(card.samples["reasoner"].values()) == 4


async def test_only_the_tasks_asked_for_are_made(curate, records, world):
    card, _ = await curate([records("a", "Sweden")], world(), tasks=("identifier",))
    assert set(card.samples) == {"identifier"}


async def test_what_cannot_be_curated_is_reported(curate, records, world, tmp_path):
    with pytest.raises(UsageError, match="no task 'router'"):
        await curate([records("a", "Sweden")], world(), tasks=("router",))
    with pytest.raises(UsageError, match="no parameter 'hops'"):
        await curate([records("a", "Sweden")], world(), settings=("hops=3",))
    with pytest.raises(UsageError, match="--questions"):
        await curate_dualrag(Curation(out=tmp_path / "none"), lambda event: None)


@pytest.mark.parametrize(
    ("answer", "short", "gold", "right"),
    [
        ("She was born in Sweden.", "", "Sweden", True),
        ("She was born in the town of Lund.", "", "the Town of Lund!", True),
        ("They met at a party.", "a party", "art", False),
        ("Nobody knows.", "Lund", "Lund", True),
        ("Nobody knows it.", "unknown", "no", False),
        ("No, they are not.", "No, it is older", "no", True),
        ("Yes and no.", "yes", "no", False),
        ("Anything.", "", "the", False),
    ],
)
def test_a_right_answer_is_told_by_its_words(answer, short, gold, right):
    assert contains_answer(answer, short, gold) is right


class Ranked:
    def __init__(self, name):
        self.name = name

    async def score(self, query, texts):
        return [0.0 for _ in texts]


@pytest.mark.parametrize(
    ("name", "over", "used"),
    [
        (None, 0.3, None),
        ("embedding", None, None),
        ("embedding", 0.7, 0.7),
        ("cross-encoder:BAAI/bge-reranker-v2-m3", None, 0.5),
        ("cross-encoder:BAAI/bge-reranker-v2-m3", 0.0, 0.0),
        ("http:rerank@http://localhost:1", None, 0.5),
        ("likelihood", None, None),
    ],
)
def test_only_a_reranker_whose_scores_mean_something_decides_on_titles(name, over, used):
    reranker = Ranked(name) if name else None
    scored, threshold = TitleMatching(over).scores(reranker)
    assert (scored is not None) == (used is not None)
    assert threshold == (used or 0.0)
