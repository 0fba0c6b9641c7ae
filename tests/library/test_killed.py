"""A process killed at any point of its work leaves a library that only has to go on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colligate.library import AsyncLibrary

# A child does the work below and kills itself before its n-th write. Writes are the calls that
# change catalogue or index; nothing else reaches the disk. Each child is a fork of one process
# that has imported everything already.
CHILDREN = """
import asyncio, json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from conftest import WordEmbedder
from colligate.library import AsyncLibrary
from colligate.library.catalogue import Catalogue
from colligate.library.edge import EdgeIndex

steps = 0

def step():
    global steps
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    steps += 1

def watch(owner, name):
    inner = getattr(owner, name)
    def outer(*arguments, **named):
        step()
        return inner(*arguments, **named)
    setattr(owner, name, outer)

for name in ("store", "mark", "purge", "remove", "set_meta", "note_file"):
    watch(Catalogue, name)
for name in ("upsert", "remove", "flush", "optimise"):
    watch(EdgeIndex, name)
create = EdgeIndex.create
EdgeIndex.create = lambda *arguments: (step(), create(*arguments))[1]

async def work_in(library, documents):
    async with AsyncLibrary(library, embedder=WordEmbedder()) as opened:
        await opened.add(documents, workers=1)
        kept = [info.id for info in await opened.documents() if info.title == "Gone"]
        await opened.remove(kept)

for line in sys.stdin:
    library, documents, fatal = json.loads(line)
    child = os.fork()
    if not child:
        asyncio.run(work_in(library, documents))
        print(steps, flush=True)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print("killed" if status == -signal.SIGKILL else f"failed with {status}", flush=True)
"""

QUERIES = ["fish in rivers", "badgers dig", "what do they eat", "moles", "replaced"]


@pytest.fixture(scope="module")
def work() -> Iterator[Callable[[Path, Path, int], str]]:
    """`work(library, documents, n)` is done by a child, which says how many writes it made.

    It says "killed" if there was an n-th.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", CHILDREN, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def ask(library: Path, documents: Path, fatal: int) -> str:
        questions.write(json.dumps([str(library), str(documents), fatal]) + "\n")
        questions.flush()
        return answers.readline().strip()

    yield ask
    questions.close()
    process.wait()
    answers.close()


async def contents(path: Path, embedder: Any) -> dict[str, Any]:
    """All a person can see of a library."""
    async with AsyncLibrary(path, embedder=embedder) as library:
        hits = {query: await library.search(query, k=8) for query in QUERIES}
        return {
            "problems": await library.verify(),
            "documents": [(info.id, info.passages) for info in await library.documents()],
            "hits": {
                query: [(hit.passage.id, round(hit.score, 6)) for hit in found]
                for query, found in hits.items()
            },
        }


@pytest.fixture
def prepared(tmp_path: Path, write: Any, folder: Path, embedder: Any) -> Path:
    """A library of the folder as it was; the folder has changed since."""
    write("gone.md", "# Gone\n\nMoles dig too.\n")

    async def prepare() -> None:
        async with AsyncLibrary(tmp_path / "before", embedder=embedder) as library:
            await library.add(folder)

    asyncio.run(prepare())
    write("badger.md", "# Badgers\n\nBadgers were replaced.\n\n## Diet\n\nThey eat roots.\n")
    write("shrew.md", "# Shrews\n\nShrews hurry.\n\n## Diet\n\nThey eat insects.\n")
    return tmp_path / "before"


def copy(library: Path, to: Path) -> Path:
    subprocess.run(["cp", "-r", library, to], check=True)
    return to


@pytest.mark.parametrize("start", ["new", "changed"])
def test_killed_anywhere_it_goes_on_where_it_was(
    tmp_path: Path, prepared: Path, folder: Path, embedder: Any, work: Any, start: str
) -> None:
    def begin(name: str) -> Path:
        return copy(prepared, tmp_path / name) if start == "changed" else tmp_path / name

    whole = begin("whole")
    steps = int(work(whole, folder, -1))
    expected = asyncio.run(contents(whole, embedder))
    assert expected["problems"] == []
    assert "Gone" not in str(expected["documents"])

    assert steps > 10
    # Killed once at each of these points, the same library each time until it is through.
    stride = 3
    for first in range(stride):
        library = begin(f"killed-{first}")
        for fatal in range(first, steps, stride):
            if work(library, folder, fatal) != "killed":
                break
        assert int(work(library, folder, -1)) >= 0
        assert asyncio.run(contents(library, embedder)) == expected
