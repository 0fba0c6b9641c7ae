"""Libraries with an embedder that needs no weights, and folders of documents."""

from __future__ import annotations

import json

import pytest

from colligate.library import AsyncLibrary
from support.embedders import WordEmbedder


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def engine():
    """What a library keeps its documents in; the tests over both have a parameter of this name."""
    return "edge"


@pytest.fixture
def open_library(tmp_path, embedder, engine):
    """`open_library(**options)` is the test's library; its options are those of `AsyncLibrary`."""

    def make(**options):
        options = {"embedder": embedder, "engine": engine, **options}
        return AsyncLibrary(tmp_path / "library", **options)

    return make


@pytest.fixture
async def library(open_library):
    async with open_library() as opened:
        yield opened


@pytest.fixture
def write(tmp_path):
    """`write("a.md", text)` puts a file into a folder of documents and returns its path."""

    def put(name, text):
        path = tmp_path / "documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return put


@pytest.fixture
def write_records(write):
    """`write_records("a.jsonl", oak="An oak.")` writes records: the id is the title."""

    def put(name, /, **texts):
        rows = [{"id": id_, "title": id_, "text": text} for id_, text in texts.items()]
        return write(name, "".join(json.dumps(row) + "\n" for row in rows))

    return put


@pytest.fixture
def folder(tmp_path, write):
    """Three documents about three animals."""
    write("badger.md", "# Badgers\n\nBadgers dig setts.\n\n## Diet\n\nThey eat earthworms.\n")
    write("heron.md", "# Herons\n\nHerons wade in rivers.\n\n## Diet\n\nThey eat fish.\n")
    write("otter.md", "# Otters\n\nOtters swim in rivers.\n\n## Diet\n\nThey eat fish too.\n")
    return tmp_path / "documents"


@pytest.fixture
async def full(library, folder):
    """A library with the three documents, closed; its next call opens it."""
    await library.add(folder)
    await library.close()
    return library
