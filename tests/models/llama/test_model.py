"""llama.cpp in process, with the real SmolLM2-135M."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel

from colligate.errors import ModelError, WeightsUnavailable
from colligate.models import Message
from colligate.models.llama.libraries import VERSION, find_library_file, pull_libraries
from colligate.models.llama.model import LlamaCpp
from colligate.models.structured import json_schema_of
from colligate.models.weights import pull
from support.models import ask, likelihood

Open = Callable[..., LlamaCpp]
real = pytest.mark.model


@pytest.fixture
def model(smollm2_llama: LlamaCpp) -> LlamaCpp:
    return smollm2_llama


def user(text: str) -> list[Message]:
    # The model's own system prompt, which its template puts in where none is given, confuses it.
    return [Message("system", "You answer questions."), Message("user", text)]


async def test_it_answers(model):
    answer = await ask(model, user("What is the capital of France?"), max_tokens=40)
    assert "Paris" in answer.text
    assert answer.model == "gguf:smollm2-135m"
    assert answer.finish_reason == "stop"
    assert 10 < answer.usage.input_tokens < 60
    assert 0 < answer.usage.output_tokens <= 40
    assert not answer.usage.estimated


class Meaning(BaseModel):
    found: bool
    answer: str = Field(max_length=40)


class Cited(BaseModel):
    text: str = Field(max_length=30)
    passages: list[Annotated[int, Field(ge=1, le=8)]] = Field(min_length=1, max_length=2)


class Claims(BaseModel):
    statements: list[Cited] = Field(min_length=1, max_length=2)


class Relevance(RootModel[Literal["relevant", "irrelevant"]]):
    pass


class Letters(RootModel[list[Literal["a", "b", "c"]]]):
    root: list[Literal["a", "b", "c"]] = Field(min_length=2, max_length=2)


@pytest.mark.parametrize("schema", [Meaning, Claims, Relevance, Letters])
async def test_the_output_satisfies_the_schema(model, schema):
    # The question asks for something else: the decoding is constrained, not the model willing.
    question = user("Write a poem about the sea.")
    answer = await ask(model, question, max_tokens=300, schema=json_schema_of(schema))
    assert answer.finish_reason == "stop"
    schema.model_validate_json(answer.text)


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
async def test_likelihood_ranks_the_right_passage_first(model, question):
    means = {}
    for passage in PASSAGES.values():
        scores = await likelihood(model, f"{passage}\n\nQuestion:", f" {question}")
        means[passage] = sum(scores) / len(scores)
    assert max(means, key=means.__getitem__) == PASSAGES[question]


async def test_labels_follow_the_question(model):
    async def yes(text: str) -> float:
        return (await model.labels(user(text), ["Yes", "No"])).odds["Yes"]

    assert await yes('Say only "Yes".') > await yes('Say only "No".')


async def test_spans_of_tokens(model):
    text = "Hello  world \u6771."
    spans = await model.token_spans(text)
    assert [text[start:end] for start, end in spans[:3]] == ["Hello", " ", " world"]
    assert [text[start:end] for start, end in spans[3:]] == [" \u6771", "\u6771", "\u6771", "."]
    assert await model.token_spans("") == []


ODD = (
    "\U0001f642 \U0001f937\U0001f3fd\u200d\u2640\ufe0f e\u0301 \0 \r\n \ud83d \udcff \u2581 \ufffd"
    " <|im_end|> <s> </s> \u6771\u4eac \u0e01\u0e33 \u00a0 \u3000 \t \x1b \ufeff \u202e word"
).split(" ")


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*ODD, " ", "  "]) | st.characters(exclude_categories=())))
@example(["\x06", " "])  # a letter that the vocabulary does not have, before one that it has
def test_spans_of_tokens_of_odd_texts(smollm2_llama, parts):
    model = smollm2_llama
    text = "".join(parts)
    spans = asyncio.run(model.token_spans(text))
    assert len(spans) == asyncio.run(model.count_tokens(text))
    begins, ends = [start for start, _ in spans], [end for _, end in spans]
    assert begins == sorted(begins)
    assert ends == sorted(ends)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    covered = {index for start, end in spans for index in range(start, end)}
    for index in set(range(len(text))) - covered:
        letter = text[index]
        # This vocabulary lacks some control characters.
        assert letter.isspace() or asyncio.run(model.count_tokens(letter)) == 0


# Closing, forking, damaged files


async def begin_story(model: LlamaCpp, pieces: list[str]) -> asyncio.Task[Any]:
    begun = asyncio.Event()

    def note(piece: str) -> None:
        pieces.append(piece)
        begun.set()

    story = asyncio.create_task(ask(model, max_tokens=400, on_token=note))
    await begun.wait()
    return story


async def test_a_call_cancelled_before_its_turn_never_runs(open_model: Open):
    model = open_model(parallel=1)
    heard: list[str] = []
    story = await begin_story(model, [])
    waiting = asyncio.create_task(ask(model, on_token=heard.append))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await story).usage.output_tokens == 400
    assert not heard


async def test_two_models_compute_at_the_same_time(
    open_model: Open, tiny_gguf: Callable[..., Path]
):
    files = [tiny_gguf("llama", endless=True), tiny_gguf("qwen3")]
    alone = [await ask(open_model(file), max_tokens=60) for file in files]
    together = await asyncio.gather(
        *(ask(open_model(file), max_tokens=60) for file in files for _ in range(2))
    )
    assert [each.text for each in together] == [alone[0].text] * 2 + [alone[1].text] * 2
    assert alone[0].text != alone[1].text


PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from colligate.errors import ModelError
from colligate.models import ChatRequest, Message
from colligate.models.llama.model import LlamaCpp
model = LlamaCpp(Path(sys.argv[1]), name="tiny", context_tokens=256, threads=1)
request = ChatRequest([Message("user", "Hello")], max_tokens=3)
ask = lambda: asyncio.run(model.chat(request))
print(ask().usage.output_tokens, flush=True)
"""
FORK = """
child = os.fork()
if not child:
    try:
        ask()
    except ModelError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(ask().usage.output_tokens, "again")
"""


def run(program: str, file: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | settings,
        check=False,
    )


def test_a_program_that_forgets_to_close_ends_quietly(tiny_gguf):
    ended = run(PROGRAM, tiny_gguf("llama", endless=True))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


def test_a_forked_process_is_told_and_its_parent_goes_on(tiny_gguf):
    ended = run(PROGRAM + FORK, tiny_gguf("llama", endless=True))
    first, child, last = ended.stdout.splitlines()
    assert (ended.returncode, first, last, ended.stderr) == (0, "3", "3 again", "")
    assert "tiny" in child
    assert "forked" in child


def test_libraries_of_another_version_are_one_line(tiny_gguf, tmp_path):
    folder = shutil.copytree(pull_libraries(), tmp_path / "own")
    library = find_library_file(folder, "llama")
    assert library is not None
    version = VERSION.removeprefix("v").encode() + b"-"
    assert version in library.read_bytes()
    library.write_bytes(library.read_bytes().replace(version, b"0.4.9-"))
    ended = run(PROGRAM, tiny_gguf("llama", endless=True), COLLIGATE_LLAMA=str(folder))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "it is version 0.4.9" in last
    assert f"name a folder with version {VERSION} in COLLIGATE_LLAMA" in last


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
async def test_a_file_cut_short_is_one_line(tmp_path, tiny_gguf, open_model, capfd, share):
    data = tiny_gguf("llama").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"cut\.gguf") as caught:
        await ask(open_model(tmp_path / "cut.gguf"), max_tokens=1)
    assert isinstance(caught.value, WeightsUnavailable)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_another_file_of_the_same_name_is_another_version(tmp_path, tiny_gguf):
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    path.write_bytes(tiny_gguf("llama").read_bytes())
    versions = [LlamaCpp(path, name="gguf:model").version for _ in range(2)]
    other.write_bytes(path.read_bytes() + b"more")
    other.replace(path)
    versions.append(LlamaCpp(path, name="gguf:model").version)
    assert versions[0] == versions[1] != versions[2]


@real
def test_the_window_is_the_trained_one_where_that_is_small():
    assert LlamaCpp(pull("smollm2-135m")["model"], name="m").context_tokens == 8192
