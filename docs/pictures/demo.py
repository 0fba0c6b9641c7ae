"""Draw `demo.svg`: a question to the licences, run for real in a terminal.

python docs/pictures/demo.py
"""

from __future__ import annotations

import io
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
QUESTION = (
    "How many days does a violator have to cure a first violation under the GPL version 3, "
    "and how many under the Mozilla Public License 2.0?"
)
COLUMNS = 100


def run_in_terminal(command: list[str]) -> str:
    """What a command prints to a terminal; its notes go to this script's standard error."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    settings.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=theirs, env=settings, cwd=HERE.parent.parent) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # Linux says the other end is closed with an error
                break
            if not piece:
                break
            printed += piece
    if process.returncode:
        raise SystemExit(f"the command failed with status {process.returncode}")
    return printed.decode().replace("\r\n", "\n")


COMMAND = ["ask", QUESTION, "examples/licences"]


def main() -> None:
    """Run the command and draw what it prints."""
    program = Path(sys.executable).with_name("colligate")
    printed = run_in_terminal([str(program), *COMMAND])
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ colligate {shlex.join(COMMAND)}", style="bold"))
    console.print()
    console.print(Text.from_ansi(printed))
    (HERE / "demo.svg").write_text(console.export_svg(title="colligate"), encoding="utf-8")


if __name__ == "__main__":
    main()
