"""Baselines that look things up in rounds: IRCoT, GenGround, agentic RAG, FLARE, MetaRAG."""

import json
import math

import numpy as np
import pytest

from colligate.core.events import Retrieved
from colligate.documents.tokens import token_spans
from colligate.lab.baselines import metarag
from colligate.lab.baselines.agentic_rag import AgenticRAG
from colligate.lab.baselines.flare import FLARE
from colligate.lab.baselines.genground import GenGround
from colligate.lab.baselines.ircot import IRCoT
from colligate.lab.baselines.metarag import MetaRAG
from support.films import FACTS, QUESTION, play, read_after, shown
from support.prompts import passages_in, task_of


def queries(run):
    return [event.query for _, event in run.trace.events if isinstance(event, Retrieved)]


class Alike:
    """An embedder to which the texts given are one and the same, and all others apart."""

    def __init__(self, *same):
        self.same = set(same)

    async def embed(self, texts, kind="passage"):
        rows = np.zeros((len(texts), 8), np.float32)
        for number, text in enumerate(texts):
            rows[number, 0 if text in self.same else 1 + number % 7] = 1
        return rows


# IRCoT


async def test_ircot_looks_up_each_sentence_and_ends_with_the_answer(make_run, sources):
    chain = [
        "The director was Ada Mercer. And more.",
        "Ada Mercer was born in Lund.",
        "So the answer is: Sweden.",
    ]
    run, model = make_run(sources, read_after(*chain))
    answer = await IRCoT(mode="sparse", k=1).answer(QUESTION, run)
    assert queries(run) == [
        QUESTION,
        "The director was Ada Mercer.",
        "Ada Mercer was born in Lund.",
    ]
    assert answer.found
    assert answer.short == "Lund"
    assert {citation.span.document_id for citation in answer.citations} == {"film", "mercer"}
    thoughts = model.calls[-1].prompt
    assert "1. The director was Ada Mercer.\n2. Ada Mercer" in thoughts
    assert "So the answer is: Sweden." in thoughts


async def test_ircot_replaces_the_passages_or_keeps_them_all(make_run, sources):
    for documents, kept in (("replace", False), ("cumulate", True)):
        run, model = make_run(
            sources, read_after("Ada Mercer liked boats.", "So the answer is: x.")
        )
        await IRCoT(mode="sparse", k=1, documents=documents).answer(QUESTION, run)
        second = "\n".join(passages_in(model.calls[1].prompt).values())
        assert "Ada Mercer was born" in second
        assert ("film of 1971" in second) == kept


# GenGround


def deduced(subquestion, answer="A guess."):
    return json.dumps({"subquestion": subquestion, "answer": answer})


def grounded(call_answer="", *rows):
    statements = [{"passage": p, "quote": q, "sentence": s} for p, q, s in rows]
    return json.dumps({"statements": statements, "answer": call_answer})


def grounds(call):
    """Grounds the sub-question in the first fact of the batch that fits it."""
    asked = call.prompt.split("Question: ")[-1]
    for number, text in passages_in(call.prompt).items():
        for quote, sentence in FACTS.items():
            if quote in text and ("director" in asked) == ("director" in quote):
                return grounded(sentence, (number, quote, sentence))
    return grounded()


async def test_genground_grounds_its_guesses_and_reads_what_grounds_them(make_run, sources):
    deductions = [
        deduced("Who was the director of Silver Harbour?", "Ingmar Holm."),
        deduced("Where was Ada Mercer born?", "In Rome."),
        deduced("Where was Ada Mercer born?"),
    ]

    def says(call):
        deduces = task_of(call.messages) == "genground.deduce"
        return deductions.pop(0) if deduces else grounds(call)

    run, model = make_run(sources, play(says))
    answer = await GenGround(mode="sparse", batch=1).answer(QUESTION, run)
    assert shown(answer) == ["film", "mercer"]
    assert queries(run) == [
        "Who was the director of Silver Harbour?",
        "Where was Ada Mercer born?",
    ]
    last = model.calls[-1].prompt
    assert "Ada Mercer was born in Lund." in last.split("<log>")[1]
    assert "Rome" not in last
    assert not deductions


async def test_genground_goes_on_to_the_end_where_it_is_told_to(make_run, sources):
    def says(call):
        deduces = task_of(call.messages) == "genground.deduce"
        return deduced(QUESTION) if deduces else grounded()

    run, _ = make_run(sources, play(says))
    await GenGround(mode="sparse", stop_early=False, iterations=3).answer(QUESTION, run)
    assert queries(run) == [QUESTION] * 3
    run, _ = make_run(sources, play(says))
    await GenGround(mode="sparse").answer(QUESTION, run)
    assert queries(run) == [QUESTION]


# Agentic RAG


def step(thought, action="search", query=""):
    return json.dumps({"thought": thought, "action": action, "query": query})


async def test_the_agent_searches_until_it_answers(make_run, sources):
    steps = [
        step("Who directed it?", query="director of Silver Harbour"),
        step("Ada Mercer. Where was she born?", query="Ada Mercer born"),
        step("In Lund.", "answer"),
    ]
    run, model = make_run(sources, read_after(*steps))
    answer = await AgenticRAG(mode="sparse", k=1).answer(QUESTION, run)
    assert queries(run) == ["director of Silver Harbour", "Ada Mercer born"]
    assert shown(answer) == ["film", "mercer"]
    assert "3. In Lund." in model.calls[-1].prompt
    assert model.calls[0].schema["properties"]["action"] == {"const": "search", "type": "string"}
    # The second step sees what the first found.
    assert "Ada Mercer" in "".join(passages_in(model.calls[1].prompt).values())


async def test_the_agent_looks_even_where_it_would_answer_from_memory(make_run, sources):
    run, _ = make_run(sources, read_after(step("I know.", "answer"), step("Yes.", "answer")))
    answer = await AgenticRAG(mode="sparse").answer(QUESTION, run)
    assert queries(run) == [QUESTION]
    assert answer.found


async def test_the_agent_is_told_when_it_named_no_query(make_run, sources):
    replies = [step("a", query="Ada Mercer born"), step("b"), step("c", "answer")]
    run, model = make_run(sources, read_after(*replies))
    await AgenticRAG(mode="sparse").answer(QUESTION, run)
    assert 'There was no "query"' in model.calls[2].prompt


# FLARE


def unsure_of(*words):
    """Log-probabilities in which the tokens of these words are unlikely."""

    def likelihood(prefix, continuation):
        marked = [continuation.find(word) for word in words if word in continuation]
        return [
            math.log(0.05 if any(a <= at < b for at in marked) else 0.9)
            for a, b in token_spans(continuation)
        ]

    return likelihood


async def test_flare_looks_up_the_sentence_without_what_it_is_unsure_of(make_run, sources):
    replies = ["The director was Rosa.", "The director was Ada Mercer.", "DONE"]
    run, model = make_run(sources, read_after(*replies), likelihood=unsure_of("Rosa"))
    answer = await FLARE(mode="sparse").answer(QUESTION, run)
    (query,) = queries(run)
    assert "The director was" in query
    assert "Rosa" not in query
    assert "<passages>" not in model.calls[0].prompt
    assert "<passages>" in model.calls[1].prompt
    assert "The director was Ada Mercer." in model.calls[-1].prompt
    assert "Rosa" not in model.calls[-1].prompt
    assert answer.found


async def test_flare_stops_after_its_rounds_and_tokens(make_run, sources):
    endless = [f"Ada Mercer liked boats and boats number {n}." for n in range(20)]
    run, model = make_run(sources, read_after(*endless), likelihood=unsure_of())
    await FLARE(mode="sparse", rounds=3).answer(QUESTION, run)
    assert len(model.calls) == 4
    run, model = make_run(sources, read_after(*endless), likelihood=unsure_of())
    await FLARE(mode="sparse", tokens=5).answer(QUESTION, run)
    assert len(model.calls) == 2


# MetaRAG


def critic(knows, says, *, errors=(), feedback="", expert="Rome", answers=("Lund",), entails=True):
    """A model that plays all parts of MetaRAG; `answers` are its answers in turn."""
    waiting = list(answers)
    replies = {
        "metarag.briefly": expert,
        "metarag.check": json.dumps({"errors": list(errors), "feedback": feedback}),
        "metarag.internal": json.dumps({"sufficient": knows}),
        "metarag.external": json.dumps({"sufficient": says}),
        "metarag.entails": json.dumps({"sufficient": entails}),
        "metarag.rewrite": "Ada Mercer birthplace",
    }

    def reply(call):
        if task_of(call.messages) == "metarag.answer":
            said = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            certain = "not" not in said
            return json.dumps({"reason": "It says so.", "answer": said, "certain": certain})
        return replies[task_of(call.messages)]

    return play(reply)


async def test_metarag_accepts_what_the_expert_says_too(make_run, sources):
    model_says = critic(True, True, expert="Lund.", answers=["Lund"])
    run, model = make_run(sources, model_says, embedder=Alike("Lund", "Lund."))
    answer = await MetaRAG(mode="sparse").answer(QUESTION, run)
    assert len(model.calls) == 3  # answer, expert, reader
    assert answer.found
    assert "Answer: Lund" in model.calls[-1].prompt
    assert any("no expert model" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    ("knows", "says", "advice", "looks_again"),
    [
        (True, True, "Check the final answer carefully", False),
        (False, True, "entirely from the passages", False),
        (True, False, "rely on yourself", True),
        (False, False, "Break the question down", True),
    ],
)
async def test_metarag_plans_by_what_it_and_the_passages_know(
    make_run, sources, knows, says, advice, looks_again
):
    model_says = critic(
        knows, says, errors=["incomplete reasoning"], feedback="Name the country.", expert="Rome"
    )
    run, model = make_run(sources, model_says, embedder=Alike())
    await MetaRAG(mode="sparse", rounds=1).answer(QUESTION, run)
    second = [call for call in model.calls if task_of(call.messages) == "metarag.answer"]
    assert advice in second[1].prompt
    # What the critic says comes from a model that read an answer: in tags of its own.
    assert "<log>\nFeedback: Name the country.\n</log>" in second[1].prompt
    assert ("Ada Mercer birthplace" in queries(run)) == looks_again


@pytest.mark.parametrize("said", ["It is not mentioned.", "a word " * 6])
async def test_metarag_takes_no_doubtful_or_long_answer_for_a_better_one(make_run, sources, said):
    model_says = critic(False, True, answers=["Lund", said])
    run, model = make_run(sources, model_says, embedder=Alike())
    await MetaRAG(mode="sparse", rounds=2).answer(QUESTION, run)
    assert "Answer: Lund" in model.calls[-1].prompt


async def test_metarag_lets_the_models_named_for_it_judge(make_run, sources, monkeypatch):
    asked = []

    class Expert:
        def __init__(self, name):
            self.name = name

        async def write(self, text, *, end, max_tokens):
            asked.append((self.name, text + end))
            return "0" if self.name == "nli" else "Rome"

    monkeypatch.setattr(metarag, "get_seq2seq", Expert)
    run, model = make_run(sources, critic(True, True), embedder=Alike())
    await MetaRAG(mode="sparse", rounds=1, expert="t5", nli="nli").answer(QUESTION, run)
    assert [name for name, _ in asked] == ["t5", "nli"]
    assert "director was Ada Mercer" in asked[0][1]  # the expert sees the passages
    assert asked[0][1].endswith("\nCurrent Answer: ")
    assert asked[1][1] == "premise: It says so. hypothesis: Lund"
    assert any("Reason in several steps" in call.prompt for call in model.calls)
    assert not run.warnings
    assert run.meter.report().scoring_passes == 2
