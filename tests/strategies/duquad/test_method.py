"""DuQUAD's Algorithm 1 with scripted models, its ablations, and what happens if a step fails."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from colligate.core.events import Pruned
from colligate.core.parameters import set_parameters
from colligate.errors import ServerFailed
from colligate.library.in_memory import InMemorySources
from colligate.readers.plain import PlainReader
from colligate.readers.quoting import QuotingReader
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.duquad.method import Gated, Viewed
from colligate.strategies.duquad.prompts import AGENT_INSTRUCTION, SCORE_INSTRUCTION
from colligate.strategies.duquad.signals import Weighted
from support.documents import make_all
from support.prompts import passages_in
from support.runs import events

QUESTION = "What is the rent of the mill?"
MILL, HOUSE = "The rent of the mill is 900 euros.", "The rent of the house is 700 euros."
TEXTS = {
    "lake": "Carp live in the lake. The lake is deep.",
    "mill": f"The mill stands by the lake. {MILL} It has two wheels.",
    "road": "The road goes to the town. It is old.",
    "house": f"{HOUSE} The house is new.",
}


DOCUMENTS = make_all(TEXTS)
WHOLE = {n: DOCUMENTS[n - 1].text.strip() for n in (2, 1, 4)}  # what the agents name
TWO = DuQUAD(local_documents=2)


def numbers(call) -> list[int]:
    """The documents that a prompt shows, in its order."""
    return [int(n) for n in re.findall(r"<document number=\"(\d+)\">", call.prompt)]


def named(*documents: int, said: str = "I think so.") -> str:
    return f"{said}\n{json.dumps({'important_docs': documents})}"


def scores(**given: tuple[float, str]) -> str:
    rows = [{"doc_id": int(n[1:]), "p": p, "answer": answer} for n, (p, answer) in given.items()]
    return json.dumps({"scores": rows})


def judged(*statements: tuple[int, str, str], short: str = "900 euros") -> str:
    rows = [dict(zip(("passage", "quote", "sentence"), row, strict=True)) for row in statements]
    return json.dumps({"statements": rows, "short_answer": short, "found": bool(rows)})


ANSWER = judged((2, MILL, MILL))


def kind_of(call) -> str:
    """Return which step of the algorithm a prompt belongs to."""
    task = call.messages[0].content
    if task.startswith("You are a judge."):
        return "judge"
    return "score" if task.startswith(SCORE_INSTRUCTION[:40]) else "agent"


class Saying:
    """A model that replies by kind of call, in `kinds`; a reply may be a list, used up in turn."""

    def __init__(self, *, agents=("global", "local"), **replies):
        self.agents = list(agents)
        self.kinds = []
        self.replies = {
            "global_": named(2, 1),
            "local": named(4, 2),
            "score": scores(d2=(0.9, "900 euros"), d1=(0.1, ""), d4=(0.5, "700 euros")),
            "judge": ANSWER,
        } | replies

    def __call__(self, call):
        kind = kind_of(call)
        if kind == "agent":
            assert call.messages[0].content.startswith(AGENT_INSTRUCTION[:40])
            assert call.schema is None
            kind = self.agents.pop(0)
        self.kinds.append(kind)
        reply = self.replies["global_" if kind == "global" else kind]
        return reply.pop(0) if isinstance(reply, list) else reply


def likely(*order: str):
    """Likelihoods that rank documents by these words of theirs, the others last."""

    def say(prefix, continuation):
        at = next((at for at, words in enumerate(order) if words in prefix), len(order))
        return [-float(at), -float(at)]

    return say


BEST_FIRST = likely("house", "mill", "road", "lake")  # numbers 4, 2, 3, 1


class Leaning:
    """An embedder to which the question is as like a document as that document's number here."""

    name, dimension = "leaning", 2

    def __init__(self, **likeness):
        self.likeness = likeness

    async def embed(self, texts, kind="passage"):
        if kind == "query":
            return np.array([[1.0, 0.0]] * len(texts), np.float32)
        cosines = [
            next((c for words, c in self.likeness.items() if words in text), 0.0) for text in texts
        ]
        return np.array([[c, (1 - c * c) ** 0.5] for c in cosines], np.float32)

    async def aclose(self):
        pass


SIGNALS = {
    "attention": lambda prompt, spans: [float(end - start) for start, end in spans],
    "embedder": Leaning(mill=0.9, house=0.8, road=0.4, lake=0.2),
}


async def asked(make_run, strategy=TWO, documents=DOCUMENTS, reader=None, **options):
    options = {"likelihood": BEST_FIRST, "embedder": Leaning()} | options
    replies = options.pop("replies", Saying())
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, replies, **options)
        run.reader = reader or QuotingReader()
        answer = await strategy.answer(QUESTION, run)
    return answer, run, model


def view(run, agent):
    (found,) = [event for event in events(run, Viewed) if event.agent == agent]
    return found


@pytest.mark.parametrize("settings", [[], ["preset=paper"]])
@pytest.mark.parametrize("reader", [QuotingReader(), PlainReader()])
@pytest.mark.parametrize("count", [4, 9])
async def test_the_sequence_of_calls_is_that_of_algorithm_1(make_run, settings, reader, count):
    done = []
    extra = make_all({f"field{n}": f"A field of {n} acres." for n in range(count - 4)})

    def likelihood(prefix, continuation):
        done.append("likelihood")
        assert continuation == QUESTION
        return BEST_FIRST(prefix, continuation)

    def attention(prompt, spans):
        done.append("attention")
        assert prompt.startswith(f"Question: {QUESTION}\n\n[DOC] ")  # [Q; D_1; ...; D_N; Q]
        assert prompt.endswith(f"\n\nQuestion: {QUESTION}")
        assert len(spans) == count
        return [1.0] * count

    replies = Saying()

    def says(call):
        reply = replies(call)
        done.append(replies.kinds[-1])
        return reply

    options = {"reader": reader, "replies": says, "likelihood": likelihood, "attention": attention}
    options["embedder"] = SIGNALS["embedder"]
    strategy = set_parameters(DuQUAD, settings)
    answer, run, model = await asked(make_run, strategy, [*DOCUMENTS, *extra], **options)
    assert done == [
        *["likelihood"] * count,  # 1. Phi_ppl of each document, then a_i of all
        "attention",
        *("global", "local", "score", "judge"),  # 2. to 5.
    ]
    everything, local, scoring, judge = model.calls
    everyone = list(range(1, count + 1))
    assert all(call.prompt.endswith(f"Question: {QUESTION}") for call in model.calls[:3])
    assert numbers(everything) == everyone
    assert numbers(local) == [4, 2, 3, 1, *everyone[4:]][:6]  # m of them, by Phi_i
    assert numbers(scoring) == [2, 1, 4]  # D_G and what D_L adds
    assert list(passages_in(judge.prompt)) == [2, 4]  # p >= tau, the best first
    assert answer.found
    assert [each.span.document_id for each in answer.evidence] == ["mill", "house"]
    assert run.warnings == ()


async def test_the_judge_sees_scores_sentences_and_both_logs_and_no_form_of_reply(make_run):
    strategy = replace(TWO, sentences=1)
    replies = Saying(local=named(4, 2, said="It is 700 euros, says [DOC 4]."))
    answer, run, model = await asked(make_run, strategy, replies=replies, reader=PlainReader())
    judge = model.calls[3]
    assert passages_in(judge.prompt) == {2: MILL, 4: HOUSE}
    assert "Carp" not in judge.prompt  # 0.1 does not reach the threshold
    blocks = ["passages>", "DocScore", "Passage 2: 0.90\nPassage 4: 0.50", "I think so."]
    blocks += ["It is 700 euros, says [DOC 4].", f"Question: {QUESTION}"]
    places = [judge.messages[-1].content.index(words) for words in blocks]
    assert places == sorted(places)
    assert not re.search(r"json|quot", judge.messages[0].content, re.IGNORECASE)
    assert answer.evidence[0].reason == (
        "document 2, named by the global and the local agent, DocScore 0.90"
    )
    (gated,) = events(run, Gated)
    kept = [(score.number, score.p, score.kept) for score in gated.scores]
    assert kept == [(2, 0.9, True), (1, 0.1, False), (4, 0.5, True)]
    assert [len(s.sentences) for s in gated.scores] == [1, 0, 1]


# 2. What the agents name


@pytest.mark.parametrize(
    ("agent", "candidates"),
    [
        ("local", [2, 1, 4]),  # the global agent's, then the local one's best: 4 and 2
        ("global", [4, 2]),
    ],
)
async def test_an_agent_that_names_no_document(make_run, agent, candidates):
    replies = Saying(**{"local" if agent == "local" else "global_": "900 euros."})
    _, run, model = await asked(make_run, replies=replies)
    assert numbers(model.calls[2]) == candidates
    assert not view(run, agent).named
    assert any(f"{agent} agent named no documents" in warning for warning in run.warnings)


# 3. The gate


async def test_a_missing_score_is_asked_for_once_more(make_run):
    first, second = scores(d2=(0.9, "900 euros")), scores(d1=(0.8, "Carp"), d4=(0.1, ""))
    _, run, model = await asked(make_run, replies=Saying(score=[first, second]))
    again = model.calls[2:4]
    assert [numbers(call) for call in again] == [[2, 1, 4], [1, 4]]
    assert again[1].schema["properties"]["scores"]["maxItems"] == 2
    assert [(s.number, s.p) for s in events(run, Gated)[0].scores] == [(2, 0.9), (1, 0.8), (4, 0.1)]
    assert run.warnings == ()


@pytest.mark.parametrize("score", ["no idea", ServerFailed("the server fails", "503", "")])
async def test_without_any_score_all_documents_are_kept_and_whole(make_run, score):
    answer, run, model = await asked(make_run, replies=Saying(score=score))
    assert answer.found
    assert events(run, Gated) == []
    assert "DocScore" not in model.calls[-1].prompt
    assert passages_in(model.calls[-1].prompt) == WHOLE
    assert any("the documents are not scored" in warning for warning in run.warnings)


LOW = scores(d2=(0.2, "900 euros"), d1=(0.1, ""), d4=(0.3, "700 euros"))


async def test_where_no_score_reaches_tau_the_judge_decides_from_the_logs(make_run):
    replies = Saying(global_=named(2, 1, said=f'It says "{MILL}" [DOC 2]'), score=LOW)
    answer, run, model = await asked(make_run, replies=replies)
    assert replies.kinds == ["global", "local", "score", "judge"]
    assert not any(s.kept for s in events(run, Gated)[0].scores)  # Table 5
    # A reader can cite what it is shown alone: that is what the logs quote.
    assert passages_in(model.calls[3].prompt) == {2: MILL}
    assert "DocScore" not in model.calls[3].prompt
    assert "I think so." in model.calls[3].prompt
    assert answer.found
    assert any("no document reached the threshold of 0.4" in w for w in run.warnings)


# 5. The judge


UNUSABLE = [
    json.dumps({"statements": [], "short_answer": "900 euros", "found": True}),
    judged((2, "The miller is Ms Novak.", "The miller is Ms Novak."), short="Ms Novak"),
    "I am not sure what to say.",
    ServerFailed("the server fails", "503", "try later"),
]


@pytest.mark.parametrize("judge", UNUSABLE)
async def test_what_an_agent_quoted_is_the_answer_if_the_judges_reply_is_of_no_use(make_run, judge):
    said = named(2, said=f'The rent is 900 euros: "{MILL}" [DOC 2]. "The moon is red" [DOC 1].')
    answer, run, _ = await asked(make_run, replies=Saying(global_=said, judge=judge))
    assert answer.text == f"{MILL} [1]"
    assert any("earlier steps found and checked" in warning for warning in run.warnings)


DOWN = ServerFailed("the server fails", "503", "try later")


@pytest.mark.parametrize("agent", ["global_", "local"])
async def test_an_agent_that_fails_is_left_out(make_run, agent):
    replies = Saying(**{agent: DOWN})
    answer, run, _ = await asked(make_run, replies=replies)
    assert answer.found
    assert replies.kinds == ["global", "local", "score", "judge"]
    assert len(events(run, Viewed)) == 1
    assert any("agent is left out: the server fails" in warning for warning in run.warnings)


async def test_a_model_without_numbers_answers_all_the_same(make_run):
    answer, run, model = await asked(make_run, likelihood=None, embedder=None)
    assert answer.found
    (weighted,) = events(run, Weighted)
    assert set(weighted.missing) == {"similarity", "likelihood", "attention"}
    assert view(run, "local").shown == (1, 2)
    assert len(model.calls) == 4
    assert "the documents keep their order: no model gives a signal to rank them by" in run.warnings


@pytest.mark.parametrize(
    ("field", "kinds"),
    [
        ("no_local", ["global", "score", "judge"]),
        ("no_global", ["local", "score", "judge"]),
        ("no_pruning", ["global", "local", "judge"]),
    ],
)
async def test_each_part_can_be_left_out(make_run, field, kinds):
    replies = Saying(agents=[kind for kind in kinds if kind in ("global", "local")])
    answer, _, _ = await asked(make_run, replace(TWO, **{field: True}), replies=replies)
    assert answer.found
    assert replies.kinds == kinds


async def test_without_pruning_the_judge_sees_what_was_named_whole_and_no_scores(make_run):
    answer, _, model = await asked(make_run, replace(TWO, no_pruning=True))
    prompt = model.calls[-1].prompt
    assert passages_in(prompt) == WHOLE
    assert "DocScore" not in prompt
    assert [e.span.document_id for e in answer.evidence] == ["mill", "lake", "house"]


@pytest.mark.parametrize(
    ("weight", "signal"), [("alpha", "similarity"), ("beta", "likelihood"), ("gamma", "attention")]
)
async def test_a_signal_without_weight_is_left_out(make_run, weight, signal):
    _, run, _ = await asked(make_run, replace(TWO, **{weight: 0}), **SIGNALS)
    (weighted,) = events(run, Weighted)
    assert weighted.weights.keys() == {"similarity", "likelihood", "attention"} - {signal}
    assert signal not in weighted.signals
    assert weighted.missing == ()  # nobody failed to give it


@pytest.mark.parametrize(("rank_by", "first"), [("bm25", "mill"), ("embedder", "road")])
async def test_other_orders_of_the_local_view(make_run, rank_by, first):
    strategy = replace(TWO, rank_by=rank_by)
    _, run, _ = await asked(make_run, strategy, embedder=Leaning(road=0.9, lake=0.3))
    assert view(run, "local").documents[0] == first
    assert run.meter.report().scoring_passes == 0


GREY = "The mill is old and grey. " * 20
LONG = make_all({f"doc{n}": f"Word {n} of it. {GREY}" for n in range(1, 9)})


async def test_the_lowest_scored_do_not_fit_the_global_prompt(make_run):
    async with InMemorySources(LONG) as sources:
        run, model = make_run(sources, Saying(score=scores(), judge=judged()), context_tokens=1500)
        run.embedder = Leaning(**{f"doc{n}": n / 10 for n in range(1, 9)})
        await DuQUAD(reply_tokens=100).answer("How old is the mill?", run)
    everything, local = view(run, "global"), view(run, "local")
    fit = len(everything.shown)
    assert 1 < fit < 8
    assert everything.shown == tuple(range(9 - fit, 9))  # in their order
    assert numbers(model.calls[0]) == list(everything.shown)
    assert local.shown[0] == 8
    assert f"{8 - fit} of 8 passages do not fit the window of scripted" in run.warnings
    pruned = events(run, Pruned)[0]
    assert [span.document_id for span in pruned.spans] == [f"doc{n}" for n in range(8 - fit, 0, -1)]
