"""What is read, what is left alone, and what a bad file costs."""

import asyncio
import errno
import os
import re
import select
from collections import Counter
from pathlib import Path

import pytest

from colligate.documents.reading import Limits
from colligate.errors import (
    CorruptFile,
    EmbedderMismatch,
    LibraryError,
    MissingPath,
    NoText,
    ServerFailed,
    TooLarge,
    UnsupportedFormat,
    UsageError,
)
from colligate.library import SearchMode
from support.embedders import WordEmbedder
from support.plugins import installed
from support.processes import start_child

NOTING = "support.readers:noting"


@pytest.fixture
def noted(tmp_path):
    """`noted()` is what the reader `NOTING` has read since the last call."""
    notes = tmp_path / "read.txt"

    def take():
        lines = notes.read_text().split() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return lines

    return take


async def texts(library):
    """The library's texts by title."""
    infos = await library.documents()
    return {info.title: (await library.document(info.id)).text for info in infos}


async def find(library, query):
    """The best passage's text."""
    hits = await library.search(query, k=1, mode=SearchMode.SPARSE)
    return hits[0].passage.text if hits else ""


async def test_a_file_with_another_date_and_the_same_bytes_is_unchanged(library, folder):
    for path in (await library.add(folder)).added:
        os.utime(path, (1, 1))
    assert len((await library.add(folder)).unchanged) == 3


@pytest.mark.usefixtures("in_a_folder")
async def test_an_old_date_is_trusted_and_a_new_one_is_not(library, write):
    old, new = write("old.md", "# A\n\nApples.\n"), write("new.md", "# B\n\nApples.\n")
    os.utime(old, (1, 1))
    times = [(path, path.stat().st_mtime_ns) for path in (old, new)]
    await library.add([old, new])
    for path, mtime in times:
        # Same size and date: only a hash can tell, and none is taken of a file that old.
        path.write_text("# C\n\nOnions.\n")
        os.utime(path, ns=(mtime, mtime))
    result = await library.add([old, new])
    assert (result.unchanged, result.updated) == ([old], [new])


async def test_a_deleted_file_stays_until_pruned(library, folder):
    await library.add(folder)
    (folder / "otter.md").unlink()
    kept = await library.add(folder)
    assert len(await library.documents()) == 3
    assert len(kept.document_ids) == 2
    pruned = await library.add(folder, prune=True)
    assert [path.name for path in pruned.removed] == ["otter.md"]
    assert sorted(await texts(library)) == ["Badgers", "Herons"]
    assert await library.verify() == []


async def test_files_may_exchange_records_of_one_id(library, write):
    line = '{{"id": "{}", "title": "{}", "text": "{}"}}\n'.format
    rome, tba = line("1", "Rome", "The capital of Italy."), "To be announced."
    await library.add([write("a.jsonl", rome), write("b.jsonl", line("1", "Paris", tba))])
    one = write("a.jsonl", line("1", "Paris", tba))
    two = write("b.jsonl", line("1", "Lyon", tba) + line("2", "Nice", "It is by the sea."))
    result = await library.add([two, one])
    assert len(set(result.document_ids)) == 3
    assert await texts(library) == {"Paris": tba, "Lyon": tba, "Nice": "It is by the sea."}
    assert await library.verify() == []


async def test_one_changed_record_leaves_the_others(library, write_records, embedder):
    path = write_records("trees.jsonl", oak="The oak is old.", elm="The elm is tall.")
    await library.add(path)
    embedder.passages.clear()
    write_records("trees.jsonl", oak="The oak is old.", elm="The elm is small.")
    assert (await library.add(path)).document_ids == ["oak", "elm"]
    assert len(embedder.passages) == 1
    assert "small" in await find(library, "elm")
    assert not await find(library, "tall")


async def test_a_title_that_changed_is_shown_and_found(library, write):
    line = '{{"id": "x", "title": "{0}", "text": "Some words."}}\n'.format
    await library.add(write("a.jsonl", line("Oaks")))
    await library.add(write("a.jsonl", line("Elms")))
    assert [(info.id, info.title) for info in await library.documents()] == [("x", "Elms")]
    assert await find(library, "elms")
    assert not await find(library, "oaks")


async def test_a_file_out_of_reach_is_not_pruned(library, write):
    away = write("away/a.md", "Out of reach.").parent
    folder = write("near.md", "Near.").parent
    await library.add(folder)
    away.rename(folder.parent / "elsewhere")
    away.symlink_to(away)  # any question about a file in it is an error
    assert (await library.add(folder, prune=True)).removed == []
    assert len(await library.documents()) == 2
    away.unlink()
    assert [path.name for path in (await library.add(folder, prune=True)).removed] == ["a.md"]


async def test_bad_files_are_named_and_the_others_read(library, folder):
    (folder / "empty.md").write_bytes(b"")
    (folder / "torn.pdf").write_bytes(b"%PDF-1.7\nnothing follows")
    result = await library.add([folder, folder / "missing.md"])
    assert len(result.added) == 3
    failures = {path.name: error for path, error in result.failed}
    assert isinstance(failures["empty.md"], NoText)
    assert isinstance(failures["torn.pdf"], CorruptFile)
    assert [type(problem) for problem in result.problems] == [MissingPath]
    assert all("\n" not in str(error) for error in [*failures.values(), *result.problems])


async def test_a_bad_file_is_not_read_again_until_it_changes(open_library, write, noted):
    write("empty.md", "")
    folder = write("good.md", "All is well.").parent
    async with open_library(reader=NOTING) as library:
        first = await library.add(folder)
        assert sorted(noted()) == ["empty", "good"]
        again = await library.add(folder)
        assert noted() == []
        assert [str(error) for _, error in again.failed] == [str(e) for _, e in first.failed]
        assert [type(error) for _, error in again.failed] == [NoText]
        write("empty.md", "Empty no more.")
        assert [path.stem for path in (await library.add(folder)).added] == ["empty"]
        assert noted() == ["empty"]
        write("good.md", "")
        for _ in range(2):
            assert [path.stem for path, _ in (await library.add(folder)).failed] == ["good"]
        assert noted() == ["good"]
        # Its document is still in the library, and can be removed.
        assert await find(library, "well") == "All is well."
        assert len(await library.remove([folder / "good.md"])) == 1
        assert noted() == []
        await library.add(folder)
        assert noted() == ["good"]


SHOUTING = """
from colligate.documents.reading import make_document

def read(source):
    return make_document(source, "".join(filter(str.isprintable, source.data.decode())).upper())
"""


async def test_a_refused_file_is_read_once_its_format_is_installed(library, write, tmp_path):
    film = write("film.loud", "\0\1A\2\3 bit\0tern\4\5")
    for _ in range(2):
        ((_, error),) = (await library.add(film)).failed
        assert isinstance(error, UnsupportedFormat)
    with installed(tmp_path / "site", SHOUTING, {"formats": {"loud": "loud:read"}}, "loud"):
        result = await library.add(film)
        assert (result.failed, result.added) == ([], [film])
        assert await find(library, "bittern") == "A BITTERN"
        assert (await library.add(film)).unchanged == [film]


@pytest.mark.parametrize("fault", ["deadly", "broken"])
async def test_a_fault_that_may_pass_is_tried_again(open_library, write, noted, fault):
    path = write(f"{fault}.md", "A text.")
    async with open_library(reader=NOTING) as library:
        for _ in range(2):
            assert len((await library.add(path)).failed) == 1
    assert noted() == [fault, fault]


async def test_a_recorded_failure_names_the_file_as_it_is_named_now(library, write, monkeypatch):
    path = write("empty.md", "")
    await library.add(path)
    monkeypatch.chdir(path.parent)
    ((_, error),) = (await library.add("empty.md")).failed
    assert str(error).startswith("cannot read empty.md: ")


async def test_a_file_changed_between_comparing_and_reading_is_read_again(library, write):
    path = write("a.md", "# A\n\nApples.\n")

    def change(progress):
        if progress.phase == "reading" and progress.file:  # its hash has been taken
            path.write_text("# A\n\nBananas.\n")

    await library.add(write("other.md", "Other."))
    await library.add(path, on_progress=change)
    path.write_text("# A\n\nApples.\n")  # what was hashed, perhaps not what was read
    await library.add(path)
    assert await find(library, "apples")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.posix
async def test_a_parser_that_dies_costs_one_file(open_library, folder, write, workers):
    for name in ("broken", "deadly", "chatty", "interrupted", "quits"):
        write(f"{name}.md", f"# {name}\n\nA text.\n")
    async with open_library(reader="support.readers:fragile") as library:
        result = await library.add(folder, workers=workers)
    assert len(result.added) == 5
    failures = {path.stem: str(error) for path, error in result.failed}
    assert sorted(failures) == ["broken", "deadly", "quits"]
    assert "its parser crashed (signal 9)" in failures["deadly"]
    assert "its parser crashed (status 3)" in failures["quits"]
    assert "ZeroDivisionError: a bug in a parser" in failures["broken"]


@pytest.mark.parametrize(
    ("reader", "why"),
    [
        ("support.nothing:read", "No module named 'support.nothing'"),
        ("support.readers:nothing", "has no attribute 'nothing'"),
        ("crashes_on_import:read", r"its parser crashed \(status 3\)"),
    ],
)
async def test_a_reader_that_cannot_be_imported_says_so(
    open_library, folder, reader, why, tmp_path, monkeypatch
):
    (tmp_path / "crashes_on_import.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    async with open_library(reader=reader) as library:
        result = await library.add(folder)
    assert len(result.failed) == 3
    assert all(re.search(why, str(error)) for _, error in result.failed)


async def test_a_parser_that_takes_too_long_is_ended(open_library, folder, write, monkeypatch):
    monkeypatch.setattr(Limits, "seconds", lambda limits, size: 0.5 if size == 4 else 60)
    write("stuck.md", "slow")
    async with open_library(reader="support.readers:stuck") as library:
        result = await library.add(folder)
    assert len(result.added) == 3
    ((_, error),) = result.failed
    assert isinstance(error, TooLarge)
    assert "reading it took longer than 0 s" in str(error)


@pytest.mark.linux  # memory is read from /proc
async def test_a_parser_of_too_much_memory_is_ended(open_library, folder, write, monkeypatch):
    monkeypatch.setattr(Limits, "memory", lambda limits, size: 400 << 20)
    write("hungry.md", "words")
    write("greedy.md", "words")
    async with open_library(reader="support.readers:stuck") as library:
        result = await library.add(folder)
    assert len(result.added) == 3
    failures = {path.stem: error for path, error in result.failed}
    assert "reading it took more than 400 MB of memory" in str(failures["hungry"])
    assert "not enough memory" in str(failures["greedy"])
    assert {type(error) for error in failures.values()} == {TooLarge}


def test_patience_and_memory_grow_with_the_file():
    limits = Limits()
    assert (limits.seconds(0), limits.seconds(10 << 20)) == (60, 160)
    assert limits.memory(0) < 1 << 30
    assert limits.memory(9 << 20) < limits.memory(20 << 20) < limits.memory(500 << 20) == 4 << 30


@pytest.mark.posix
async def test_a_slow_file_does_not_hold_up_the_others(open_library, folder, write, monkeypatch):
    monkeypatch.setattr("colligate.library.ingest._LATE", 0.1)
    pipe = write("a-waits.md", "# Waits\n\nAt last.\n").with_suffix(".pipe")
    os.mkfifo(pipe)
    others = asyncio.Event()

    def see(progress):
        if progress.phase == "reading" and progress.done == 3:
            others.set()

    async with open_library(reader="support.readers:stuck") as library:
        adding = asyncio.create_task(library.add(folder, workers=2, on_progress=see))
        await asyncio.wait_for(others.wait(), 60)
        titles = sorted(info.title for info in await library.documents())
        assert titles == ["Badgers", "Herons", "Otters"]
        assert not adding.done()
        await asyncio.to_thread(pipe.write_text, "go on")
        result = await adding
        assert [path.stem for path in result.added][-1] == "a-waits"
        first = await library.document(result.document_ids[0])
        assert first.title == "Waits"  # the order of the result is that of the files
        assert await library.verify() == []


ENDLESS = """
import asyncio, sys
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder
library = AsyncLibrary(sys.argv[1], embedder=WordEmbedder(), reader="support.readers:endless")
asyncio.run(library.add(sys.argv[2], index=False))
"""


@pytest.mark.linux
def test_no_parser_outlives_a_process_that_was_killed(tmp_path, write):
    path = write("a.md", "Some words.")
    pipe = f"{path}.pid"
    os.mkfifo(pipe)
    listening = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def is_ready(descriptor):
        """Whether it can be read, or its process has ended, within half a minute."""
        return bool(select.select([descriptor], [], [], 30)[0])

    with start_child(ENDLESS, tmp_path / "library", path) as process:
        assert is_ready(listening)
        parser = os.pidfd_open(int(os.read(listening, 32)))
        process.kill()
    assert is_ready(parser), "the parser still runs"
    os.close(parser)
    os.close(listening)


async def test_stored_documents_are_indexed_later_without_reading_again(library, folder, embedder):
    result = await library.add(folder, index=False)
    assert len(result.added) == 3
    assert embedder.passages == []
    assert not (library.path / "index").exists()
    assert await library.search("fish", k=3) == []
    for path in result.added:
        path.unlink()  # reading again would fail
    assert await library.index_pending() == len(embedder.passages) > 0
    assert await find(library, "fish")
    assert await library.index_pending() == 0


async def test_an_embedder_that_fails_loses_nothing(library, folder, embedder):
    embedder.fails_after = 0
    with pytest.raises(ServerFailed):
        await library.add(folder)
    assert len(await library.documents()) == 3
    assert await library.search("fish", k=3, mode=SearchMode.SPARSE) == []
    embedder.fails_after = None
    assert len((await library.add(folder)).unchanged) == 3
    assert await find(library, "fish")
    assert await library.verify() == []


async def test_a_document_without_passages(open_library, write, monkeypatch):
    monkeypatch.setattr("colligate.library.ingest.cut_passages", lambda *_: [])
    path = write("a.md", "Some words.")
    for _ in range(2):
        async with open_library() as library:
            await library.add(path)
            assert await library.search("words", k=3) == []
            assert await library.verify() == []
            assert len(await library.documents()) == 1


async def test_another_embedder_is_refused(library, open_library, folder, write):
    await library.add(folder)
    await library.close()
    write("new.md", "# New\n\nText.\n")
    async with open_library(embedder=WordEmbedder("others", 32)) as other:
        assert len(await other.documents()) == 3
        with pytest.raises(EmbedderMismatch, match=r"embedded by words .* use --embedder words"):
            await other.search("fish", k=1)
        with pytest.raises(EmbedderMismatch):
            await other.add(folder)
    assert await library.search("fish", k=1)


async def test_another_chunker_is_refused(library, open_library, folder):
    await library.add(folder)
    await library.close()
    async with open_library(chunker="words:50") as other:
        with pytest.raises(LibraryError, match="cut by structural, not by words:50") as refused:
            await other.add(folder)
        assert "--chunker" in refused.value.hint


@pytest.mark.parametrize(
    ("option", "error"), [({"ocrr": "eng"}, TypeError), ({"chunker": "nonsense"}, UsageError)]
)
def test_a_wrong_option_is_refused_at_once(open_library, option, error):
    with pytest.raises(error, match=r"ocrr|nonsense"):
        open_library(**option)


async def test_a_library_keeps_its_chunker(open_library, folder, write):
    text = " ".join(f"word{i}" for i in range(95))
    async with open_library(chunker="words:10") as library:
        assert (await library.add(write("a.md", text))).passages == 10
    async with open_library() as again:
        assert (await again.add(write("b.md", text.upper()))).passages == 10


async def test_searching_while_adding_sees_whole_documents_only(library, folder, write):
    await library.add(folder)
    for n in range(6):
        parts = [f"## Part {p}\n\nRivers {n} {p} " + "flow " * 40 for p in range(20)]
        write(f"long-{n}.md", "# Long\n\n" + "\n\n".join(parts))
    # A search at each step of the work. One after the other, they keep the core busy that parsers
    # share with the tests, and a kernel gave the parsers no time for minutes.
    moved = asyncio.Event()
    adding = asyncio.create_task(library.add(folder, on_progress=lambda _: moved.set()))
    adding.add_done_callback(lambda _: moved.set())
    searches = []
    while True:
        await moved.wait()
        moved.clear()
        last = adding.done()
        hits = await library.search("rivers flow", k=500, mode=SearchMode.SPARSE)
        searches.append(Counter(hit.passage.document_id for hit in hits))
        if last:
            break
    result = await adding
    assert (result.failed, result.problems) == ([], [])
    assert len(searches) > 2
    assert searches[-1].total() > 6 * 20
    for seen in searches:
        assert seen  # earlier documents stay in view
        assert all(count == searches[-1][document] for document, count in seen.items())
    assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_full_disk_is_the_librarys_fault_not_the_files(library, folder, write):
    await library.add(folder)
    catalogue = await library._store.lock_catalogue()
    (pages,) = catalogue._rows("PRAGMA page_count")[0]
    catalogue._rows(f"PRAGMA max_page_count = {pages}")
    write("large.md", "# Large\n\n" + "words and more words " * 5000)
    with pytest.raises(LibraryError, match=r"cannot write the catalogue .* full"):
        await library.add(folder)
    catalogue._rows("PRAGMA max_page_count = 1000000")
    assert len((await library.add(folder)).added) == 1
    assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_disk_that_is_full_while_vectors_are_written_is_said(library, folder, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(LibraryError, match=r"cannot write the vectors .* No space left"):
            await library.add(folder)
    assert (await library.add(folder)).passages > 0
    assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
@pytest.mark.posix
async def test_nobody_else_can_read_a_new_library(library, folder):
    before = os.umask(0o022)
    try:
        await library.add(folder)
    finally:
        os.umask(before)
    modes = {it.name: it.stat().st_mode & 0o777 for it in (library.path, *library.path.iterdir())}
    assert modes.pop("library") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"catalogue.sqlite", "catalogue.sqlite-wal", "vectors-64.f32"} <= set(modes)


async def test_progress_is_reported(library, folder):
    steps = []
    result = await library.add(folder, on_progress=steps.append)
    reading = [step for step in steps if step.phase == "reading"]
    assert [step.done for step in reading] == [0, 1, 2, 3]
    assert {Path(step.file).name for step in reading} == {"badger.md", "heron.md", "otter.md", ""}
    last = [step for step in steps if step.phase == "embedding"][-1]
    assert last.done == last.total == result.passages


async def test_optimising_is_reported_where_something_is(library, write, write_records):
    steps = []
    await library.add(write_records("many.jsonl", **{str(n): f"Number {n}." for n in range(30)}))
    await library.add(write("one.md", "One more."), on_progress=steps.append)
    assert "optimising" not in {step.phase for step in steps}
