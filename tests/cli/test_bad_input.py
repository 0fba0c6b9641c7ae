"""Bad files: each gets one line, and the good ones are still answered over."""

import json
import os

import pytest

from colligate.documents.reading.pdf.ocr import find_language_data
from colligate.errors import MissingExtra
from support.documents import pack, scanned


def _pdf(content: bytes, *more: bytes, trailer: bytes = b"") -> bytes:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        *more,
    ]
    out, places = b"%PDF-1.4\n", []
    for number, written in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, written)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, rows)
    end = b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer)
    return out + table + end + b"startxref\n%d\n%%%%EOF\n" % len(out)


def _encrypted() -> bytes:
    password = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >>" % (b"ab" * 32, b"cd" * 32)
    return _pdf(b"0 0 9 9 re f", password, trailer=b"/Encrypt 5 0 R /ID [<00><00>]")


BAD = {
    "empty.txt": (b"", "it is empty"),
    "broken.pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 20, "the PDF is damaged"),
    "scanned.pdf": (_pdf(b"0 0 100 100 re f"), "it looks scanned; --ocr reads it"),
    "encrypted.pdf": (_encrypted(), "it is encrypted"),
    "renamed.txt": (bytes(range(256)) * 40, "not text but binary data"),
    "broken.docx": (b"PK\x03\x04 and then nothing", "its zip archive is damaged"),
    "bomb.docx": (pack({"word/document.xml": bytes(50_000_000)}), "unpack to more than"),
    "huge.txt": (b"word " * 20_000_000, "the limit is"),
}


def test_the_good_files_are_answered_over_and_each_bad_one_is_said(ask, folder):
    for name, (data, _) in BAD.items():
        (folder / name).write_bytes(data)
    (folder / "latin.txt").write_bytes("Café à la carte.\n".encode("latin-1"))
    done = ask(folder, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["short_answer"] == "1871"
    for name, (_, why) in BAD.items():
        said = [line for line in done.stderr.splitlines() if name in line and "warning" in line]
        assert len(said) == 1, (name, done.stderr)
        assert why in said[0]
        assert [w for w in answer["warnings"] if name in w and why in w], name
    assert [w for w in answer["warnings"] if "latin.txt" in w and "not UTF-8" in w]


@pytest.mark.posix
def test_what_may_not_be_read_is_said(asked, colligate, folder):
    if os.geteuid() == 0:  # the superuser may read anything, unless that is taken away
        powers = "-dac_override,-dac_read_search"
        colligate.wrapper = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]
    (folder / "locked").mkdir(mode=0)
    (folder / "secret.txt").write_text("Nobody may read this.\n")
    (folder / "secret.txt").chmod(0)
    try:
        done = colligate(*asked(folder))
    finally:
        (folder / "locked").chmod(0o700)
    assert done.returncode == 0, done.stderr
    for name in ("locked", "secret.txt"):
        [said] = [line for line in done.stderr.splitlines() if name in line]
        assert "permission denied" in said


@pytest.mark.parametrize("name", ["empty.txt", "encrypted.pdf", "broken.docx"])
def test_a_bad_file_alone_is_a_fault(ask, colligate, folder, name):
    data, why = BAD[name]
    path = folder / name
    path.write_bytes(data)
    for done in (ask(path), *(colligate.here(each, path) for each in ("tree", "index"))):
        assert (done.returncode, done.stdout) == (1, "")
        assert why in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].startswith("colligate: ")
        assert "Traceback" not in done.stderr


def test_a_scan_is_read_if_that_is_asked_for(colligate, tmp_path):
    scan = tmp_path / "scan.pdf"
    scan.write_bytes(scanned([["The tower was built in 1871."]]))
    index = ("index", scan, "--ocr", "--library", tmp_path / "papers", "--embedder", "static")
    colligate.environment["COLLIGATE_OCR"] = "xyz"
    refused = colligate.here(*index)
    assert refused.returncode == 1
    assert "has xyz.traineddata; pip install" in refused.stderr
    del colligate.environment["COLLIGATE_OCR"]
    try:
        find_language_data("eng")
    except MissingExtra as error:
        pytest.skip(str(error))
    assert "1 added" in colligate.here(*index).stdout
