"""`--pdf docling`: the commands that have it, and what names it elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from support.docling_report import install
from support.documents import text_pdf

pytestmark = pytest.mark.posix  # the stand-in is a script


@pytest.fixture
def report(folder: Path) -> Path:
    path = folder / "mill.pdf"
    path.write_bytes(text_pdf([["The mill"], ["stands."], ["There."], []]))
    return path


@pytest.fixture
def with_docling(colligate: Any, tmp_path: Path) -> Any:
    (tmp_path / "programs").mkdir()
    install(tmp_path / "programs")
    colligate.environment["PATH"] = str(tmp_path / "programs")
    return colligate


def test_option_and_variable_choose_it(with_docling, report):
    def by_docling(*options: str) -> bool:
        done = with_docling.here("tree", report, *options)
        assert done.returncode == 0, done.stderr
        return "1.1 Prices" in done.stdout

    assert not by_docling()
    assert by_docling("--pdf", "docling")
    with_docling.environment["COLLIGATE_PDF"] = "docling"
    assert by_docling()
    assert not by_docling("--pdf", "liteparse")


@pytest.mark.parametrize("command", ["ask", "index", "sync", "refine", "tree"])
def test_without_the_program_one_line_says_how(colligate, folder, report, tmp_path, command):
    colligate.environment["PATH"] = str(tmp_path)
    asking = ["Who built the tower?", "--model", "openai:m@http://127.0.0.1:9/v1"]
    asked = asking if command in ("ask", "refine") else []
    done = colligate.here(command, *asked, report, "--pdf", "docling")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "colligate: cannot read PDFs by docling: there is no program docling on the PATH; "
        "pipx install docling"
    )
