"""Kill writers of a shared library, and ask it from several processes while others add to it.

    python benchmarks/sharing.py PLACE [--kills 100] [--readers 4] [--questions 200] [--writers 2]
        [--files 40] [--seed 0]

PLACE is a folder or s3://bucket/name, in which libraries on Lance tables are made (in a folder one
process writes, so give `--writers 1`). `colligate index` is killed with SIGKILL at random
moments, each library until it is finished. A failure is a library that does not verify after a
kill, a document that was there before and is not any more, one that is there twice or in half, or
an end that differs from a library that was made undisturbed.

Before that `--writers` processes add files one by one while `--readers` processes ask `--questions`
questions together, each of one version (`AsyncLibrary.pin`). A failure is an error, a search or a
list of documents that changes within a question, a passage of a document that is not in its list,
or whose text is not its document's, and an end in which a file is missing or there twice. No model
is asked: what is read is what is tested.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from colligate.errors import ColligateError
from colligate.library.library import AsyncLibrary

DOCS = Path(__file__).parents[1] / "docs"


def show(figure: str, value: object, unit: str = "") -> None:
    print(json.dumps({"figure": figure, "value": value, "unit": unit}), flush=True)


def write_texts(folder: Path, files: int, chance: random.Random) -> list[str]:
    """Write Markdown files of words of the guide; return queries of such words."""
    words = re.findall(r"[a-z]{4,}", (DOCS / "guide.md").read_text("utf-8"))
    folder.mkdir()
    for number in range(files):
        lines = (" ".join(chance.choices(words, k=12)).capitalize() for _ in range(40))
        (folder / f"{number}.md").write_text(f"# Text {number}\n\n" + ".\n\n".join(lines) + ".\n")
    return [" ".join(chance.choices(words, k=3)) for _ in range(8)]


async def read_all(place: str, queries: list[str]) -> dict[str, Any]:
    """Return all that a user can see of a library."""
    async with AsyncLibrary(place, embedder="static") as library:
        infos = await library.documents()
        texts = [(await library.document(each.id)).text for each in infos]
        hits = [await library.search(query, k=8) for query in queries]
        return {
            "problems": await library.verify(),
            "documents": sorted(
                (each.title, text) for each, text in zip(infos, texts, strict=True)
            ),
            "hits": [sorted((h.passage.title, h.passage.text) for h in each) for each in hits],
        }


def kill_writers(place: str, folder: Path, kills: int, files: int, chance: random.Random) -> None:
    """Print how often writers were killed, and what was wrong afterwards."""
    queries = write_texts(folder / "texts", files, chance)

    def start(library: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "colligate", "index", str(folder / "texts")]
        where = ["--library", library, "--engine", "lance", "--embedder", "static"]
        return subprocess.Popen(command + where, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    began = time.perf_counter()
    _, said = start(f"{place}/whole").communicate()
    lasts = time.perf_counter() - began
    expected = asyncio.run(read_all(f"{place}/whole", queries))
    assert len(expected["documents"]) == files, said
    assert not expected["problems"]
    done = part_way = libraries = 0
    failures: list[str] = []
    before: list[Any] = []
    while done < kills or before:
        library = f"{place}/killed-{libraries}"
        indexing = start(library)
        last = done >= kills  # this one may finish
        try:
            _, said = indexing.communicate(timeout=None if last else chance.uniform(0, lasts))
        except subprocess.TimeoutExpired:
            indexing.kill()
            indexing.communicate()
            done += 1
            found = asyncio.run(read_all(library, []))
            there = found["documents"]
            part_way += 0 < len(there) < files
            lost = [each for each in before if each not in there]
            wrong = [each for each in there if each not in expected["documents"]]
            if found["problems"] or lost or wrong or len(there) > len({t for t, _ in there}):
                failures.append(f"kill {done}: {found['problems']} {len(lost)} {len(wrong)}")
            before = there
            print(f"{done} kills, {len(failures)} failures", file=sys.stderr)
            continue
        if indexing.returncode:
            failures.append(f"ends with {indexing.returncode}: {said[-300:]!r}")
        elif asyncio.run(read_all(library, queries)) != expected:
            failures.append(f"{library} differs from the undisturbed one")
        libraries, before = libraries + 1, []
    show("kills", done, f"of an indexing of {lasts:.1f} s; {part_way} left a part")
    show("libraries finished after kills", libraries)
    show("failures", len(failures), "; ".join(failures))


def write(place: str, files: list[Path], failures: Any) -> None:
    """Add files one by one."""

    async def add() -> None:
        async with AsyncLibrary(place, embedder="static") as library:
            for file in files:
                result = await library.add(file)
                failures.extend([f"{path}: {error}" for path, error in result.failed])

    try:
        asyncio.run(add())
    except ColligateError as error:
        failures.append(f"writer: {error}")


def ask(place: str, queries: list[str], failures: Any, seconds: Any) -> None:
    """Ask each query of one version of the library."""

    async def ask_all() -> None:
        async with AsyncLibrary(place, embedder="static") as library:
            for query in queries:
                began = time.perf_counter()
                pinned = await library.pin()
                infos = {each.id for each in await pinned.documents()}
                hits = await pinned.search(query, k=8)
                seconds.append(time.perf_counter() - began)
                for hit in hits:
                    name = hit.passage.document_id
                    if name not in infos:
                        failures.append(f"{name} is not in the list of its version")
                    elif (await pinned.document(name)).slice(hit.passage.span) != hit.passage.text:
                        failures.append(f"a passage of {name} has another text")
                if await pinned.search(query, k=8) != hits:
                    failures.append(f"{query!r} finds something else in the same version")
                if {each.id for each in await pinned.documents()} != infos:
                    failures.append("the list of one version changed")

    try:
        asyncio.run(ask_all())
    except ColligateError as error:
        failures.append(f"reader: {error}")


def share(place: str, folder: Path, given: argparse.Namespace, chance: random.Random) -> None:
    """Print what was wrong while processes asked and others added."""
    write_texts(folder / "shared", given.files * given.writers, chance)
    files = sorted((folder / "shared").iterdir())
    words = re.findall(r"[a-z]{4,}", (DOCS / "guide.md").read_text("utf-8"))
    asyncio.run(_add_first(place, files[0]))
    with multiprocessing.get_context("spawn").Manager() as manager:
        failures, seconds = manager.list(), manager.list()
        spawn = multiprocessing.get_context("spawn").Process
        writers = [
            spawn(target=write, args=(place, files[at :: given.writers], failures))
            for at in range(given.writers)
        ]
        queries = [" ".join(chance.choices(words, k=3)) for _ in range(given.questions)]
        readers = [
            spawn(target=ask, args=(place, queries[at :: given.readers], failures, seconds))
            for at in range(given.readers)
        ]
        began = time.perf_counter()
        for process in (*writers, *readers):
            process.start()
        for process in readers:
            process.join()
        asked = time.perf_counter() - began
        beside = sum(process.is_alive() for process in writers)
        for process in writers:
            process.join()
        added = time.perf_counter() - began
        found = asyncio.run(read_all(place, []))
        titles = [title for title, _ in found["documents"]]
        failures += found["problems"]
        if sorted(titles) != sorted(f"Text {number}" for number in range(len(files))):
            failures.append(f"{len(files)} files gave {len(titles)} documents")
        show("questions", len(seconds), f"in {asked:.0f} s; {beside} writers still added then")
        show("a question, median", round(median(seconds), 3), "s")
        show("files added meanwhile", len(files), f"in {added:.0f} s")
        show("failures", len(failures), "; ".join(failures[:5]))


async def _add_first(place: str, file: Path) -> None:
    async with AsyncLibrary(place, embedder="static", engine="lance") as library:
        await library.add(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("place")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        if given.questions:
            share(f"{given.place}/shared", Path(folder), given, chance)
        if given.kills:
            kill_writers(given.place, Path(folder), given.kills, given.files, chance)


if __name__ == "__main__":
    main()
