"""What is removed leaves nothing of its text behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colligate.errors import UnknownDocument
from colligate.library import AsyncLibrary, SearchMode
from colligate.library.edge import EdgeIndex

MARKER = "xylophonequagmire"


def holding(library: Path, text: str) -> list[str]:
    """The files of a library in which a text stands, in UTF-8 or UTF-16."""
    needles = [text.encode(), text.encode("utf-16-le"), text.upper().encode()]
    files = [path for path in library.rglob("*") if path.is_file()]
    return [
        str(path.relative_to(library))
        for path in files
        if any(needle in path.read_bytes() for needle in needles)
    ]


@pytest.fixture
def secret(write: Any, folder: Path) -> Path:
    """A document long enough for many pages of the database, with its marker all over."""
    body = "\n\n".join(
        f"## {MARKER} {n}\n\nThe {MARKER} says {n}. " + "word " * 50 for n in range(20)
    )
    return write(f"{MARKER}.md", f"# {MARKER}\n\n{body}\n")


async def test_removal_leaves_no_trace_in_any_file(
    library: AsyncLibrary, folder: Path, secret: Path
) -> None:
    await library.add(folder)
    (info,) = [info for info in await library.documents() if MARKER in info.id]
    assert holding(library.path, MARKER) == ["catalogue.sqlite"]
    await library.search(MARKER, k=5)
    assert await library.remove([info.id]) == [info.id]
    assert holding(library.path, MARKER) == []
    assert holding(library.path, info.id) == []
    await library.close()
    assert holding(library.path, MARKER) == []


async def test_removal_leaves_no_trace_in_the_write_ahead_log(
    library: AsyncLibrary, secret: Path
) -> None:
    (removed,) = (await library.add(secret, index=False)).document_ids
    assert "catalogue.sqlite-wal" in holding(library.path, MARKER)
    await library.remove([removed])
    assert holding(library.path, MARKER) == []


async def test_vectors_of_what_was_removed_are_erased_too(
    library: AsyncLibrary, folder: Path, secret: Path, embedder: Any
) -> None:
    await library.add(folder)
    gone = next(text for text in embedder.passages if MARKER in text)
    kept = next(text for text in embedder.passages if "earthworms" in text)
    vectors = [row.tobytes() for row in await embedder.embed([gone, kept])]

    def present() -> list[bool]:
        files = [path for path in (library.path / "index").rglob("*") if path.is_file()]
        return [any(vector in path.read_bytes() for path in files) for vector in vectors]

    assert present() == [True, True]
    await library.remove([secret])
    assert present() == [False, True]


async def test_an_update_leaves_no_trace_of_the_old_text(
    library: AsyncLibrary, folder: Path, write: Any, secret: Path
) -> None:
    await library.add(folder)
    write("tame.md", "# Tame\n\nNothing to see.\n").replace(secret)
    await library.add(folder)
    kept = holding(library.path, MARKER)
    (info,) = [info for info in await library.documents() if info.title == "Tame"]
    assert kept == ["catalogue.sqlite"]  # the name of the file alone
    await library.remove([info.id])
    assert holding(library.path, MARKER) == []


async def test_removed_documents_are_found_no_more(library: AsyncLibrary, folder: Path) -> None:
    ids = (await library.add(folder)).document_ids
    assert await library.remove(ids[:1]) == ids[:1]
    assert [info.id for info in await library.documents()] == ids[1:]
    assert await library.search("earthworms", k=3, mode=SearchMode.SPARSE) == []
    with pytest.raises(UnknownDocument):
        await library.document(ids[0])
    assert await library.verify() == []


async def test_a_removed_file_can_be_added_again(library: AsyncLibrary, folder: Path) -> None:
    ids = (await library.add(folder)).document_ids
    await library.remove([ids[0]])
    again = await library.add(folder)
    assert sorted(again.document_ids) == sorted(ids)
    assert [path.name for path in again.added] == ["badger.md"]


async def test_a_record_removed_from_among_others_comes_back_when_added(
    library: AsyncLibrary, write: Any, embedder: Any
) -> None:
    line = '{{"id": "{0}", "title": "{0}", "text": "About {0}."}}\n'.format
    path = write("trees.jsonl", line("oak") + line("elm"))
    await library.add(path)
    assert await library.remove(["oak"]) == ["oak"]
    assert [info.id for info in await library.documents()] == ["elm"]
    embedder.passages.clear()
    assert (await library.add(path)).document_ids == ["oak", "elm"]
    assert len(embedder.passages) == 1


async def test_removing_by_file_and_by_folder(library: AsyncLibrary, folder: Path) -> None:
    ids = (await library.add(folder)).document_ids
    assert await library.remove([folder / "heron.md"]) == [ids[1]]
    assert await library.remove([folder]) == [ids[0], ids[2]]
    assert await library.documents() == []
    assert await library.search("fish", k=3) == []


async def test_removing_the_unknown_removes_nothing(library: AsyncLibrary, folder: Path) -> None:
    ids = (await library.add(folder)).document_ids
    with pytest.raises(UnknownDocument, match="cannot remove nobody"):
        await library.remove([ids[0], "nobody"])
    assert len(await library.documents()) == 3


async def test_removing_what_was_only_stored(library: AsyncLibrary, folder: Path) -> None:
    ids = (await library.add(folder, index=False)).document_ids
    assert await library.remove([ids[1]]) == [ids[1]]
    assert await library.index_pending() > 0
    assert await library.verify() == []


async def test_an_interrupted_removal_is_finished_by_the_next_change(
    library: AsyncLibrary,
    folder: Path,
    secret: Path,
    embedder: Any,
    write: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await library.add(folder)
    gone = next(text for text in embedder.passages if MARKER in text)
    (vector,) = await embedder.embed([gone])

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EdgeIndex, "optimise", fail)
        with pytest.raises(KeyboardInterrupt):
            await library.remove([secret])
    await library.add(write("new.md", "Something new."))
    assert holding(library.path, MARKER) == []
    files = [path for path in (library.path / "index").rglob("*") if path.is_file()]
    assert not any(vector.tobytes() in path.read_bytes() for path in files)


@pytest.mark.parametrize("name", ["~nobody/x", "a\0b", "a" * 5000, "\udce9"])
async def test_removing_what_no_file_can_be_named(
    library: AsyncLibrary, folder: Path, name: str
) -> None:
    await library.add(folder)
    with pytest.raises(UnknownDocument, match="cannot remove"):
        await library.remove([name])
    assert len(await library.documents()) == 3


async def test_nothing_is_made_where_there_is_no_library(tmp_path: Path) -> None:
    async with AsyncLibrary(tmp_path / "none") as library:
        with pytest.raises(UnknownDocument):
            await library.remove(["a"])
        assert await library.verify(repair=True) == []
        assert await library.index_pending() == 0
    assert not (tmp_path / "none").exists()


async def test_what_a_server_kept_of_it_goes_and_all_else_stays(
    library: AsyncLibrary, write: Any, folder: Path
) -> None:
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
    assert holding(library.path, MARKER) == []
    assert sorted(file.name for file in runs.iterdir()) == ["two.json", "two.jsonl"]
    assert [file.name for file in sent.iterdir()] == ["other.md"]
    assert outside.exists()  # it is not the library's
