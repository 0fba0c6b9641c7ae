"""Fixtures for every test: a real server that speaks OpenAI's protocol, and a scripted model."""

import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from filelock import FileLock
from hypothesis import settings

from colligate.concurrency import wait_without_spinning
from colligate.models.openai_http import Policy
from colligate.models.weights import home, pull
from colligate.testing import ScriptedModel
from support.parsers import left_to_the_next
from support.runs import ask, documents, make_run, minilm, reply  # noqa: F401
from support.server import OpenAIServer

wait_without_spinning()  # tests may load torch before colligate does

# Each process of a run has a core of its own, if the system lets it choose: models that compute
# with the threads of all cores at once wait for each other most of the time.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

# A loaded machine is slow: no test depends on the time that it takes.
settings.register_profile("colligate", deadline=None, max_examples=50)
settings.load_profile("colligate")

# A shell starts background jobs with interrupts ignored, and their children inherit that: the
# commands under test must be interruptible however the tests were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SETTINGS = (
    "OPENAI_API_KEY OPENAI_BASE_URL OPENAI_MODEL OPENAI_ORG_ID OPENAI_PROJECT_ID OLLAMA_HOST"
    " COLLIGATE_MODEL COLLIGATE_WORKER_MODEL COLLIGATE_SCORER COLLIGATE_JUDGE COLLIGATE_EMBEDDER"
    " COLLIGATE_RERANKER COLLIGATE_CONFIG COLLIGATE_RERANKER_KEY"
    " COLLIGATE_TELEMETRY"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy"
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs more of the system than this one has."""
    for mark, met in (("posix", os.name == "posix"), ("linux", sys.platform == "linux")):
        if not met and item.get_closest_marker(mark):
            pytest.skip(f"it needs {mark}")


@pytest.fixture(scope="session")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of colligate with the weights and libraries of this machine, and nothing else."""
    made = tmp_path_factory.mktemp("home")
    for name in ("models", "llama"):
        (home() / name).mkdir(parents=True, exist_ok=True)
        (made / name).symlink_to(home() / name, target_is_directory=True)
    return made


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    """Tests see neither the keys nor the proxies of the person who runs them, nor what colligate
    learned on this machine."""
    for name in _SETTINGS.split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLLIGATE_HOME", str(own_home))


@pytest.fixture(scope="session", autouse=True)
def parsers() -> Iterator[None]:
    """Files are read by processes that were started for earlier tests, where there are some."""
    with left_to_the_next():
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder; the user's configuration and library are elsewhere, and empty."""
    made = tmp_path / "here"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("COLLIGATE_LIBRARY", str(tmp_path / "library"))
    return made


@pytest.fixture(scope="session")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct in float32 as a folder, one for all processes of a run.

    Transformers takes half a minute to read the pinned GGUF file, each time. It reads its fields
    thrice and names its tensors anew at each layer; here once.
    """
    import gguf

    from colligate.models.hf.loading import find_source, load_model, load_tokenizer

    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, part = shared / "smollm2", shared / "smollm2.part"
    once = {name: cache(getattr(gguf, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    with FileLock(shared / "smollm2.lock"), mock.patch.multiple(gguf, **once):
        if not folder.exists():
            source = find_source(str(pull("smollm2-135m")["model"]))
            model = load_model(source, dtype="float32")
            model.hf_quantizer.remove_quantization_config(model)
            model.save_pretrained(part)
            load_tokenizer(source).save_pretrained(part)
            part.rename(folder)
    return folder


@pytest.fixture
def scripted_model() -> type[ScriptedModel]:
    """`scripted_model(replies)` is a ChatModel with these replies (for control flow only)."""
    return ScriptedModel


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that calls wait between attempts; they are noted here and not waited."""
    noted: list[float] = []

    async def note(seconds: float) -> None:
        noted.append(seconds)

    monkeypatch.setattr("anyio.sleep", note)  # what the openai client waits with
    return noted


@pytest.fixture
def policy(waits: list[float]) -> Policy:
    """Two retries without waiting."""
    return Policy(max_retries=2, timeout=20)


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    """A real HTTP server on the loopback interface that speaks OpenAI's protocol."""
    server = OpenAIServer()
    try:
        yield server
    finally:
        server.close()
