"""The real command in a process of its own, and what it is asked about."""

import io
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from colligate.cli import main
from support.prompts import passages_in

COMMAND = [sys.executable, "-m", "colligate"]


class Colligate:
    """Runs `colligate` with an environment of its own: weights from this machine, no settings.

    `colligate(...)` is a process; `colligate.here(...)` runs the same command line in this one,
    for what does not depend on streams and signals: starting Python takes most of the time.
    A test may change `environment`, or set a `wrapper`: a command that runs the process. The
    library is a new folder.
    """

    def __init__(self, folder: Path) -> None:
        self.library = folder / "library"
        self.wrapper: list[str] = []
        # Keys, proxies and models of whoever runs the tests are taken out for all tests.
        self.environment = {
            **os.environ,
            "COLLIGATE_LIBRARY": str(self.library),
            "XDG_CONFIG_HOME": str(folder / "configuration"),
            "PYTHONWARNINGS": "default",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "utf-8",
            "HF_HUB_OFFLINE": "1",
            "COLLIGATE_RERANKER": "none",  # the default takes a second or two a question
            "COLLIGATE_INDEX_URL": "http://127.0.0.1:9/simple",
        }
        for name in ("NO_COLOR", "FORCE_COLOR", "COLLIGATE_DEBUG", "COLUMNS"):
            self.environment.pop(name, None)

    def __call__(
        self, *arguments: str | Path, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.wrapper, *COMMAND, *map(str, arguments)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )

    def here(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        given = list(map(str, arguments))
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = main(given)
        return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())

    def start(self, *arguments: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=self.environment,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            | streams,
        )

    def in_terminal(
        self, *arguments: str | Path, width: int = 100, typed: str = ""
    ) -> tuple[int, str]:
        """Exit status, and all that a terminal with all streams on it received.

        What is `typed` waits there for a question.
        """
        fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))
        master, slave = pty.openpty()
        os.write(master, typed.encode())
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        environment = {**self.environment, "TERM": "xterm-256color"}
        with subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        ) as process:  # fmt: skip
            os.close(slave)
            received = b""
            while True:
                try:
                    piece = os.read(master, 65536)
                except OSError:  # Linux: the other end is closed
                    break
                if not piece:
                    break
                received += piece
        os.close(master)
        return process.returncode, received.decode("utf-8").replace("\r\n", "\n")


@pytest.fixture
def colligate(tmp_path: Path) -> Colligate:
    return Colligate(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two small documents."""
    made = tmp_path / "documents"
    made.mkdir()
    (made / "tower.md").write_text(
        "# The lighthouse\n\n## Building\n\nThe tower was built in 1871 by Ada Mercer. "
        "It is 41 metres high.\n\n## Light\n\nThe lamp burns rapeseed oil.\n",
        encoding="utf-8",
    )
    (made / "harbour.md").write_text(
        "# The harbour\n\nThe harbour was dredged in 1902. It takes ships of nine metres.\n",
        encoding="utf-8",
    )
    return made


@pytest.fixture
def replying() -> Callable[[str, str, str], Callable[[dict[str, Any]], str]]:
    """`replying(quote, sentence, short)` is a reader that cites the passage with the quote."""
    return _replying


def _replying(quote: str, sentence: str, short: str) -> Callable[[dict[str, Any]], str]:
    """A reader that cites `quote` from the passage that holds it, and finds nothing without."""

    def reply(body: dict[str, Any]) -> str:
        prompt = "\n".join(turn["content"] for turn in body["messages"])
        held = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        fields = set(held.get("properties", {}))
        shown = [
            number
            for number, text in passages_in(prompt).items()
            if " ".join(quote.split()) in " ".join(text.split())
        ]
        if "[ANSWER]" in prompt:  # the router of rdr2
            node = re.search(rf"^\t*(\d+): {re.escape(quote[:20])}", prompt, re.M)
            return f"[ANSWER] {node[1]}" if node else "Cannot answer"
        if "kind" in fields:
            said: dict[str, Any] = {"kind": "fact"}
        elif "judgements" in fields:
            numbers = re.findall(r"^Statement (\d+):", prompt, re.M)
            said = {"judgements": [{"number": int(n), "verdict": "supports"} for n in numbers]}
        elif "sub_agent_todos" in fields:
            said = {"sub_agent_todos": [{"task": "Note it."}], "synthesis_directive": ""}
        elif "action" in fields:
            action = "finalize" if "<passages>" in prompt else "search"
            report = f"1. Found: {sentence} “{quote}”" if shown else ""
            said = {"action": action, "query": quote, "relevance": len(shown), "findings": report}
        else:
            cited = [{"passage": n, "quote": quote, "sentence": sentence} for n in shown[:1]]
            said = {"statements": cited, "short_answer": short, "found": True}
            if not cited:
                said.update(short_answer="", found=False)
        return json.dumps(said)

    return reply


@pytest.fixture
def tower_reader(openai_server: Any) -> Any:
    """A server whose model knows when the tower was built, if it is shown the passage."""
    openai_server.answer = _replying(
        "The tower was built in 1871 by Ada Mercer.", "The tower was built in 1871.", "1871"
    )
    return openai_server


@pytest.fixture
def ask(colligate: Colligate, tower_reader: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ask(path...)` asks when the tower was built, with the quick embedder, in this process."""
    return lambda *arguments: colligate.here(*asking(tower_reader, *arguments))


def asking(server: Any, *arguments: str | Path) -> list[str | Path]:
    # What a test gives comes last, and so counts.
    named = ("--model", f"openai:reader@{server.url}", "--embedder", "static")
    return ["ask", *named, "When was the tower built?", *arguments]


@pytest.fixture
def asked(tower_reader: Any) -> Callable[..., list[str | Path]]:
    """The arguments of `ask`, for tests that start the process themselves."""
    return lambda *arguments: asking(tower_reader, *arguments)
