"""The blocking face, where a call could wait for itself or for a thread that is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from colligate import Library, ask
from colligate.errors import UsageError
from colligate.testing import ScriptedModel
from support.models import statement_reply

SAID = "The lease ends on 3 May 2031."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lease.md").write_text(f"# Lease\n\n{SAID}\n")
    return tmp_path


def test_a_blocking_call_inside_an_answer_is_refused(folder):
    model = ScriptedModel(lambda call: statement_reply(SAID, SAID, "3 May 2031"))
    refused = []

    def listen(event: object) -> None:
        try:
            library.documents()
        except UsageError as error:
            refused.append(str(error))

    with Library(folder / "l", embedder="static") as library:
        library.add(folder / "lease.md")
        options = {"library": folder / "other", "model": model, "embedder": "static"}
        question = "When does the lease end?"
        ask(question, folder / "lease.md", strategy="retrieve-read", on_event=listen, **options)
    assert refused
    assert "a blocking call cannot be made here" in refused[0]


FORKED = """
import multiprocessing, sys
from colligate import Library

def list_titles(path):
    with Library(path, embedder="static") as library:
        return [each.title for each in library.documents()]

list_titles(sys.argv[1])  # the loop runs in the parent too
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.apply_async(list_titles, [sys.argv[1]]).get(60))
"""


@pytest.mark.linux  # processes are forked
def test_a_forked_process_has_a_loop_of_its_own(folder):
    with Library(folder / "l", embedder="static") as library:
        library.add(folder / "lease.md")
    command = [sys.executable, "-c", FORKED, str(folder / "l")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "['Lease']\n", done.stderr
