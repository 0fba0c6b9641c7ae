"""Samples from runs of DualRAG that gave a right answer."""

from __future__ import annotations

import json

import pytest

from colligate.documents import Passage, Span
from colligate.errors import UsageError
from colligate.lab.bench.participants import ModelNames
from colligate.lab.training.curation import Curation
from colligate.lab.training.dualrag import curate_dualrag, draw_role_samples
from colligate.lab.training.trajectories import (
    GoldDocument,
    match_entities,
    quote_statements,
)
from colligate.models import Capability, Message, Role
from colligate.models.structured import parse
from colligate.strategies.dualrag.knowledge import Fragment
from colligate.strategies.dualrag.prompts import (
    SUMMARY_TOKENS,
    Entities,
    Summary,
)
from colligate.testing import ScriptedModel
from support.curation import every_sample, write_jsonl
from support.embedders import SameEmbedder
from support.films import QUESTION, TEXTS, facts_in, outline_in

SETTINGS = ("mode=sparse", "k=2")


def record(id_, *answers, **fields):
    """The question as a file has it, with these answers."""
    documents = [
        {"id": name, "title": name.capitalize(), "text": text} for name, text in TEXTS.items()
    ]
    gold = ["film", "mercer", "lund"]
    whole = {"id": id_, "question": QUESTION, "answers": list(answers)}
    return {**whole, "documents": documents, "gold_document_ids": gold, **fields}


@pytest.fixture
def curate(tmp_path):
    """`await curate(records, script)` is the card of a curation."""

    async def done(records, script, *, judge=None, **fields):
        write_jsonl(tmp_path / "questions.jsonl", records)
        able = (Capability.CHAT, Capability.STRUCTURED)
        teacher = ScriptedModel(script, "teacher", capabilities=able)
        models = {Role.READER: teacher} | ({} if judge is None else {Role.JUDGE: judge})
        request = Curation(
            out=tmp_path / "out",
            questions=tmp_path / "questions.jsonl",
            names=ModelNames(models=models, embedder=SameEmbedder()),
            **{"settings": SETTINGS, "held_out": 0.5} | fields,
        )
        return await curate_dualrag(request, lambda event: None), teacher

    return done


async def test_right_runs_are_taught(curate, world, tmp_path):
    asked = [record("a", "Sweden"), record("b", "Norway"), record("c", answerable=False)]
    card, teacher = await curate(asked, world())
    made = every_sample(tmp_path / "out")
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
    assert card.usage["calls"] == len(teacher.calls) == 2 * 11
    sent = {call.messages for call in teacher.calls}
    assert all(sample.prompt in sent for sample in made)


async def test_a_run_that_warned_is_not_taught(curate, world, tmp_path):
    def broken(call):
        return "no JSON" if "<entity>Lund" in call.prompt else {"statements": facts_in(call.prompt)}

    card, _ = await curate([record("a", "Lund")], world(Summary=broken))
    assert every_sample(tmp_path / "out") == []
    [why] = card.discarded
    assert why.startswith("a run that warned: what was found for “Lund” is not summarised")


async def test_a_judge_says_what_is_right_where_one_is_named(curate, world, tmp_path):
    judge = ScriptedModel(lambda call: "Yes" if "Norway" in call.prompt else "No", "judge")
    card, _ = await curate([record("a", "Sweden"), record("b", "Norway")], world(), judge=judge)
    assert {sample.meta["question"] for sample in every_sample(tmp_path / "out")} == {"b"}
    assert card.usage["calls"] == 2 * 11 + len(judge.calls)


async def test_what_cannot_be_curated_is_reported(curate, world, tmp_path):
    with pytest.raises(UsageError, match="no task 'router'"):
        await curate([record("a", "Sweden")], world(), tasks=("router",))
    with pytest.raises(UsageError, match="no parameter 'hops'"):
        await curate([record("a", "Sweden")], world(), settings=("hops=3",))
    with pytest.raises(UsageError, match="cannot be set here"):
        await curate([record("a", "Sweden")], world(), settings=("summaries=free",))
    with pytest.raises(UsageError, match="--questions"):
        await curate_dualrag(Curation(out=tmp_path / "none"), lambda event: None)


async def test_a_prompt_that_was_cut_to_the_window_is_a_warning(answered, world):
    _, model = await answered(world())
    first = next(call for call in model.calls if call.schema["title"] == "Summary")
    room = await model.count_prompt(first.messages) + SUMMARY_TOKENS
    short, _ = await answered(world(), context_tokens=room - 1)
    assert short.warnings


# Which samples a run gives.


def of(found, task) -> dict:
    """The samples of a task by the last part of their ids."""
    return {s.id.rpartition("/")[2]: s for s in found.samples if s.task == task}


def classes(found, task) -> list[str]:
    return [sample.meta["class"] for sample in of(found, task).values()]


def asked(sample) -> list[tuple[str, list[str]]]:
    entities = parse(sample.target, Entities)[0].entities
    return [(each.entity, each.keywords) for each in entities]


class Learner:
    """A model that says what the samples teach; who asks anything else finds another."""

    def __init__(self, found, other):
        self.taught = {sample.prompt: sample.target for sample in found.samples}
        self.other = other
        self.strange = []

    def __call__(self, call):
        if call.messages in self.taught:
            return self.taught[call.messages]
        self.strange.append(call.schema["title"])
        return self.other(call)


async def test_a_model_that_learnt_a_good_run_runs_just_so(answered, world, golds):
    first, model = await answered(world())
    found = await draw_role_samples(first, golds)
    assert not found.discarded
    assert classes(found, "reasoner") == ["retrieve"] * 3 + ["enough"]
    assert classes(found, "identifier") == ["as it was"] * 3
    assert classes(found, "summarizer") == ["as it was"] * 3
    assert {sample.prompt for sample in found.samples} == {c.messages for c in model.calls[:-1]}

    learner = Learner(found, world())
    again, _ = await answered(learner)
    assert learner.strange == ["QuotedReply"]  # the reader's, which is not taught
    assert again.steps == first.steps


def entities(*asked) -> dict:
    return {"entities": [{"entity": name, "keywords": [query]} for name, query in asked]}


@pytest.fixture
def astray(world):
    """A model that looks for what is no gold's, and for one gold under two names."""
    rounds = iter(
        [
            entities(("Boats", "Which boats are in the harbour?"), ("Silver Harbour", "Director")),
            entities(("Director Ada Mercer", "Where was Ada Mercer born?")),
            entities(("Ada Mercer", "Ada Mercer's birthplace"), ("Lund", "Country of Lund")),
        ]
    )

    def summary(call):
        if "<entity>Boats" in call.prompt:
            sentence = "Boats are ships."
            number = next(
                n for n in (1, 2) if sentence in call.prompt.split("</passage number")[n - 1]
            )
            return {"statements": [{"passage": number, "quote": sentence, "sentence": sentence}]}
        return world.Summary(world(), call)

    return world(Entities=lambda call: next(rounds), Summary=summary)


async def test_entities_are_linked_to_golds_and_what_is_redundant_goes(
    answered, world, golds, astray
):
    first, _ = await answered(astray)
    assert [len(step.looked) for step in first.steps] == [2, 1, 2, 0]
    found = await draw_role_samples(first, golds)
    taught = of(found, "identifier")
    assert asked(taught["1"]) == [("Silver Harbour", ["Director"])]
    assert asked(taught["2"]) == [("Ada Mercer", ["Where was Ada Mercer born?"])]
    assert asked(taught["3"]) == [("Lund", ["Country of Lund"])]
    assert "Boats" not in taught["3"].prompt[-1].content
    assert "#### Ada Mercer\n\n" in taught["3"].prompt[-1].content
    assert "#### Director Ada Mercer" not in taught["3"].prompt[-1].content
    assert classes(found, "identifier") == ["linked"] * 3


async def test_a_model_that_learnt_the_linked_run_meets_its_very_prompts(
    answered, world, golds, astray
):
    found = await draw_role_samples((await answered(astray))[0], golds)
    found.samples = list(of(found, "identifier").values())
    learner = Learner(found, world())
    await answered(learner)
    assert "Entities" not in learner.strange
    assert learner.strange.count("Reasoning") == 4


@pytest.fixture
def restless(world):
    """A model that never has enough."""

    def more(call):
        return {"thought": f"More than {len(outline_in(call.prompt))}.", "need_retrieve": True}

    return world(Reasoning=more)


async def test_who_wants_more_though_all_is_known_or_repeats_itself_teaches_nothing(
    answered, world, golds, restless
):
    first, _ = await answered(restless, rounds=4)
    assert len(first.steps) == 4
    found = await draw_role_samples(first, golds, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["retrieve"] * 3
    assert found.discarded == {"reasoner: more wanted though all gold documents were known": 1}
    # More may be wanted as long as a gold is missing.
    found = await draw_role_samples(
        first, [*golds, GoldDocument("boats", "Boats")], tasks=["reasoner"]
    )
    assert classes(found, "reasoner") == ["retrieve"] * 4
    first, _ = await answered(world(Reasoning={"thought": "Where?", "need_retrieve": True}))
    found = await draw_role_samples(first, golds, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["retrieve"]
    assert found.discarded["reasoner: a thought that it had before"] > 1


async def test_a_summary_that_missed_the_gold_is_repaired(answered, world, golds):
    def blind(call):
        return {"statements": [] if "<entity>Lund" in call.prompt else facts_in(call.prompt)}

    first, _ = await answered(world(Summary=blind), rounds=3)
    found = await draw_role_samples(first, golds, tasks=["summarizer"])
    assert classes(found, "summarizer") == ["as it was", "as it was", "repaired"]
    sample = of(found, "summarizer")["3.1"]
    (stated,) = parse(sample.target, Summary)[0].statements
    assert stated.quote == stated.sentence == "Lund is a town in Sweden. It has a cathedral."
    passages = sample.prompt[-1].content.split("</passage number")
    assert stated.quote in passages[stated.passage - 1]

    named = [*golds[:2], GoldDocument("lund", "Lund", ("It has a cathedral.",))]
    found = await draw_role_samples(first, named, tasks=["summarizer"])
    (stated,) = parse(of(found, "summarizer")["3.1"].target, Summary)[0].statements
    assert stated.sentence == "It has a cathedral."

    blank = [*golds[:2], GoldDocument("lund", "Lund", (" ",))]
    found = await draw_role_samples(first, blank, tasks=["summarizer"])
    assert classes(found, "summarizer")[2] == "nothing, of a gold"

    unread = [*golds[:2], GoldDocument("sweden", "Lund")]
    found = await draw_role_samples(first, unread, tasks=["summarizer"])
    assert classes(found, "summarizer")[2] == "nothing, of a gold"
    assert json.loads(of(found, "summarizer")["3.1"].target) == {"statements": []}


async def test_an_entity_of_no_gold_is_to_be_summed_up_in_nothing(answered, golds, astray):
    first, _ = await answered(astray)
    (boats, _) = first.steps[0].looked
    assert boats.fragments
    found = await draw_role_samples(first, golds, tasks=["summarizer"])
    sample = of(found, "summarizer")["1.1"]
    assert sample.meta["class"] == "nothing, of no gold"
    assert json.loads(sample.target) == {"statements": []}
    # Of a gold by whatever name, it stays.
    found = await draw_role_samples(
        first, [GoldDocument("boats", "A Treatise")], tasks=["summarizer"]
    )
    assert of(found, "summarizer")["1.1"].meta["class"] == "as it was"


async def test_without_golds_only_reasoning_is_taught(answered, world):
    found = await draw_role_samples((await answered(world()))[0], [])
    assert {sample.task for sample in found.samples} == {"reasoner"}
    assert sum(found.discarded.values()) == 1


def spans(*ids) -> list[Span]:
    return [Span(id_, 0, 5) for id_ in ids]


@pytest.mark.parametrize(
    ("entity", "title"),
    [
        ("Silver Harbour", "Silver Harbour (film)"),
        ("director of Silver Harbour", "Silver Harbour (film)"),
        ("the silver harbour film", "Silver Harbour (film)"),
        ("Ada Mercer's mother", "Ada Mercer"),
        ("Mercer", None),
        ("Ada Harbour", None),
        ("Boats", None),
        ("else", None),
    ],
)
async def test_a_name_means_the_gold_whose_words_it_has(entity, title):
    golds = [GoldDocument("film", "Silver Harbour (film)"), GoldDocument("mercer", "Ada Mercer")]
    found = await match_entities({entity: []}, golds)
    assert (found[entity].gold.title if entity in found else None) == title


async def test_a_reranker_says_what_is_meant_where_there_is_one():
    async def scored(name, titles):
        return [0.9 if (name, title) == ("the film", "Silver Harbour") else 0.2 for title in titles]

    golds = [GoldDocument("mercer", "Ada Mercer"), GoldDocument("film", "Silver Harbour")]
    known = {"the film": [], "Ada Mercer": []}
    found = await match_entities(known, golds, score_titles=scored)
    assert {name: match.gold.id for name, match in found.items()} == {"the film": "film"}
    assert found["the film"].how == "reranker"


async def test_what_is_known_tells_where_the_name_does_not():
    golds = [GoldDocument("film", "Silver Harbour"), GoldDocument("mercer", "Ada Mercer")]
    known = {
        "birthplace": spans("mercer", "mercer", "lund"),
        "Ada Mercer": spans("film"),
        "both": spans("film", "mercer"),
    }
    found = await match_entities(known, golds)
    assert {name: (m.gold.id, m.how) for name, m in found.items()} == {
        "birthplace": ("mercer", "knowledge"),
        "Ada Mercer": ("mercer", "words"),
    }


def test_quotes_are_as_the_prompt_shows_them_and_no_longer_than_may_be():
    text = "Before. A <passage> of " + "many words and " * 60 + "an end."
    passage = Passage(Span("a", 100, 100 + len(text)), text, "A")
    fragment = Fragment("It is long.", (Span("a", 108, 100 + len(text)),))
    (stated,) = quote_statements([fragment], [passage])
    assert stated.quote.startswith("A ‹passage> of many words")
    assert 290 < len(stated.quote) <= 300
    assert not stated.quote.endswith(" ")
    assert stated.sentence == "It is long."
    assert Message("user", stated.quote)
