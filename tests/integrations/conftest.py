"""A library of two documents for code without an event loop."""

import pytest

from colligate import Library
from support.embedders import WordEmbedder


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def library(tmp_path, embedder):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "heron.md").write_text("# Herons\n\nHerons wade.\n\n## Diet\n\nThey eat fish.\n")
    (folder / "otter.md").write_text("# Otters\n\nAll swim far.\n\n## Diet\n\nThey eat fish too.\n")
    with Library(tmp_path / "library", embedder=embedder) as opened:
        opened.add(folder)
        yield opened
