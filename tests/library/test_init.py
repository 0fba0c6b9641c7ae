"""The package's names, and what importing them loads."""

import subprocess

from support.processes import start_child


def test_strategies_load_no_index():
    code = "import sys, colligate.library.sources; print('py_rust_stemmers' in sys.modules)"
    with start_child(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.read() == "False\n"
