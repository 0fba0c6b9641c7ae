"""Readers for the parser processes of a library, named as `support.readers:NAME`."""

import os
import signal
import time
from pathlib import Path

from colligate.documents.reading import read_file


def fragile(path):
    """A reader whose files fail as their names say."""
    if path.stem == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if path.stem == "quits":
        os._exit(3)
    if path.stem == "interrupted":  # Ctrl-C in a terminal reaches parsers too
        os.kill(os.getpid(), signal.SIGINT)
    if path.stem == "chatty":
        os.write(1, b"a parser prints what it likes\n")
    if path.stem == "broken":
        raise ZeroDivisionError("a bug in a parser")
    return read_file(path)


def noting(path):
    """A reader that appends each file's stem to `read.txt`, beside the folder of documents."""
    with (path.parent.parent / "read.txt").open("a") as notes:
        notes.write(f"{path.stem}\n")
    return fragile(path)


def endless(path):
    """A reader that writes its process id to a file and never ends."""
    Path(f"{path}.pid").write_text(str(os.getpid()))
    while True:
        time.sleep(60)


def stuck(path):
    """A reader that waits for ever, waits for a pipe, or takes memory as its files say."""
    if path.stem == "stuck":
        endless(path)
    if path.stem == "a-waits":
        path.with_suffix(".pipe").read_text()
    if path.stem == "hungry":
        taken = b"x" * (600 << 20)
        endless(path.with_suffix(f".{len(taken)}"))
    if path.stem == "greedy":
        bytearray(16 << 30)
    return read_file(path)


def kills_its_worker_once(path):
    """A reader that kills the process that started it, unless the file in `KILLED` exists.

    Empty files are not read by workers.
    """
    marker = Path(os.environ["KILLED"])
    if path.stat().st_size and not marker.exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)
    return read_file(path)
