"""The command line: a file for each command, read and run by `app.main`."""

from colligate.cli.app import main

__all__ = ["main"]
