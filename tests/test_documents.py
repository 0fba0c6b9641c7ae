"""What the documents name is there: links, commands, options, and figures of result files."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colligate.cli.app import load_command

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
END_OF_COMMAND = {"|", "&", "&&", ";", ">"}


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page):
    missing = []
    for link in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / name).resolve() if name else page
        known = target.exists() and (not anchor or anchor in list_anchors(target))
        if not known:
            missing.append(link)
    assert missing == []


def list_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the words of each command of colligate that a document shows."""
    for page in PAGES:
        whole = re.sub(r"\\\n\s+", "", page.read_text("utf-8"))
        for line in re.findall(r"^    (?:\$ )?(?:\w+=\S+ )*(colligate .*)$", whole, re.MULTILINE):
            words = shlex.split(line, comments=True)
            ends = [at for at, word in enumerate(words) if word in END_OF_COMMAND]
            yield f"{page.name}: {line}", words[1 : min(ends, default=len(words))]


def test_every_command_shown_has_these_options():
    wrong, seen = [], 0
    for where, words in list_commands():
        seen += 1
        command, at = load_command(words[0].split("|")[0]), 1
        while hasattr(command, "commands"):
            command, at = command.commands[words[at].split("|")[0]], at + 1
        known = {option for each in command.params for option in each.opts}
        given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        wrong += [f"{where}: {option}" for option in given - known]
    assert seen > 75
    assert wrong == []


def test_the_tables_are_what_the_result_files_say():
    command = [sys.executable, str(ROOT / "benchmarks" / "results.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_result_says_how_it_was_made():
    for file in (ROOT / "docs" / "results").glob("*.json"):
        run = json.loads(file.read_text("utf-8"))
        assert run["name"] == file.stem
        assert {"what", "command", "commit", "date", "machine", "model", "n", "rows"} <= run.keys()
        assert run["rows"]
