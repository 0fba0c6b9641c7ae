"""The command line."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit status."""
    from colligate.cli.app import run_app

    run_app()
