"""What holds whatever a library keeps its documents in: sqlite, lance, or lance in a bucket."""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import product
from pathlib import Path

import pytest
from filelock import FileLock

from colligate.errors import (
    LibraryDamaged,
    LibraryError,
    LibraryLocked,
    UnknownDocument,
    UsageError,
)
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from colligate.library.store import LOCK_FILE
from support.documents import text_pdf
from support.embedders import Interrupted
from support.web import Loopback

lance = pytest.importorskip("lance")
pa = pytest.importorskip("pyarrow")

from colligate.scale.lance import check_conditional_put  # noqa: E402

# A part of the suite also runs over a bucket: each test there takes some seconds.
S3 = pytest.param("s3", marks=pytest.mark.real)  # a server of its own
EVERYWHERE = pytest.mark.parametrize("engine", ["sqlite", "lance", S3])
SHARED = pytest.mark.parametrize("engine", ["lance", S3])
DOCS = Path(__file__).parents[2] / "docs"
QUERIES = ["how is a citation verified", "kill while indexing", "what erases removed text", "p50"]


async def find(library, query="fish in rivers", **options):
    return [(h.passage.id, round(h.score, 5)) for h in await library.search(query, k=9, **options)]


async def titles(library):
    return [info.title for info in await library.documents()]


def count_rows(library):
    """How many rows of each kind its tables have, and how many have a number of their own."""
    options = {"allow_http": "true"} if library.uri.startswith("s3:") else None
    found = {}
    for name in ("catalogue", "passages"):
        table = lance.dataset(f"{library.uri}/{name}.lance", storage_options=options)
        numbers = table.to_table(columns=["number"])["number"].to_pylist()
        found[name] = (len(numbers), len(set(numbers)))
    return found


@EVERYWHERE
async def test_documents_are_added_found_changed_reopened(open_library, folder, write, embedder):
    async with open_library() as library:
        await library.add(folder)
        assert await titles(library) == ["Badgers", "Herons", "Otters"]
        assert (await library.search("dig setts", k=1))[0].passage.title == "Badgers"
        embedded = len(embedder.passages)
        again = await library.add(folder)
        assert (len(again.unchanged), len(embedder.passages)) == (3, embedded)
        (folder / "deep").mkdir()
        (folder / "otter.md").rename(folder / "deep" / "otter.md")
        write("heron.md", "# Herons\n\nHerons wait.\n")
        changed = await library.add(folder, prune=True)
        assert [path.name for path in changed.updated] == ["heron.md"]
        assert [path.name for path in changed.removed] == ["otter.md"]
        assert await titles(library) == ["Badgers", "Otters", "Herons"]
        found = await find(library)
    async with open_library() as library:
        assert await find(library) == found
        otters = (await library.documents())[1]
        assert Path(otters.source).parent.name == "deep"
        document = await library.document(otters.id)
        (hit,) = await library.search("swim", k=1, mode=SearchMode.SPARSE, documents=[otters.id])
        assert hit.passage == document.passage(hit.passage.span)
        assert await library.verify() == []


@pytest.mark.parametrize("engine", ["lance"])
async def test_space_on_the_disk_of_a_folder_is_looked_for(open_library, folder, monkeypatch):
    full = shutil.disk_usage(folder)._replace(free=5 << 20)
    async with open_library() as library:
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "disk_usage", lambda path: full)
            with pytest.raises(LibraryError, match="5 MB are free"):
                await library.add(folder)
        await library.add(folder)
        assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite", "lance"])
async def test_copies_records_and_removals(open_library, write, write_records):
    async with open_library() as library:
        one, two = (write(f"{each}/same.md", "# Same\n\nWords.\n") for each in ("x", "y"))
        same = (await library.add([one, two])).document_ids
        assert len(same) == 1
        oaks = write_records("one.jsonl", a="Oaks have acorns.", b="Elms.")
        ashes = write_records("two.jsonl", a="Ashes have keys.")
        assert len(set((await library.add([oaks, ashes])).document_ids)) == 3
        await library.remove([one])
        assert next(info.id for info in await library.documents()) == same[0]
        assert await library.remove([two]) == same
        with pytest.raises(UnknownDocument, match="cannot remove nobody"):
            await library.remove(["a", "nobody"])
        assert await library.remove(["b"]) == ["b"]
        again = await library.add(oaks)
        assert (again.document_ids, again.passages) == (["a", "b"], 1)
        assert (await library.search("acorns", k=1, mode=SearchMode.SPARSE))[0].passage.text
        assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite", "lance"])
async def test_a_copy_that_changes_or_goes_leaves_the_document_to_the_other(open_library, write):
    async with open_library() as library:

        async def sources():
            return {info.id: Path(info.source) for info in await library.documents()}

        one, two, three = (write(f"{each}/a.md", "# Same\n\nWords.\n") for each in "xyz")
        (same,) = (await library.add([one, two, three])).document_ids
        assert await sources() == {same: three}
        three.write_text("# Other\n\nMore words.\n")
        (other,) = (await library.add(three)).document_ids
        assert await sources() == {same: one, other: three}
        await library.remove([one])
        assert await sources() == {same: two, other: three}
        assert await library.verify() == []


@pytest.mark.parametrize("engine", ["sqlite", "lance"])
async def test_of_some_folders_a_library_is_as_if_it_had_no_others(open_library, write):
    """Also in scores, which otherwise tell how rare a word is elsewhere."""
    one = write("x/one.md", "# One\n\nOtters eat fish.\n\n## Diet\n\nFish of rivers.\n")
    write("x/two.md", "# Two\n\nHerons wade in rivers.\n")
    folders = {"folders": [one.parent]}

    async def look():
        async with open_library(**folders) as library:
            found = [await find(library, mode=mode) for mode in ("sparse", "dense", "hybrid")]
            infos = await library.documents()
            (file,) = await library.files(infos[0].id)
            (own,) = await library.search("eat fish", k=1)
            return found, [(each.id, each.source) for each in infos], file.path, own.passage.source

    async with open_library() as library:
        await library.add(one.parent)
        before = await look()
        write("xx/three.md", "# Three\n\nRivers, rivers and fish.\n")
        write("y/one.md", one.read_text())
        hidden = (await library.add([one.parents[1] / "xx", one.parents[1] / "y"])).document_ids
        assert await look() == before
    async with open_library(**folders) as library:
        for ask in (library.document(hidden[0]), library.search("fish", documents=hidden)):
            with pytest.raises(UnknownDocument):
                await ask
        with pytest.raises(UsageError, match="cannot change the library"):
            await library.remove([hidden[1]])


@pytest.mark.parametrize("engine", ["sqlite", "lance"])
async def test_new_page_numbers_and_headings_of_the_same_text_are_stored(open_library, write):
    async with open_library() as library:
        path = write("a.pdf", "")
        pages = [["Herons wade in rivers."]]
        path.write_bytes(text_pdf(pages))
        await library.add(path)
        path.write_bytes(text_pdf([[], *pages]))
        await library.add(path)
        (hit,) = await library.search("herons", k=1, mode=SearchMode.SPARSE)
        assert hit.passage.page == 2
        text = "Words.\n\n## Herons\n\nHerons wade.\n"
        ids = (await library.add([write("b.txt", text), write("b.md", text)])).document_ids
        headings = [len((await library.document(id_)).tree.sections) for id_ in ids]
        assert len(set(headings)) == 2
        assert await library.verify() == []


@pytest.mark.parametrize("engine", ["lance"])
@pytest.mark.parametrize("indexed", [1, 1_000_000])
async def test_a_question_finds_the_same_again(open_library, tmp_path, write, monkeypatch, indexed):
    monkeypatch.setattr("colligate.scale.tables.INDEXED", indexed)  # passages
    late = write("late.md", "# Late\n\nA citation is verified after the index was built.\n")
    async with (
        open_library(embedder="static") as library,
        AsyncLibrary(tmp_path / "plain", embedder="static") as plain,
    ):

        async def change(what, to):
            for each in (library, plain):
                await getattr(each, what)(to)
            ids = [info.id for info in await plain.documents()]
            for mode, within, query in product(SearchMode, (None, ids[1:2], ids[::2]), QUERIES):
                hits, expected = [
                    await each.search(query, k=20, mode=mode, documents=within)
                    for each in (library, plain)
                ]
                assert [h.passage for h in hits] == [h.passage for h in expected]
                scores = [h.score for h in expected]
                assert [h.score for h in hits] == pytest.approx(scores, abs=1e-3)

        await change("add", [DOCS / name for name in ("guide.md", "server.md", "strategies.md")])
        await change("add", late)  # the index is older
        await change("remove", [DOCS / "server.md"])


@pytest.mark.parametrize("engine", ["lance"])
async def test_lost_and_stray_passages_are_repaired(open_library, folder):
    async with open_library() as library:
        await library.add(folder)
        found = await find(library)
        table = lance.dataset(f"{library.uri}/passages.lance")
        rows = table.to_table()
        table.delete(f"number = {rows['number'][0]}")
        stray = rows.slice(1, 1).set_column(0, table.schema.field(0), [[7]])
        table.insert(stray.set_column(1, table.schema.field(1), [[5]]))
        problems = await library.verify(repair=True)
        assert sum("1 passages" in problem for problem in problems) == 2
        assert await library.verify() == []
        assert await find(library) == found
        lance.LanceDataset.drop(table.uri)
    async with open_library() as library:
        with pytest.raises(LibraryDamaged, match="verify --repair"):
            await library.search("fish", k=1)
        await library.verify(repair=True)
        assert await find(library) == found


@EVERYWHERE
async def test_readers_see_what_another_process_has_written(open_library, folder, write):
    async with open_library() as writer, open_library() as reader:
        assert await reader.documents() == []
        await writer.add(folder)
        assert await find(reader) == await find(writer)
        removed = (await writer.remove([folder / "otter.md"]))[0]
        shrews = write("shrew.md", "# Shrews\n\nShrews hurry to rivers.\n")
        await writer.add(shrews, index=False)
        assert await titles(reader) == await titles(writer)
        assert "Shrews" not in str(await reader.search("shrews hurry", k=9))
        with pytest.raises(UnknownDocument):
            await reader.document(removed)
        await writer.index_pending()
        assert "Shrews" in str(await reader.search("shrews hurry", k=1))


@SHARED
async def test_a_question_reads_one_version_while_others_write(open_library, folder, write):
    async with open_library() as writer, open_library() as reader:
        await writer.add(folder)
        sources = await reader.pin()
        before = await find(sources)
        await writer.add(write("shrew.md", "# Shrews\n\nShrews eat fish in rivers.\n"))
        assert await find(sources) == before
        assert await titles(sources) == ["Badgers", "Herons", "Otters"]
        assert "Shrews" in await titles(reader)
        assert await find(await reader.pin()) == await find(writer) != before
        await writer.remove([folder / "otter.md"])
        await writer.erase()
        # Its version is gone: the newest is read.
        found = set(await find(sources, mode=SearchMode.DENSE))
        assert found
        assert found <= set(await find(writer, mode=SearchMode.DENSE))


@SHARED
async def test_a_snapshot_is_restored(open_library, folder, write, monkeypatch):
    monkeypatch.setattr("colligate.scale.tables._FRESH", 0)  # a restore may take less
    async with open_library() as library, open_library() as reader:
        await library.add(folder)
        before = await find(reader)
        await library.take_snapshot("spring")
        await library.remove([folder / "otter.md"])
        await library.add(write("shrew.md", "# Shrews\n\nShrews eat fish.\n"))
        assert await find(reader) != before
        assert await reader.snapshots() == ["spring"]
        for refused in (library.erase(), library.take_snapshot("spring"), library.restore("fall")):
            with pytest.raises(UsageError, match="spring"):
                await refused
        shrews = [h for h in await reader.search("shrews", k=1) if "Shrews" in h.passage.text]
        assert shrews  # the reader keeps its text
        await library.restore("spring")
        assert await titles(reader) == ["Badgers", "Herons", "Otters"]
        assert await find(reader) == await find(library) == before
        assert await library.verify() == []
        write("shrew.md", "# Voles\n\nVoles eat roots.\n")
        await library.add(folder)
        assert await titles(library) == ["Badgers", "Herons", "Otters", "Voles"]
        assert "Voles eat roots" in str(await reader.search("voles eat roots", k=1))
        assert all(rows == different for rows, different in count_rows(library).values())


@SHARED
async def test_a_deleted_snapshot_leaves_no_byte(open_library, folder, place, engine, embedder):
    def read_all():
        if engine == "s3":
            return read_objects(place)
        return b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())

    async with open_library() as library:
        await library.add(folder)
        await library.take_snapshot("spring")
        await library.remove([folder / "badger.md"])
        assert b"earthworms" in read_all()
        await library.delete_snapshot("spring")
        assert await library.snapshots() == await library.erase() == []
        assert b"earthworms" not in read_all()
        assert await find(library)


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_what_keeps_no_versions_has_no_snapshots(library, folder):
    await library.add(folder)
    assert await library.snapshots() == []
    with pytest.raises(UsageError, match=r"older versions; .* `colligate index --engine lance`"):
        await library.take_snapshot("spring")
    with pytest.raises(UsageError, match="it has none"):
        await library.restore("spring")


@pytest.mark.parametrize("engine", [S3])
async def test_two_add_the_same_files_at_once(open_library, folder, write_records):
    write_records("many.jsonl", **{f"r{n}": f"Record {n} of fish." for n in range(9)})
    async with open_library() as one, open_library() as two:
        await asyncio.gather(one.add(folder), two.add(folder))
        assert len(set(await titles(one))) == len(await titles(one)) == 12
        assert await one.verify() == await two.verify() == []
        assert all(rows == different for rows, different in count_rows(one).values())
        assert await find(one) == await find(two)


def read_objects(place):
    """All that a bucket has of a library, with its older versions."""
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    prefix = place.removeprefix("s3://bucket/") + "/"
    listed = client.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]
    keys = [each["Key"] for each in listed]
    return b"".join(client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys)


@pytest.mark.parametrize("engine", [S3])
async def test_in_a_bucket_erasing_leaves_no_byte_of_what_was_removed(open_library, folder, place):
    async with open_library() as library, open_library() as reader:
        await library.add(folder)
        assert b"earthworms" in read_objects(place)
        await reader.search("earthworms", k=1)
        await library.remove([folder / "badger.md"])
        assert await reader.search("earthworms", k=9, mode=SearchMode.SPARSE) == []
        assert b"earthworms" in read_objects(place)  # others may still read older versions
        assert await library.erase() == []
        kept = read_objects(place)
        assert b"They eat fish" in kept
        assert b"earthworms" not in kept
        assert await find(reader) == await find(library) != []


@SHARED
async def test_removing_all_at_once_leaves_no_passage(open_library, folder):
    async with open_library() as library:
        await library.add(folder)
    async with open_library() as library:
        await library.remove([folder])
        assert count_rows(library)["passages"] == (0, 0)
        assert await library.erase() == []
        assert await library.search("fish", k=1) == []
        await library.add(folder)
        assert await find(library)


@EVERYWHERE
async def test_others_ask_while_one_adds(open_library, folder, write, engine, monkeypatch):
    monkeypatch.setattr("colligate.library.schema.WAIT_SECONDS", 0.1)
    embedder = Interrupted()
    async with open_library(embedder=embedder) as writer, open_library() as other:
        await writer.add(folder)
        before = await find(other)

        async def ask():
            assert len(await other.documents()) == 4
            assert await other.index_pending() == 0  # the writer does it
            assert await find(other) == before
            if engine == "lance":
                with pytest.raises(LibraryLocked):  # in a folder one writes
                    await other.add(folder)
            else:
                assert await other.verify() == []

        embedder.meanwhile = ask
        await writer.add(write("shrew.md", "# Shrews\n\nShrews eat fish.\n"))
        assert "Shrews" in str(await other.search("shrews", k=1))


@pytest.mark.parametrize("engine", ["sqlite", "lance"])
async def test_nothing_changes_while_a_lock_is_tried(open_library, folder, write, monkeypatch):
    async with open_library() as library:
        await library.add(folder)
        await library.add(write("shrew.md", "# Shrews\n\nShrews eat fish.\n"), index=False)
    async with open_library() as library:
        probe, alone = library._store.is_written_elsewhere, []

        def look():
            alone.append(library._changing.locked())
            return probe()

        monkeypatch.setattr(library._store, "is_written_elsewhere", look)
        assert await library.index_pending() == 1
    assert alone == [True]


async def test_a_writer_is_seen_once_another_has_ended(open_library, folder, write, monkeypatch):
    monkeypatch.setattr("colligate.library.index._WINDOW", 1)
    embedder = Interrupted()
    async with open_library(embedder=embedder) as writer, open_library() as other:
        await writer.add(folder)
        first = FileLock(writer.path / LOCK_FILE)
        first.acquire()

        async def end_first():
            first.release()
            embedder.meanwhile = ask

        async def ask():
            assert await other.index_pending() == 0

        embedder.meanwhile = end_first
        await writer.add([write(f"{name}.md", f"The {name}.") for name in ("mole", "shrew")])
        assert embedder.meanwhile is None


async def test_a_lock_that_cannot_be_taken_stops_no_question(library, folder):
    await library.add(folder / "otter.md")
    await library.add(folder, index=False)
    (library.path / LOCK_FILE).unlink(missing_ok=True)
    (library.path / LOCK_FILE).symlink_to("nothing")
    assert await library.index_pending() > 0


@pytest.mark.parametrize("engine", ["lance"])
async def test_another_writer_is_waited_for(open_library, folder):
    async with open_library() as library:
        library.path.mkdir()
        other = FileLock(library.path / LOCK_FILE)
        other.acquire()
        asyncio.get_running_loop().call_later(0.2, other.release)
        assert len((await library.add(folder)).added) == 3


@pytest.mark.parametrize("engine", ["lance"])
async def test_an_id_that_is_there_twice_is_listed_and_reported(open_library, folder):
    async with open_library() as library:
        await library.add(folder)
    table = lance.dataset(library.path / "catalogue.lance")
    rows = table.to_table(filter="state = 1").to_pylist()
    row = rows[0] | {"number": 999 << 20}
    lance.write_dataset(pa.Table.from_pylist([row], table.schema), table.uri, mode="append")
    async with open_library() as library:
        assert len(await library.documents()) == 4
        assert await library.verify()
    lance.write_dataset(pa.Table.from_pylist([row], table.schema), table.uri, mode="append")
    async with open_library() as library:
        with pytest.raises(LibraryDamaged, match=r"catalogue\.lance"):
            await library.documents()


@pytest.mark.parametrize("engine", ["lance"])
async def test_a_row_without_a_digest_of_its_structure_is_replaced(open_library, write):
    path = write("One.txt", "# One\n\nWords.\n")
    async with open_library() as library:
        await library.add(path)
    table = lance.dataset(library.path / "catalogue.lance")
    table.update({"record": "replace(record, '\"structure\"', '\"older\"')"}, "state = 1")
    path = path.rename(path.with_suffix(".md"))
    async with open_library() as library:
        (before,) = await library.documents()
        flat = await library.document(before.id)
        await library.add(path)
        after = await library.document((await library.documents())[-1].id)
        assert (after.title, after.text) == (flat.title, flat.text)
        assert len(after.tree.sections) > len(flat.tree.sections)


@pytest.mark.parametrize("engine", [S3])
async def test_nobody_erases_while_another_writes_unless_forced(open_library, folder):
    embedder = Interrupted()
    async with open_library(embedder=embedder) as writer, open_library() as other:

        async def erase():
            with pytest.raises(LibraryLocked, match=r"writes it \(process \d+ on ") as raised:
                await other.erase()
            assert "\n" not in str(raised.value)
            assert await other.erase(force=True) == []

        embedder.meanwhile = erase
        await writer.add(folder)
        assert await other.erase() == []
        assert await find(other) == await find(writer) != []


@pytest.mark.parametrize("engine", [S3])
async def test_searching_writes_nothing_to_a_bucket(open_library, folder, place):
    async with open_library() as library:
        await library.add(folder)
    before = read_objects(place)
    async with open_library() as library:
        assert await library.index_pending() == 0
        assert await find(await library.pin())
    assert read_objects(place) == before


DIES = """
import asyncio, os, signal, sys
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder

class Dies(WordEmbedder):
    async def embed(self, texts, kind="passage"):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(AsyncLibrary(sys.argv[1], embedder=Dies()).add(sys.argv[2]))
"""


@pytest.mark.parametrize("engine", [S3])
async def test_a_writer_that_was_killed_here_is_not_waited_for(open_library, folder, place):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DIES, place, str(folder)]
    killed = await asyncio.create_subprocess_exec(*command, env=environment)
    assert await killed.wait() == -signal.SIGKILL
    async with open_library() as library:
        assert len(await library.documents()) == 3
        assert await library.index_pending()
        assert await library.erase() == []
        assert await find(library)


@contextmanager
def serve_puts(status):
    """A store that answers every request with the same status."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

    with closing(Loopback(Handler)) as server:
        yield server.address


@pytest.mark.parametrize(("status", "why"), [(200, "it writes over an object"), (403, "403")])
def test_a_store_without_conditional_put_is_refused(bucket, monkeypatch, status, why):
    with serve_puts(status) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(LibraryError, match=why) as raised:
            check_conditional_put(bucket)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("engine", ["lance"])
async def test_a_library_keeps_the_engine_it_was_made_with(place, embedder, folder):
    async with AsyncLibrary(place, engine="lance") as library:
        await library.add([])
    async with AsyncLibrary(place, embedder=embedder) as library:
        await library.add(folder)
    assert {"catalogue.lance", "passages.lance"} <= {each.name for each in place.iterdir()}
    with pytest.raises(UsageError, match="made with lance"):
        AsyncLibrary(place, engine="sqlite")
    with pytest.raises(UsageError, match="sqlite and lance"):
        AsyncLibrary(place, engine="mysql")


@pytest.mark.parametrize("given", ["~/papers", Path("~/papers"), None])
async def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch, given):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLLIGATE_LIBRARY", "~/papers")
    async with AsyncLibrary(given) as library:
        assert (library.path, library.uri) == (tmp_path / "papers", str(tmp_path / "papers"))
    assert AsyncLibrary("~nobody-here/papers").path == Path("~nobody-here/papers")


async def test_an_empty_place_is_not_made_by_looking(bucket, embedder):
    async with AsyncLibrary(bucket, embedder=embedder) as library:
        assert await library.documents() == []
        assert await library.search("anything", k=1) == []
        assert await library.erase() == []
    async with AsyncLibrary("s3://missing/x", embedder=embedder) as library:
        with pytest.raises(LibraryError) as raised:
            await library.documents()
    assert "\n" not in str(raised.value)
