"""Libraries with an embedder that needs no weights, and folders of documents."""

import json
import os
import re
import subprocess
import sys
import time
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def engine():
    """What a library keeps its documents in; the tests over all have a parameter of this name.

    `COLLIGATE_TEST_ENGINE` runs the others over "lance" or "s3".
    """
    return os.environ.get("COLLIGATE_TEST_ENGINE", "sqlite")


@pytest.fixture
def place(engine, tmp_path, request):
    """Where the test's library is: a folder, or a place in a bucket for the engine "s3"."""
    return request.getfixturevalue("bucket") if engine == "s3" else tmp_path / "library"


@pytest.fixture
def in_a_folder(engine):
    """For tests of what a bucket has not: a folder of its own with a lock, and speed."""
    if engine == "s3":
        pytest.skip("a library in a bucket has no folder and no lock")


@pytest.fixture
def open_library(place, embedder, engine):
    """`open_library(**options)` is the test's library; its options are those of `AsyncLibrary`."""

    def make(**options):
        of = None if engine == "s3" else engine
        return AsyncLibrary(place, **{"embedder": embedder, "engine": of, **options})

    return make


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """The address of a server of S3's protocol with `bucket`, in a process of its own.

    `COLLIGATE_TEST_S3` names another that runs and has the bucket: http://KEY:SECRET@HOST:PORT.
    """
    if given := os.environ.get("COLLIGATE_TEST_S3"):
        yield given
        return
    log = tmp_path_factory.mktemp("s3") / "log"
    moto = [sys.executable, "-m", "moto.server", "-p", "0"]
    with log.open("w") as file, subprocess.Popen(moto, stderr=file) as process:
        while not (found := re.search(r"Running on (\S+)", log.read_text())):
            assert process.poll() is None
            time.sleep(0.1)
        key = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request"
        made = Request(f"{found[1]}/bucket", method="PUT", headers={"Authorization": key})
        urlopen(made).close()
        yield found[1].replace("://", "://x:y@")
        process.kill()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """A new place in the bucket, where small libraries have the indexes of large ones."""
    pytest.importorskip("lance")
    monkeypatch.setattr("colligate.scale.tables.INDEXED", 1)
    server = urlsplit(s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.username)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.password)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.hostname}:{server.port}")
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path / "home"))
    return f"s3://bucket/{uuid4().hex}"


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
