"""The cases of `tests/cases` that need no model and no server; `make cases` tries all."""

import subprocess
import sys
from pathlib import Path


def test_what_is_read_in_the_cases_is_right():
    run = Path(__file__).parent / "cases" / "run.py"
    command = [sys.executable, run, "--stage", "parse", "--stage", "library"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
