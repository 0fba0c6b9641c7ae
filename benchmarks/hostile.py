"""Attack colligate and count what fails: hostile files, endpoints, clients, kills and full disks.

    python benchmarks/hostile.py [--rows NAME...] [--seed 0] [--kills 20] [--keep FOLDER]

NAME is that of a row, or its beginning; of full disks there are at most 16; FOLDER keeps the files.
Prints one JSON object a row: tries, failures, seconds; for files also the slowest try and the
largest memory of a parser. A file, read as `colligate index` reads it, fails if its error is not a
typed one, if it took over 60 s, or if its parser took over 1 GB for a file under 10 MB. `caught`
counts parsers that crashed or raised anything: each costs its file alone. The other rows say in
their docstrings what a failure is. Another row is a function with `@row`, which returns a `Result`.
The fake endpoint and the served command are those of `tests/support`.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import os
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from colligate import Engine, Settings
from colligate.core.strategy import list_strategies
from colligate.errors import ColligateError
from colligate.library.library import AsyncLibrary
from colligate.models import ChatRequest, Message
from colligate.models.openai import OpenAIChat
from results import ROOT, read_arguments

sys.path.append(str(ROOT / "tests"))
from support.brain import Reader
from support.documents import pack
from support.http_server import quoting, start_command
from support.office import OFFICE, relations
from support.server import OpenAIServer, Scripted

SECONDS, SMALL, MEMORY = 60.0, 10_000_000, 1_000_000_000
DOCS = ROOT / "docs"


@dataclass
class Result:
    """The outcome of a row: how many tries, and a line for each that failed."""

    tries: int
    failures: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


Row = Callable[[Path, random.Random, int], Result]
Files = Iterator[tuple[str, bytes]]
ROWS: dict[str, Row] = {}
FILES: dict[str, Callable[[random.Random], Files]] = {}


def row(name: str, into: dict[str, Any] = ROWS) -> Callable[[Any], Any]:
    """Register a function as a row; it gets an empty folder, a seeded generator and `--kills`."""

    def register(function: Any) -> Any:
        into[name] = function
        return function

    return register


# Files

files = partial(row, into=FILES)
"""Register a function that yields names and contents of files, as a row that reads them."""


def _read_files(name: str, folder: Path, chance: random.Random, _: int) -> Result:
    paths = []
    for file, data in FILES[name](chance):
        paths.append(folder / file)
        paths[-1].write_bytes(data)
    return read(paths, folder / "libraries")


def read(paths: list[Path], libraries: Path) -> Result:
    """Read each file into a library of its own, as `colligate index` does, and judge it."""
    result = Result(len(paths))
    slowest = largest = 0.0
    caught = 0
    for number, path in enumerate(paths):
        with _Watch() as watch:
            error = asyncio.run(_add(path, libraries / str(number)))
        slowest, largest = max(slowest, watch.seconds), max(largest, watch.memory)
        small = not path.is_file() or path.stat().st_size < SMALL
        if watch.seconds > SECONDS:
            result.failures.append(f"{path.name}: {watch.seconds:.0f} s")
        elif small and watch.memory > MEMORY:
            result.failures.append(f"{path.name}: {watch.memory / 1e6:.0f} MB")
        elif error is not None and not isinstance(error, ColligateError):
            result.failures.append(f"{path.name}: {type(error).__name__}: {error}"[:200])
        elif error is not None and ("crashed (" in error.why or " failed (" in error.why):
            caught += 1
    result.facts = {"caught": caught, "slowest_s": round(slowest, 1), "parser_mb": largest // 1e6}
    return result


async def _add(path: Path, library: Path) -> Exception | None:
    """Return the error of one file, or None."""
    try:
        async with AsyncLibrary(library, embedder="static") as opened:
            added = await opened.add(path, workers=1)
    except Exception as error:
        return error
    return next((error for _, error in added.failed), next(iter(added.problems), None))


class _Watch(threading.Thread):
    """Measures seconds, and the largest resident memory of any child process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.memory = self.seconds = 0.0
        self._over = threading.Event()

    def __enter__(self) -> _Watch:
        self._begun = time.perf_counter()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._over.set()
        self.join()

    def run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(0.02):
            for listed in Path("/proc/self/task").glob("*/children"):
                try:
                    for child in listed.read_text().split():
                        held = Path(f"/proc/{child}/statm").read_text().split()[1]
                        self.memory = max(self.memory, int(held) * page)
                except (OSError, IndexError):
                    continue


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with some changed, cut out, doubled or put elsewhere."""
    made = bytearray(data)
    for _ in range(chance.choice([1, 3, 10, 40])):
        at, length = chance.randrange(len(made) or 1), chance.choice([1, 4, 60, 1000])
        match chance.randrange(4):
            case 0:
                made[at : at + length] = chance.randbytes(length)
            case 1:
                del made[at : at + length]
            case 2:
                made[at:at] = made[at : at + length] * chance.choice([1, 50])
            case _:
                made[at : at + 1] = bytes([chance.choice(b"\x00\xff<>[](){}\"'|\\\n")])
    return bytes(made)


def pdf(operators: bytes) -> bytes:
    """Return a PDF of one page that shows what the operators say."""
    packed = zlib.compress(operators, 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n" % len(packed) + packed + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(made))
    return made + head + table + tail


LINES = b"BT /F1 12 Tf 50 700 Td " + b"(Words of a page.) Tj 0 -14 Td " * 40 + b"ET"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def package(main: str, content: str, **members: str) -> bytes:
    """Return an office file of its main part, and of others beside it by their names."""
    beside = {f"{main.partition('/')[0]}/{name}": text for name, text in members.items()}
    related = relations(("r1", "officeDocument", main))
    return pack({"[Content_Types].xml": TYPES, "_rels/.rels": related, main: content, **beside})


def docx(body: str, head: str = "") -> bytes:
    document = f"{head}<w:document {W}><w:body>{body}</w:body></w:document>"
    return package("word/document.xml", document)


def xlsx(rows: str) -> bytes:
    sheet = f'<worksheet xmlns="{SHEETS}"><sheetData>{rows}</sheetData></worksheet>'
    book = (
        f'<workbook xmlns="{SHEETS}" xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="One" sheetId="1" r:id="r1"/></sheets></workbook>'
    )
    related = relations(("r1", "worksheet", "worksheets/s1.xml"))
    beside = {"_rels/workbook.xml.rels": related, "worksheets/s1.xml": sheet}
    return package("xl/workbook.xml", book, **beside)


def epub(chapter: str) -> bytes:
    return pack(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container version="1.0" xmlns="urn:oasis:names:tc:'
            'opendocument:xmlns:container"><rootfiles><rootfile full-path="c.opf" '
            'media-type="application/oebps-package+xml"/></rootfiles></container>',
            "c.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/>'
            '<manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
            '</manifest><spine><itemref idref="a"/></spine></package>',
            "a.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{chapter}</body></html>',
        }
    )


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def cells(*texts: str) -> str:
    return "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(12)
)
OUTSIDE = '<!DOCTYPE x [<!ENTITY m SYSTEM "file:///etc/passwd">]>'


@files("csv: tall")
def _tall(chance: random.Random) -> Files:
    for rows in (1_000, 60_000, 120_000, 500_000, 1_000_000):
        yield f"short-{rows}.csv", b"a,b\n" * rows
        yield f"one-{rows}.csv", b"7\n" * rows
    for rows in (60_000, 120_000):
        lines = (f"{n},name {chance.random():.6f},2024-01-01\n" for n in range(rows))
        yield f"plain-{rows}.csv", "".join(lines).encode()


@files("csv: wide, torn, odd")
def _wide(chance: random.Random) -> Files:
    for width in (1_000, 20_000, 300_000):
        head = ",".join("a" * width)
        yield f"head-{width}.csv", head.encode() + b"\n" + b"c\n" * width
        yield f"wide-{width}.tsv", ("\t".join("a" * width) + "\n").encode()
    yield "quote.csv", b'"' + b"a,b\n" * 200_000
    yield "quotes.csv", b'"",' * 300_000
    yield "bars.csv", b"|||\n" * 200_000
    yield "commas.csv", b"," * 2_000_000
    yield "wrong.csv", chance.randbytes(50_000).replace(b"\0", b"a")
    yield "cr.csv", b"a,b\r" * 200_000


@files("text: blanks and long lines")
def _text(_: random.Random) -> Files:
    yield "feeds.txt", b"first" + b"\n" * 30_000_000 + b"last"
    yield "feeds.md", b"first" + b"\n" * 5_000_000 + b"last"
    yield "spaces.txt", b"first" + b" " * 9_000_000 + b"last"
    yield "tabs.md", b"\t" * 3_000_000 + b"x"
    yield "line.txt", b"x" * 9_000_000
    yield "words.txt", b"word " * 1_900_000
    yield "lines.txt", b"x\n" * 3_000_000
    yield "blocks.txt", b"x\n\n" * 1_000_000
    yield "numbers.txt", b"".join(b"%d. Title\n\n" % n for n in range(200_000))
    yield "rules.txt", b"Title\n=====\n\n" * 300_000
    yield "blank.txt", b" \n" * 1_000_000
    yield "dots.txt", b". " * 3_000_000


@files("text: encodings")
def _encodings(chance: random.Random) -> Files:
    yield "half.txt", b"\xff\xfea\0b"
    yield "wide.txt", "wide words ".encode("utf-32") * 1_000
    yield "torn.txt", "naïve café ".encode() * 1_000 + b"\xc3"
    yield "latin.txt", "Grüße aus Köln ".encode("latin-1") * 20_000
    yield "nul.txt", b"words" + b"\0" * 100_000
    yield "noise.txt", bytes(chance.choices(range(32, 256), k=500_000))
    yield "surrogates.txt", b"\xed\xa0\x80" * 10_000
    yield "marks.txt", ("a" + "\u0301" * 300_000).encode()
    yield "turned.txt", "\u202eabc\u2066".encode() * 50_000
    yield "mark.txt", b"\xef\xbb\xbf" * 10_000
    yield "control.txt", b"\x1b[2J\x07words " * 10_000
    yield "astral.txt", "\U0001f9ff".encode() * 300_000


@files("markdown: nested")
def _markdown(_: random.Random) -> Files:
    yield "quotes.md", b">" * 200_000 + b" x"
    yield "lists.md", b"".join(b"  " * n + b"- x\n" for n in range(2_000))
    yield "brackets.md", b"# " + b"[" * 100_000
    yield "links.md", b"# " + b"[a](" * 50_000
    yield "stars.md", b"# " + b"*a " * 50_000
    yield "ticks.md", b"# " + b"".join(b"`" * n + b" " for n in range(1_000))
    yield "headings.md", b"# a\n" * 200_000
    yield "fence.md", b"```\n" * 200_000
    yield "table.md", b"|" * 20_000 + b"\n" + b"|-" * 20_000 + b"|\n" + b"|a" * 20_000
    yield "definitions.md", b"[a]: b\n" * 200_000
    yield "html.md", b"<div>\n" * 100_000
    yield "front.md", b"---\na: b\n" + b"c: d\n" * 200_000
    yield "nested.md", b"---\na: " + b"[" * 18_000 + b"\n---\n"


_UNCLOSED = {
    "tex": ("\\begin{verbatim}\n", "\\[ a ", "\\iffalse ", "\\a{", "\\verb|", "\\footnote{a}"),
    "bib": ("@a{b,", "a={", "@a{b, c={d}}\n"),
    "org": ("[[a][", "#+begin_src\n", "| a ", "* a\n"),
    "adoc": (":a: {a}{a}{a}\n", "|===\n|a ", "footnote:[", ". a\n", "link:"),
    "rst": (".. a::\n   ", "+---+\n| a |\n", "`a <", "==== ====\na b\n", "   .. note:: x\n"),
    "xml": ("<article><sec>", "<article><info><title>a</title></info><para>&a;"),
    "json": ("[", '{"a":', "[[1],"),
    "md": ("[^1] ", "word.<sup>", "[1](", "+++\na=1\n"),
}


@files("markup: unclosed")
def _markup(_: random.Random) -> Files:
    for suffix, pieces in _UNCLOSED.items():
        for number, piece in enumerate(pieces):
            yield f"{number}.{suffix}", (piece * (300_000 // len(piece))).encode()


@files("html: tags and nesting")
def _html(_: random.Random) -> Files:
    for count in (9_000, 200_000):
        attributes = " ".join(f"a{n}='x'" for n in range(count))
        yield f"attributes-{count}.html", f"<html><p {attributes}>words</p>".encode()
    yield "glued.html", b"<p " + b"a='>'" * 200_000 + b">words"
    yield "quote.html", b"<p a='" + b"b=c " * 200_000
    yield "deep.html", b"<div>" * 300_000 + b"x"
    yield "lists.html", b"<ul><li>" * 100_000 + b"x"
    yield "open.html", b"<p>x<b>y" * 100_000
    yield "tables.html", b"<table><tr><td>" * 3_000 + b"x"
    yield "span.html", b"<table><tr><td colspan=1000000000 rowspan=1000000000>x</table>"
    yield "entities.html", b"&amp;&#x110000;&bogus;" * 100_000
    yield "comment.html", b"<html><!--" + b"<p>" * 500_000
    yield "script.html", b"<html><script>" + b"if (a<b && c) { x } " * 100_000


@files("wikitext")
def _wikitext(_: random.Random) -> Files:
    items = (b"*" * (1 + n % 300) + b" item\n" for n in range(5_000))
    yield "lists.wiki", b"".join(items)
    yield "mixed.wiki", b"".join(b"*#:;" * (n % 80) + b" item\n" for n in range(3_000))
    yield "templates.wiki", b"{{a|" * 5_000
    yield "arguments.wiki", b"{{{a|" * 5_000
    yield "links.wiki", b"[[a|" * 20_000
    yield "closed.wiki", b"{{a|b}}" * 100_000
    yield "table.wiki", b"{|\n" * 1_000 + b"| x\n"
    yield "rows.wiki", b"{|\n" + b"|-\n| a || b\n" * 20_000 + b"|}"
    yield "tags.wiki", b"<ref>" * 50_000
    yield "pairs.wiki", b"<b><i>" * 900 + b"x" + b"</i></b>" * 900
    yield "quotes.wiki", b"'''a''b" * 50_000
    yield "equals.wiki", b"=" * 100_000 + b"\n"


@files("pdf: bombs")
def _pdf(_: random.Random) -> Files:
    for count in (10_000, 300_000, 3_000_000):
        yield f"shows-{count}.pdf", pdf(b"BT /F1 9 Tf " + b"(a) Tj " * count + b"ET")
    yield "lines.pdf", pdf(b"0 0 m 9 9 l S " * 1_000_000)
    yield "states.pdf", pdf(b"q " * 1_000_000 + LINES)
    yield "long.pdf", pdf(b"BT /F1 9 Tf (" + b"a" * 20_000_000 + b") Tj ET")
    yield "self.pdf", pdf(LINES).replace(b"/Parent 2 0 R", b"/Parent 3 0 R")
    yield "kids.pdf", pdf(LINES).replace(b"/Kids[3 0 R]", b"/Kids[2 0 R]")
    yield "count.pdf", pdf(LINES).replace(b"/Count 1", b"/Count 2000000000")
    yield "huge.pdf", pdf(LINES).replace(b"600 800", b"9e9 9e9")
    yield "length.pdf", pdf(LINES).replace(b"/Length ", b"/Length 9999999")
    yield "crypt.pdf", pdf(LINES).replace(b"/Root", b"/Encrypt<</Filter/Standard>>/Root")


@files("archives: bombs and entities")
def _archives(_: random.Random) -> Files:
    zeros = "0" * (60 << 20)
    yield "zeros.docx", docx(zeros)
    yield "zeros.xlsx", xlsx(zeros)
    yield "zeros.epub", epub(zeros)
    yield "nested.docx", pack({"word/document.xml": pack({"a": pack({"b": zeros})})})
    yield "members.docx", pack({f"word/{n}": b"" for n in range(30_000)})
    yield "laughs.docx", docx(paragraph("&m;"), BOMB + "]>")
    yield "outside.docx", docx(paragraph("&m;"), OUTSIDE)
    yield "laughs.xhtml", f"{BOMB}]><html><body>&m;</body></html>".encode()
    yield "laughs.epub", epub("&m;")
    yield "bomb.jsonl.gz", gzip.compress(b" " * (200 << 20))
    yield "torn.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 99)[:60]
    yield "lone.odt", pack({"mimetype": "application/vnd.oasis.opendocument.text"})


@files("office: large and nested")
def _office(_: random.Random) -> Files:
    yield "deep.docx", docx("<w:sdt><w:sdtContent>" * 5_000 + paragraph("x"))
    yield "many.docx", docx(paragraph("some words") * 30_000)
    ends = "</w:tc></w:tr></w:tbl>" * 500
    yield "tables.docx", docx("<w:tbl><w:tr><w:tc>" * 500 + paragraph("x") + ends)
    yield "rows.xlsx", xlsx("".join(f"<row>{cells('a', 'b')}</row>" for _ in range(60_000)))
    corner = '<row r="{0}"><c r="{1}{0}"><v>1</v></c></row>'
    yield "corner.xlsx", xlsx(corner.format(1, "A") + corner.format(1048576, "XFD"))
    wide = f"<row>{cells(*'a' * 16_000)}</row>"
    yield "wide.xlsx", xlsx(wide + f"<row>{cells('b')}</row>" * 2_000)
    yield "deep.epub", epub("<div>" * 50_000)
    yield "long.epub", epub("<p>words</p>" * 100_000)
    yield "deep.rtf", b"{\\rtf1 " + b"{" * 200_000 + b"x"
    yield "deep.ipynb", b"[" * 200_000
    yield "deep.rst", b"".join(b" " * n + b"* x\n\n" for n in range(1_500))
    yield "deep.org", b"".join(b"*" * n + b" x\n" for n in range(1, 1_500))


@files("records and mail")
def _records(_: random.Random) -> Files:
    yield "deep.jsonl", b'{"text": ' + b"[" * 200_000 + b"\n"
    yield "same.jsonl", b'{"id": "a", "text": "x"}\n' * 50_000
    yield "digits.jsonl", b'{"id": ' + b"9" * 100_000 + b', "text": "x"}\n'
    yield "wrong.jsonl", b"{\n" * 200_000
    yield "half.jsonl", b'{"text": "\\ud800 half"}\n' * 1_000
    yield "many.jsonl", b"".join(b'{"id": "%d", "text": "word"}\n' % n for n in range(20_000))
    parts = b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(300)
    )
    yield "parts.eml", b"From: a\nSubject: b\n" + parts
    yield "headers.eml", b"X-A: b\n" * 200_000 + b"\nwords"
    yield "subject.eml", b"Subject: " + b"=?utf-8?q?a?= " * 20_000 + b"\n\nwords"
    yield "addresses.eml", b"To: " + b"a@b, (c (d " * 10_000 + b"\n\nwords"
    yield "html.eml", b"Content-Type: text/html\n\n" + b"<div>" * 100_000
    yield "charset.eml", b"Content-Type: text/plain; charset=nothing\n\n\xff\xfe words"


def _mutations(suffix: str, data: bytes) -> None:
    @files(f"mutated: {suffix}")
    def make(chance: random.Random) -> Files:
        for number in range(24):
            yield f"{number}.{suffix}", mutate(data, chance)


_mutations("docx", docx("".join(map(paragraph, "Words of a document in parts".split())) * 40))
_mutations("xlsx", xlsx(f"<row>{cells('name', 'value')}</row>" * 200))
_mutations("epub", epub("<h1>Chapter</h1><p>Words of a book.</p>" * 50))
_mutations("pdf", pdf(LINES))
_mutations("md", (DOCS / "guide.md").read_bytes())
_mutations("html", b"<html><h1>Title</h1><ul><li>One<p>Words <b>of</b> a page</ul>" * 100)
_mutations("wiki", b"== Title ==\n* a [[link|text]] {{lang|de|Wort}}\n{|\n| a || b\n|}\n" * 60)


@row("files of the kernel, pipes, links")
def _special(folder: Path, _: random.Random, __: int) -> Result:
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "kmsg.txt").symlink_to("/proc/kmsg")
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)
        listening.bind("socket.txt")
    inside = [folder / name for name in ("pipe.txt", "loop.md", "kmsg.txt", "socket.txt")]
    devices = "/dev/zero /dev/stdin /proc/kmsg /proc/self/mem /proc/kcore /proc/self/maps".split()
    return read([*map(Path, devices), *inside], folder / "libraries")


@row("a disk that fills while files are indexed")
def _filling(folder: Path, _: random.Random, tries: int) -> Result:
    """Fill a disk in memory some seconds after the start (needs the right to mount one).

    A failure: the command ends by a signal or without a line that names the trouble, or the
    library is not whole afterwards.
    """
    disk, table = folder / "disk", folder / "rows.csv"
    disk.mkdir()
    table.write_bytes(b"some words,2024-01-01,7\n" * 60_000)
    where = ["--library", str(disk / "library"), "--embedder", "static"]
    result = Result(0, facts={"full": 0})
    for delay in range(1, min(tries, 16) + 1):
        mounting = ["mount", "-t", "tmpfs", "-o", "size=260m", "tmpfs", str(disk)]
        if subprocess.run(mounting, capture_output=True, check=False).returncode:
            print("no disk is filled: mounting one is not permitted", file=sys.stderr)
            break
        result.tries += 1
        fill = f"sleep {delay}; exec cat /dev/zero > {disk}/fill"
        with subprocess.Popen(["sh", "-c", fill], stderr=subprocess.DEVNULL):
            done = _run("index", str(DOCS), str(table), *where)
        _judge(done, f"{delay} s", result)
        result.facts["full"] += done.returncode != 0
        (disk / "fill").unlink()
        if whole := _run("library", "verify", *where).returncode:
            result.failures.append(f"{delay} s: verify ends with {whole}")
        subprocess.run(["umount", str(disk)], check=True)
    return result


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "colligate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _judge(done: subprocess.CompletedProcess[str], what: str, result: Result) -> None:
    """Count a command that ended by a signal, or that says nothing a person can act on."""
    last = done.stderr.strip().rpartition("\n")[2]
    typed = done.returncode == 0 or last.startswith("colligate: ")
    if done.returncode not in (0, 1) or not typed or "internal error" in last:
        result.failures.append(f"{what}: {done.returncode} {last[:200]}")


@row("all in one folder, by the command")
def _command(folder: Path, chance: random.Random, _: int) -> Result:
    """Index the files of all other rows at once; the library must be whole afterwards."""
    made = folder / "files"
    count = 0
    for name, data in (file for make in FILES.values() for file in make(chance)):
        count += 1
        (made / str(count)).mkdir(parents=True)
        (made / str(count) / name).write_bytes(data)
    where = ["--library", str(folder / "library"), "--embedder", "static"]
    result = Result(count)
    with _Watch() as watch:
        for arguments in (["index", str(made)], ["library", "verify"]):
            _judge(_run(*arguments, *where), arguments[0], result)
    result.facts = {"parent_mb": round(watch.memory / 1e6)}
    return result


@row("kill -9 while files are indexed")
def _killed(folder: Path, chance: random.Random, kills: int) -> Result:
    """Kill `colligate index` at random moments, each library until it is finished.

    A failure: a library that does not verify after a kill, or that differs in the end from one
    that was made undisturbed, in a document or in a search.
    """
    texts, words = folder / "texts", re.findall(r"[a-z]{4,}", (DOCS / "guide.md").read_text())
    texts.mkdir()
    for number in range(60):
        lines = (" ".join(chance.choices(words, k=12)).capitalize() for _ in range(60))
        (texts / f"{number}.md").write_text(f"# Text {number}\n\n" + ".\n\n".join(lines) + ".\n")
    queries = [" ".join(chance.choices(words, k=3)) for _ in range(8)]

    def start(library: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "colligate", "index", str(texts)]
        where = ["--library", str(library), "--embedder", "static"]
        return subprocess.Popen(command + where, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    for name in ("warm", "whole"):  # a first run is slower, and kills would come after the end
        begun = time.perf_counter()
        start(folder / name).communicate()
        lasts = time.perf_counter() - begun
    expected = asyncio.run(_contents(folder / "whole", queries))
    if len(expected["documents"]) != 60 or expected["problems"]:
        return Result(1, ["the undisturbed library is not whole"])
    result = Result(0, facts={"libraries": 0, "part_way": 0, "undisturbed_s": round(lasts, 1)})
    while True:
        last = result.tries == kills  # this one may finish
        library = folder / f"killed-{result.facts['libraries']}"
        indexing = start(library)
        try:
            _, said = indexing.communicate(timeout=None if last else chance.uniform(0, lasts))
        except subprocess.TimeoutExpired:
            indexing.kill()
            indexing.communicate()
            result.tries += 1
            if library.exists():
                found = asyncio.run(_contents(library, []))
                result.facts["part_way"] += 0 < len(found["documents"]) < len(expected["documents"])
                if found["problems"]:
                    result.failures.append(f"kill {result.tries}: {found['problems']}"[:300])
            continue
        if indexing.returncode:
            result.failures.append(f"ends with {indexing.returncode}: {said[-200:]!r}")
        elif asyncio.run(_contents(library, queries)) != expected:
            result.failures.append(f"{library.name} differs from the undisturbed one")
        result.facts["libraries"] += 1
        if last:
            return result


@row("kill -9 of a server that adds and removes documents")
def _killed_server(folder: Path, chance: random.Random, kills: int) -> Result:
    """Kill `colligate serve` at random moments while it takes files and removes documents.

    A failure: a library that does not verify after a kill, a document that is there twice, and one
    that a server said to have added or removed and that is not there, or is.
    """
    there, begun = set[str](), set[str]()  # titles: of what was done, of what was asked for
    result = Result(kills, facts={"added": 0, "removed": 0})

    def work(client: httpx2.Client, number: int) -> None:
        """Remove documents and add some until the server is killed."""
        at, words = "/api/libraries/default", "Some words. " * 3_000
        with suppress(httpx2.HTTPError):
            listed = client.get(f"{at}/documents").json()
            for each in chance.sample(listed, len(listed) // 8):
                there.discard(each["title"])
                begun.add(each["title"])
                client.delete(f"{at}/documents/{each['id']}").raise_for_status()
                begun.discard(each["title"])
                result.facts["removed"] += 1
            for part in range(100):
                titles = [f"Text {number} {part} {each}" for each in range(6)]
                begun.update(titles)
                texts = {title: f"# {title}\n\n{words}".encode() for title in titles}
                files = [("files", (f"{title}.md", text)) for title, text in texts.items()]
                job = client.post(f"{at}/files", files=files).raise_for_status().json()["job"]
                client.get(f"/api/jobs/{job}/events").raise_for_status()
                there.update(titles)
                begun.difference_update(titles)
                result.facts["added"] += 6

    for number in range(kills):
        serving = start_command(folder, "http://127.0.0.1:9")
        with serving.client() as client:
            threading.Timer(chance.uniform(0, 3), serving.process.kill).start()
            work(client, number)
        serving.process.communicate()
        found = asyncio.run(_contents(folder / "papers", []))
        titles = [title for title, _ in found["documents"]]
        wrong = there.symmetric_difference(titles) - begun
        if found["problems"] or wrong or len(titles) != len(set(titles)):
            result.failures.append(f"kill {number}: {found['problems']} {wrong}"[:300])
        there.update(titles)
    return result


async def _contents(path: Path, queries: list[str]) -> dict[str, Any]:
    """Return everything that a user can see of a library."""
    async with AsyncLibrary(path, embedder="static") as library:
        hits = [await library.search(query, k=8) for query in queries]
        return {
            "problems": await library.verify(),
            "documents": sorted((info.title, info.passages) for info in await library.documents()),
            "hits": [[(hit.passage.id, round(hit.score, 6)) for hit in found] for found in hits],
        }


# Endpoints


KEY = "sk-hostile-0123456789abcdef"


def _say(body: dict[str, Any], text: Any) -> Scripted:
    """Return a reply of one piece, to a streamed call too."""
    part, content = ("delta" if body.get("stream") else "message"), {"content": text}
    whole = json.dumps({"choices": [{"index": 0, part: content, "finish_reason": "stop"}]})
    return _raw(f"data: {whole}\n\ndata: [DONE]\n\n" if body.get("stream") else whole)


def _raw(text: str, encoding: str = "utf-8", kind: str = "application/json") -> Scripted:
    return Scripted("raw", body=text.encode(encoding), type=kind)


def _status(status: int, body: Any = None, **headers: str) -> Scripted:
    said = body or {"error": {"message": "no"}}
    return Scripted("json", status=status, body=said, headers=headers)


def _slow(_: dict[str, Any]) -> None:
    time.sleep(2)  # and then the right reply


FAULTS: dict[str, Callable[[dict[str, Any]], Scripted | None]] = {
    # A connection that is kept open cannot be refused: it is sent on to a closed port.
    "refused connection": lambda _: _status(307, Location="http://127.0.0.1:9/v1/chat/completions"),
    "429 with Retry-After": lambda _: _status(429, **{"Retry-After": "1"}),
    "429": lambda _: _status(429),
    "500": lambda _: _status(500),
    "503": lambda _: _status(503),
    "cut body": lambda _: Scripted("cut", text="a reply that breaks off in the middle"),
    "cut stream": lambda body: Scripted("cut" if body.get("stream") else "hang up", text="a " * 99),
    "invalid JSON": lambda _: _raw('{"choices": ['),
    "empty choices": lambda _: _status(200, {"choices": []}),
    "wrong types": lambda _: _status(200, {"choices": {"message": 7}, "usage": "many"}),
    "content of a wrong type": lambda body: _say(body, [{"text": 7}, None]),
    "nested brackets": lambda body: _say(body, '{"statements": ' + "[" * 3_000),
    "long content": lambda body: _say(body, '{"statements": [{"quote": "' + "word " * 200_000),
    "17 MB of content": lambda body: _say(body, "word " * 3_400_000),
    "wrong encoding": lambda _: _raw('{"choices": [{"message": {"content": "ä"}}]}', "utf-16"),
    "slow first byte": _slow,
    "an error object": lambda _: _status(200, {"error": {"message": "no", "code": 500}}),
    "HTML": lambda _: _raw("<!DOCTYPE html><p>Sign in first", kind="text/html"),
}


def _request(body: dict[str, Any]) -> ChatRequest:
    """Return what the model was asked."""
    form = body.get("response_format", {}).get("json_schema", {})
    turns = [Message(turn["role"], turn["content"]) for turn in body["messages"]]
    return ChatRequest(turns, max_tokens=999, schema=form.get("schema"))


_ELSEWHERE = "redirect to another origin"


class _Faulty:
    """Replies with a fault to a share of the requests, those for likelihoods included."""

    def __init__(self, seed: float, other: str) -> None:
        self.seed, self.share = seed, 0.0
        self.other = other
        self.calls, self.kinds = Counter[str](), Counter[str]()

    def __call__(self, path: str, body: dict[str, Any]) -> Scripted | None:
        said = path + json.dumps(body)
        self.calls[said] += 1  # so that the order of calls made at once does not matter
        chance = random.Random(f"{self.seed} {said} {self.calls[said]}")
        if chance.random() < self.share:
            kind = chance.choice([*FAULTS, _ELSEWHERE])
            self.kinds[kind] += 1
            if kind == _ELSEWHERE:
                return _status(307, Location=self.other + path)
            return FAULTS[kind](body)
        return None


def _answer(body: dict[str, Any]) -> str:
    return asyncio.run(Reader().chat(_request(body))).text


class _Streamed(OpenAIChat):
    """Asks for every reply as a stream."""

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        return await super().chat(request, on_token or (lambda _: None))


@row("faults of an endpoint in 30 % of its calls")
def _faults(folder: Path, chance: random.Random, _: int) -> Result:
    """Ask with each strategy that answers over an endpoint without faults.

    A failure: an exception that is not typed, a question that takes over a minute, or the key in
    an answer, an event, an error, the log, or a request to another origin.
    """
    names = "Apache-2.0.txt BSD-3-Clause.txt MIT.txt MPL-2.0.txt Zlib.txt".split()
    lines = (ROOT / "examples" / "questions.jsonl").read_text().splitlines()
    known = [each for each in map(json.loads, lines) if {*each["documents"]} <= {*names}]
    questions = [each["question"] for each in chance.sample(known, 4)]
    paths = [ROOT / "examples" / "licences" / name for name in names]
    result, log = Result(0), io.StringIO()
    logging.basicConfig(stream=log)
    with closing(OpenAIServer()) as server, closing(OpenAIServer()) as other:
        server.fault = faulty = _Faulty(chance.random(), other.url)
        server.answer = other.answer = _answer
        server.key, server.tokenizer, server.likelihood = KEY, "vllm", "prompt_logprobs"
        server.logprobs = {"Yes": 0.6, "No": 0.3}
        asyncio.run(_ask_all(folder, server.url, faulty, questions, paths, result))
        if KEY in log.getvalue() or any(KEY in str(sent) for sent in other.requests):
            result.failures.append("the key is in the log, or went to another origin")
    result.facts |= {"calls": faulty.calls.total(), "faults": faulty.kinds.total()}
    result.facts["kinds"] = len(faulty.kinds)
    return result


async def _ask_all(
    folder: Path, url: str, faulty: _Faulty, questions: list[str], paths: list[Path], result: Result
) -> None:
    usual = {"embedder": "static", "reranker": "none", "settings": Settings()}
    plain, streamed = (
        Engine(
            model=kind("reader", url, KEY, context_tokens=32_000),
            library=folder / kind.__name__,
            **usual,
        )
        for kind in (OpenAIChat, _Streamed)
    )
    slots = asyncio.Semaphore(4)  # most of the time is spent waiting to ask again

    async def ask(engine: Engine, strategy: str, question: str) -> str:
        said: list[object] = []
        begun = time.perf_counter()
        try:
            async with slots, asyncio.timeout(SECONDS + 30):
                begun = time.perf_counter()
                answer = await engine.ask(
                    question, paths, strategy=strategy, timeout=SECONDS, on_event=said.append
                )
            said.append(answer.to_json())
            outcome = "answered" if answer.found else "not found"
        except ColligateError as error:
            said.append(traceback.format_exception(error))
            outcome = type(error).__name__
        except Exception as error:
            said.append(traceback.format_exception(error))
            outcome = f"untyped {type(error).__name__}: {error}"
            result.failures.append(f"{strategy}: {outcome}"[:300])
        seconds = time.perf_counter() - begun
        if seconds > SECONDS + 5:
            result.failures.append(f"{strategy}: {seconds:.0f} s")
        if KEY in str(said):
            result.failures.append(f"{strategy}: the key is shown")
        result.facts["slowest_s"] = max(result.facts.get("slowest_s", 0), round(seconds, 1))
        return outcome

    async with plain, streamed:
        first = {name: await ask(plain, name, questions[0]) for name in list_strategies()}
        runs = [name for name, outcome in first.items() if outcome in ("answered", "not found")]
        result.facts["left_out"] = {name: first[name] for name in first if name not in runs}
        faulty.share = 0.3
        asked = [
            ask((plain, streamed)[number % 2], name, question)
            for name in runs
            for number, question in enumerate(questions)
        ]
        result.tries = len(asked)
        outcomes = Counter(await asyncio.gather(*asked))
    result.facts |= {"strategies": len(runs), "outcomes": dict(outcomes)}


# The server


@row("half-open connections to a server that may open 1,024 files")
def _half_open(folder: Path, _: random.Random, __: int) -> Result:
    """Open 1,100 connections that send half a request, at a soft and at a hard limit of files.

    A failure: the server does not answer others meanwhile or afterwards, or does not stop cleanly.
    """
    result = Result(0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # this process has the other ends
    for limit in ("-Sn", "-n"):
        few = ["sh", "-c", f'ulimit {limit} 1024 && exec "$@"', "sh"]
        with closing(OpenAIServer()) as model, ExitStack() as opened:
            serving = start_command(folder / limit, model.url, before=few)
            url = str(serving.client().base_url)
            address = ("127.0.0.1", httpx2.URL(url).port)

            def check(when: str, url: str = url, limit: str = limit) -> None:
                try:
                    status = httpx2.get(f"{url}healthz", trust_env=False, timeout=10).status_code
                except httpx2.HTTPError as error:
                    status = repr(error)
                if status != 200:
                    result.failures.append(f"ulimit {limit}, {when}: {status}")

            for number in range(1_100):
                result.tries += 1
                with suppress(OSError):  # the server may refuse these
                    half = opened.enter_context(socket.create_connection(address, timeout=10))
                    half.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
                if number % 100 == 99:
                    check(f"{number + 1} connections")
            opened.close()
            check("afterwards")
            if (status := serving.stop()) or "Traceback" in serving.said:
                result.failures.append(f"ulimit {limit}, ends with {status}: {serving.said[-300:]}")
    return result


@row("100 askers at once")
def _askers(folder: Path, chance: random.Random, _: int) -> Result:
    """Ask a server 100 questions at once.

    A failure: a response that is neither an answer nor 503 with a problem, a word of another's
    answer in one, or a server that does not stop cleanly.
    """
    words = {f"gate{number:03}": f"{chance.randrange(10**9):09}" for number in range(100)}
    (folder / "gates").mkdir()
    for gate, word in words.items():
        (folder / "gates" / f"{gate}.md").write_text(f"# {gate}\n\nThe word is {word} at {gate}.\n")
    result = Result(len(words), facts={"answered": 0, "not_found": 0, "refused": 0})
    where = ["--library", str(folder / "papers"), "--embedder", "static"]
    _judge(_run("index", str(folder / "gates"), *where), "index", result)

    def reply(body: dict[str, Any]) -> str:
        time.sleep(0.05)
        return quoting(_request(body))

    async def ask_all(url: str) -> list[httpx2.Response]:
        most = httpx2.Limits(max_connections=len(words))
        async with httpx2.AsyncClient(
            base_url=url, trust_env=False, timeout=120, limits=most
        ) as client:
            path = "/api/libraries/default/ask"
            questions = ({"question": f"What is the word at {gate}?"} for gate in words)
            return await asyncio.gather(*(client.post(path, json=each) for each in questions))

    with closing(OpenAIServer()) as model:
        model.answer = reply
        serving = start_command(folder, model.url)
        responses = asyncio.run(ask_all(str(serving.client().base_url)))
        if status := serving.stop():
            result.failures.append(f"ends with {status}: {serving.said[-300:]}")
    for (gate, word), response in zip(words.items(), responses, strict=True):
        said = response.json()
        if response.status_code == 503 and said.get("status") == 503 and said.get("detail"):
            result.facts["refused"] += 1
        elif response.status_code != 200:
            result.failures.append(f"{gate}: {response.status_code} {response.text[:200]}")
        elif any(other in response.text for other in words.values() if other != word):
            result.failures.append(f"{gate}: {said['answer']}")
        else:
            result.facts["answered" if said["found"] else "not_found"] += 1
    return result


def main() -> None:
    """Run the rows and print each."""
    rows = {**{name: partial(_read_files, name) for name in FILES}, **ROWS}
    given = read_arguments(__doc__, rows=list(rows), seed=0, kills=20, keep=Path)
    for name, function in rows.items():
        if not any(name.startswith(wanted) for wanted in given.rows):
            continue
        with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
            folder = Path(given.keep or temporary) / name.replace(":", "").replace(" ", "-")
            folder.mkdir(parents=True)
            begun = time.perf_counter()
            result = function(folder, random.Random(given.seed), given.kills)
            seconds = round(time.perf_counter() - begun, 1)
        line = {"row": name, "tries": result.tries, "failures": len(result.failures)}
        told = line | {"seconds": seconds} | result.facts | {"failed": result.failures}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
