"""Answers are paid for once, leave no trace when removed, and a bad cache harms nobody."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import ColligateError, ServerFailed
from colligate.models import Capability, ChatModel, Completion, LabelOdds, Message, Usage
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.openai import OpenAIChat
from support.models import HELLO, ask


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "deep" / "responses.db")
    yield cache
    cache.close()
    cache.close()


async def test_the_same_request_is_asked_once(scripted_model, cache):
    paid = Completion("Hi.", Usage(5, 1), "scripted", thinking="hm", warnings=("once",))
    inner = scripted_model([paid])
    model = CachedChat(inner, cache)
    assert isinstance(model, ChatModel)
    assert await ask(model) == paid
    pieces: list[str] = []
    second = await ask(model, on_token=pieces.append)
    assert second == replace(paid, warnings=(), cached=True)
    assert pieces == ["Hi."]
    assert len(inner.calls) == 1


async def test_what_is_added_to_every_request_is_a_part_of_it(openai_server, policy, cache):
    for extra, asked in (({"top_k": 1}, 1), ({"top_k": 1}, 1), ({"top_k": 9}, 2), ({}, 3)):
        inner = OpenAIChat("m", openai_server.url, policy=policy, extra_body=extra)
        assert (await ask(CachedChat(inner, cache))).text == "Hello."
        assert len(openai_server.requests) == asked
        await inner.aclose()


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 8},
        {"seed": 1},
        {"temperature": 0.5, "seed": 1},
        {"schema": {"type": "object"}},
        {"messages": [Message("system", "Hello?")]},
    ],
)
async def test_any_difference_is_another_request(scripted_model, cache, change):
    model = CachedChat(scripted_model(["one", "two"]), cache)
    assert (await ask(model)).text == "one"
    assert (await ask(model, **change)).text == "two"
    assert (await ask(model, **change)).text == "two"


@pytest.mark.parametrize("difference", [{"name": "another"}, {"version": "another"}])
async def test_another_model_is_another_request(scripted_model, cache, difference):
    one, two = scripted_model(["one"]), scripted_model(["two"], difference.get("name", "scripted"))
    two.version = difference.get("version", "")
    assert (await ask(CachedChat(one, cache))).text == "one"
    assert (await ask(CachedChat(two, cache))).text == "two"
    assert CachedChat(two, cache).version == two.version


async def test_chance_is_not_kept(scripted_model, cache):
    model = CachedChat(scripted_model(["one", "two"]), cache)
    texts = [(await ask(model, temperature=0.7)).text for _ in range(2)]
    assert texts == ["one", "two"]


async def test_failures_are_not_kept(scripted_model, cache):
    model = CachedChat(scripted_model([ServerFailed("down"), "up"]), cache)
    with pytest.raises(ServerFailed):
        await ask(model)
    assert (await ask(model)).text == "up"


async def test_likelihoods_are_remembered(scripted_model, cache):
    asked: list[list[tuple[str, str]]] = []

    class Scorer(scripted_model):  # type: ignore[misc]
        async def likelihoods(self, pairs: Any) -> Any:
            asked.append(list(pairs))
            return [[-float(len(prefix)), -0.5] for prefix, _ in pairs]

    model = CachedChat(Scorer(capabilities=[Capability.LIKELIHOOD]), cache)
    assert model.capabilities == {Capability.LIKELIHOOD}
    pairs = [("aaa", "x"), ("a", "x")]
    for turn in range(2):
        scores = await model.likelihoods(pairs)
        assert (scores, scores.cached) == ([[-3.0, -0.5], [-1.0, -0.5]], turn == 1)
    assert asked == [pairs]


async def test_label_odds_and_attention_are_remembered(scripted_model, cache):
    asked: list[Any] = []

    def labels(messages: Any, labels: Any, forced: str) -> LabelOdds:
        asked.append(forced)
        return LabelOdds({label: 1 / len(labels) for label in labels}, 0.25, (labels[-1],))

    def attention(text: str, spans: Any) -> list[float]:
        asked.append(text)
        return [0.5 for _ in spans]

    model = CachedChat(scripted_model(labels=labels, attention=attention), cache)
    for turn in range(2):
        odds = await model.labels(HELLO, ["yes", "no"], forced="[")
        seen = await model.attention("some text", [(0, 4)])
        assert odds == LabelOdds({"yes": 0.5, "no": 0.5}, 0.25, ("no",), cached=turn == 1)
        assert list(odds.odds) == ["yes", "no"]
        assert (seen, seen.cached) == ([0.5], turn == 1)
    await model.labels(HELLO, ["yes", "no"])
    await model.labels(HELLO, ["no", "yes"])
    await model.attention("some text", [(0, 3)])
    assert asked == ["[", "some text", "", "", "some text"]


class Slow:
    """A reply that is given when `go` is set; `asked` is set when the first was asked for."""

    def __init__(self, scripted_model: Any) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        slow = self

        class Model(scripted_model):  # type: ignore[misc]
            async def chat(self, *args: Any, **options: Any) -> Completion:
                slow.asked.set()
                await slow.go.wait()
                return await super().chat(*args, **options)

        self.model = Model(["one", "two"])


async def test_equal_calls_at_the_same_time_are_asked_once(scripted_model, cache):
    slow = Slow(scripted_model)
    # Two roles with the same model have a `CachedChat` each.
    reader, worker = CachedChat(slow.model, cache), CachedChat(slow.model, cache)
    first = asyncio.create_task(ask(reader))
    await slow.asked.wait()
    pieces: list[str] = []
    second = asyncio.create_task(ask(worker, on_token=pieces.append))
    third = asyncio.create_task(ask(worker))
    await asyncio.sleep(0)
    slow.go.set()
    said = await asyncio.gather(first, second, third)
    assert [(it.text, it.cached) for it in said] == [("one", False), ("one", True), ("one", True)]
    assert pieces == ["one"]
    assert len(slow.model.calls) == 1


def bytes_on_disk(cache: ResponseCache) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(cache.path.parent.iterdir()))


def test_removing_a_document_leaves_none_of_its_bytes(cache):
    for number in range(400):
        # Of different lengths and interleaved, so that SQLite moves cells between pages.
        secret, plain = f"SECRET-{number} " * (number % 40 + 1), f"plain-{number} " * (number % 23)
        cache.put(f"s{number * 7919 % 400:03}", secret, ["secret-id", f"doc{number}"])
        cache.put(f"p{number * 7919 % 400:03}", plain, [f"doc{number}"])
    cache.put("untagged", "SECRET without a tag")
    assert b"SECRET" in bytes_on_disk(cache)
    assert cache.remove(["secret-id"]) == 401
    left = bytes_on_disk(cache)
    assert b"SECRET" not in left
    assert b"secret-id" not in left
    assert not cache.get("s001")
    assert cache.get("p007")


@pytest.mark.parametrize("content", [b"no database " * 100, b"SQLite format 3\0" + b"x" * 99])
async def test_a_damaged_file_is_begun_anew(scripted_model, cache, content):
    cache.path.parent.mkdir()
    cache.path.write_bytes(content)
    model = CachedChat(scripted_model(["one", "two"]), cache)
    first = await ask(model, max_tokens=1)
    assert first.text == "one"
    assert "damaged" in first.warnings[0]
    assert (await ask(model, max_tokens=2)).warnings == ()
    assert (await ask(model, max_tokens=2)).cached
    assert content not in bytes_on_disk(cache)


def test_removing_from_a_damaged_file_deletes_it(cache):
    cache.path.parent.mkdir()
    cache.path.write_bytes(b"SECRET, and no database " * 50)
    cache.remove(["any"])
    assert b"SECRET" not in bytes_on_disk(cache)


async def test_a_damaged_file_that_cannot_be_deleted(scripted_model, cache, monkeypatch):
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError("in use")

    cache.path.parent.mkdir()
    cache.path.write_bytes(b"SECRET, and no database " * 50)
    monkeypatch.setattr(Path, "unlink", refuse)
    answer = await ask(CachedChat(scripted_model(["one"]), cache))
    assert answer.text == "one"
    assert "cannot be used: in use" in answer.warnings[0]
    with pytest.raises(ColligateError, match="still holds text"):
        cache.remove(["any"])


async def test_a_place_that_cannot_be_written(scripted_model, tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    cache = ResponseCache(tmp_path / "file" / "responses.db")
    model = CachedChat(scripted_model(["one", "two"]), cache)
    first = await ask(model, max_tokens=1)
    assert first.text == "one"
    assert "cannot be used" in first.warnings[0]
    assert (await ask(model, max_tokens=1)).warnings == ()


def test_a_file_that_was_locked_at_first_is_used_later(tmp_path):
    cache = ResponseCache(tmp_path / "responses.db", wait=0)
    with sqlite3.connect(cache.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        cache.put("k", "v")
        assert "locked" in cache.warnings[0]
        other.execute("ROLLBACK")
    other.close()
    cache.put("k", "v")
    assert cache.get("k") == "v"
    cache.close()


WRITER = """
import sys
from pathlib import Path
from colligate.models.cache import ResponseCache
cache = ResponseCache(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(50):
    cache.put(f"{sys.argv[2]}-{number}", number + 1, ["d"])
    assert cache.get(f"{sys.argv[2]}-{number}")
assert cache.warnings == [], cache.warnings
cache.close()
"""


def test_several_processes_at_once(cache):
    command = [sys.executable, "-c", WRITER, str(cache.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, str(number)], **pipes) for number in range(3)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # all open the new file at the same moment
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    keys = [f"{writer}-{number}" for writer in range(3) for number in range(50)]
    assert [cache.get(key) for key in keys] == [*range(1, 51)] * 3
