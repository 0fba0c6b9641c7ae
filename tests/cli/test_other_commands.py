"""Help, tree, strategies, models."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import colligate as package
from colligate.cli.app import COMMANDS, load_command

LICENCES = Path(__file__).parents[2] / "examples" / "licences"
HEAVY = {"torch", "numpy", "onnxruntime", "llguidance", "mmh3", "html_to_markdown", "openai",
         "colligate.engine", "colligate.documents"}  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["ask", "--help"]])
def test_help_loads_nothing_heavy(arguments):
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


def test_a_question_is_answered_without_the_lab_and_the_cluster(colligate, openai_server, tmp_path):
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


@pytest.mark.parametrize(("name", "line"), COMMANDS.items())
def test_the_list_of_commands_has_the_first_line_of_each(name, line):
    assert load_command(name).help.splitlines()[0] == line


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_each_help_are_right(name):
    command = load_command(name)
    for inner, leaf in getattr(command, "commands", {"": command}).items():
        heading, *examples = leaf.epilog.splitlines()
        assert heading == "Examples:"
        for example in examples:
            _, *words = shlex.split(example)
            path = [name, inner] if inner else [name]
            assert words[: len(path)] == path
            leaf.make_context(name, words[len(path) :])


def test_a_paragraph_of_help_is_wrapped_once(colligate):
    assert "strategy is checked against the models." in colligate.here("doctor", "-h").stdout


@pytest.mark.parametrize("name", ["ask", "chat", "table", "refine", "index", "serve"])
def test_options_for_research_are_shown_when_asked_for(colligate, name):
    plain, whole = (colligate.here(name, each).stdout for each in ("--help", "--help-all"))
    for text, shown in ((plain, False), (whole, True)):
        assert "--library" in text
        assert ("--embedder" in text) is shown
        assert f"colligate {name} " in text.partition("Examples:")[2]


def test_no_command_is_wrong_usage(colligate):
    done = colligate.here()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage:" in done.stderr
    assert colligate.here("librarry").returncode == 2
    done = colligate.here("token")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Missing command: make, list, revoke; see 'colligate token --help'" in done.stderr
    done = colligate.here("--version")
    assert (done.returncode, done.stdout) == (0, f"colligate {package.__version__}\n")


def test_tree_shows_headings_and_how_sure_they_are(colligate, folder):
    done = colligate.here("tree", folder / "tower.md")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "100% sure, from markup" in done.stdout
    assert [line for line in lines if "Building" in line]
    assert colligate.here("tree", folder / "none.md").returncode == 2


def test_strategies(colligate):
    rows = json.loads(colligate.here("strategies", "--json").stdout)
    assert all(row["description"] and "chat" in row["required"] for row in rows)
    shown = colligate.here("strategies").stdout
    assert "retrieve-read" in shown
    parameters = {
        row["name"]: {each["name"]: (each["type"], each["default"]) for each in row["parameters"]}
        for row in rows
    }
    assert parameters["retrieve-read"]["pool"] == ("int", 50)
    assert parameters["longrefiner"]["budget"] == ("int", 2048)


def test_a_strategy_is_shown_with_its_own_and_the_papers_parameters(colligate):
    shown = colligate.here("strategies", "rdr2").stdout
    lines = [line.split()[:4] for line in shown.splitlines()]
    assert ["parameter", "values", "default", "paper"] in lines
    assert ["mode", "dense|sparse|hybrid", "hybrid", "dense"] in lines
    row = json.loads(colligate.here("strategies", "rdr2", "--json").stdout)
    mode = next(each for each in row["parameters"] if each["name"] == "mode")
    assert (mode["default"], mode["paper"]) == ("hybrid", "dense")


def test_models_are_listed_and_pulled(colligate, tmp_path):
    def find(name: str) -> str:
        listed = colligate.here("models", "list").stdout.splitlines()
        return next(line for line in listed if line.startswith(f"{name} "))

    assert "not here" not in find("wordllama-256")
    done = colligate.here("models", "pull", "smollm2-135m")  # and what runs it
    assert (done.returncode, done.stdout) == (0, "smollm2-135m is here\nllama.cpp is here\n")
    done = colligate.here("models", "pull", "wordllama-256", "none-such")
    assert (done.returncode, done.stdout) == (2, "")
    colligate.environment["COLLIGATE_HOME"] = str(tmp_path)
    for name in ("wordllama-256", "llama.cpp"):
        assert "not here" in find(name)
    done = colligate.here("models", "pull", "wordllama-256")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot download" in done.stderr.splitlines()[-1]
