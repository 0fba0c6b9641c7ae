"""`colligate chat`: questions one after another."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIRST = "When was the tower built?"
WHOLE = "How high is the tower that was built in 1871?"


@pytest.fixture
def chatting(colligate: Any, openai_server: Any, replying: Any, folder: Path) -> list[str]:
    """The arguments of a chat over two documents, with a model that knows two facts."""
    built = replying("The tower was built in 1871 by Ada Mercer.", "It was built in 1871.", "1871")
    high = replying("It is 41 metres high.", "It is 41 metres high.", "41 metres")

    def reply(body: dict[str, Any]) -> str:
        if "complete the last question" in body["messages"][0]["content"]:
            return WHOLE
        asked = body["messages"][-1]["content"]
        return str((high if WHOLE in asked else built)(body))

    openai_server.answer = reply
    model = f"openai:reader@{openai_server.url}"
    return ["chat", str(folder), "--model", model, "--embedder", "static"]


@pytest.fixture
def chat(colligate: Any, chatting: list[str]) -> Callable[..., tuple[int, str, str]]:
    """`chat(text, option...)` gives the command this text as standard input."""

    def run(text: str, *options: str) -> tuple[int, str, str]:
        process = colligate.start(*chatting, *options, stdin=subprocess.PIPE)
        out, err = process.communicate(text.encode(), timeout=60)
        return process.returncode, out.decode(), err.decode()

    return run


def test_each_line_is_a_question_that_may_point_back(chat, colligate, chatting):
    at = chatting.index("--model")
    colligate.environment["COLLIGATE_MODEL"] = chatting[at + 1]
    del chatting[at : at + 2]
    status, out, err = chat(f"{FIRST}\n\nAnd how high is it?\n")
    assert status == 0, err
    assert "It was built in 1871. [1]" in out
    assert "It is 41 metres high. [1]" in out
    assert f"asked as: {WHOLE}" in err
    assert err.count("model: openai:reader@") == 1
    assert "Traceback" not in err


def test_as_json_an_object_a_line_and_the_status_of_the_last_question(chat, folder):
    status, out, err = chat(f"{FIRST}\nWho owns it?\n", "--json", "--where", "title~harbour")
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["found"] for answer in answers] == [False, False]
    assert status == 3, err


def test_a_wrong_strategy_is_said_before_a_question_is_read(chat):
    status, _, err = chat("", "--strategy", "nosuch")
    assert status == 2
    assert "nosuch" in err


def test_an_error_ends_one_question_not_the_chat(chat, colligate, chatting, openai_server, folder):
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    chatting.remove(str(folder))  # without a path the library is asked
    openai_server.fail(401, "the key is wrong")
    status, out, err = chat(f"{FIRST}\n{FIRST}\n")
    assert err.count("colligate: ") == 1
    assert "It was built in 1871. [1]" in out
    assert status == 0


class Terminal:
    """`colligate chat` in a terminal."""

    def __init__(self, colligate: Any, arguments: list[str]) -> None:
        self._master, slave = pytest.importorskip("pty").openpty()
        ends = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = colligate.start(*arguments, **ends, start_new_session=True)
        os.close(slave)
        self.screen = ""

    def wait_for(self, text: str) -> None:
        while text not in self.screen:
            ready, _, _ = select.select([self._master], [], [], 30)
            assert ready, self.screen
            self.screen += os.read(self._master, 65536).decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def test_in_a_terminal_it_asks_answers_stops_and_leaves(colligate, chatting, openai_server):
    pytest.importorskip("readline")
    colligate.environment["TERM"] = "xterm"
    terminal = Terminal(colligate, chatting)
    try:
        terminal.wait_for("? ")
        terminal.type(f"{FIRST}\n")
        terminal.wait_for("It was built in 1871.")
        terminal.screen = terminal.screen.partition("It was built in 1871.")[2]
        terminal.wait_for("? ")
        terminal.type("\x1b[A")  # an arrow key brings back the question
        terminal.wait_for(FIRST)
        terminal.type("\n")
        terminal.wait_for("asked as: ")
        terminal.wait_for("? ")
        openai_server.hold()
        openai_server.arrived.clear()
        terminal.type("And how high is it?\n")
        assert openai_server.arrived.wait(30)
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.wait_for("stopped; ask again")
        openai_server.release()
        terminal.wait_for("? ")
        terminal.type("exit\n")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.close()
