"""`colligate ask --proof` and `colligate audit`: are the cited words in the documents?"""

import json
from pathlib import Path
from typing import Any

import pytest

from support.documents import text_pdf


@pytest.fixture
def proof(ask: Any, folder: Path, tmp_path: Path) -> Path:
    """The proof of an answer that cites one sentence of a page of Markdown."""
    done = ask(folder, "--proof", tmp_path / "answer.proof.json")
    assert f"written to {tmp_path / 'answer.proof.json'}" in done.stderr
    return tmp_path / "answer.proof.json"


def audited(colligate: Any, file: Path, documents: Path) -> tuple[int, list[dict[str, Any]]]:
    done = colligate.here("audit", file, "--documents", documents, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_proof_holds_until_the_document_changes(colligate, proof, folder):
    tower = folder / "tower.md"
    text = tower.read_text("utf-8")
    (item,) = json.loads(proof.read_text())["items"]
    assert item["body"][0]["value"] == "The tower was built in 1871."
    for changed, status in (
        (text, "holds"),
        (text.replace("rapeseed", "whale"), "changed"),
        (text.replace("# Building", "# The building"), "elsewhere"),
        (text.replace("1871", "1872"), "missing"),
    ):
        tower.write_text(changed, "utf-8")
        code, [found] = audited(colligate, proof, folder)
        assert (found["status"], code) == (status, int(status != "holds"))
    tower.unlink()
    code, [found] = audited(colligate, proof, folder)
    assert (found["status"], code) == ("no document", 1)


def test_a_renamed_document_is_found_by_its_text(colligate, proof, folder):
    (folder / "tower.md").rename(folder / "renamed.md")
    done = colligate.here("audit", proof, "--documents", folder)
    assert done.returncode == 0
    _, row = done.stdout.splitlines()
    assert row.split("  ")[:2] == ["1", "holds"]
    assert "1 of 1 citations hold" in done.stderr


def test_a_proof_names_page_and_box_in_a_pdf(colligate, ask, folder, tmp_path):
    (folder / "tower.md").unlink()
    pages = [["Of the coast"], ["The tower was built in 1871 by Ada Mercer."]]
    (folder / "tower.pdf").write_bytes(text_pdf(pages))
    ask(folder, "--proof", tmp_path / "p.json")
    [first] = json.loads((tmp_path / "p.json").read_text())["items"]
    position, quoted, page = first["target"]["selector"]
    assert position["end"] - position["start"] == len(quoted["exact"])
    assert page["value"] == "page=2"
    unit, _, box = page["refinedBy"]["value"].partition(":")
    left, top, width, height = map(int, box.split(","))
    assert unit == "xywh=percent"
    assert 0 < left < 50
    assert 0 < top < 50
    assert width > height > 0
    assert (first["check"], first["verdict"], first["quoteFound"]) == ("model", "supports", "exact")
    assert audited(colligate, tmp_path / "p.json", folder)[0] == 0


def anthropic(kind: str, words: str, title: str | None, *place: int) -> dict[str, Any]:
    names = {
        "char": ("start_char_index", "end_char_index"),
        "page": ("start_page_number", "end_page_number"),
    }.get(kind, ("start_block_index", "end_block_index"))
    places = dict(zip(names, place, strict=True))
    cited = {"cited_text": words, "document_index": 0, "document_title": title, **places}
    return {"content": [{"text": "x", "citations": [{"type": f"{kind}_location", **cited}]}]}


DREDGED = "The harbour was dredged in 1902. "
FILE_CITATION = {"type": "file_citation", "file_id": "file-1", "filename": "tower.md", "index": 3}
URL_CITATION = {"url": "https://example.org", "title": "t", "start_index": 0, "end_index": 2}
OURS = {"document": "harbour-0000000000", "quote": DREDGED, "start": 15, "end": 48}


@pytest.mark.parametrize(
    ("cited", "status"),
    [
        (anthropic("char", DREDGED, "The harbour", 15, 48), "holds"),
        (anthropic("char", DREDGED, "harbour.md", 0, 33), "elsewhere"),
        (anthropic("char", "It was never dredged.", "harbour", 15, 36), "missing"),
        (anthropic("char", DREDGED, "The bay", 15, 48), "elsewhere"),
        (anthropic("content_block", DREDGED, None, 0, 1), "holds"),
        (anthropic("page", "built  in\n1871", "map.pdf", 2, 3), "holds"),
        (anthropic("page", "built in 1871", "map.pdf", 1, 2), "elsewhere"),
        ({"output": [{"annotations": [FILE_CITATION]}]}, "not checked"),
        ([{"type": "url_citation", "url_citation": URL_CITATION}], "not checked"),
        ({"annotations": [FILE_CITATION], "colligate": {"citations": [OURS]}}, "elsewhere"),
        ({"type": "Annotation", "target": {"source": "harbour.md", "selector": {}}}, "not checked"),
    ],
)
def test_citations_of_other_programs_are_checked(colligate, folder, tmp_path, cited, status):
    (folder / "map.pdf").write_bytes(text_pdf([["Of the coast"], ["It was built in 1871."]]))
    (tmp_path / "cited.json").write_text(json.dumps(cited))
    code, [found] = audited(colligate, tmp_path / "cited.json", folder)
    assert (found["status"], code) == (status, int(status != "holds"))


@pytest.mark.parametrize(
    ("written", "documents", "says"),
    [
        ("{", "FOLDER", "it is not JSON"),
        ("{}", "FOLDER", "cites nothing"),
        ('{"type": "Annotation", "target": 3}', "FOLDER", "cites nothing"),
        (json.dumps(FILE_CITATION), "FOLDER/none", "no such file or folder"),
    ],
)
def test_an_audit_of_nothing_is_wrong_usage(colligate, folder, tmp_path, written, documents, says):
    (tmp_path / "cited.json").write_text(written)
    place = documents.replace("FOLDER", str(folder))
    done = colligate.here("audit", tmp_path / "cited.json", "--documents", place)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]
