"""Removal leaves no byte of a document's text in any file."""

import json
from importlib.util import find_spec

import pytest

from colligate.errors import UnknownDocument
from colligate.library.library import AsyncLibrary
from colligate.library.passages import PassageIndex
from colligate.library.store import ENGINES

MARKER = "xylophonequagmire"

FOLDERS = pytest.mark.parametrize("engine", ["sqlite", *(["lance"] if find_spec("lance") else [])])


def find_bytes(folder, *needles):
    """The files of a folder that have one of these byte strings."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        str(path.relative_to(folder))
        for path in files
        if any(needle in path.read_bytes() for needle in needles)
    ]


def find_text(library, text=MARKER):
    """The files of a library that have a text, in UTF-8 or UTF-16; for a table, its folder."""
    needles = [text.encode(), text.encode("utf-16-le"), text.upper().encode()]
    found = find_bytes(library.path, *needles) + find_in_tables(library.path, text)
    return sorted({name.split("/")[0] for name in found})


def find_in_tables(folder, text):
    """The files of Lance tables, of old versions too, that have a text: they are compressed."""
    found = []
    for path in folder.glob("*.lance/data/*.lance"):
        from lance.file import LanceFileReader

        if text in str(LanceFileReader(str(path)).read_all().to_table().to_pylist()):
            found.append(str(path.relative_to(folder)))
    return found


def find_vector(library, vector):
    """Whether any file of a library has a vector."""
    return find_bytes(library.path, vector.tobytes()) or find_in_tables(
        library.path, str(vector.tolist())
    )


@pytest.fixture
def secret(write, folder):
    """A document long enough for many pages of the database, with its marker all over."""
    body = "\n\n".join(f"## {MARKER} {n}\n\n{MARKER} says {n}. " + "word " * 50 for n in range(20))
    return write(f"{MARKER}.md", f"# {MARKER}\n\n{body}\n")


@FOLDERS
async def test_removal_leaves_no_trace_in_any_file(library, folder, secret, engine):
    await library.add(folder)
    (info,) = [info for info in await library.documents() if MARKER in info.id]
    assert find_text(library) == [ENGINES[engine]]
    await library.search(MARKER, k=5)
    assert await library.remove([info.id]) == [info.id]
    assert find_text(library) == []
    assert find_text(library, info.id) == []
    await library.close()
    assert find_text(library) == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_removal_leaves_no_trace_in_the_write_ahead_log(library, secret):
    (removed,) = (await library.add(secret, index=False)).document_ids
    assert "catalogue.sqlite-wal" in find_text(library)
    await library.remove([removed])
    assert find_text(library) == []


@FOLDERS
async def test_vectors_of_removed_passages_are_erased(library, folder, secret, embedder):
    await library.add(folder)
    words = (MARKER, "earthworms")
    texts = [next(text for text in embedder.passages if word in text) for word in words]
    removed, kept = await embedder.embed(texts)
    assert find_vector(library, removed)
    await library.remove([secret])
    assert not find_vector(library, removed)
    assert find_vector(library, kept)


@FOLDERS
async def test_an_update_leaves_no_trace_of_the_old_text(library, folder, write, secret, engine):
    await library.add(folder)
    write("tame.md", "# Tame\n\nNothing to see.\n").replace(secret)
    await library.add(folder)
    assert find_text(library) == [ENGINES[engine]]  # the name of the file alone
    (info,) = [info for info in await library.documents() if info.title == "Tame"]
    await library.remove([info.id])
    assert find_text(library) == []


@FOLDERS
async def test_a_removed_file_can_be_added_again(library, folder):
    ids = (await library.add(folder)).document_ids
    await library.remove([ids[0]])
    again = await library.add(folder)
    assert sorted(again.document_ids) == sorted(ids)
    assert [path.name for path in again.added] == ["badger.md"]


@FOLDERS
async def test_removing_what_was_only_stored(library, folder):
    ids = (await library.add(folder, index=False)).document_ids
    assert await library.remove([ids[1]]) == [ids[1]]
    assert await library.index_pending() > 0
    assert await library.verify() == []


@FOLDERS
async def test_an_interrupted_removal_is_finished_by_the_next_change(
    library, folder, secret, embedder, write, monkeypatch, engine
):
    await library.add(folder)
    text = next(text for text in embedder.passages if MARKER in text)
    (vector,) = await embedder.embed([text])

    def fail(_, **options):
        raise KeyboardInterrupt

    index = PassageIndex
    if engine == "lance":
        from colligate.scale.index import LanceIndex as index

    with monkeypatch.context() as patch:
        patch.setattr(index, "optimise", fail)
        with pytest.raises(KeyboardInterrupt):
            await library.remove([secret])
    await library.add(write("new.md", "Something new."))
    assert find_text(library) == []
    assert not find_vector(library, vector)


@pytest.mark.parametrize("name", ["~nobody/x", "a\0b", "a" * 5000, "\udce9"])
async def test_removing_a_name_that_no_file_can_have(library, folder, name):
    await library.add(folder)
    with pytest.raises(UnknownDocument, match="cannot remove"):
        await library.remove([name])
    assert len(await library.documents()) == 3


@pytest.mark.parametrize("named", ["\u00fc/\u00fc.md", "\u00fc"])
async def test_a_file_gone_is_removed_however_its_name_is_composed(library, folder, write, named):
    (folder / "u\u0308").mkdir()
    path = write("u\u0308/u\u0308.md", "Something new.")
    ids = (await library.add(path)).document_ids
    path.unlink()
    assert await library.remove([folder / named]) == ids


async def test_nothing_is_made_where_there_is_no_library(tmp_path):
    async with AsyncLibrary(tmp_path / "none") as library:
        with pytest.raises(UnknownDocument):
            await library.remove(["a"])
        assert await library.verify(repair=True) == []
        assert await library.index_pending() == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ['"Weird Al"', "a\\", "Ёлка"])
async def test_runs_of_a_document_are_deleted_whatever_its_id(library, write_records, name):
    await library.add(write_records("songs.jsonl", **{name: "A song.", "al": "A tune."}))
    runs = library.path / "runs"
    runs.mkdir()
    for number, id_ in enumerate([name, "al"]):
        said = {"text": 'He said "al" \\', "document": id_}
        (runs / f"{number}.jsonl").write_text(json.dumps(said) + "\n")
    assert await library.remove([name]) == [name]
    assert [file.name for file in runs.iterdir()] == ["1.jsonl"]


@FOLDERS
async def test_a_servers_files_of_it_are_deleted_and_no_others(library, write, folder):
    sent = library.path / "files" / "ab12"
    sent.mkdir(parents=True)
    (sent / "secret.md").write_text(f"# Secret\n\nThe {MARKER} is here.\n")
    (sent / "other.md").write_text("# Other\n\nNothing of it.\n")
    outside = write("outside.md", f"# Outside\n\nAnother {MARKER}.\n")
    await library.add([sent, outside])
    ids = {info.title: info.id for info in await library.documents()}
    runs = library.path / "runs"
    runs.mkdir()
    for name, title in (("one", "Secret"), ("two", "Other"), ("three", "Outside")):
        (runs / f"{name}.jsonl").write_text(f'{{"event": "opened", "document": "{ids[title]}"}}\n')
        (runs / f"{name}.json").write_text('{"question": "x"}')
    removed = [ids["Secret"], ids["Outside"]]
    assert sorted(await library.remove(removed)) == sorted(removed)
    assert find_text(library) == []
    assert sorted(file.name for file in runs.iterdir()) == ["two.json", "two.jsonl"]
    assert [file.name for file in sent.iterdir()] == ["other.md"]
    assert outside.exists()  # it is not the library's
