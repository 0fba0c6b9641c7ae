import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.prompts import escape
from colligate.documents import Passage, Span
from colligate.models import Message
from colligate.models.structured import parse
from colligate.strategies.dualrag.knowledge import Fragment
from colligate.strategies.dualrag.prompts import (
    Entities,
    FactsFirst,
    Reasoning,
    Summary,
    clean_entities,
)
from colligate.training.dualrag_samples import (
    Gold,
    copied,
    drawn,
    gold_statement,
    matches,
    statements,
)

ANSWERS = ("Sweden",)


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
    found = await drawn(first, golds, ANSWERS)
    assert not found.discarded
    assert classes(found, "reasoner") == ["retrieve"] * 3 + ["enough"]
    assert classes(found, "identifier") == ["as it was"] * 3
    assert classes(found, "summarizer") == ["as it was"] * 3
    assert {sample.prompt for sample in found.samples} == {c.messages for c in model.calls[:-1]}

    learner = Learner(found, world())
    again, _ = await answered(learner)
    assert learner.strange == ["JoinedReply"]  # the reader's, which is not taught
    assert again.steps == first.steps


async def test_replies_are_read_as_they_are_meant(answered, world, golds):
    first, _ = await answered(world())
    found = await drawn(first, golds, ANSWERS)
    reasoner = of(found, "reasoner")
    begun, how = parse(reasoner["1"].target, Reasoning)
    assert (begun.thought, begun.need_retrieve, how) == (first.steps[0].thought, True, "parsed")
    ended, _ = parse(reasoner["4"].target, FactsFirst)
    assert ended.facts == list(first.steps[3].facts)
    assert ended.need_retrieve is False
    assert list(json.loads(reasoner["4"].target)) == ["facts", "thought", "need_retrieve"]
    assert asked(of(found, "identifier")["2"]) == [("Ada Mercer", ["Where was Ada Mercer born?"])]
    stated, _ = parse(of(found, "summarizer")["3.1"].target, Summary)
    assert "Lund is a town in Sweden." in [each.quote for each in stated.statements]


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
    found = await drawn(first, golds, ANSWERS)
    taught = of(found, "identifier")
    assert asked(taught["1"]) == [("Silver Harbour", ["Silver Harbour Director"])]
    assert asked(taught["2"]) == [("Ada Mercer", ["Where was Ada Mercer born?"])]
    assert asked(taught["3"]) == [("Lund", ["Country of Lund"])]
    assert "Boats" not in taught["3"].prompt[-1].content
    assert "#### Ada Mercer\n\n" in taught["3"].prompt[-1].content
    assert "#### Director Ada Mercer" not in taught["3"].prompt[-1].content
    assert classes(found, "identifier") == ["linked"] * 3
    assert found.counts["entities, gold by none"] == 1
    assert found.counts["entities, gold by words"] == 4


async def test_a_model_that_learnt_the_linked_run_meets_its_very_prompts(
    answered, world, golds, astray
):
    found = await drawn((await answered(astray))[0], golds, ANSWERS)
    found.samples = list(of(found, "identifier").values())
    learner = Learner(found, world())
    await answered(learner)
    assert "Entities" not in learner.strange
    assert learner.strange.count("Reasoning") + learner.strange.count("FactsFirst") == 4


async def test_queries_that_are_taught_are_those_that_inference_sends(answered, golds, astray):
    found = await drawn((await answered(astray))[0], golds, ANSWERS)
    for sample in of(found, "identifier").values():
        read = parse(sample.target, Entities)[0].entities
        sent = clean_entities(read, "nothing")
        assert sent == [(each.entity, tuple(each.keywords)) for each in read]


@pytest.fixture
def restless(world):
    """A model that never has enough."""

    def more(call):
        outline = world.outline(call)
        facts = {} if outline.startswith("(") else {"facts": [outline.splitlines()[-1]]}
        return {**facts, "thought": f"More than {len(outline)}.", "need_retrieve": True}

    return world(Reasoning=more)


async def test_who_wants_more_though_all_is_known_is_taught_the_answer(answered, golds, restless):
    first, _ = await answered(restless, patience=1)
    assert len(first.steps) == 4
    found = await drawn(first, golds, ANSWERS, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["retrieve"] * 3 + ["enough, corrected"]
    taught, _ = parse(of(found, "reasoner")["4"].target, FactsFirst)
    assert taught.thought == first.answer
    assert not taught.need_retrieve
    assert taught.facts == [
        "The director of Silver Harbour was Ada Mercer.",
        "Ada Mercer was born in Lund.",
        "Lund is a town in Sweden.",
    ]


async def test_it_is_not_where_the_outline_lacks_what_the_answer_cites(answered, golds, restless):
    first, _ = await answered(restless, patience=2)
    elsewhere = replace(first, cited=(*first.cited, Span("boats", 0, 5)))
    found = await drawn(elsewhere, golds, ANSWERS, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["retrieve"] * 3
    assert found.discarded == {
        "reasoner: more wanted though all gold documents were known": 1,
        "reasoner: a thought that it had before": 1,
    }
    # More may be wanted as long as a gold is missing.
    found = await drawn(elsewhere, [*golds, Gold("boats", "Boats")], ANSWERS, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["retrieve"] * 4


async def test_what_no_model_should_learn_to_reason_is_left_out(answered, world, golds):
    knows = {"facts": ["Pigs fly."], "thought": "It is Sweden.", "need_retrieve": False}
    first, _ = await answered(world(Reasoning=knows))
    elsewhere = replace(first, cited=(*first.cited, Span("boats", 0, 5)))
    found = await drawn(elsewhere, golds, ANSWERS, tasks=["reasoner"])
    assert not found.samples
    assert found.discarded == {
        "reasoner: nothing missing before anything was found": 1,
        "reasoner: a thought that it had before": 1,
    }
    found = await drawn(
        (await answered(world(Reasoning="hm"), rounds=1))[0], golds, ANSWERS, tasks=["reasoner"]
    )
    assert found.discarded == {"reasoner: its reply could not be read": 1}


async def test_who_repeats_itself_is_taught_the_answer(answered, world, golds):
    knows = {"facts": ["Pigs fly."], "thought": "It is Sweden.", "need_retrieve": False}
    first, _ = await answered(world(Reasoning=knows))
    found = await drawn(first, golds, ANSWERS, tasks=["reasoner"])
    assert classes(found, "reasoner") == ["enough, corrected"]
    taught, _ = parse(of(found, "reasoner")["2"].target, FactsFirst)
    assert taught.thought == first.answer
    assert not taught.need_retrieve


async def test_an_outline_that_was_cut_is_not_taught(answered, world, golds):
    first, _ = await answered(world())
    unasked = replace(first, calls=frozenset())
    found = await drawn(unasked, golds, ANSWERS)
    assert found.discarded["reasoner: it was not shown the whole outline"] == 4
    assert found.discarded["identifier: it was not shown the whole outline"] == 3


async def test_a_summary_that_missed_the_gold_is_repaired(answered, world, golds, texts):
    def blind(call):
        return {"statements": [] if "<entity>Lund" in call.prompt else world.facts(call)}

    first, _ = await answered(world(Summary=blind), rounds=3)
    found = await drawn(first, golds, ANSWERS, tasks=["summarizer"])
    assert classes(found, "summarizer") == ["as it was", "as it was", "repaired"]
    sample = of(found, "summarizer")["3.1"]
    (stated,) = parse(sample.target, Summary)[0].statements
    assert stated.quote == stated.sentence == "Lund is a town in Sweden."
    passages = sample.prompt[-1].content.split("</passage number")
    assert stated.quote in passages[stated.passage - 1]

    named = [*golds[:2], Gold("lund", "Lund", ("It has a cathedral.",))]
    found = await drawn(first, named, ANSWERS, tasks=["summarizer"])
    (stated,) = parse(of(found, "summarizer")["3.1"].target, Summary)[0].statements
    assert stated.sentence == "It has a cathedral."

    unread = [*golds[:2], Gold("sweden", "Lund")]
    found = await drawn(first, unread, ANSWERS, tasks=["summarizer"])
    assert classes(found, "summarizer")[2] == "nothing, of a gold"
    assert json.loads(of(found, "summarizer")["3.1"].target) == {"statements": []}


async def test_an_entity_of_no_gold_is_to_be_summed_up_in_nothing(answered, golds, astray):
    first, _ = await answered(astray)
    (boats, _) = first.steps[0].looked
    assert boats.fragments
    found = await drawn(first, golds, ANSWERS, tasks=["summarizer"])
    sample = of(found, "summarizer")["1.1"]
    assert sample.meta["class"] == "nothing, of no gold"
    assert json.loads(sample.target) == {"statements": []}
    # Of a gold by whatever name, it stays.
    found = await drawn(first, [Gold("boats", "A Treatise")], ANSWERS, tasks=["summarizer"])
    assert of(found, "summarizer")["1.1"].meta["class"] == "as it was"


async def test_without_golds_only_reasoning_is_taught(answered, world):
    found = await drawn((await answered(world()))[0], [], ANSWERS)
    assert {sample.task for sample in found.samples} == {"reasoner"}
    assert sum(found.discarded.values()) == 1


async def test_what_was_found_elsewhere_does_not_teach_that_there_is_nothing(
    answered, world, golds
):
    first, _ = await answered(world())
    step, *rest = first.steps
    (looked,) = step.looked
    astray = [replace(f, spans=(Span("film", 0, 10_000),)) for f in looked.fragments]
    step = replace(step, looked=(replace(looked, fragments=tuple(astray)),))

    found = await drawn(replace(first, steps=(step, *rest)), golds, ANSWERS, tasks=["summarizer"])

    assert classes(found, "summarizer") == ["as it was"] * 2
    assert found.discarded == {"summarizer: nothing to quote for what was found": 1}


def spans(*ids) -> list[Span]:
    return [Span(id_, 0, 5) for id_ in ids]


@pytest.mark.parametrize(
    ("entity", "title"),
    [
        ("Silver Harbour", "Silver Harbour (film)"),
        ("director of Silver Harbour", "Silver Harbour (film)"),
        ("the silver harbour film", "Silver Harbour (film)"),
        ("Ada Mercer's mother", "Ada Mercer"),
        ("Mercer", "Ada Mercer"),
        ("Silver Harbour (book)", None),
        ("Ada Harbour", None),
        ("Boats", None),
        ("else", None),
    ],
)
async def test_a_name_means_the_gold_whose_words_it_has(entity, title):
    golds = [Gold("film", "Silver Harbour (film)"), Gold("mercer", "Ada Mercer")]
    found = await matches({entity: []}, golds)
    assert (found[entity].gold.title if entity in found else None) == title


@pytest.mark.parametrize(
    ("entity", "title", "meant"),
    [
        ("Elizabeth II", "Elizabeth I", False),
        ("Kick-Ass", "Kick-Ass 2 (film)", False),
        ("True Grit (2010 film)", "True Grit (1969 film)", False),
        ("True Grit", "True Grit (1969 film)", True),
        ("2004 Olympics", "Olympics", False),
    ],
)
async def test_reigns_and_years_are_told_apart(entity, title, meant):
    assert bool(await matches({entity: []}, [Gold("a", title)])) == meant


async def test_a_reranker_says_what_is_meant_where_there_is_one():
    async def scored(name, titles):
        return [0.9 if (name, title) == ("the film", "Silver Harbour") else 0.2 for title in titles]

    golds = [Gold("mercer", "Ada Mercer"), Gold("film", "Silver Harbour")]
    known = {"the film": [], "Ada Mercer": []}
    found = await matches(known, golds, scored=scored, over=0.5)
    assert {name: match.gold.id for name, match in found.items()} == {"the film": "film"}
    assert found["the film"].how == "reranker"


async def test_what_is_known_tells_where_the_name_does_not():
    golds = [Gold("film", "Silver Harbour"), Gold("mercer", "Ada Mercer")]
    known = {
        "birthplace": spans("mercer", "mercer", "lund"),
        "Ada Mercer": spans("film"),
        "both": spans("film", "mercer"),
    }
    found = await matches(known, golds)
    assert {name: (m.gold.id, m.how) for name, m in found.items()} == {
        "birthplace": ("mercer", "knowledge"),
        "Ada Mercer": ("mercer", "words"),
    }


def test_facts_become_the_outlines_own_words():
    outline = [Fragment("Ada Mercer was born in Lund in 1930.", ()), Fragment("<outline> b", ())]
    assert copied(["Ada Mercer was born in Lund"], outline) == ["Ada Mercer was born in Lund"]
    assert copied(["Mercer, Ada: born 1930, Lund", ""], outline) == [outline[0].text]
    assert copied(["Ada Mercer was born in 1931 in Lund."], outline) == []
    assert copied(["‹outline> b"], outline) == ["‹outline> b"]
    assert copied(["Pigs fly."], []) == []


@given(
    facts=st.lists(st.text("ab <>1.passage\n", max_size=400), max_size=9),
    outline=st.lists(st.text("ab <>1.passage\n", min_size=1, max_size=400), max_size=4),
)
def test_a_fact_is_a_copy_whatever_was_written(facts, outline):
    shown = escape("\n\n".join(outline))
    found = copied([*facts, *outline], [Fragment(text, ()) for text in outline])
    assert len(found) <= 6
    assert all(fact and len(fact) <= 300 and fact in shown for fact in found)


async def test_a_reply_that_is_too_long_for_inference_is_left_out(answered, world, golds):
    first, _ = await answered(world(), rounds=1)
    (step,) = first.steps
    (looked,) = step.looked
    text = " ".join(map(str, range(10**6, 10**6 + 75)))  # each number takes several tokens
    passage = Passage(Span("film", 0, len(text)), text, "Silver Harbour")
    long = tuple(Fragment(f"{n}: {text[:590]}", (passage.span,)) for n in range(8))
    steps = (replace(step, looked=(replace(looked, passages=(passage,), fragments=long),)),)
    found = await drawn(replace(first, steps=steps), golds, ANSWERS, tasks=["summarizer"])
    assert found.discarded == {"summarizer: the reply would be longer than a reply may be": 1}


def test_quotes_are_as_the_prompt_shows_them_and_no_longer_than_may_be():
    text = "Before. A <passage> of " + "many words and " * 60 + "an end."
    passage = Passage(Span("a", 100, 100 + len(text)), text, "A")
    fragment = Fragment("It is long.", (Span("a", 108, 100 + len(text)),))
    (stated,) = statements([fragment], [passage])
    assert stated.quote.startswith("A ‹passage> of many words")
    assert 590 < len(stated.quote) <= 600
    assert not stated.quote.endswith(" ")
    assert stated.sentence == "It is long."
    assert Message("user", stated.quote)


def test_a_gold_without_sentences_says_what_is_looked_for():
    text = "Lund is old. The town of Lund lies in Sweden. Sweden is large."
    passage = Passage(Span("lund", 0, len(text)), text, "Lund")
    other = Passage(Span("x", 0, 30), "The town of Lund is in Sweden.", "X")
    gold = Gold("lund", "Lund")
    (stated,) = gold_statement(gold, [other, passage], "In which country is the town of Lund?")
    assert (stated.passage, stated.sentence) == (2, "The town of Lund lies in Sweden.")
    assert gold_statement(gold, [passage], "Ada Mercer's boats") == []
    assert gold_statement(gold, [other], "town of Lund") == []
