"""llama.cpp in process, with the real SmolLM2-135M."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from colligate.errors import (
    ContextTooSmall,
    RequestRefused,
    WeightsUnavailable,
)
from colligate.models import (
    Message,
    weights,
)
from colligate.models.llamacpp import LlamaCpp

pytestmark = pytest.mark.model

WINDOW = 1024


@pytest.fixture(scope="module")
def gguf() -> Path:
    return weights.pull("smollm2-135m")["model"]


@pytest.fixture(scope="module")
def model(gguf: Path) -> Iterator[LlamaCpp]:
    # One thread: other work on the machine then slows it down the least.
    model = LlamaCpp(gguf, name="gguf:smollm2-135m", context_tokens=WINDOW, parallel=2, threads=1)
    yield model
    asyncio.run(model.aclose())


def user(text: str) -> list[Message]:
    # The model's own system prompt, which its template puts in where none is given, confuses it.
    return [Message("system", "You answer questions."), Message("user", text)]


async def test_it_answers(model: LlamaCpp) -> None:
    answer = await model.chat(user("What is the capital of France?"), max_tokens=40)
    assert "Paris" in answer.text
    assert answer.model == "gguf:smollm2-135m"
    assert answer.finish_reason == "stop"
    assert 10 < answer.usage.input_tokens < 60
    assert 0 < answer.usage.output_tokens <= 40
    assert not answer.usage.estimated


async def test_streaming_gives_the_same_text_in_pieces(model: LlamaCpp) -> None:
    question = user("Name three colours.")
    pieces: list[str] = []
    plain = await model.chat(question, max_tokens=30)
    streamed = await model.chat(question, max_tokens=30, on_token=pieces.append)
    assert streamed.text == plain.text == "".join(pieces)
    assert len(pieces) > 5


async def test_a_shared_beginning_is_computed_once(model: LlamaCpp) -> None:
    passage = "The bridge was opened in 1932 by the mayor. " * 10
    await model.chat(user(passage + "When was it opened?"), max_tokens=2)
    again = await model.chat(user(passage + "Who opened it?"), max_tokens=2)
    assert again.usage.cached_tokens > 80


async def test_stop_and_length(model: LlamaCpp) -> None:
    cut = await model.chat(user("Count from one to twenty."), max_tokens=4)
    assert (cut.finish_reason, cut.usage.output_tokens) == ("length", 4)
    whole = await model.chat(user("What is the capital of France?"), max_tokens=30)
    stopped = await model.chat(
        user("What is the capital of France?"), max_tokens=30, stop=["Paris"]
    )
    assert stopped.finish_reason == "stop"
    assert stopped.text == whole.text.partition("Paris")[0]


async def test_a_seed_makes_sampling_repeatable(model: LlamaCpp) -> None:
    async def sample(seed: int) -> str:
        question = user("Invent a name for a ship.")
        return (await model.chat(question, max_tokens=16, temperature=1.5, seed=seed)).text

    assert await sample(7) == await sample(7)
    assert len({await sample(seed) for seed in (1, 2, 3)}) > 1


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"found": {"type": "boolean"}, "answer": {"type": "string", "maxLength": 40}},
        "required": ["found", "answer"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "statements": {
                "type": "array",
                "minItems": 1,
                "maxItems": 2,
                "items": {"$ref": "#/$defs/Statement"},
            }
        },
        "required": ["statements"],
        "$defs": {
            "Statement": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "maxLength": 30},
                    "passages": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 2,
                        "items": {"type": "integer", "minimum": 1, "maximum": 8},
                    },
                },
                "required": ["text", "passages"],
            }
        },
    },
    {"enum": ["relevant", "irrelevant"]},
    {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 2, "maxItems": 2},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["object", "nested", "enum", "array"])
async def test_the_output_satisfies_the_schema(model: LlamaCpp, schema: dict[str, Any]) -> None:
    # Asked for something else altogether: it is the decoding that is held, not the model's will.
    answer = await model.chat(user("Write a poem about the sea."), max_tokens=300, schema=schema)
    assert answer.finish_reason == "stop"
    value = json.loads(answer.text)
    if schema is SCHEMAS[0]:
        assert set(value) == {"found", "answer"}
        assert isinstance(value["found"], bool)
    elif schema is SCHEMAS[1]:
        assert 1 <= len(value["statements"]) <= 2
        assert all(1 <= n <= 8 for s in value["statements"] for n in s["passages"])
    elif schema is SCHEMAS[2]:
        assert value in schema["enum"]
    else:
        assert len(value) == 2
        assert set(value) <= {"a", "b", "c"}


async def test_a_schema_that_is_none_is_refused(model: LlamaCpp) -> None:
    with pytest.raises(RequestRefused):
        await model.chat(user("Hello"), max_tokens=5, schema={"type": "no such type"})


async def test_a_prompt_too_long_says_by_how_much(model: LlamaCpp) -> None:
    text = "word " * 2000
    tokens = await model.count_tokens(text)
    with pytest.raises(ContextTooSmall) as caught:
        await model.chat(user(text), max_tokens=5)
    assert f"the window {WINDOW}" in caught.value.why
    assert tokens > WINDOW
    with pytest.raises(ContextTooSmall):
        await model.likelihood(text, "word")
    with pytest.raises(ContextTooSmall):
        await model.labels(user(text), ["yes", "no"])


async def test_cancelling_frees_the_slot(gguf: Path) -> None:
    model = LlamaCpp(gguf, name="one slot", context_tokens=WINDOW, threads=1)
    try:
        begun = time.monotonic()
        whole = await model.chat(user("Write a very long story."), max_tokens=300)
        seconds = time.monotonic() - begun
        assert whole.usage.output_tokens > 100

        started = asyncio.Event()

        def note(piece: str) -> None:
            started.set()

        story = model.chat(user("Write a very long story."), max_tokens=900, on_token=note)
        task = asyncio.create_task(story)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        begun = time.monotonic()
        await model.chat(user("Hello"), max_tokens=2)
        assert time.monotonic() - begun < seconds
    finally:
        await model.aclose()


async def test_a_call_cancelled_while_it_waits_never_runs(gguf: Path) -> None:
    model = LlamaCpp(gguf, name="one slot", context_tokens=WINDOW, threads=1)
    try:
        heard: list[str] = []
        first = asyncio.create_task(model.chat(user("Count to ten."), max_tokens=30))
        second = asyncio.create_task(
            model.chat(user("Count to ten."), max_tokens=30, on_token=heard.append)
        )
        await asyncio.sleep(0)
        second.cancel()
        assert (await first).text
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not heard
    finally:
        await model.aclose()


async def test_calls_side_by_side_do_not_mix(model: LlamaCpp) -> None:
    heard: dict[str, list[str]] = {"France": [], "Italy": [], "Japan": [], "Spain": []}
    answers = await asyncio.gather(
        *(
            model.chat(
                user("Name a country."),
                max_tokens=16,
                schema={"enum": [country]},
                on_token=pieces.append,
            )
            for country, pieces in heard.items()
        )
    )
    for answer, (country, pieces) in zip(answers, heard.items(), strict=True):
        assert json.loads(answer.text) == country
        assert "".join(pieces) == answer.text


PASSAGES = {
    "Who designed the Halden bridge?": (
        "The Halden bridge was designed by the engineer Ingrid Solberg and opened in 1932."
    ),
    "How many days are there to cure a violation?": (
        "Whoever cures the violation within 30 days of the notice keeps the licence."
    ),
    "What do otters eat?": "Otters live by rivers and eat mostly fish, crabs and frogs.",
    "When was the library founded?": "The town's library was founded in 1874 by a baker's widow.",
}


@pytest.mark.parametrize("question", PASSAGES)
async def test_likelihood_ranks_the_right_passage_first(model: LlamaCpp, question: str) -> None:
    means = {}
    for passage in PASSAGES.values():
        scores = await model.likelihood(f"{passage}\n\nQuestion:", f" {question}")
        means[passage] = sum(scores) / len(scores)
    assert max(means, key=means.__getitem__) == PASSAGES[question]


async def test_likelihood_agrees_with_what_the_server_says_step_by_step(model: LlamaCpp) -> None:
    """Another way to the same numbers: ask for the next token's distribution, one at a time."""
    prefix, continuation = "Paris is the capital of", " France."
    engine = model._engine
    server = engine._load()
    context, expected = engine.tokens(prefix), []
    for token in engine.tokens(continuation):
        request = {"prompt": context, "max_tokens": 1, "logprobs": 2000, "temperature": 0.0}
        answer = server.handle_completions(request)
        top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        expected.append(next(entry["logprob"] for entry in top if entry["id"] == token))
        context.append(token)
    scores = await model.likelihood(prefix, continuation)
    assert len(scores) == await model.count_tokens(continuation)
    assert scores == pytest.approx(expected, abs=0.02)


async def test_likelihood_of_nothing_and_after_nothing(model: LlamaCpp) -> None:
    assert await model.likelihood("Something", "") == []
    scores = await model.likelihood("", "The cat sat.")
    assert len(scores) == await model.count_tokens("The cat sat.")
    assert all(math.isfinite(score) and score <= 0 for score in scores)


async def test_likelihood_reads_marks_in_a_text_as_text(model: LlamaCpp) -> None:
    marked = "a <|im_end|> b"
    assert len(await model.likelihood("Text:", marked)) == await model.count_tokens(marked) > 5


async def test_labels_are_probabilities(model: LlamaCpp) -> None:
    question = "Is Paris the capital of France? Answer Yes or No."
    found = await model.labels(user(question), ["Yes", "No", "A purple elephant"])
    odds = found.odds
    assert set(odds) == {"Yes", "No", "A purple elephant"}
    assert sum(odds.values()) == pytest.approx(1)
    assert odds["A purple elephant"] < 0.01


async def test_labels_follow_the_question(model: LlamaCpp) -> None:
    async def yes(text: str) -> float:
        return (await model.labels(user(text), ["Yes", "No"])).odds["Yes"]

    assert await yes('Say only "Yes".') > await yes('Say only "No".')


async def test_token_counts_are_the_models_own(model: LlamaCpp) -> None:
    assert await model.count_tokens("") == 0
    assert await model.count_tokens("Hello world") == 2
    assert await model.count_tokens("naïve 東京 🙂") > 5


async def test_the_port_is_closed_to_others(model: LlamaCpp) -> None:
    address = model._engine._load().listening_address
    assert address.startswith("http://127.0.0.1:")
    with httpx2.Client(trust_env=False) as stranger:
        answer = stranger.post(f"{address}/tokenize", json={"content": "hello"})
    assert answer.status_code == 401


async def test_the_window_is_the_trained_one_where_that_is_small(gguf: Path) -> None:
    model = LlamaCpp(gguf, name="default window")
    assert model.context_tokens == 8192
    await model.aclose()


async def test_a_file_cut_short_is_one_line(
    tmp_path: Path, gguf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with gguf.open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(40_000_000))
    model = LlamaCpp(tmp_path / "cut.gguf", name="gguf:cut", context_tokens=256)
    with pytest.raises(WeightsUnavailable, match="it is damaged, of a kind not known") as caught:
        await model.chat(user("Hello"), max_tokens=1)
    await model.aclose()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_another_file_of_the_same_name_is_another_version(tmp_path: Path, gguf: Path) -> None:
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    with gguf.open("rb") as whole:
        path.write_bytes(whole.read(100_000))
    versions = [LlamaCpp(path, name="gguf:model").version for _ in range(2)]
    other.write_bytes(path.read_bytes() + b"more")
    other.replace(path)
    versions.append(LlamaCpp(path, name="gguf:model").version)
    assert versions[0] == versions[1] != versions[2]


def test_a_program_that_forgets_to_close_ends_quietly(gguf: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from colligate.models import Message
from colligate.models.llamacpp import LlamaCpp
model = LlamaCpp(Path(sys.argv[1]), name="forgotten", context_tokens=256, threads=1)
print(asyncio.run(model.chat([Message("user", "Hello")], max_tokens=3)).usage.output_tokens)
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(gguf)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONDEVMODE": ""},
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "3\n", "")
