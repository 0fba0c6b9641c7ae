"""What is found becomes an answer whatever shape replies have, and though a server fails."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from colligate.core import Form, Run, list_strategies, make_strategy
from colligate.core.budget import Budget
from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import ServerFailed
from colligate.library import InMemorySources
from colligate.models import Capability, Completion, LabelOdds, Role
from colligate.models.metering import Meter
from colligate.models.weights import pull
from colligate.strategies.baselines import llmlingua2, recomp
from colligate.testing import ScriptedModel
from support.documents import make
from support.embedders import SameEmbedder

QUESTION = "What is the rent of the mill?"
FACT = "The rent of the mill is 900 euros."
DOCUMENTS = [
    make(
        f"# The {name}\n\n{FACT} {more}\n\n## More\n\nIt was built in 1870.\n", f"The {name}", name
    )
    for name, more in [("mill", "It has two wheels."), ("house", "It is red."), ("lake", "Carp.")]
]
GIVEN = {"llmlingua2": {"classifier": "x"}, "recomp": {"encoder": "x"}}
NAMES = [name for name in list_strategies() if name != "oracle"]  # the bench gives it passages


class Trained:
    """Stands in for trained weights."""

    name = "trained"

    def __init__(self, name):
        pass

    async def scores(self, question, texts):
        return [float(len(text)) for text in texts]

    async def probabilities(self, texts):
        return [
            [[(a, b, 0.9 if text[a:b] in FACT else 0.1) for a, b in token_spans(text)]]
            for text in texts
        ]


def follow(schema, whole, dice, name=""):
    """Return a value that a JSON schema allows, with the fact in every text."""
    if "$ref" in schema:
        return follow(whole["$defs"][schema["$ref"].split("/")[-1]], whole, dice, name)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return follow(options[0], whole, dice, name)
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "object":
        return {
            name: follow(each, whole, dice, name) for name, each in schema["properties"].items()
        }
    if kind == "array":
        count = max(1, schema.get("minItems", 1))
        return [follow(schema["items"], whole, dice, name) for _ in range(count)]
    if kind == "boolean":
        return name == "found" or dice.random() < 0.5
    if kind == "integer":
        return 1
    if kind == "number":
        return 0.9
    return FACT if name != "short_answer" else "900 euros"


def say(request, dice):
    """Return a valid reply."""
    if request.schema is not None:
        return json.dumps(follow(request.schema, request.schema, dice))
    return dice.choice([FACT, "So the answer is: 900 euros.", "Yes", "[Local]", "No", "The mill"])


def places(value):
    """Return each container with a key in it, at any depth."""
    if not isinstance(value, (dict, list)):
        return []
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [(value, key) for key, _ in pairs] + [at for _, each in pairs for at in places(each)]


def spoil(text, how, dice):
    """Return a reply after a mutation of this kind."""
    if how == "empty":
        return ""
    if how == "prose":
        return "I think that the rent is 900 euros, as the first passage says."
    if how == "around":
        return f"Let me {{think}}. ```json\n{text}\n``` So it is {{as}} above."
    if how in ("cut", "stopped"):
        finish = "length" if how == "cut" else "stop"
        return Completion(text[: dice.randrange(len(text) + 1)], finish_reason=finish)
    try:
        value = json.loads(text)
    except ValueError:
        return text * 50 if how == "long" else text
    for container, key in places(value):
        item = container[key]
        if how == "many" and isinstance(item, list):
            container[key] = item * 20
        if how == "long" and isinstance(item, str):
            container[key] = f"{item} " * 100
    if spots := places(value):
        container, key = dice.choice(spots)
        if how == "missing":
            del container[key]
        if how == "type":
            container[key] = dice.choice([None, [], {}, "seven", -3, 2.5, True, [[]], {"x": [1]}])
    return json.dumps(value)


KINDS = "valid cut stopped many long missing type around prose empty".split()


async def answer(name, reply, **parameters):
    """Return the answer of a strategy whose model replies by a function, and its run."""
    model = ScriptedModel(
        reply,
        capabilities=[Capability.CHAT, Capability.STRUCTURED],
        likelihood=lambda prefix, continuation: [-1.0] * estimate_tokens(continuation),
        labels=lambda messages, labels, forced: LabelOdds(
            dict.fromkeys(labels, 1 / len(labels)), 0.9
        ),
        attention=lambda prompt, spans: [0.1] * len(spans),
    )
    async with InMemorySources(DOCUMENTS, SameEmbedder()) as sources:
        run = Run(sources, {Role.READER: model}, Meter(), budget=Budget(), embedder=SameEmbedder())
        strategy = make_strategy(name, **GIVEN.get(name, {}), **parameters)
        return await strategy.answer(QUESTION, run), run


def check(name, answer):
    """Check that what is cited is in the documents."""
    assert bool(answer.citations) == answer.found or name == "direct"
    texts = {document.id: document.text for document in DOCUMENTS}
    for citation in answer.citations:
        span = citation.span
        assert citation.quote == texts[span.document_id][span.start : span.end]


@pytest.fixture(scope="module", autouse=True)
def trained():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomp, "get_dual_encoder", Trained)
        patch.setattr(llmlingua2, "get_token_classifier", Trained)
        yield


@pytest.mark.parametrize("name", NAMES)
def test_valid_replies_give_an_answer(name):
    dice = random.Random(7)
    found, _ = asyncio.run(answer(name, lambda request: say(request, dice)))
    assert found.found
    check(name, found)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8), seed=st.integers(0, 999))
def test_no_shape_of_a_reply_is_an_error(name, kinds, seed):
    dice = random.Random(seed)
    calls = iter(range(10_000))

    def reply(request):
        return spoil(say(request, dice), kinds[next(calls) % len(kinds)], dice)

    found, run = asyncio.run(answer(name, reply))
    check(name, found)
    assert found.found or run.warnings


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reply", ["[" * 600, '{"quotes":' * 1500], ids=["lists", "objects"])
def test_brackets_without_end_are_no_error(name, reply):
    found, run = asyncio.run(answer(name, lambda request: reply))
    check(name, found)
    assert found.found or run.warnings


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("last", [1, 2, 3, 5])
def test_a_server_that_fails_after_some_calls_is_no_error(name, last):
    dice = random.Random(last)
    calls = iter(range(10_000))

    def reply(request):
        if next(calls) >= last:
            return ServerFailed("the server fails", "503")
        return say(request, dice)

    found, run = asyncio.run(answer(name, reply))
    check(name, found)
    assert found.found or run.warnings


TEXT = (
    "The company reported that its revenue for the year ended December 31, 2022 increased by 12.4 "
    "percent to $1,284 million, because of higher sales in the North and of an acquisition. "
) * 9


def fill(schema, whole):
    """Return the longest value that a JSON schema allows, of ordinary text."""
    if "$ref" in schema:
        return fill(whole["$defs"][schema["$ref"].split("/")[-1]], whole)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return max((fill(each, whole) for each in options), key=lambda v: len(json.dumps(v)))
    if "enum" in schema:
        return max(schema["enum"], key=lambda value: len(json.dumps(value)))
    kind = schema.get("type")
    if kind == "object":
        return {name: fill(each, whole) for name, each in schema["properties"].items()}
    if kind == "array":
        return [fill(schema["items"], whole)] * schema["maxItems"]
    if kind == "string" and "const" not in schema:
        return TEXT[: schema["maxLength"]]
    return schema.get("const", {"boolean": False, "integer": 100, "number": 0.25}.get(kind))


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_valid_reply_fits_its_limit(name, count_tokens):
    dice, longest = random.Random(3), {}

    def reply(request):
        if request.schema is not None:
            reply = json.dumps(fill(request.schema, request.schema))
            longest[reply] = request.max_tokens
        return say(request, dice)

    for form in Form:
        asyncio.run(answer(name, reply, form=form))
    for reply, limit in longest.items():
        assert count_tokens(reply) <= limit, reply[:200]


@pytest.fixture(scope="module")
def count_tokens():
    """Counts the tokens of a text with MiniLM's tokenizer."""
    tokenizer = Tokenizer.from_file(str(pull("minilm-l6-v2-int8")["tokenizer"]))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
