"""After a process is killed at any point, the library finishes its work without a difference."""

import asyncio
import json
import random
import shutil
import subprocess

import pytest

from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder
from support.processes import start_child

# The children read files themselves: a parser process takes longer to start than the work takes,
# and writes nothing.
READ = """
from colligate.documents.reading import read_file
from colligate.library import parsing

def read(self, path, size=0, known="", reader=None):
    return parsing.ParsedFile(*parsing._answer(read_file, path, known))

parsing.ParserPool.read = read
"""

# A child does the work below and kills itself before its n-th write. Writes are the calls that
# change catalogue or index; nothing else reaches the disk. Each child is a fork of one process
# that has imported everything already.
CHILDREN = """
import asyncio, json, os, signal, sys
from colligate.library import ingest, passages
from colligate.library.catalogue import Catalogue
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder

steps = 0
ingest._LATE = 600.0  # on a busy machine a file is not overtaken: their order is compared

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
for name in ("append", "erase", "compact"):
    watch(passages.VectorFile, name)
for name in ("_write_block", "_erase"):
    watch(passages, name)

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
def work():
    """`work(library, documents, n)` lets a child work; it is "killed", or the number of writes."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start_child(READ + CHILDREN, text=True, **streams) as process:

        def order(library, documents, fatal):
            process.stdin.write(json.dumps([str(library), str(documents), fatal]) + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield order


async def contents(path, embedder):
    """Everything a user can see of a library."""
    async with AsyncLibrary(path, embedder=embedder) as library:
        hits = {query: await library.search(query, k=8) for query in QUERIES}
        return {
            "problems": await library.verify(),
            "documents": [(info.id, info.passages) for info in await library.documents()],
            "hits": {
                query: [(hit.passage.id, round(hit.score, 4)) for hit in found]
                for query, found in hits.items()
            },
        }


@pytest.fixture
def prepared(tmp_path, write, folder, embedder):
    """A library of the folder as it was; the folder has changed since."""
    write("gone.md", "# Gone\n\nMoles dig too.\n")

    async def prepare():
        async with AsyncLibrary(tmp_path / "before", embedder=embedder) as library:
            await library.add(folder)

    asyncio.run(prepare())
    write("badger.md", "# Badgers\n\nBadgers were replaced.\n\n## Diet\n\nThey eat roots.\n")
    write("shrew.md", "# Shrews\n\nShrews hurry.\n\n## Diet\n\nThey eat insects.\n")
    return tmp_path / "before"


@pytest.mark.parametrize("start", [pytest.param("new", marks=pytest.mark.real), "changed"])
def test_killed_anywhere_it_loses_nothing_done(tmp_path, prepared, folder, embedder, work, start):
    def begin(name):
        if start == "changed":
            shutil.copytree(prepared, tmp_path / name)
        return tmp_path / name

    whole = begin("whole")
    steps = int(work(whole, folder, -1))
    expected = asyncio.run(contents(whole, embedder))
    assert expected["problems"] == []
    assert "Gone" not in str(expected["documents"])

    assert steps > 10
    # Killed once at each of these points, each time the same library, until it is finished.
    stride = 3
    for first in range(stride):
        library = begin(f"killed-{first}")
        for fatal in range(first, steps, stride):
            if work(library, folder, fatal) != "killed":
                break
        assert int(work(library, folder, -1)) >= 0
        assert asyncio.run(contents(library, embedder)) == expected


# A child adds files one after the other, and ends wherever it is when its time is up.
WRITERS = """
import asyncio, json, os, signal, sys
from contextlib import suppress
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder

with suppress(ImportError):
    import colligate.scale.lance

async def add_to(engine, library, files):
    async with AsyncLibrary(library, embedder=WordEmbedder(), engine=engine) as opened:
        for file in files:
            await opened.add(file, workers=1)
            print(file, flush=True)

for line in sys.stdin:
    engine, library, files, seconds = json.loads(line)
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        asyncio.run(add_to(engine, library, files))
        os._exit(0)
    print("killed" if os.waitpid(child, 0)[1] else "finished", flush=True)
"""


@pytest.mark.real
@pytest.mark.parametrize("engine", ["sqlite", "lance"])
def test_a_writer_killed_at_any_moment_loses_nothing_acknowledged(tmp_path, write, engine):
    if engine == "lance":
        lance = pytest.importorskip("lance")
    library, chance = tmp_path / "library", random.Random(7)
    files: dict[str, str] = {}
    present: dict[str, str] = {}  # what was acknowledged
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    async def look():
        async with AsyncLibrary(library, embedder=WordEmbedder()) as opened:
            titles = [info.title for info in await opened.documents()]
            found = {
                title: [hit.passage.title for hit in await opened.search(title, k=1)]
                for title in present.values()
            }
        return titles, found

    async def finish():
        async with AsyncLibrary(library, embedder=WordEmbedder()) as opened:
            await opened.add(list(files))
            return await opened.verify()

    with start_child(READ + WRITERS, text=True, **streams) as process:
        kills = 0
        while kills < 10:
            for name in (f"{len(files)}.md", f"{chance.randrange(len(files) + 1)}.md"):
                title = f"Report{name[:-3]} revised {kills}"
                path = str(write(name, f"# {title}\n\nThe text of {title}.\n"))
                files[path] = title
                present.pop(path, None)
            order = chance.sample(list(files), len(files))
            seconds = chance.uniform(0.05, 1.0)
            process.stdin.write(json.dumps([engine, str(library), order, seconds]) + "\n")
            process.stdin.flush()
            while (line := process.stdout.readline().strip()) not in ("killed", "finished"):
                present[line] = files[line]
            kills += line == "killed"
            if (library / f"catalogue.{engine}").exists():
                titles, found = asyncio.run(look())
                assert len(titles) == len(set(titles))
                assert set(present.values()) <= set(titles)
                assert all(hits == [title] for title, hits in found.items())
        process.stdin.close()
    assert asyncio.run(finish()) == []
    titles, _ = asyncio.run(look())
    assert sorted(titles) == sorted(files.values())
    for table in ("catalogue", "passages") if engine == "lance" else ():
        rows = lance.dataset(str(library / f"{table}.lance")).to_table(columns=["number"])
        assert len(set(rows["number"].to_pylist())) == len(rows)
