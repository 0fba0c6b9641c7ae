"""Fixtures of libraries."""

from support.libraries import *  # noqa: F403
