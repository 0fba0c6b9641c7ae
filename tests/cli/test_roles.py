"""Models by role on the command line: flags, environment, `colligate.toml`, doctor."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.plugins import installed

QUESTION = "When was the tower built?"


@pytest.fixture
def file(here: Path) -> Callable[..., Path]:
    """`file(reader=..., ...)` writes `colligate.toml` into the working folder."""

    def write(**models: str) -> Path:
        lines = [f"{role} = {json.dumps(name)}" for role, name in models.items()]
        (here / "colligate.toml").write_text("\n".join(["[models]", *lines, ""]))
        return here / "colligate.toml"

    return write


def _models(server: Any) -> set[str]:
    return {r["model"] for r in server.requests if r["path"] == "/chat/completions"}


def test_flag_then_environment_then_file(colligate, tower_reader, folder, file):
    url = tower_reader.url
    file(reader=f"openai:file@{url}", embedder="static")
    done = colligate.here("ask", QUESTION, folder)
    assert done.returncode == 0, done.stderr
    assert _models(tower_reader) == {"file"}
    assert f"model: openai:file@{url} (colligate.toml)" in done.stderr
    assert "embedder: static (colligate.toml)" in done.stderr
    colligate.environment["COLLIGATE_MODEL"] = f"openai:variable@{url}"
    assert colligate.here("ask", QUESTION, folder).returncode == 0
    assert _models(tower_reader) == {"file", "variable"}
    done = colligate.here("ask", QUESTION, folder, "--model", f"openai:flag@{url}")
    assert done.returncode == 0
    assert _models(tower_reader) == {"file", "variable", "flag"}
    assert "model: " not in done.stderr


def test_a_wrong_file_is_wrong_usage(colligate, here, file):
    file(raeder="bundled")
    for command in (["ask", "Who?"], ["library", "list"], ["index", "."]):
        done = colligate.here(*command)
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert "colligate.toml: models.raeder: unknown key" in line
        assert "did you mean models.reader?" in line
        done = colligate.here(*command, "--config", here / "none.toml")
        assert done.returncode == 2
        assert "none.toml: No such file" in done.stderr


_SCORING = """
    from dataclasses import dataclass
    from typing import ClassVar

    from colligate.core.strategy import Needs
    from colligate.models import Capability


    @dataclass(frozen=True)
    class Scoring:
        \"\"\"Scores what it reads.\"\"\"

        name: ClassVar[str] = "scoring"
        needs: ClassVar[Needs] = Needs(
            frozenset({Capability.CHAT, Capability.LIKELIHOOD}),
            frozenset({Capability.LABELS, Capability.ATTENTION}),
        )

        async def answer(self, question, run):
            raise AssertionError
"""


@pytest.fixture
def able(tmp_path: Path) -> Iterator[None]:
    """A strategy that needs a scorer, of another package."""
    with installed(tmp_path / "able", _SCORING, {"strategies": {"scoring": "toy:Scoring"}}):
        yield


def test_tables_fit_eighty_columns(colligate, openai_server):
    status, screen = colligate.in_terminal("strategies", width=80)
    assert status == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).splitlines()
    assert max(map(len, lines)) <= 80
    named = ["--model", f"openai:m@{openai_server.url}"]
    _, screen = colligate.in_terminal("doctor", *named, "--embedder", "static", width=80)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).splitlines()
    assert max(map(len, lines)) <= 80
    assert {line[:10].strip() for line in lines} <= {"ok", "missing", "optional", ""}


def _doctor(colligate: Any, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    done = colligate.here("doctor", "--embedder", "static", "--json", *arguments)
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)
    assert said["works"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in said["checks"]}


@pytest.mark.model
def test_doctor_checks_every_role_and_holds_each_strategy_to_it(colligate, openai_server, able):
    openai_server.logprobs = {"yes": 0.9, "no": 0.1}
    url = openai_server.url
    status, checks = _doctor(
        colligate, "--model", f"openai:m@{url}", "--worker-model", f"openai:m@{url}",
        "--scorer", "gguf:smollm2-135m", "--judge", f"openai:j@{url}",
    )  # fmt: skip
    assert status == 0, checks
    assert checks["model"]["found"] == f"openai:m@{url} (--model)"
    assert "chat, structured, labels" in checks["model answers"]["found"]
    assert "which is the model above" in checks["worker"]["found"]
    assert checks["scorer weights"]["ok"]
    assert "likelihood, labels, attention" in checks["scorer answers"]["found"]
    assert checks["judge answers"]["ok"]
    assert checks["strategy retrieve-read"]["found"] == "runs"
    assert checks["strategy scoring"]["found"] == "runs"
    status, checks = _doctor(colligate, "--model", f"openai:m@{url}")
    assert status == 0
    found = checks["strategy scoring"]["found"]
    assert found.startswith("cannot run: the reader openai:m@")
    assert found.endswith("does not offer likelihood")
    assert checks["strategy scoring"]["needed"] is False
    openai_server.tokenizer, openai_server.likelihood = "vllm", "prompt_logprobs"
    _, checks = _doctor(colligate, "--model", f"openai:m@{url}")
    assert checks["strategy scoring"]["found"] == "runs without attention"


def test_a_scorer_that_does_not_answer_is_not_in_the_way_of_ask(colligate, openai_server, able):
    named = ["--model", f"openai:m@{openai_server.url}"]
    status, checks = _doctor(colligate, *named, "--scorer", "openai:s@http://127.0.0.1:9/v1")
    assert status == 0
    assert (checks["scorer answers"]["ok"], checks["scorer answers"]["needed"]) == (False, False)
    assert "nobody answers" in checks["strategy scoring"]["found"]
    status, checks = _doctor(colligate, *named, "--scorer", "gguf:none.gguf")
    assert status == 1, "ask would stop at this name"
    assert checks["scorer answers"]["needed"] is True
    assert checks["other strategies"]["ok"] is False


def test_a_server_that_does_not_say_what_it_has(colligate, here):
    colligate.environment["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    status, checks = _doctor(colligate)
    assert (status, checks["model"]["ok"]) == (1, False)
    assert "OPENAI_MODEL" in checks["model"]["hint"]


def test_doctor_says_which_file_it_found_and_if_it_is_trusted(colligate, openai_server, file, here):
    status, checks = _doctor(colligate, "--model", f"openai:m@{openai_server.url}")
    assert checks["settings"]["found"].startswith("no colligate.toml here or in ")
    written = file(reader=f"openai:m@{openai_server.url}")
    status, checks = _doctor(colligate)
    assert "no key is sent to addresses that only it names" in checks["settings"]["found"]
    assert checks["model"]["found"].endswith("(colligate.toml)")
    assert status == 0
    status, checks = _doctor(colligate, "--config", written)
    assert status == 0
    assert checks["settings"]["found"] == f"{written}, trusted"
    written.write_text("[models]\nreader = 3\n")
    status, checks = _doctor(colligate)
    assert (status, checks["settings"]["ok"]) == (1, False)
    assert "models.reader" in checks["settings"]["found"]


def test_doctor_finds_what_works(colligate, openai_server, folder):
    named = ["--model", f"openai:m@{openai_server.url}"]
    status, checks = _doctor(colligate, *named)
    assert status == 0, checks
    assert all(check["ok"] for check in checks.values() if check["needed"])
    assert "qwen3-8b (5.0 GB, " in checks["local models"]["found"]
    assert not colligate.library.exists(), "looking makes no library"
    done = colligate.here("doctor", "--embedder", "static", *named)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(checks)
    status, checks = _doctor(colligate, *named, "--library", str(folder))  # it is none
    assert (status, checks["library"]["ok"]) == (1, False)


def test_doctor_says_how_to_fix_it(colligate, openai_server, tmp_path):
    status, checks = _doctor(colligate, "--model", "openai:m@http://127.0.0.1:9/v1")
    assert status == 1
    assert checks["model answers"]["ok"] is False
    openai_server.key = "right"
    status, checks = _doctor(colligate, "--model", f"openai:m@{openai_server.url}")
    assert (status, checks["model answers"]["ok"]) == (1, False)
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    _, checks = _doctor(colligate, "--model", "gguf:Owner/Model-GGUF")  # looking fetches nothing
    assert "gguf:Owner/Model-GGUF cannot run yet" in checks["other strategies"]["found"]
    assert "colligate models pull Owner/Model-GGUF" in checks["model weights"]["hint"]
    status, checks = _doctor(colligate)
    assert status == 1
    assert "bundled" in checks["model"]["found"]
    assert "strategy spd-rag" not in checks, "one line says it of all"
    assert "bundled cannot run yet" in checks["other strategies"]["found"]
    assert "the first question fetches it" in checks["model weights"]["hint"]
    assert "colligate models pull qwen2.5-coder-1.5b" in checks["model weights"]["hint"]
    assert "colligate models pull wordllama-256" in checks["embedder"]["hint"]


def test_doctor_describes_llama_cpp(colligate, openai_server, tmp_path):
    named = ["--model", f"openai:m@{openai_server.url}"]
    _, checks = _doctor(colligate, *named)
    assert "on CPU" in checks["llama.cpp"]["found"]
    colligate.environment["COLLIGATE_LLAMA"] = str(tmp_path)
    status, checks = _doctor(colligate, *named)
    assert (checks["llama.cpp"]["ok"], checks["llama.cpp"]["needed"]) == (False, False)
    assert "holds no libggml-base" in checks["llama.cpp"]["found"]
    status, checks = _doctor(colligate, "--model", "gguf:smollm2-135m")
    assert (status, checks["llama.cpp"]["needed"]) == (1, True)
    assert "COLLIGATE_LLAMA" in checks["model answers"]["found"]
    del colligate.environment["COLLIGATE_LLAMA"]
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    _, checks = _doctor(colligate, *named)
    assert checks["llama.cpp"]["hint"].endswith("now: colligate models pull llama.cpp")
