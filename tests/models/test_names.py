"""A model name says which backend; a wrong one says what was probably meant."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from colligate.core.events import Trace
from colligate.errors import ModelError, NotAuthorised, UnknownModel, UsageError
from colligate.models import Message, Role
from colligate.models.names import (
    OPENAI_DEFAULT,
    default_model,
    find_option_problem,
    may_send_key,
    ollama_url,
    open_embedder,
    open_model,
    open_reranker,
    options_of,
)
from colligate.models.rerankers import HTTPReranker
from colligate.session import Session
from colligate.settings import Settings
from support.models import ask
from support.plugins import installed


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("openai:gpt-x", "openai:gpt-x"),
        ("openai/gpt-x", "openai:gpt-x"),
        ("openai:m@http://host:8000/v1", "openai:m@http://host:8000/v1"),
        ("openai:org/m:8b@https://host/v1/", "openai:org/m:8b@https://host/v1"),
        ("openai:m@2026@http://host/v1", "openai:m@2026@http://host/v1"),
        ("ollama/llama3:8b", "openai:llama3:8b@http://localhost:11434/v1"),
        ("ollama:llama3:8b", "openai:llama3:8b@http://localhost:11434/v1"),
    ],
)
def test_remote_names(monkeypatch, name, opened):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert open_model(name).name == opened
    assert open_embedder(name).name == opened


async def test_ollama_is_not_sent_the_openai_key(openai_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OLLAMA_HOST", openai_server.url)
    model = open_model("ollama/m")
    await ask(model, [], max_tokens=1)
    await model.aclose()
    assert "secret" not in openai_server.requests[0]["headers"]["authorization"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://localhost:11434/v1"),
        ("0.0.0.0", "http://localhost:11434/v1"),
        ("box:99", "http://box:99/v1"),
        ("box", "http://box:11434/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("https://box:99/", "https://box:99/v1"),
        ("https://ollama.example.com", "https://ollama.example.com/v1"),
        ("http://box:99/v1", "http://box:99/v1"),
    ],
)
def test_ollama_host(monkeypatch, host, url):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert ollama_url() == url


@pytest.mark.parametrize("name", ["", "openai:", "gguf:", "a:b", "o", "gpt-4o"])
def test_unknown_models_get_the_list(name):
    with pytest.raises(UnknownModel, match=r"proxy.*bundled.*gguf:PATH.*openai:MODEL") as caught:
        open_model(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("open_it", "name", "form"),
    [
        (open_model, "Qwen/Qwen3-8B", "hf:NAME-OR-PATH"),
        (open_model, "http://box:8000/v1", "openai:MODEL[@BASE_URL]"),
        (open_embedder, "minilml", "minilm"),
        (open_reranker, "cross-encode:x", "cross-encoder:NAME"),
    ],
)
def test_wrong_names_get_the_forms(open_it, name, form):
    with pytest.raises(UnknownModel, match=f"names are .*{re.escape(form)}"):
        open_it(name)


def test_weights_of_no_chat_model_are_not_pulled(monkeypatch):
    monkeypatch.setattr("colligate.models.names.pull", lambda *_: pytest.fail("pulled"))
    with pytest.raises(UnknownModel, match="no pinned chat model"):
        open_model("gguf:minilm-l6-v2-int8")


async def test_options_of_the_body_and_the_key_reach_an_endpoint(openai_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another")
    monkeypatch.setenv("CLAUDE_KEY", "sk-of-this-one")
    options = {"thinking": "low", "extra_body": {"top_k": 5}, "key_variable": "CLAUDE_KEY"}
    model = open_model(f"openai:m@{openai_server.url}", options=options)
    await ask(model)
    sent = openai_server.requests[-1]
    assert (sent["reasoning_effort"], sent["top_k"]) == ("low", 5)
    assert sent["headers"]["authorization"] == "Bearer sk-of-this-one"
    openai_server.key = "sk-new"
    with pytest.raises(NotAuthorised, match="check CLAUDE_KEY"):
        await ask(model)
    await model.aclose()
    bare = open_model(f"openai:m@{openai_server.url}", options=options, with_key=False)
    with pytest.raises(NotAuthorised):
        await ask(bare)
    await bare.aclose()
    assert "sk-of" not in openai_server.requests[-1]["headers"]["authorization"]


async def test_options_reach_an_endpoint(openai_server):
    name = f"openai:m@{openai_server.url}"
    model = open_model(name, options={"in_flight": 2, "context_tokens": 99, "timeout": 20})
    assert model.context_tokens == 99
    await asyncio.gather(*(ask(model, [Message("user", "?")], max_tokens=1) for _ in range(8)))
    await model.aclose()
    assert 1 <= openai_server.in_flight_most <= 2


ENV = """# of another program
OPENAI_BASE_URL=https://evil.example/v1
export OPENAI_API_KEY = 'sk-of-the-file'  # a comment
OPENAI_MODEL=x
"""


@pytest.mark.parametrize(
    ("own", "with_key", "sent"),
    [(None, True, "sk-of-the-file"), ("sk-own", True, "sk-own"), (None, False, None)],
)
async def test_env_files_only_give_keys(here, openai_server, monkeypatch, own, with_key, sent):
    (here / ".env").write_text(ENV)
    if own:
        monkeypatch.setenv("OPENAI_API_KEY", own)
    else:
        assert default_model()[0] == "bundled", "the documents are not sent to OpenAI for it"
    model = open_model(f"openai:m@{openai_server.url}", with_key=with_key)
    await ask(model)
    await model.aclose()
    authorization = openai_server.requests[-1]["headers"]["authorization"]
    assert authorization == f"Bearer {sent}" if sent else "sk" not in authorization


async def test_a_key_is_kept_back_when_told(openai_server, monkeypatch):
    for variable in ("OPENAI_API_KEY", "COLLIGATE_RERANKER_KEY"):
        monkeypatch.setenv(variable, "secret")
    monkeypatch.setenv("OPENAI_ORG_ID", "secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: secret\nauthorization: secret")
    name = f"openai:m@{openai_server.url}"
    for with_key in (False, True):
        model = open_model(name, with_key=with_key)
        await ask(model, [Message("user", "?")], max_tokens=1)
        await model.aclose()
        embedder = open_embedder(name, with_key=with_key)
        await embedder.embed(["text"])
        await embedder.aclose()
        reranker = open_reranker(f"http:r@{openai_server.url}", with_key=with_key)
        await reranker.score("question", ["text"])
        await reranker.aclose()
    sent = ["secret" in str(request["headers"]) for request in openai_server.requests]
    assert sent == [False] * 3 + [True] * 3
    assert openai_server.requests[0]["headers"]["authorization"] == "Bearer none-needed"


def test_rerankers():
    http = open_reranker("http:rank-m@https://host/v1/rerank")
    assert isinstance(http, HTTPReranker)
    assert http.name == "http:rank-m@https://host/v1"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"OPENAI_API_KEY": "k"}, f"openai:{OPENAI_DEFAULT}"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, "openai:m"),
        ({"OPENAI_BASE_URL": "http://h/v1", "OPENAI_MODEL": "m"}, "openai:m@http://h/v1"),
        ({"OPENAI_BASE_URL": "http://me:secret@h/v1", "OPENAI_MODEL": "m"}, "openai:m"),
    ],
)
def test_default_from_settings(monkeypatch, settings, name):
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    assert default_model()[0] == name


def test_a_server_of_ones_own_needs_the_name_of_a_model(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:secret@box:8000/v1")
    with pytest.raises(ModelError, match="OPENAI_MODEL") as caught:
        default_model()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:8000/v1", "localhost", "gpu:8000", "10.0.0.7:8/v1"])
def test_an_address_without_scheme_is_not_sent_to_openai(monkeypatch, address):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with pytest.raises(UnknownModel, match="http://"):
        open_model(f"openai:some-model@{address}")


TOY = """
from colligate.testing import ScriptedModel


class Toy(ScriptedModel):
    pass


def open_toy(name: str, *, window: int = 64, temper: str = "calm", with_key: bool = True):
    assert name != "broken", "toys break"
    model = Toy(lambda _: f"{temper}, key: {with_key}", f"toy:{name}", context_tokens=window)
    return model
"""


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    """A package installed beside colligate, which registers the backends `toy` and `lost`."""
    entries = {"toy": "toy:open_toy", "lost": "toy:nothing", "openai": "toy:open_toy"}
    with installed(tmp_path, TOY, {"models": entries}):
        yield


@pytest.mark.usefixtures("toy")
async def test_another_package_adds_a_backend():
    model = open_model("toy:bear", options={"window": 99, "temper": "cross"}, with_key=False)
    assert (model.name, model.context_tokens) == ("toy:bear", 99)
    assert (await ask(model)).text == "cross, key: False"
    assert open_model("openai:m@http://h/v1").name == "openai:m@http://h/v1"  # not taken over
    with pytest.raises(UnknownModel, match=r"names are .*toy:NAME"):
        open_model("nothing-like-it")


@pytest.mark.usefixtures("toy")
async def test_settings_know_the_options_of_a_plug_in(tmp_path):
    file = tmp_path / "colligate.toml"
    file.write_text('[models]\nreader = "toy:bear"\n[options."toy:bear"]\nwindow = 5\n', "utf-8")
    async with Session(settings=Settings.load(file)) as session:
        models = await session.open_models(Trace())
    assert models[Role.READER].context_tokens == 5
    assert options_of("toy") == {"window": int, "temper": str}
    assert find_option_problem("toy:bear", "windo", 5) is not None
    assert find_option_problem("toy:bear", "window", -5) is not None
    assert options_of("nothing") is None


@pytest.mark.usefixtures("toy")
def test_the_key_is_kept_from_a_plug_ins_address():
    assert may_send_key("toy:bear")
    assert not may_send_key("toy:bear@http://elsewhere/v1")


@pytest.mark.usefixtures("toy")
def test_a_plug_in_that_cannot_be_loaded():
    with pytest.raises(UsageError, match=r"cannot load 'lost'.*nothing.*reinstall"):
        open_model("lost:bear")
