"""What prompts begin with in every run is computed once, and kept on disk."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from colligate.models import ChatRequest, Completion, Message, keep_beginning
from colligate.models.llama.libraries import pull_libraries
from colligate.models.llama.model import LlamaCpp

BEGINNING = keep_beginning(
    "You sort words. Reply with animal, plant or thing, and nothing else.",
    [("oak", "plant"), ("fox", "animal"), ("spoon", "thing")],
)


Ask = Callable[..., Awaitable[Completion]]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory; the libraries stay where they are."""
    monkeypatch.setenv("COLLIGATE_LLAMA", str(pull_libraries()))
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["llama", "lfm2"])
def ask(request: pytest.FixtureRequest, tiny_gguf: Callable[..., Path], own_home: Path) -> Ask:
    """Asks a model that was just opened, as another command would."""

    async def make(*messages: Message) -> Completion:
        model = LlamaCpp(tiny_gguf(request.param), name="tiny", context_tokens=512, threads=1)
        try:
            return await model.chat(ChatRequest(messages, max_tokens=6))
        finally:
            await model.aclose()

    return make


async def test_another_command_does_not_compute_the_beginning_again(ask, own_home):
    asked = Message("user", "heron")
    first, second = await ask(*BEGINNING, asked), await ask(*BEGINNING, asked)
    assert first.usage.cached_tokens == 0
    assert 60 < second.usage.cached_tokens < second.usage.input_tokens - 5
    assert second.text == first.text
    other = await ask(*BEGINNING, Message("user", "fern"))
    assert other.usage.cached_tokens == second.usage.cached_tokens


async def test_only_what_was_declared_is_kept(ask, own_home):
    secret = [Message("system", "You are brief."), Message("user", "The code is 4711. " * 20)]
    await ask(*secret)
    assert not (own_home / "beginnings").exists()
    await ask(*BEGINNING, *secret[1:])
    [file] = (own_home / "beginnings").iterdir()
    assert (await ask(*secret)).usage.cached_tokens == 0
    assert [file] == list((own_home / "beginnings").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"",
    ],
    ids=["cut", "another bit", "empty"],
)
async def test_a_damaged_file_is_computed_again(ask, own_home, damage):
    asked = [*BEGINNING, Message("user", "heron")]
    first = await ask(*asked)
    [file] = (own_home / "beginnings").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    again = await ask(*asked)
    assert (again.text, again.usage.cached_tokens) == (first.text, 0)
    assert file.read_bytes() == whole
