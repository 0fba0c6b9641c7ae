"""Files are read and passages embedded on a real Ray cluster of one machine."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from colligate.errors import LibraryError, UsageError
from colligate.library.library import AsyncLibrary

ray = pytest.importorskip("ray")

from colligate.scale.ray_workers import RayWorkers  # noqa: E402 (it needs the extra)

pytestmark = pytest.mark.real

STUCK = "support.readers:stuck"


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """The file that says that a worker was killed; the workers know its name and the reader."""
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return tmp_path / "killed"


@pytest.fixture
def cluster(killed):
    """A cluster that libraries share: they keep a connection that the program has."""
    workers = RayWorkers()
    yield workers
    workers.close()


async def test_a_cluster_reads_and_embeds_as_this_process(cluster, killed, folder, write, tmp_path):
    write("broken.pdf", "%PDF-1.7 this is no PDF")
    write("empty.md", "")
    write("latin.csv", "name,year\nAda,1971\n")

    async def add(place, **options):
        async with AsyncLibrary(tmp_path / place, embedder="static") as library:
            result = await library.add(folder, **options)
            again = await library.add(folder, **options)
            assert (again.passages, len(again.unchanged)) == (0, len(result.added))
            hits = [(h.passage, h.score) for h in await library.search("fish in rivers", k=9)]
            failed = [(path, str(error)) for path, error in result.failed]
            return await library.documents(), hits, failed, result.warnings, result.passages

    here = await add("here", workers=1)
    assert await add("there", workers="ray") == here
    assert len(here[2]) == 2

    # A worker that dies costs its task, which is repeated.
    kills = "support.readers:kills_its_worker_once"
    async with AsyncLibrary(tmp_path / "kills", embedder="static", reader=kills) as library:
        result = await library.add(folder, workers="ray")
        assert killed.exists()
        assert await library.documents() == here[0]
        assert [path for path, _ in result.failed] == [path for path, _ in here[2]]
        assert await library.verify() == []


async def test_an_interrupt_ends_what_workers_read(cluster, folder, write, tmp_path):
    write("stuck.md", "# Stuck\n")
    async with AsyncLibrary(tmp_path / "new", embedder="static", reader=STUCK) as library:
        others = asyncio.Event()

        def see(progress):
            if progress.phase == "reading" and progress.done == 3:
                others.set()

        adding = asyncio.create_task(library.add(folder, workers="ray", on_progress=see))
        await others.wait()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(adding, 30)
        assert await library.verify() == []


@pytest.mark.parametrize(
    ("workers", "error", "why"),
    [
        ("ray:127.0.0.1:9", LibraryError, "cannot use Ray at 127.0.0.1:9: .*refused"),
        ("spark", UsageError, "no workers 'spark'"),
    ],
)
async def test_no_cluster_is_an_error_of_one_line(open_library, folder, workers, error, why):
    async with open_library() as library:
        with pytest.raises(error, match=why) as raised:
            await library.add(folder, workers=workers)
        assert await library.documents() == []
    assert "\n" not in str(raised.value)


def test_a_cluster_that_asks_for_a_token_is_reached(folder, tmp_path):
    token = tmp_path / "token"
    token.write_text("0" * 64)
    environment = {k: v for k, v in os.environ.items() if k != "RAY_AUTH_MODE"}
    environment["RAY_AUTH_TOKEN_PATH"] = str(token)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    start += ["--include-dashboard=false", "--num-cpus=1", "--node-ip-address=127.0.0.1"]
    start += [f"--port={address.rpartition(':')[2]}"]
    command = [sys.executable, "-m", "colligate", "index", str(folder), "--embedder", "static"]
    command += ["--library", str(tmp_path / "library"), "--workers", f"ray:{address}"]
    with subprocess.Popen(start, env=environment, stdout=subprocess.PIPE, text=True) as head:
        try:
            assert any("Ray runtime started" in line for line in head.stdout)
            indexed = subprocess.run(command, env=environment, capture_output=True, text=True)
        finally:
            head.terminate()
    assert indexed.returncode == 0, indexed.stderr
    assert "3 added" in indexed.stdout
