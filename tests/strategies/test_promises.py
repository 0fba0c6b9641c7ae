"""Every registered strategy passes the suite, and what it needs of a real tokenizer."""

import inspect
import json
import random
import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from colligate.core.events import Retrieved
from colligate.core.parameters import list_parameters, paper_settings, set_parameters
from colligate.core.strategy import list_strategies, load_strategy
from colligate.documents.tokens import token_spans
from colligate.errors import UsageError
from colligate.lab.baselines import llmlingua2, recomp, self_rag
from colligate.models.weights import pull
from colligate.testing import FACT, Case, Given, list_ways, strategy_suite

NEEDED = {"llmlingua2": ["classifier=x"], "recomp": ["encoder=x"], "self-rag": ["reflection=x"]}
SHORTENING = ["llmlingua2", "longllmlingua", "selective-context"]
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

    async def run(self, work, *given):
        return work(*given)

    def wants_retrieval(self, question):
        return 0.9

    def continue_answer(self, question, passage, before, most):
        return self_rag.ReflectedText(FACT)


@pytest.fixture(scope="module", autouse=True)
def trained():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomp, "get_dual_encoder", Trained)
        patch.setattr(llmlingua2, "get_token_classifier", Trained)
        patch.setattr(self_rag, "get_reflective_model", Trained)
        yield


def say(request):
    """A free reply; of RDR2's router its first line with the fact."""
    if shown := re.findall(rf"^\s*(\d+): {FACT}", request.prompt, re.MULTILINE):
        return f"[ANSWER] {shown[0]}: {FACT}"
    replies = [FACT, "So the answer is: 900 euros.", "Yes", "[Local]", "No", "The mill"]
    return random.Random(request.prompt).choice(replies)


@cache
def suite(name, seeds=range(6)):
    quotes = name not in SHORTENING
    return strategy_suite(
        load_strategy(name), NEEDED.get(name, ()), say=say, quotes=quotes, seeds=seeds
    )


@pytest.mark.parametrize("check", [
    pytest.param(check, id=f"{name}-{check}") for name in NAMES for check in suite(name)
])  # fmt: skip
async def test_every_strategy_passes_the_suite(check):
    await check()


METHODS = "auto decompose dualrag duquad longrefiner per-document rdr2 spd-rag".split()


class Recorder:
    """A retriever that is the search itself; `asked` are its queries."""

    name = "recorder"

    def __init__(self):
        self.asked = []

    async def retrieve(self, query, run, *, k, documents=None):
        self.asked.append(query)
        return await run.search(query, k=k, documents=documents)


@pytest.mark.parametrize("name", [n for n in NAMES if load_strategy(n).needs.searches])
async def test_every_search_goes_by_the_retriever(name):
    recorder = Recorder()
    case = Case(load_strategy(name), tuple(NEEDED.get(name, ())), say=say)
    _, run = await case.ask(case.replies(), Given(retriever=recorder))
    searches = [event for _, event in run.trace.events if isinstance(event, Retrieved)]
    assert recorder.asked or not searches  # a few documents are read without a search
    assert recorder.asked or name not in METHODS
    assert {event.query for event in searches} <= set(recorder.asked)


@given(st.sampled_from(NAMES), st.integers(0, 2**32))
async def test_no_reply_and_no_failure_is_an_error(name, seed):
    for check in suite(name, (seed,)):
        if str(check).startswith("spoilt"):
            await check()


# The steps of a method that a file of prompts may word, and what each prompt is filled with.
STEPS = {
    "dualrag": {
        "reasoner": "question outline thoughts",
        "identifier": "question outline thoughts entities",
        "summarizer": "question thoughts entity queries passages",
    },
    "duquad": {
        "global": "documents question",
        "local": "documents question",
        "score": "numbers documents question",
        "judge": "",
    },
    "longrefiner": {
        "scope": "question",
        "structuring": "text",
        "selection": "abstract outline question",
    },
    "rdr2": {"router": "question document"},
    "spd-rag": {
        "coordinator": "question",
        "agent": "document tasks",
        "synthesis": "question directive findings",
    },
}
WAYS = {"longrefiner": ["structuring=model"], "spd-rag": ["merge_tokens=200"]}


@pytest.mark.parametrize("name", STEPS)
async def test_every_step_is_asked_by_the_prompt_of_a_users_file(name, tmp_path):
    file, asked, dice = tmp_path / "own.toml", [], random.Random(3)
    for step, fields in STEPS[name].items():
        shown = "".join(f"\\n## {field}: {{{field}}}" for field in fields.split())
        with file.open("a") as written:
            written.write(f'[[{step}]]\nrole = "user"\ncontent = "My {step}.{shown}"\n')
    case = Case(load_strategy(name), (f"prompts={file}", *WAYS.get(name, ())), say=say)

    def reply(request):
        asked.append(request.messages[0].content)
        return case.reply(request, dice)

    question = "When {question} {text}? "
    given = Given(f"{question}<|im_end|>")
    await case.ask(reply, given)
    asked += [each[-1].content for each in given.scored if not isinstance(each, str)]
    for step, fields in STEPS[name].items():
        own = [each for each in asked if each.startswith(f"My {step}.")]
        assert len(own) > (step == "synthesis")  # reports are merged, and then read
        for prompt in own:
            shown = dict(zip(fields.split(), re.split(r"\n## \w+: ", prompt)[1:], strict=True))
            assert shown.get("question", question).startswith(question)
            assert "<|im_end|>" not in prompt
            assert not [field for field, text in shown.items() if text == f"{{{field}}}"]


@pytest.mark.parametrize("name", list_strategies())
def test_no_count_is_negative(name):
    kind = load_strategy(name)
    for each in list_parameters(kind):
        if each.type.removesuffix("|none") == "int" and each.name != "seed":
            with pytest.raises(UsageError):
                set_parameters(kind, [*NEEDED.get(name, ()), f"{each.name}=-1"])


@pytest.mark.parametrize("name", list_strategies())
def test_a_value_of_the_paper_that_is_not_the_default_is_in_its_preset(name):
    kind = load_strategy(name)
    said = dict(re.findall(r"^    (\w+): .+# the paper: (\w+)", inspect.getsource(kind), re.M))
    preset = paper_settings(kind)
    for each in list_parameters(kind):
        if each.name in said and each.name not in preset:
            assert str(each.default) == said[each.name]
    assert preset.keys() <= {each.name for each in list_parameters(kind)}


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
        return TEXT[: schema.get("maxLength", 100)]
    return schema.get("const", {"boolean": False, "integer": 100, "number": 0.25}.get(kind))


@pytest.mark.parametrize("name", NAMES)
async def test_the_longest_valid_reply_of_a_step_fits_its_limit(name, count_tokens):
    case = Case(load_strategy(name), tuple(NEEDED.get(name, ())), say=say)
    dice, longest = random.Random(3), {}

    def reply(request):
        if request.schema is not None and "short_answer" not in request.schema["properties"]:
            reply = json.dumps(fill(request.schema, request.schema))
            longest[reply] = request.max_tokens
        return case.reply(request, dice)

    for way in ["", *list_ways(case.kind)]:
        await case.ask(reply, Given(ways=[way] if way else [], reranks="=reranker" in way))
    for reply, limit in longest.items():
        assert count_tokens(reply) <= limit, reply[:200]


@pytest.fixture(scope="module")
def count_tokens():
    """Counts the tokens of a text with MiniLM's tokenizer."""
    tokenizer = Tokenizer.from_file(str(pull("minilm-l6-v2-int8")["tokenizer"]))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
