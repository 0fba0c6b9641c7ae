import os
from pathlib import Path

import pytest

from colligate.documents.reading import find_files, read_file
from colligate.errors import MissingPath, NoDocuments, ReadingError, UnsupportedFormat


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("words")


def names(found: object, folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in found.files]  # type: ignore[attr-defined]


TREE = ["b.md", "a.txt", "sub/deep/c.html", "sub/b.pdf", "~draft.md", "report [1].md"]
TREE += [".hidden.md", ".git/x.md", "~$b.md"]  # the last is there while a program has b.md open
VISIBLE = ["a.txt", "b.md", "report [1].md", "~draft.md", "sub/b.pdf", "sub/deep/c.html"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["."], VISIBLE),
        (["b.md", ".", "b.md"], ["b.md", *(name for name in VISIBLE if name != "b.md")]),
        (["sub/deep", "sub"], ["sub/deep/c.html", "sub/b.pdf"]),
        (["report [1].md"], ["report [1].md"]),
        (["~draft.md"], ["~draft.md"]),
    ],
)
def test_what_files_and_folders_name(tmp_path, monkeypatch, given, found):
    make(tmp_path, *TREE)
    monkeypatch.chdir(tmp_path)
    files = find_files(given)
    assert [str(path) for path in files.files] == found
    assert files.problems == ()


COMPOSED, DECOMPOSED = "\u00fc/\u00dcbung.md", "u\u0308/U\u0308bung.md"


@pytest.mark.parametrize(("made", "named"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_file_is_found_however_its_letters_are_composed(tmp_path, made, named):
    make(tmp_path, made)
    for given in (tmp_path / named, (tmp_path / named).parent):
        found = find_files([given])
        assert (names(found, tmp_path), found.problems) == ([made], ())
    (document,) = read_file(tmp_path / named).documents
    assert document.id.startswith("\u00fcbung-")


def test_loops_of_symbolic_links_end(tmp_path):
    make(tmp_path, "sub/a.md")
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "Alias.md").symlink_to(tmp_path / "sub" / "a.md")
    for name in ("one", "two", "three"):
        (tmp_path / "sub" / name).symlink_to(tmp_path)
    found = find_files([tmp_path])
    assert names(found, tmp_path) == ["sub/a.md"]
    (problem,) = found.problems
    assert "self" in str(problem)


def test_a_folder_in_very_many_others_is_found(tmp_path):
    deep = tmp_path
    for _ in range(1_200):
        deep = deep / "a"
        deep.mkdir()
    make(deep, "a.md")
    make(tmp_path, "b.md")
    assert find_files([tmp_path]).files == (tmp_path / "b.md", deep / "a.md")
    (deep / "a.md").unlink()
    os.removedirs(deep)  # which pytest cannot


def test_of_unknown_kinds_text_is_in_and_the_rest_counted_in_one_line(tmp_path):
    make(tmp_path, "a.md", "LICENSE", "Apache-2.0", "notes.weird")
    for name in ("p.png", "q.png", "z.bin"):
        (tmp_path / name).write_bytes(b"\x89PNG\x00\x01")
    found = find_files([tmp_path])
    assert names(found, tmp_path) == ["Apache-2.0", "LICENSE", "a.md", "notes.weird"]
    (problem,) = found.problems
    assert isinstance(problem, UnsupportedFormat)
    assert "were skipped: 3" in str(problem)
    assert ".bin, .png" in str(problem)
    assert names(find_files([tmp_path / "p.png"]), tmp_path) == ["p.png"]  # named directly


def test_what_is_missing_is_said_and_the_rest_found(tmp_path):
    make(tmp_path, "a.md")
    (tmp_path / "empty").mkdir()
    missing = [tmp_path / "nope.md", f"{tmp_path}/*.pdf", "\x00", "", "~nobody-of-this-name/a.md"]
    found = find_files([tmp_path / "a.md", *missing, tmp_path / "empty"])
    assert names(found, tmp_path) == ["a.md"]
    assert [type(problem) for problem in found.problems] == [MissingPath] * 5 + [NoDocuments]
    assert all("\n" not in str(problem) for problem in found.problems)
    assert "nope.md" in str(found.problems[0])


def test_a_folder_without_permission_is_said_and_the_rest_found(tmp_path, monkeypatch):
    make(tmp_path, "a.md", "locked/b.md")
    scandir = os.scandir

    def refusing(path: Path) -> object:  # as the system does for anyone but root
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = find_files([tmp_path])
    assert names(found, tmp_path) == ["a.md"]
    (problem,) = found.problems
    assert isinstance(problem, ReadingError)
    assert "locked" in str(problem)


@pytest.mark.posix
def test_a_pipe_named_directly_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    found = find_files([tmp_path / "pipe.txt"])
    assert found.files == ()
    (problem,) = found.problems
    assert isinstance(problem, UnsupportedFormat)
    assert "not a regular file" in str(problem)


@pytest.mark.linux
def test_a_name_that_is_not_utf8_costs_one_file(tmp_path):
    make(tmp_path, "good.md", os.fsdecode(b"bad\xff.md"))
    found = find_files([tmp_path])
    assert names(found, tmp_path) == ["good.md"]
    (problem,) = found.problems
    assert isinstance(problem, ReadingError)
    assert "not UTF-8" in str(problem)


def test_folders_to_be_left_out_are(tmp_path):
    make(tmp_path, "a.md", "library/b.md")
    assert names(find_files([tmp_path], without=[tmp_path / "library"]), tmp_path) == ["a.md"]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A folder with links: inside it, to a folder beside it, and to two files there."""
    make(tmp_path, "archive/a.md", "archive/deep/b.md", "secret/private.md", "secret/key.txt")
    archive = tmp_path / "archive"
    (archive / "again").symlink_to(archive / "deep")
    (archive / "c.md").symlink_to("deep/b.md")
    (archive / "more").symlink_to("../secret")
    (archive / "deep" / "key.txt").symlink_to(tmp_path / "secret" / "key.txt")
    (archive / "gone.md").symlink_to(tmp_path / "nowhere.md")
    return archive


def test_links_out_of_the_folder_are_counted_and_not_followed(archive):
    found = find_files([archive])
    assert names(found, archive) == ["a.md", "again/b.md"]
    (problem,) = found.problems
    assert str(problem) == (
        f"links that lead out of {archive} are not followed: 2; name what they lead to"
    )


def test_links_lead_where_something_else_was_named(archive):
    key = archive.parent / "secret" / "key.txt"
    found = find_files([archive, key])
    assert {path.name for path in found.files} == {"a.md", "b.md", "key.txt"}
    (problem,) = found.problems
    assert "are not followed: 1" in str(problem)
    assert find_files([archive, archive.parent / "secret"]).problems == ()
    assert find_files([archive.parent]).problems == ()


def test_all_links_are_followed_when_asked_for(archive):
    found = find_files([archive], follow_links=True)
    assert {path.name for path in found.files} == {"a.md", "b.md", "private.md", "key.txt"}
    assert found.problems == ()


def test_a_link_that_is_named_itself_is_followed(archive):
    assert len(find_files([archive / "more"]).files) == 2
    assert len(find_files([archive / "deep" / "key.txt"]).files) == 1
