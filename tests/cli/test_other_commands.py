"""Help, tree, strategies, models, doctor."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import colligate as package
from colligate.cli.app import COMMANDS, load_command

LICENCES = Path(__file__).parents[2] / "examples" / "licences"
HEAVY = {"torch", "numpy", "onnxruntime", "llguidance", "mmh3", "html_to_markdown", "openai",
         "colligate.engine", "colligate.documents"}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["ask", "--help"],
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        f"sys.argv = ['colligate', *{arguments!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from colligate.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    loaded = done.stderr.split()
    assert HEAVY.isdisjoint(loaded)
    assert not [each for each in loaded if each.startswith(("colligate.lab", "colligate.scale"))]


def test_a_question_is_answered_without_the_lab_and_the_cluster(
    colligate: Any, openai_server: Any, tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from colligate.cli import main\n"
        f"main(['ask', 'Who may use it?', {str(LICENCES / 'BSD-3-Clause.txt')!r}, '--model',"
        f" 'openai:x@{openai_server.url}', '--embedder', 'static'])\n"
        "print([m for m in sys.modules if m.startswith(('colligate.lab', 'colligate.scale'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=colligate.environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_names_models_as_they_are_written(colligate: Any) -> None:
    assert "openai:MODEL[@URL]" in " ".join(colligate.here("ask", "--help").stdout.split())


@pytest.mark.parametrize(("name", "line"), COMMANDS.items())
def test_the_list_of_commands_has_the_first_line_of_each(name: str, line: str) -> None:
    assert load_command(name).help.splitlines()[0] == line


def test_no_command_is_wrong_usage(colligate: Any) -> None:
    done = colligate.here()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage:" in done.stderr
    assert colligate.here("librarry").returncode == 2
    done = colligate.here("--version")
    assert (done.returncode, done.stdout) == (0, f"colligate {package.__version__}\n")


def test_tree_shows_headings_and_how_sure_they_are(colligate: Any, folder: Path) -> None:
    done = colligate.here("tree", folder / "tower.md")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "100% sure, from markup" in done.stdout
    assert [line for line in lines if "Building" in line and "1 paragraph" in line]
    assert colligate.here("tree", folder / "none.md").returncode == 2


def test_tree_json_nests(colligate: Any) -> None:
    done = colligate.here("tree", LICENCES / "MPL-2.0.txt", "--json")
    assert done.returncode == 0, done.stderr
    [document] = json.loads(done.stdout)["documents"]
    assert 0 <= document["structure"]["confidence"] <= 1
    nodes = document["nodes"]
    assert nodes[0]["kind"] == "root"
    assert (nodes[0]["start"], nodes[0]["end"]) == (0, document["characters"])
    for node in nodes[1:]:
        parent = nodes[node["parent"]]
        assert node["id"] in parent["children"]
        assert parent["start"] <= node["start"] <= node["end"] <= parent["end"]
    assert [n for n in nodes if "Termination" in n["title"]]


def test_strategies(colligate: Any, openai_server: Any) -> None:
    named = ["--model", f"openai:m@{openai_server.url}"]
    rows = json.loads(colligate.here("strategies", "--json", *named).stdout)
    runs = {row["name"]: row["runs"] for row in rows}
    assert {name for name, ran in runs.items() if ran} >= {
        "direct",
        "full-context",
        "retrieve-read",
    }
    assert all(row["description"] and "chat" in row["required"] for row in rows)
    shown = colligate.here("strategies", *named).stdout
    assert "retrieve-read" in shown
    assert openai_server.requests == [], "listing asks no server"
    parameters = {
        row["name"]: {each["name"]: (each["type"], each["default"]) for each in row["parameters"]}
        for row in rows
    }
    assert parameters["retrieve-read"]["pool"] == ("int", 50)
    assert parameters["longrefiner"]["budget"] == ("int", 2048)


def test_one_strategy_with_its_parameters(colligate: Any, openai_server: Any) -> None:
    named = ["--model", f"openai:m@{openai_server.url}"]
    shown = colligate.here("strategies", "rdr2", *named).stdout
    assert "needs (optional): chat: reader" in shown
    lines = [line.split()[:4] for line in shown.splitlines()]
    assert ["parameter", "values", "default", "paper"] in lines
    for parameter in (
        ["k", "int", "5", "5"],
        ["mode", "dense|sparse|hybrid", "hybrid", "dense"],
        ["no_expand", "bool", "false", "false"],
        ["router_adapter", "str|none", "none", "none"],
    ):
        assert parameter in lines
    assert "Attributes" not in shown
    assert "retrieve-read" not in shown
    row = json.loads(colligate.here("strategies", "rdr2", "--json", *named).stdout)
    assert (row["name"], row["parameters"][0]["name"]) == ("rdr2", "k")
    mode = next(each for each in row["parameters"] if each["name"] == "mode")
    assert (mode["default"], mode["paper"]) == ("hybrid", "dense")
    assert row["parameters"][0]["description"].startswith("passages of the search")
    shown = colligate.here("strategies", "full-context", *named).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["form", "short|list|long|joined", "short"] in [line[:3] for line in lines]
    assert "paper" not in shown.partition("parameter")[2].splitlines()[0], "it has no preset"
    done = colligate.here("strategies", "rdr3", *named)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'rdr2'?" in done.stderr


def test_strategies_say_why_they_cannot_run(colligate: Any, tmp_path: Path) -> None:
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    rows = json.loads(colligate.here("strategies", "--json").stdout)
    assert [row["name"] for row in rows if row["runs"]] == []
    assert "colligate models pull" in rows[0]["why_not"]


def test_models_list(colligate: Any, tmp_path: Path) -> None:
    listed = {
        row["name"]: row for row in json.loads(colligate.here("models", "list", "--json").stdout)
    }
    assert listed["wordllama-256"]["present"] is True
    assert len(listed["wordllama-256"]["sha256"]) == 64
    assert "wordllama-256" in colligate.here("models", "list").stdout
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    listed = {
        row["name"]: row for row in json.loads(colligate.here("models", "list", "--json").stdout)
    }
    assert listed["wordllama-256"]["present"] is False
    assert listed["llama.cpp"]["present"] is False
    assert len(listed["llama.cpp"]["sha256"]) == 64


def test_models_pull(colligate: Any, tmp_path: Path) -> None:
    done = colligate.here("models", "pull", "smollm2-135m")  # and what runs it
    assert (done.returncode, done.stdout) == (0, "smollm2-135m is here\nllama.cpp is here\n")
    done = colligate.here("models", "pull", "wordllama-256")
    assert (done.returncode, done.stdout) == (0, "wordllama-256 is here\n")
    done = colligate.here("models", "pull", "wordllama-256", "none-such")
    assert (done.returncode, done.stdout) == (2, "")
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    done = colligate.here("models", "pull", "wordllama-256")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot download" in done.stderr.splitlines()[-1]


def test_models_verify_says_what_changed(colligate: Any, tmp_path: Path) -> None:
    there = json.loads(colligate.here("models", "list", "--json").stdout)
    paths = {row["name"]: Path(row["path"]) for row in there}
    copy = tmp_path / "models" / "wordllama-256"
    shutil.copytree(paths["wordllama-256"], copy)
    libraries = tmp_path / "llama" / paths["llama.cpp"].name
    shutil.copytree(paths["llama.cpp"], libraries)
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    done = colligate.here("models", "verify")
    assert done.stdout == "wordllama-256: as pinned\nllama.cpp: as pinned\n"
    assert done.returncode == 0
    with next(libraries.glob("*ggml-base*")).open("r+b") as file:
        file.write(b"!")
    done = colligate.here("models", "verify", "llama.cpp")
    assert done.returncode == 1
    assert f"llama.cpp: changed: {file.name}; colligate models pull llama.cpp" in done.stdout
    colligate.environment["COLLIGATE_LLAMA"] = str(libraries)
    done = colligate.here("models", "verify", "llama.cpp")
    assert (done.returncode, "not checked" in done.stdout) == (0, True)
    weights = max(copy.iterdir(), key=lambda file: file.stat().st_size)
    with weights.open("r+b") as file:
        file.write(b"!")
    done = colligate.here("models", "verify", "wordllama-256")
    assert done.returncode == 1
    assert str(weights) in done.stdout
    (tmp_path / "a.md").write_text("# A\n\nWords.\n")
    where = ("--library", tmp_path / "library", "--embedder", "static")
    done = colligate.here("index", tmp_path / "a.md", *where)
    assert done.returncode == 1
    assert "changed since they were pulled" in done.stderr
    done = colligate.here("models", "verify", "smollm2-135m")
    assert (done.returncode, done.stdout) == (0, "smollm2-135m: not here\n")


def _doctor(colligate: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = colligate.here("doctor", "--embedder", "static", "--json", *arguments)
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)
    return done.returncode, {check["name"]: check for check in said["checks"]}


def test_doctor_finds_what_works(colligate: Any, openai_server: Any, folder: Path) -> None:
    named = ["--model", f"openai:m@{openai_server.url}"]
    status, checks = _doctor(colligate, *named)
    assert status == 0, checks
    assert all(check["ok"] for check in checks.values() if check["needed"])
    assert not colligate.library.exists(), "looking makes no library"
    done = colligate.here("doctor", "--embedder", "static", *named)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(checks)
    status, checks = _doctor(colligate, *named, "--library", str(folder))  # it is none
    assert (status, checks["library"]["ok"]) == (1, False)


def test_doctor_says_how_to_fix_it(colligate: Any, openai_server: Any, tmp_path: Path) -> None:
    status, checks = _doctor(colligate, "--model", "openai:m@http://127.0.0.1:9/v1")
    assert status == 1
    assert checks["model answers"]["ok"] is False
    openai_server.key = "right"
    status, checks = _doctor(colligate, "--model", f"openai:m@{openai_server.url}")
    assert (status, checks["model answers"]["ok"]) == (1, False)
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    status, checks = _doctor(colligate)
    assert status == 1
    assert "bundled" in checks["model"]["found"]
    assert "strategy spd-rag" not in checks, "one line says it of all"
    assert "bundled cannot run yet" in checks["other strategies"]["found"]
    assert "the first question fetches it" in checks["model weights"]["hint"]
    assert "colligate models pull qwen2.5-coder-1.5b" in checks["model weights"]["hint"]
    assert "colligate models pull wordllama-256" in checks["embedder"]["hint"]


def test_doctor_describes_llama_cpp(colligate: Any, openai_server: Any, tmp_path: Path) -> None:
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
