import dataclasses
import json
import re

import pytest

from colligate.core import Form, list_strategies, make_strategy
from colligate.core.reader import FORMS
from colligate.core.strategy import estimate_calls, load_strategy
from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import ContextTooSmall, MissingCapability, UsageError, WeightsUnavailable
from colligate.library import InMemorySources
from colligate.models import LabelOdds
from colligate.strategies.baselines import llmlingua2, recomp
from colligate.strategies.baselines.direct import Direct
from colligate.strategies.baselines.full_context import FullContext
from colligate.strategies.baselines.llmlingua2 import LLMLingua2
from colligate.strategies.baselines.meta_chunking import MetaChunking
from colligate.strategies.baselines.oracle import Oracle
from colligate.strategies.baselines.recomp import Recomp
from colligate.strategies.baselines.reorder import ReorderDense
from colligate.strategies.baselines.retrieve_read import RetrieveRead
from support.documents import make_all
from support.embedders import SameEmbedder


async def test_direct_reads_nothing_and_says_so(ask):
    answer, run, model = await ask(Direct(), "What is the capital of France?", [], "Paris")
    assert (answer.text, answer.found, answer.citations) == ("Paris", True, ())
    assert answer.short is None, "nothing verifies it"
    assert "<passage" not in model.calls[0].prompt
    assert any("no document was read" in warning for warning in run.warnings)


async def test_an_answer_rests_on_the_documents_that_it_cites_or_on_nothing(documents, ask, reply):
    said = reply((2, "Bicycles stand in the yard", "Bicycles stand in the yard."))
    question = "Where do bicycles stand?"
    cited, _, _ = await ask(FullContext(), question, documents, said)
    refused, _, _ = await ask(FullContext(), question, documents, reply())
    known, _, _ = await ask(Direct(), question, [], "In the yard")
    assert [each.found for each in (cited, refused, known)] == [True, False, True]
    assert [each.ground for each in (cited, refused, known)] == ["documents", "none", "none"]
    assert [each.to_json()["ground"] for each in (cited, known)] == ["documents", "none"]


async def test_full_context_shows_every_document_whole_in_order(documents, ask, reply):
    said = reply((2, "Bicycles stand in the yard", "Bicycles stand in the yard."))
    answer, run, model = await ask(FullContext(), "Where do bicycles stand?", documents, said)
    prompt = model.calls[0].prompt
    assert prompt.index(documents[0].text.strip()) < prompt.index(documents[1].text.strip())
    assert answer.citations[0].quote == "Bicycles stand in the yard, never in the hall."
    assert run.meter.report().retrieval_rounds == 0


async def test_full_context_refuses_what_does_not_fit_before_the_call(documents, make_run, reply):
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, [reply()], context_tokens=700)
        with pytest.raises(ContextTooSmall, match="the window is 700"):
            await FullContext().answer("Where do bicycles stand?", run)
    assert model.calls == []


@pytest.mark.parametrize("name", list_strategies())
def test_every_strategy_can_be_asked_for_a_list_or_a_paragraph(name):
    # Or a table of QAMPARI or ASQA would compare lists and paragraphs with few words.
    kind = load_strategy(name)
    forms = [field.default for field in dataclasses.fields(kind) if field.name == "form"]
    assert forms
    assert forms[0] is None or isinstance(forms[0], Form)  # None: it depends on the reader


@pytest.mark.parametrize("strategy", [RetrieveRead, FullContext])
@pytest.mark.parametrize("form", [Form.LIST, Form.LONG, Form.JOINED])
async def test_the_reader_is_asked_in_the_form_that_is_wanted(
    documents, minilm, ask, strategy, form
):
    _, _, model = await ask(
        strategy(form=form), "Where do bicycles stand?", InMemorySources(documents, minilm)
    )
    assert FORMS[form].instruction in model.calls[0].prompt


async def test_direct_lists_with_commas_and_explains_without_a_short_answer(make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, ["Ann, Bob", "They did."])
        listed = await Direct(form=Form.LIST).answer("Who?", run)
        told = await Direct(form=Form.LONG).answer("Why?", run)
    assert "separated by commas" in model.calls[0].prompt
    assert "one paragraph" in model.calls[1].prompt
    assert (listed.text, told.short, told.text) == ("Ann, Bob", None, "They did.")


# Each baseline by its name, with what it must be given.
KINDS = {
    "llmlingua2": {"classifier": "x"},
    "recomp": {"encoder": "x"},
    "fim": {},
    "longllmlingua": {},
    "meta-chunking": {},
    "selective-context": {},
    "semantic-chunking": {},
    "reorder-bm25": {},
    "reorder-dense": {},
    "retrieve-read": {},
    "full-context": {},
    "two-hop": {},
    "ircot": {},
    "genground": {},
    "agentic-rag": {},
    "flare": {},
    "metarag": {},
    "toa": {},
    "main-rag": {},
    "self-rag": {},
    "asc": {},
}
WAYS = [
    *KINDS.items(),
    ("recomp", {"encoder": "x", "level": "chunks"}),
    ("semantic-chunking", {"how": "meaning"}),
    ("meta-chunking", {"how": "msp"}),
]


class Trained:
    """Stands in for trained weights, which are not asked without documents."""

    name = "trained"

    def __init__(self, name):
        pass

    async def scores(self, question, texts):
        return [0.0] * len(texts)

    async def probabilities(self, texts):
        return [[] for _ in texts]


def without_chat(*_):
    raise AssertionError("a scorer was asked")


@pytest.mark.parametrize(("name", "parameters"), WAYS, ids=str)
@pytest.mark.parametrize("texts", [{}, {"d": " \n"}], ids=["none", "blank"])
async def test_nothing_to_read_costs_no_call(name, parameters, texts, ask, monkeypatch):
    if texts and name in ("genground", "agentic-rag", "flare"):
        return  # these write before they search
    monkeypatch.setattr(recomp, "get_dual_encoder", Trained)
    monkeypatch.setattr(llmlingua2, "get_token_classifier", Trained)
    strategy = make_strategy(name, **parameters)
    scorers = dict.fromkeys(("likelihood", "attention", "labels"), without_chat)
    answer, run, model = await ask(
        strategy, "Who?", make_all(texts), embedder=SameEmbedder(), **scorers
    )
    assert not answer.found
    assert model.calls == []
    assert run.meter.report().scoring_passes == 0


@pytest.mark.parametrize(
    ("name", "parameters", "lacks"),
    [
        ("longllmlingua", {}, "likelihoods"),
        ("selective-context", {}, "likelihoods"),
        ("meta-chunking", {}, "likelihoods"),
        ("meta-chunking", {"how": "msp"}, "label"),
        ("main-rag", {"units": "documents"}, "label"),
        ("flare", {"mode": "sparse"}, "likelihoods"),
        ("semantic-chunking", {"how": "meaning"}, "embedder"),
        ("reorder-dense", {}, "embedder"),
        ("metarag", {"mode": "sparse"}, "embedder"),
        ("asc", {"mode": "sparse"}, "embedder"),
    ],
)
async def test_a_missing_capability_is_named(name, parameters, lacks, documents, ask):
    # Those that write before they score are only stopped then.
    with pytest.raises(MissingCapability, match=lacks):
        await ask(make_strategy(name, **parameters), "Rent?", documents, lambda call: "It is.")


@pytest.mark.parametrize(
    ("strategy", "error", "words"),
    [
        (Oracle(), UsageError, "bench"),
        (ReorderDense(by="reranker"), UsageError, "reranker"),
        (MetaChunking(by="reranker"), UsageError, "reranker"),
        (Recomp(), WeightsUnavailable, "fangyuan/nq_extractive_compressor"),
        (LLMLingua2(), WeightsUnavailable, "microsoft/llmlingua-2-xlm-roberta-large"),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
async def test_what_a_method_must_be_given_is_said(strategy, error, words, documents, ask):
    with pytest.raises(error, match=words):
        await ask(strategy, "Rent?", documents, lambda call: pytest.fail("a model was asked"))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *((name, "k", 0) for name in "ircot genground agentic-rag flare metarag two-hop".split()),
        ("toa", "agents", 0),
        ("main-rag", "documents", 0),
        ("self-rag", "k", 0),
        ("asc", "k", 0),
        ("llmlingua2", "rate", -1),
        ("llmlingua2", "target", 0),
        ("recomp", "sentences", 0),
        ("longllmlingua", "rate", -0.1),
        ("longllmlingua", "target", 0),
        ("longllmlingua", "block", 0),
        ("meta-chunking", "words", 0),
        ("meta-chunking", "k", 0),
        ("meta-chunking", "budget", 0),
        ("meta-chunking", "threshold", -1),
        ("selective-context", "reduce", -0.1),
        ("semantic-chunking", "tokens", 0),
        ("semantic-chunking", "budget", 0),
        ("semantic-chunking", "percentile", -1),
        ("reorder-bm25", "budget", 0),
        ("reorder-dense", "documents", 0),
    ],
)
def test_numbers_without_meaning_are_refused(name, field, value):
    with pytest.raises(UsageError, match=field):
        make_strategy(name, **{field: value})


@pytest.mark.parametrize("name", list_strategies())
def test_every_strategy_declares_its_calls(name):
    kind = load_strategy(name)
    assert estimate_calls(kind) is kind.calls
    assert kind.calls.question >= 1


LIKELIHOOD = {"likelihood": lambda prefix, text: [-1.0] * estimate_tokens(text)}
SCORED = {
    "selective-context": ({"units": "documents"}, LIKELIHOOD),
    "longllmlingua": ({"units": "documents"}, LIKELIHOOD),
    "meta-chunking": ({"documents": 16}, LIKELIHOOD),
    "fim": ({"units": "documents"}, {"attention": lambda prompt, spans: [0.1] * len(spans)}),
}


@pytest.mark.parametrize("name", SCORED)
async def test_scores_that_cost_the_budget_leave_tokens_to_the_reader(name, ask, reply):
    parameters, scripts = SCORED[name]
    rain = "It rained all day and all night over the hills and the valley. " * 12
    made = make_all(
        {f"d{n}": f"# Place {n}\n\nCarp swim in lake {n}.\n\n{rain}" for n in range(16)}
    )
    said = reply((1, "Carp swim in lake 0.", "Carp swim in lake 0."))
    answer, run, _ = await ask(
        make_strategy(name, **parameters),
        "What swims in lake 0?",
        made,
        lambda call: said,
        max_tokens=4000,
        **scripts,
    )
    assert answer.found
    assert run.meter.tokens <= 4000
    assert any("token budget ended" in warning for warning in run.warnings)


CARP = "Carp swim in the lake."
POND = "The pond is green and old."
LEAVING_OUT = {
    "main-rag": {"units": "documents"},
    "self-rag": {"mode": "sparse"},
    "toa": {"form": "short"},
    "recomp": {"encoder": "x", "sentences": 1},
    "llmlingua2": {"classifier": "x"},
    "selective-context": {},
    "longllmlingua": {},
}


@pytest.mark.parametrize("given", [{}, {"on_nothing": "nothing"}], ids=["read", "published"])
@pytest.mark.parametrize("name", LEAVING_OUT)
async def test_what_was_left_out_is_read_before_a_refusal(name, given, ask, reply, monkeypatch):
    """Models prefer the pond, and shorten the lake to what does not answer."""

    def say(call):
        parts = re.findall(r"<passage number.*?>\n(.*?)\n</passage", call.prompt, re.DOTALL)
        pond = next((n for n, part in enumerate(parts, 1) if POND in part), None)
        row = [{"passage": pond, "quote": POND, "sentence": POND}] if pond else []
        agents = {
            "Perception": {"statements": row, "answer": "Green" if pond else ""},
            "Helpers": {"ids": []},
            "FinalDecision": {"result": "Green" if "Green" in call.prompt else "None"},
        }
        if call.schema is None:
            return POND
        if call.schema["title"] in agents:
            return json.dumps(agents[call.schema["title"]])
        carp = [(n, CARP, CARP) for n, part in enumerate(parts, 1) if CARP in part]
        return reply(*carp)

    def likelihood(prefix, text):
        return [-0.1 if text[a:b] in CARP else -9.0 for a, b in token_spans(text)]

    def labels(messages, labels, forced):
        low = 0.1 if CARP in messages[-1].content else 0.9
        rest = dict.fromkeys(labels[1:], (1 - low) / (len(labels) - 1))
        return LabelOdds({labels[0]: low, **rest}, 1.0)

    monkeypatch.setattr(recomp, "get_dual_encoder", Trained)
    monkeypatch.setattr(llmlingua2, "get_token_classifier", Trained)
    made = make_all(
        {
            "lake": f"It is cold at noon because winds blow down from hills.\n\n{CARP}\n",
            "pond": f"{POND} Nothing swims there because frogs eat everything.\n",
        }
    )
    answer, run, _ = await ask(
        make_strategy(name, **LEAVING_OUT[name], **given),
        "What swims in the lake, not in the pond?",
        made,
        say,
        likelihood=likelihood,
        labels=labels,
    )
    assert answer.found is not bool(given)
    assert [citation.quote for citation in answer.citations] == [CARP] * answer.found
    assert any("does not hold the answer" in warning for warning in run.warnings) is answer.found
