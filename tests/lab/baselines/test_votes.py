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
from colligate.models import Capability, LabelOdds
from support.films import (
    QUESTION,
    TEXTS,
    facts_in,
    given,
    is_reader,
    play,
    read,
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


def reflecting(*, look=0.9, more=0.9, relevant=(), supported=()):
    """Judgements: odds of relevance and support by words of the passage."""

    def labels(messages, labels, forced):
        text = messages[-1].content
        first = 0.1
        if len(labels) == 3:
            first = 0.9 if any(word in text for word in supported) else 0.1
        elif task_of(messages) == "self_rag.retrieve":
            first = look
        elif task_of(messages) == "self_rag.more":
            first = more
        elif len(labels) == 2:
            first = 0.9 if any(word in text for word in relevant) else 0.1
        rest = (1 - first) / (len(labels) - 1)
        return LabelOdds({label: rest if i else first for i, label in enumerate(labels)}, 1.0)

    return labels


def even(prefix, continuation):
    return [-1.0, -1.0]


def sentences(*lines):
    """Continues with the sentence whose word the passage holds."""

    def reply(call):
        text = "".join(bodies(call.prompt))
        return next((line for word, line in lines if word in text), "DONE")

    return play(reply)


LINES = (("director", "Ada Mercer did."), ("born", "In Lund."), ("town", "In Sweden."))


async def test_self_rag_weighs_how_likely_its_sentence_is(make_run, sources):
    def likelihood(prefix, continuation):
        return [-0.1 if "Mercer did" in continuation else -5.0]

    run, _ = make_run(sources, sentences(*LINES), likelihood=likelihood, labels=reflecting())
    answer = await SelfRAG(mode="sparse").answer("Lund, Ada Mercer, Silver Harbour?", run)
    assert shown(answer) == ["film"]


def odds_of(sentence, labels, first, rest):
    """Odds by whether the answer that is judged has this sentence, otherwise even ones."""

    def judge(messages, names, forced):
        shown = first if sentence in messages[-1].content.split("Answer:")[-1] else rest
        odds = shown if len(names) == len(labels) else [1 / len(names)] * len(names)
        return LabelOdds(dict(zip(names, odds, strict=True)), 1.0)

    return judge


SUPPORT, UTILITY = ("Fully", "Partially", "None"), ("1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    ("labels", "better", "worse", "weights"),
    [
        # Partial support counts half: more than none, less than as much full support.
        (SUPPORT, (0, 1, 0), (0, 0, 1), {}),
        (SUPPORT, (0.6, 0, 0.4), (0, 1, 0), {}),
        (SUPPORT, (0, 1, 0), (0.4, 0, 0.6), {}),
        # The more useful the better, by the expected rating.
        (UTILITY, (0, 0, 0, 0, 1), (1, 0, 0, 0, 0), {}),
        (UTILITY, (0, 0, 0, 1, 0), (0, 0, 1, 0, 0), {}),
        (UTILITY, (1, 0, 0, 0, 0), (0, 0, 0, 0, 1), {"utility": -1.0}),
    ],
)
async def test_self_rag_weighs_support_and_utility(
    make_run, sources, labels, better, worse, weights
):
    judge = odds_of("In Sweden.", labels, better, worse)
    run, _ = make_run(sources, sentences(*LINES), likelihood=even, labels=judge)
    strategy = SelfRAG(mode="sparse", **weights)
    answer = await strategy.answer("Ada Mercer, Silver Harbour, Lund?", run)
    assert shown(answer) == ["lund"]
    judge = odds_of("In Sweden.", labels, worse, better)
    run, _ = make_run(sources, sentences(*LINES), likelihood=even, labels=judge)
    assert shown(await strategy.answer("Ada Mercer, Silver Harbour, Lund?", run)) != ["lund"]


@pytest.mark.parametrize(("more", "bonus", "sentences_"), [(0.1, 0.0, 1), (0.1, 0.2, 3)])
async def test_self_rag_goes_on_while_more_must_be_looked_up(
    make_run, sources, more, bonus, sentences_
):
    """RDR2's "*" adds .2 to the odds within the generation, so the answer gets longer."""
    labels = reflecting(more=more)
    run, model = make_run(sources, sentences(*LINES), likelihood=even, labels=labels)
    strategy = SelfRAG(mode="sparse", depth=3, bonus=bonus)
    await strategy.answer("Lund, Ada Mercer, Silver Harbour?", run)
    log = model.calls[-1].prompt.split("<log>")[1]
    assert sum(line in log for _, line in LINES) == sentences_


async def test_self_rag_multiplies_the_scores_of_segments(make_run, sources):
    """A beam of two even segments beats one of a great and a poor segment with a larger sum."""
    first = {"Ada Mercer did.": 0.95, "In Lund.": 0.6}  # likelihoods of the first sentence
    second = {"Ada Mercer did.": 0.2, "In Lund.": 0.5}  # and of any sentence after it

    def likelihood(prefix, continuation):
        said = prefix.split("Answer:")[1].strip()
        table = second if said else first
        return [math.log(table.get(said or continuation.strip(), 0.01))]

    def labels(messages, names, forced):
        yes = {"Yes": float(task_of(messages) == "self_rag.more")}
        return LabelOdds({name: yes.get(name, 0.0) for name in names}, 1.0)

    run, model = make_run(sources, sentences(*LINES), likelihood=likelihood, labels=labels)
    await SelfRAG(mode="sparse", depth=2).answer("Lund, Ada Mercer, Silver Harbour?", run)
    log = model.calls[-1].prompt.split("<log>")[1].split("</log>")[0].strip()
    assert log.startswith("In Lund. ")


async def test_self_rag_may_answer_from_memory_and_says_so(make_run, sources):
    adaptive = {"always_retrieve": False, "mode": "sparse"}
    labels = reflecting(look=0.1)
    run, _ = make_run(sources, sentences(*LINES), likelihood=even, labels=labels)
    answer = await SelfRAG(**adaptive).answer("Ada Mercer?", run)
    assert not answer.citations
    assert any("memory" in warning for warning in run.warnings)
    run, _ = make_run(sources, sentences(*LINES), likelihood=even, labels=labels)
    answer = await SelfRAG(**adaptive, bonus=0.2).answer("Ada Mercer?", run)
    assert answer.evidence


async def test_self_rag_is_its_own_judge_where_it_was_trained_to(make_run, sources, monkeypatch):
    asked = []

    class Trained:
        def __init__(self, name):
            self.name = name

        async def run(self, work, *given):
            return work(*given)

        def wants_retrieval(self, question):
            return 0.9

        def continue_answer(self, question, passage, before, most):
            asked.append(passage)
            good = 0.9 if "town" in passage else 0.1
            return ReflectedText("In Sweden.", 0.5, good, good, 0.0, 0.0, 100, 10)

    monkeypatch.setattr(self_rag, "get_reflective_model", Trained)
    run, model = make_run(sources, read)
    strategy = SelfRAG(mode="sparse", reflection="trained", always_retrieve=False)
    question = "Lund, Ada Mercer, Silver Harbour?"
    answer = await strategy.answer(question, run)
    assert shown(answer) == ["lund"]
    assert len(model.calls) == 1  # the reader alone
    assert strategy.needs.required == {Capability.CHAT}
    assert Capability.LABELS in SelfRAG().needs.required
    assert all("\n" in passage for passage in asked)  # with their titles
    assert not run.warnings
    spent = estimate_tokens(question) + 110 * len(asked)
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
