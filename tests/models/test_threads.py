"""Threads that belong to one process, and end."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from colligate.concurrency import Threads
from colligate.errors import ModelError

FORKED = """
import asyncio, os
from colligate.errors import ModelError
from colligate.concurrency import Threads

threads = Threads("the model")

async def use():
    return await asyncio.wait_for(threads.run(lambda: "works"), 20)

print(asyncio.run(use()), flush=True)
child = os.fork()
if not child:
    try:
        asyncio.run(use())
    except ModelError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_does_not_wait_for_threads_it_has_not() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == (
        "works\nthe model belongs to another process: this one was forked from it;"
        " make the model anew\n"
    )


async def test_closing_waits_for_what_is_under_way_and_leaves_no_thread() -> None:
    threads, gate = Threads("the model", 2), threading.Event()
    asked = threads.run(gate.wait)
    gate.set()
    await threads.aclose()
    assert await asked
    assert not [thread for thread in threading.enumerate() if "the model" in thread.name]
    with pytest.raises(ModelError, match="the model was closed"):
        threads.run(gate.wait)
