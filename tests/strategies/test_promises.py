"""What is found becomes an answer whatever shape replies have, and though a server fails."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from colligate.core import Form, Run, list_strategies
from colligate.core.budget import Budget
from colligate.core.events import Opened
from colligate.core.parameters import list_parameters, set_parameters
from colligate.core.strategy import load_strategy
from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import ColligateError, ServerFailed
from colligate.library import InMemorySources
from colligate.models import Capability, Completion, LabelOdds, Role, Usage
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
GIVEN = {"llmlingua2": ["classifier=x"], "recomp": ["encoder=x"]}
NAMES = [name for name in list_strategies() if name != "oracle"]  # the bench gives it passages
SIZES = ["small", "large"]
SHORTENING = ["llmlingua2", "longllmlingua", "selective-context"]  # may cut what would be quoted


def list_ways(name):
    """Return the settings that change how a strategy asks, each as text: `reply=tagged`."""
    return [
        f"{each.name}={value}"
        for each in list_parameters(load_strategy(name))
        if ("|" in each.type and not each.type.endswith("|none")) or each.type == "bool"
        # Forms have a test, ablations leave parts out, and `on_nothing` may choose to refuse.
        if each.name not in ("form", "mode", "on_nothing") and not each.name.startswith("no_")
        for value in (["true", "false"] if each.type == "bool" else each.type.split("|"))
    ]


def give_odds(labels):
    """Return equal odds; of Yes and No those of a passage that is likely to hold the answer."""
    if set(labels) == {"Yes", "No"}:
        return {"Yes": 0.6, "No": 0.4}
    return dict.fromkeys(labels, 1 / len(labels))


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
        kept = text[: dice.randrange(len(text) + 1)]
        return Completion(kept, Usage(100, estimate_tokens(kept)), finish_reason=finish)
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


class Failing(SameEmbedder):
    """Scores passages and embeds; each of what it fails at works `after` times, if that is set."""

    def __init__(self, part, after):
        self.part, self.after = part, after

    def count(self, what):
        if what in self.after:
            self.after[what] -= 1
            if self.after[what] < 0:
                raise ServerFailed(f"the {what} fails", "503")

    async def embed(self, texts, kind="passage"):
        self.count(self.part)
        return await super().embed(texts, kind)

    async def score(self, query, texts):
        self.count("reranker")
        return [float(FACT in text) for text in texts]


class Asker:
    """Asks strategies, over the same sources, what a model replies to by a function.

    The small model gives odds of labels, likelihoods and attention. The large one does not; where
    a strategy must have them a scorer does.
    """

    def __init__(self):
        self.after = {}
        self.backend = Failing("embedder", self.after)
        self.runner = asyncio.Runner()
        self.sources = InMemorySources(DOCUMENTS, Failing("search", self.after))
        self.runner.run(self.sources.__aenter__())

    def close(self):
        self.after.clear()
        self.runner.run(self.sources.__aexit__(None, None, None))
        self.runner.close()

    def models(self, name, size, reply):
        def counted(what, script):
            def give(*arguments):
                self.backend.count(what)
                return script(*arguments)

            return give

        scores = {
            "likelihood": lambda prefix, continuation: [-1.0] * estimate_tokens(continuation),
            "labels": lambda messages, labels, forced: LabelOdds(give_odds(labels), 0.9),
            "attention": lambda prompt, spans: [0.1] * len(spans),
        }
        scores = {what: counted(what, script) for what, script in scores.items()}
        chat = [Capability.CHAT, Capability.STRUCTURED]
        if size == "small":
            return {Role.READER: ScriptedModel(reply, capabilities=chat, **scores)}
        models = {Role.READER: ScriptedModel(reply, "a-70b", capabilities=chat)}
        if load_strategy(name).needs.required - {Capability.CHAT}:
            models[Role.SCORER] = ScriptedModel(name="scorer", **scores)
        return models

    def ask(self, name, reply, size="small", *, ways=(), fails=(), budget=None, reranks=False):
        """Return the answer and the run; no answer if it failed with nothing paid or to read."""
        self.after.clear()
        self.after.update(fails)
        run = Run(
            self.sources,
            self.models(name, size, reply),
            Meter(),
            budget=Budget(budget),
            embedder=self.backend,
            reranker=self.backend if reranks else None,
        )
        try:
            strategy = set_parameters(load_strategy(name), [*GIVEN.get(name, ()), *ways])
            return self.runner.run(strategy.answer(QUESTION, run)), run
        except ColligateError:
            events = [event for _, event in run.trace.events]
            if run.meter.tokens and any(
                isinstance(e, Opened) or getattr(e, "spans", ()) for e in events
            ):
                raise
            return None, run


@pytest.fixture(scope="module")
def asker():
    asker = Asker()
    yield asker
    asker.close()


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


cases = pytest.mark.parametrize(("name", "size"), list(product(NAMES, SIZES)))


@cases
def test_valid_replies_give_an_answer(name, size, asker):
    dice = random.Random(7)
    found, _ = asker.ask(name, lambda request: say(request, dice), size)
    assert found.found
    check(name, found)


PARTS = ["labels", "likelihood", "attention", "embedder", "reranker", "search", "budget"]


@cases
@settings(max_examples=6)
@given(data=st.data())
def test_no_shape_of_a_reply_and_no_failure_is_an_error(name, size, asker, data):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8), "kinds")
    dice = random.Random(data.draw(st.integers(0, 999), "seed"))
    ways = st.lists(st.sampled_from(list_ways(name) or [""]), max_size=3).map(
        lambda drawn: [way for way in drawn if way]
    )
    part = data.draw(st.sampled_from(["", *PARTS]), "part")
    after = data.draw(st.integers(0, 4), "after")
    budget = (after + 1) * 1_000 if part == "budget" else None
    last = ""

    def reply(request):
        nonlocal last
        last = kinds[next(calls) % len(kinds)] if request.schema else "free"
        spoilt = spoil(say(request, dice), last, dice)
        if not any(FACT in message.content for message in request.messages):
            last = "about something else"  # of passages without the fact no reply is an answer
        return spoilt

    calls = iter(range(10_000))
    found, run = asker.ask(
        name,
        reply,
        size,
        ways=data.draw(ways, "ways"),
        fails=[(part, after)],
        budget=budget,
        reranks=data.draw(st.booleans(), "reranks"),
    )
    if found is not None:
        check(name, found)
        assert found.found or run.warnings
        if last == "valid" and not budget and name not in SHORTENING:
            assert found.found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("size", "reply"),
    [("small", "[" * 600), ("large", "[" * 600), ("small", '{"quotes":' * 1500)],
    ids=["lists, small", "lists, large", "objects"],
)
def test_brackets_without_end_are_no_error(name, size, reply, asker):
    found, run = asker.ask(name, lambda request: reply, size)
    check(name, found)
    assert found.found or run.warnings


@cases
@pytest.mark.parametrize("last", [1, 2, 4])
def test_a_server_that_fails_after_some_calls_is_no_error(name, size, last, asker):
    dice = random.Random(last)
    calls = iter(range(10_000))

    def reply(request):
        if next(calls) >= last:
            return ServerFailed("the server fails", "503")
        return say(request, dice)

    found, run = asker.ask(name, reply, size)
    check(name, found)
    assert found.found or run.warnings


@cases
@pytest.mark.parametrize("budget", [60, 250, 1_000])
def test_a_budget_spent_on_scores_is_no_error(name, size, budget, asker):
    dice = random.Random(7)
    found, run = asker.ask(name, lambda request: say(request, dice), size, budget=budget)
    if found is not None:
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


@cases
def test_the_longest_valid_reply_fits_its_limit(name, size, asker, count_tokens):
    dice, longest = random.Random(3), {}

    def reply(request):
        if request.schema is not None:
            reply = json.dumps(fill(request.schema, request.schema))
            longest[reply] = request.max_tokens
        return say(request, dice)

    ways = list_ways(name) if size == "large" else []
    for way in [*(f"form={form.value}" for form in Form), *ways]:
        if "=reranker" not in way:
            asker.ask(name, reply, size, ways=[way])
    for reply, limit in longest.items():
        assert count_tokens(reply) <= limit, reply[:200]


@pytest.fixture(scope="module")
def count_tokens():
    """Counts the tokens of a text with MiniLM's tokenizer."""
    tokenizer = Tokenizer.from_file(str(pull("minilm-l6-v2-int8")["tokenizer"]))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
