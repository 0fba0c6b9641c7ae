"""Word, PDF, Markdown and HTML as people have them: each known value is read, on its page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from colligate.documents.reading import read_file
from support.documents import squeeze

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "contracts.py"


def test_the_values_of_thirty_contracts_are_read(tmp_path):
    pytest.importorskip("PIL", reason="two of the contracts are scans")
    folder = tmp_path / "made"
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True)
    gold = json.loads((tmp_path / "made.gold.json").read_text("utf-8"))
    missed = []
    for name, contract in gold.items():
        if contract["scan"]:
            continue
        (document,) = read_file(folder / name).documents
        pages = {page.number: document.text[page.start : page.end] for page in document.pages}
        for column, values in contract["columns"].items():
            for found in values["found"]:
                page = pages[found["page"]] if pages else document.text
                # Where two tables of a PDF are read as one, a cell may be cut in two by a bar.
                if squeeze(found["text"]) not in squeeze(page.replace("|", "")):
                    missed.append((name, column, found))
    assert len(gold) == 30
    assert missed == []
