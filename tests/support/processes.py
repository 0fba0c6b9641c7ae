"""Child processes that run a piece of code and may import from `tests`."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def start_child(code, *arguments, **options):
    """Start a Python process; `with` waits for its end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **options)
