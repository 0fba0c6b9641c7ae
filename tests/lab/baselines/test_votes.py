"""Baselines in which several answers are weighed: Tree of Agents, MAIN-RAG, Self-RAG, ASC."""

import json
import math
import re

import numpy as np
import pytest

from colligate.documents.tokens import estimate_tokens
from colligate.lab.baselines import self_rag
from colligate.lab.baselines.asc import ASC
from colligate.lab.baselines.main_rag import MAINRAG
from colligate.lab.baselines.self_rag import ReflectedText, SelfRAG
from colligate.lab.baselines.tree_of_agents import TreeOfAgents
from colligate.models import LabelOdds
from support.films import (
    QUESTION,
    TEXTS,
    facts_in,
    given,
    is_reader,
    play,
    shown,
)
from support.prompts import bodies, passages_in, task_of

# Tree of Agents


def agents(*, ids=(), useless=(), results=lambda call: "Sweden", judged=1):
    """A model that plays all agents; `useless` are the documents found so when read on."""

    def reply(call):
        rows, text = facts_in(call.prompt), "".join(bodies(call.prompt))
        utility = "useless" if any(each in text for each in useless) else "useful"
        made = {
            "perceive": lambda: {"statements": rows, "answer": ""},
            "exchange": lambda: {"ids": list(ids)},
            "read_on": lambda: {"statements": rows, "conclusion": "so far", "utility": utility},
            "decide": lambda: {"result": results(call)},
            "judge": lambda: {"id": judged},
        }
        return json.dumps(made[task_of(call.messages).removeprefix("tree_of_agents.")]())

    return play(reply)


def asked_for(model, task):
    return [c for c in model.calls if task_of(c.messages) == f"tree_of_agents.{task}"]


async def test_each_agent_has_a_part_and_the_winners_places_are_read(make_run, sources):
    run, model = make_run(sources, agents())
    answer = await TreeOfAgents(agents=4).answer(QUESTION, run)
    perceived = asked_for(model, "perceive")
    assert [len(passages_in(call.prompt)) for call in perceived] == [1] * 4
    assert shown(answer) == ["film", "mercer", "lund"]
    assert answer.found
    assert "Voted for: Sweden" in model.calls[-1].prompt
    assert len(model.calls) == 3 * 4 + 1  # perceive, exchange, decide, and the reader


async def test_the_helpers_parts_are_read_in_every_order(make_run, sources):
    run, model = make_run(sources, agents(ids=[2, 3, 99, 2]))
    await TreeOfAgents(agents=4).answer(QUESTION, run)
    # Agents 1 and 4 read 2, 3 in both orders: four readings each. 2 and 3 read the other alone.
    assert len(asked_for(model, "read_on")) == 4 + 4 + 1 + 1


async def test_an_order_knows_what_its_beginning_gave_and_no_other(make_run, sources):
    run, model = make_run(sources, agents(ids=[2, 3]))
    await TreeOfAgents(agents=4).answer(QUESTION, run)
    of_first = [
        call.prompt
        for call in asked_for(model, "read_on")
        if "- The director of Silver Harbour was Ada Mercer." in call.prompt
    ]
    assert len(of_first) == 4
    of_lund = [prompt for prompt in of_first if "Lund is a town" in passages_in(prompt)[1]]
    # Read first, and after Mercer's part: only then is known what that says.
    known = [prompt.count("- Ada Mercer was born in Lund.") for prompt in of_lund]
    assert sorted(known) == [0, 1]


async def test_without_a_vote_nothing_is_answered(make_run, sources):
    run, model = make_run(sources, agents(results=lambda call: "None"))
    answer = await TreeOfAgents(agents=4).answer(QUESTION, run)
    assert not answer.found
    assert not any(map(is_reader, model.calls))
    assert any("no agent decides" in warning for warning in run.warnings)


async def test_a_tie_is_the_judges(make_run, sources):
    def split(call):
        return "Sweden" if "director of Silver Harbour was" in call.prompt else "Norway"

    two = given(film=TEXTS["film"], lund=TEXTS["lund"])
    for judged, kept in ((1, ["film"]), (2, ["lund"])):
        run, model = make_run(two, agents(results=split, judged=judged))
        answer = await TreeOfAgents(agents=2).answer(QUESTION, run)
        assert shown(answer) == kept
        assert len(asked_for(model, "judge")) == 1


# MAIN-RAG


def judged(**yes):
    """Label odds: of Yes by a word of the document."""

    def labels(messages, labels, forced):
        text = messages[-1].content
        share = next((p for word, p in yes.items() if word in text), 0.5)
        return LabelOdds(dict(zip(labels, (share, 1 - share), strict=True)), mass=1.0)

    return labels


async def test_main_rag_keeps_what_reaches_the_mean_best_first(make_run, sources):
    labels = judged(film=0.7, boats=0.9, cathedral=0.1, notes=0.05)
    run, model = make_run(sources, play("Sweden."), labels=labels)
    answer = await MAINRAG(units="documents").answer(QUESTION, run)
    assert shown(answer) == ["mercer", "film"]
    assert [evidence.score for evidence in answer.evidence] == pytest.approx(
        [math.log(9), math.log(7 / 3)]
    )
    report = run.meter.report()
    assert report.calls == 4 + 1
    # Each is answered from alone.
    assert [len(passages_in(call.prompt)) for call in model.calls[:4]] == [1] * 4


@pytest.mark.parametrize("first", [True, False])
async def test_main_rag_judges_the_others_where_one_document_fits_no_prompt(make_run, first):
    long = {"long": "# Boats\n\n" + "\n\n".join(f"Boat number {n} sailed." for n in range(900))}
    texts = {**long, **TEXTS} if first else {**TEXTS, **long}
    labels = judged(film=0.7, boats=0.9, cathedral=0.1)
    run, model = make_run(given(**texts), play("Sweden."), labels=labels, context_tokens=3000)
    answer = await MAINRAG(units="documents").answer(QUESTION, run)
    assert answer.found
    assert shown(answer) == ["mercer", "film"]
    assert len(model.calls) == 3 + 1
    assert any("Boats is not judged: the prompt does not fit" in each for each in run.warnings)


# Self-RAG


LINES = {"director": "Ada Mercer did.", "born": "In Lund.", "town": "In Sweden."}
ASKED = "Lund, Ada Mercer, Silver Harbour?"


class Reflective:
    """Plays the trained model: `judge` gets the sentence and those before, and returns fields.

    It continues with the sentence whose word the passage holds.
    """

    name = "trained"

    def __init__(self, judge, look=0.9):
        self.judge, self.look, self.asked = judge, look, []

    async def run(self, work, *given):
        return work(*given)

    def wants_retrieval(self, question):
        return self.look

    def continue_answer(self, question, passage, before, most):
        self.asked.append(passage)
        sentence = next((line for word, line in LINES.items() if word in passage), "")
        fields = {"likely": 0.5, "input_tokens": 100, "output_tokens": 10}
        return ReflectedText(sentence, **{**fields, **self.judge(sentence, before)})


@pytest.fixture
def reflect(make_run, sources, monkeypatch):
    """Answers by Self-RAG with a model that judges so; returns answer, run, reader and model."""

    async def answer(judge, question=ASKED, look=0.9, **parameters):
        trained = Reflective(judge, look)
        monkeypatch.setattr(self_rag, "get_reflective_model", lambda name: trained)
        run, reader = make_run(sources, play(lambda call: "It is."))
        strategy = SelfRAG(mode="sparse", reflection="trained", **parameters)
        return await strategy.answer(question, run), run, reader, trained

    return answer


def log_of(reader):
    return reader.calls[-1].prompt.split("<log>")[1].split("</log>")[0].strip()


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        ("likely", {}),
        ("relevant", {}),
        ("supported", {}),
        ("useful", {}),
        ("useful", {"utility": -1.0}),
    ],
)
async def test_self_rag_weighs_the_judgements_of_the_model(reflect, field, parameters):
    def judge(sentence, before):
        return {field: 0.9 if sentence == "In Sweden." else 0.1}

    answer, *_ = await reflect(judge, **parameters)
    assert (shown(answer) == ["lund"]) == (not parameters)


@pytest.mark.parametrize(("bonus", "sentences"), [(0.0, 1), (0.2, 3)])
async def test_self_rag_goes_on_while_more_must_be_looked_up(reflect, bonus, sentences):
    """RDR2's "*" adds .2 to the odds within the generation, so the answer gets longer."""
    _, _, reader, _ = await reflect(lambda *_: {"more": 0.1}, depth=3, bonus=bonus)
    assert sum(line in log_of(reader) for line in LINES.values()) == sentences


async def test_self_rag_multiplies_the_scores_of_segments(reflect):
    """A beam of two even segments beats one of a great and a poor segment with a larger sum."""
    first = {"Ada Mercer did.": 0.95, "In Lund.": 0.6}  # likelihoods of the first sentence
    second = {"Ada Mercer did.": 0.2, "In Lund.": 0.5}  # and of any sentence after it

    def judge(sentence, before):
        table = second if before else first
        return {"likely": table.get(before or sentence, 0.01), "more": 0.9}

    _, _, reader, _ = await reflect(judge, depth=2)
    assert log_of(reader).startswith("In Lund. ")


async def test_self_rag_may_answer_from_memory_and_says_so(reflect):
    given = {"question": "Ada Mercer?", "look": 0.1, "always_retrieve": False}
    answer, run, *_ = await reflect(lambda *_: {}, **given)
    assert not answer.citations
    assert any("memory" in warning for warning in run.warnings)
    answer, *_ = await reflect(lambda *_: {}, **given, bonus=0.2)
    assert answer.evidence


async def test_self_rag_asks_the_trained_model_and_then_the_reader_alone(reflect):
    _, run, reader, trained = await reflect(lambda *_: {}, always_retrieve=False)
    assert len(reader.calls) == 1
    assert all("\n" in passage for passage in trained.asked)  # with their titles
    assert not run.warnings
    spent = estimate_tokens(ASKED) + 110 * len(trained.asked)
    assert run.meter.report().scoring_tokens == spent, "the decision to look up counts as well"


# ASC


class ByFirstWord:
    """An embedder to which texts are the same that begin with the same word."""

    def __init__(self):
        self.words = {}

    async def embed(self, texts, kind="passage"):
        rows = np.zeros((len(texts), 64), np.float32)
        for number, text in enumerate(texts):
            word = text.split()[0] if text.split() else ""
            rows[number, self.words.setdefault(word, len(self.words))] = 1
        return rows


async def test_asc_keeps_the_sentences_that_enough_samples_have(make_run, sources):
    samples = [
        "Ada was born in Lund. Boats were hers.",
        "Ada was born in Lund, they say. Cats too.",
        "Ada came from Lund.",
        "Dogs.",
    ]

    run, model = make_run(sources, play(lambda call: samples[call.seed]), embedder=ByFirstWord())
    answer = await ASC(mode="sparse", samples=4, support=0.5).answer("Ada Mercer born?", run)
    assert answer.found
    notes = re.search(r"<notes>\n(.*)\n</notes>", model.calls[-1].prompt, re.DOTALL)[1]
    assert notes == "- Ada was born in Lund, they say."
    drawn = model.calls[:-1]
    assert sorted(call.seed for call in drawn) == [0, 1, 2, 3]
    assert {call.temperature for call in drawn} == {1.0}
