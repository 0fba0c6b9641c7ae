"""llama.cpp in process: giving up, forking, damaged files and libraries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from colligate.errors import ModelError, WeightsUnavailable
from colligate.models.llama.libraries import VERSION, find_library_file, pull_libraries
from colligate.models.llama.model import LlamaCpp
from support.models import ask

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from colligate.errors import ModelError
from colligate.models import ChatRequest, Message
from colligate.models.llama.model import LlamaCpp
model = LlamaCpp(Path(sys.argv[1]), name="tiny", context_tokens=256, threads=1)
request = ChatRequest([Message("user", "Hello")], max_tokens=3)
ask = lambda: asyncio.run(model.chat(request))
print(ask().usage.output_tokens, flush=True)
"""
FORK = """
child = os.fork()
if not child:
    try:
        ask()
    except ModelError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(ask().usage.output_tokens, "again")
"""


def run(program: str, file: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, str(file)]
    environment = os.environ | settings
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_a_program_that_forgets_to_close_ends_quietly(tiny_gguf):
    ended = run(PROGRAM, tiny_gguf("llama", endless=True))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


@pytest.mark.posix
def test_a_forked_process_is_told_and_its_parent_goes_on(tiny_gguf):
    ended = run(PROGRAM + FORK, tiny_gguf("llama", endless=True))
    first, child, last = ended.stdout.splitlines()
    assert (ended.returncode, first, last, ended.stderr) == (0, "3", "3 again", "")
    assert "tiny" in child
    assert "forked" in child


def test_libraries_of_another_version_are_one_line(tiny_gguf, tmp_path):
    folder = shutil.copytree(pull_libraries(), tmp_path / "own")
    library = find_library_file(folder, "llama")
    assert library is not None
    version = VERSION.removeprefix("v").encode() + b"-"
    assert version in library.read_bytes()
    library.write_bytes(library.read_bytes().replace(version, b"0.4.9-"))
    ended = run(PROGRAM, tiny_gguf("llama", endless=True), COLLIGATE_LLAMA=str(folder))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "it is version 0.4.9" in last
    assert f"name a folder with version {VERSION} in COLLIGATE_LLAMA" in last


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
async def test_a_file_cut_short_is_one_line(tmp_path, tiny_gguf, open_model, capfd, share):
    data = tiny_gguf("llama").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"cut\.gguf") as caught:
        await ask(open_model(tmp_path / "cut.gguf"), max_tokens=1)
    assert isinstance(caught.value, WeightsUnavailable)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_another_file_of_the_same_name_is_another_version(tmp_path, tiny_gguf):
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    path.write_bytes(tiny_gguf("llama").read_bytes())
    versions = [LlamaCpp(path, name="gguf:model").version for _ in range(2)]
    other.write_bytes(path.read_bytes() + b"more")
    other.replace(path)
    versions.append(LlamaCpp(path, name="gguf:model").version)
    assert versions[0] == versions[1] != versions[2]
