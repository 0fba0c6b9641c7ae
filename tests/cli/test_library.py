"""`colligate index` and `colligate library`."""

import json
import sqlite3
from pathlib import Path
from typing import Any
from unittest import mock

import pytest


@pytest.fixture
def indexed(colligate: Any, folder: Path) -> list[dict[str, Any]]:
    done = colligate.here("index", folder, "--embedder", "static")
    assert done.returncode == 0, done.stderr
    listed = json.loads(colligate.here("library", "list", "--json").stdout)
    assert len(listed) == 2
    return list(listed)


def test_index_says_what_became_of_the_files(colligate, folder):
    (folder / "empty.txt").touch()
    done = colligate.here("index", folder, "--embedder", "static", "--json", "--workers", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["library"] == str(colligate.library)
    assert (said["added"], said["unchanged"], said["failed"]) == (2, 0, 1)
    assert said["passages"] >= 2
    assert len(said["documents"]) == 2
    assert "empty.txt" in said["failures"][0]
    again = colligate.here("index", folder, "--embedder", "static")
    assert again.stdout.startswith("files: 0 added, 0 updated, 2 unchanged, 1 failed")
    assert "embedded: 0" in again.stdout


def test_show_text_is_exactly_the_text(colligate, folder):
    text = "# Ünïcode\n\nfirst line\n\nsecond\u2028line \U0001f5fc end, no newline"
    (folder / "exact.md").write_text(text, encoding="utf-8")
    assert colligate.here("index", folder / "exact.md", "--embedder", "static").returncode == 0
    [document] = json.loads(colligate.here("library", "list", "--json").stdout)
    process = colligate.start("library", "show", document["id"], "--text")
    out, _ = process.communicate(timeout=30)
    assert out == text.encode()
    assert document["characters"] == len(text)


def test_show(colligate, indexed):
    tower = next(d for d in indexed if d["title"] == "The lighthouse")
    done = colligate.here("library", "show", tower["id"])
    assert "Building" in done.stdout
    shown = json.loads(colligate.here("library", "show", tower["id"], "--json").stdout)
    assert shown["document"] == tower["id"]
    assert shown["source"].endswith("tower.md")
    assert colligate.here("library", "show", "nothing-like-it").returncode == 2


def test_remove(colligate, indexed, folder):
    tower, harbour = (d["id"] for d in sorted(indexed, key=lambda d: d["title"], reverse=True))
    done = colligate.here("library", "remove", tower, "--embedder", "static")
    assert (done.returncode, done.stdout) == (0, f"removed {tower}\n")
    left = json.loads(colligate.here("library", "list", "--json").stdout)
    assert [each["id"] for each in left] == [harbour]
    done = colligate.here("library", "remove", tower)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    left = b"".join(p.read_bytes() for p in colligate.library.rglob("*") if p.is_file())
    assert b"Ada Mercer" not in left


def test_verify(colligate, indexed):
    done = colligate.here("library", "verify", "--embedder", "static")
    assert (done.returncode, done.stdout) == (0, "the library is whole\n")
    catalogue = sqlite3.connect(colligate.library / "catalogue.sqlite")
    with catalogue:
        catalogue.execute("UPDATE documents SET text = replace(text, '1871', '1999')")
    catalogue.close()
    done = colligate.here("library", "verify", "--embedder", "static", "--json")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["problems"]) == 1
    done = colligate.here("library", "verify", "--repair", "--embedder", "static")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "repaired"


def test_a_library_that_another_process_writes(colligate, ask, folder):
    assert ask(folder).returncode == 0
    other = sqlite3.connect(colligate.library / "catalogue.sqlite")
    other.execute("BEGIN IMMEDIATE")
    assert ask().returncode == 0
    with mock.patch("colligate.library.schema.WAIT_SECONDS", 0.1):
        done = colligate.here("library", "remove", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "another process is writing it; try again" in done.stderr.splitlines()[-1]
    other.close()
    assert colligate.here("library", "remove", folder).returncode == 0


def test_a_library_on_tables_is_made_listed_and_erased(colligate, folder, tmp_path):
    pytest.importorskip("lance")
    tables = tmp_path / "tables"

    def run(*arguments: str | Path, fails: bool = False) -> str:
        done = colligate.here(*arguments)
        assert bool(done.returncode) == fails, done.stderr
        return str(done.stderr if fails else done.stdout)

    named = ("--library", tables)
    run("index", folder, *named, "--engine", "lance", "--embedder", "static")
    assert (tables / "catalogue.lance").is_dir()
    listed = json.loads(run("library", "list", *named, "--json"))
    assert len(listed) == 2
    assert "made with lance" in run("index", folder, *named, "--engine", "sqlite", fails=True)
    assert "needs --library" in run("index", folder, "--engine", "lance", fails=True)
    looked = run("library", "list", "--library", tmp_path / "new", "--engine", "lance", fails=True)
    assert "--engine" in looked, "looking makes no library"
    assert run("library", "snapshot", "spring", *named) == "kept as spring\n"
    run("library", "remove", listed[0]["id"], *named)
    assert "delete them with" in run("library", "erase", *named, fails=True)
    restored = f"restored spring: 2 documents in {tables}\n"
    assert run("library", "restore", "spring", *named) == restored
    assert json.loads(run("library", "list", *named, "--json")) == listed
    run("library", "remove", listed[0]["id"], *named)
    assert run("library", "snapshot", *named) == "spring\n"
    assert run("library", "snapshot", "spring", "--delete", *named) == "deleted spring\n"
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    assert "keeps no older versions" in run("library", "snapshot", "spring", fails=True)
    assert run("library", "erase", *named) == "erased: nothing of removed documents is left\n"
    assert run("library", "verify", *named) == "the library is whole\n"
