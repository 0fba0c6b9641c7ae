"""The real command."""

from support.cli import *  # noqa: F403
