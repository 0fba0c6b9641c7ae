"""The package's names, and what importing them loads."""

from __future__ import annotations

import subprocess

import pytest

import colligate.library
from support.processes import start_child


def test_every_exported_name_exists():
    for name in colligate.library.__all__:
        assert getattr(colligate.library, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Index'"):
        colligate.library.Index  # noqa: B018


def test_strategies_load_no_index():
    code = "import sys, colligate.library.sources; print('py_rust_stemmers' in sys.modules)"
    with start_child(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.read() == "False\n"
