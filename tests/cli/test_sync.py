"""`colligate sync`, and web addresses on the command line."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.web import serve_web


@pytest.fixture
def sync(colligate: Any, folder: Path) -> Callable[..., Any]:
    """`sync(argument...)` after `folder`, with two documents, was indexed."""
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    return lambda *arguments: colligate.here("sync", *arguments)


def titles(colligate: Any) -> set[str]:
    listed = colligate.here("library", "list", "--json").stdout
    return {each["title"] for each in json.loads(listed)}


def test_it_says_what_has_changed(colligate, sync, folder):
    (folder / "tower.md").unlink()
    (folder / "harbour.md").write_text("# The old harbour\n\nIt was closed in 1960.\n")
    (folder / "ferry.md").write_text("# The ferry\n\nIt sails at noon.\n")
    done = sync()  # the folders that were named before
    assert done.returncode == 0, done.stderr
    *changes, summary = done.stdout.splitlines()
    assert changes == [
        f"added    {folder}/ferry.md",
        f"updated  {folder}/harbour.md",
        f"removed  {folder}/tower.md",
    ]
    assert summary.startswith("files: 1 added, 1 updated, 0 unchanged, 0 failed, 1 removed;")
    assert titles(colligate) == {"The old harbour", "The ferry"}
    said = json.loads(sync(folder, "--json").stdout)
    assert (said["unchanged"], said["removed"], said["changes"]) == (2, 0, [])


def test_a_folder_that_is_suddenly_empty_keeps_its_documents(colligate, sync, folder):
    shutil.copy(folder / "tower.md", folder / "tower-again.md")
    assert sync().returncode == 0
    away = folder.rename(folder.with_name("away"))
    gone = sync(folder)
    assert (gone.returncode, gone.stdout) == (2, "")
    assert f"no such file or folder: {folder};" in gone.stderr
    assert sync().returncode == 2  # nor is it taken for empty if it is not named
    folder.mkdir()  # as a mount point without its disk
    empty = sync()
    assert empty.returncode == 1
    assert (
        f"3 of 3 files of {folder} are gone: their documents are kept; `colligate sync --yes`"
        in empty.stderr
    )
    assert "0 removed, 3 missing;" in empty.stdout
    assert len(titles(colligate)) == 2
    removed = sync("--yes")
    assert removed.returncode == 0, removed.stderr
    assert removed.stdout.count("removed  ") == 3
    assert titles(colligate) == set()
    shutil.copytree(away, folder, dirs_exist_ok=True)
    assert sync().stdout.count("added    ") == 3


def test_a_removed_folder_is_not_read_again(colligate, sync, folder):
    assert colligate.here("library", "remove", folder).returncode == 0
    done = sync()
    assert done.returncode == 2
    assert "there is nothing to bring up to date" in done.stderr
    assert sync("--watch").returncode == 2


def test_files_named_by_themselves_are_followed_too(colligate, folder, tmp_path):
    (tmp_path / "single.md").write_text("# Single\n\nOne.\n")
    named = (folder, tmp_path / "single.md")
    assert colligate.here("index", *named, "--embedder", "static").returncode == 0
    (folder / "ferry.md").write_text("# The ferry\n\nIt sails at noon.\n")
    (folder / "tower.md").unlink()
    (tmp_path / "single.md").write_text("# Single\n\nAnother.\n")
    done = colligate.here("sync")
    assert done.returncode == 0, done.stderr
    *changes, _ = done.stdout.splitlines()
    assert [line.split()[0] for line in changes] == ["added", "updated", "removed"]
    assert titles(colligate) == {"The ferry", "The harbour", "Single"}


@pytest.mark.posix
def test_it_watches_until_it_is_interrupted(colligate, sync, folder):
    process = colligate.start("sync", "--watch", "--json")

    def next_changes() -> list[tuple[str, str]]:
        said = json.loads(process.stdout.readline())
        return [(each["change"], os.path.basename(each["file"])) for each in said["changes"]]  # noqa: PTH119

    assert next_changes() == []
    (folder / "ferry.md").write_text("# The ferry\n\nIt sails at noon.\n")
    assert next_changes() == [("added", "ferry.md")]
    # The library is free meanwhile.
    assert "The ferry" in titles(colligate)
    assert colligate.here("library", "remove", folder / "ferry.md").returncode == 0
    (folder / "tower.md").unlink()
    assert sorted(next_changes()) == [("added", "ferry.md"), ("removed", "tower.md")]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert f"watching {folder}; Ctrl-C ends it" in err.decode()


def test_an_answer_cites_the_address(ask, colligate, folder):
    with serve_web() as web:
        web.pages["/tower"] = ("text/markdown", (folder / "tower.md").read_text())
        done = ask(f"{web.url}/tower", "--json")
        assert done.returncode == 0, done.stderr
        (citation,) = json.loads(done.stdout)["citations"]
        assert citation["source"] == f"{web.url}/tower"
        web.pages["/tower"] = ("text/markdown", "# The tower\n\nIt was pulled down.\n")
        synced = colligate.here("sync")
        assert f"updated  {web.url}/tower" in synced.stdout
        assert colligate.here("library", "show", f"{web.url}/tower").returncode == 0
        assert colligate.here("library", "remove", f"{web.url}/tower").returncode == 0
        assert titles(colligate) == set()
        shown = colligate.here("tree", f"{web.url}/tower")
        assert shown.returncode == 2
        assert "a web address is read only into a library" in shown.stderr
        missing = ask(f"{web.url}/nothing")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.splitlines()[-1] == (
            f"colligate: cannot fetch {web.url}/nothing: HTTP 404 Not Found; check the address"
        )
