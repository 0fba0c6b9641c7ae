"""RTF becomes HTML: its paragraphs, headings, lists and tables.

What was deleted or hidden is left out; notes and comments come below their paragraph.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from html import escape, unescape
from itertools import takewhile

from colligate.documents.document import Document
from colligate.documents.reading.elements import PAGE, PAGE_FIELD, join_pieces, label_comment
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile


def read_rtf(source: SourceFile) -> Document:
    """Read a document in rich text format."""
    reader = _RtfReader(source)
    text, _ = parse_html(source, reader.read(source.data.decode("latin-1")))
    return make_document(source, text, metadata=reader.facts)


_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,9})? ?|(?P<bytes>(?:\\'[0-9a-fA-F]{2})+)"
    r"|\\(?P<sign>[^a-zA-Z])|(?P<group>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n]+|\\",
    re.DOTALL,
)
_SIGNS = {"emdash": "\u2014", "endash": "\u2013", "bullet": "\u2022", "lquote": "\u2018"}
_SIGNS |= {"rquote": "\u2019", "ldblquote": "\u201c", "rdblquote": "\u201d", "~": "\xa0"}
_SIGNS |= {"_": "\u2011", "tab": "\t", "emspace": " ", "enspace": " ", "{": "{", "}": "}"}
_SIGNS |= {"\\": "\\", "chpgn": PAGE, "nestcell": ", "}
_CHARSETS = {77: "mac-roman", 128: "cp932", 129: "cp949", 134: "cp936", 136: "cp950"}
_CHARSETS |= {161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256"}
_CHARSETS |= {186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"}
# Groups whose text is no part of the document, beside those that begin with an asterisk.
_UNREAD = "colortbl pict objdata nonshppict shprslt sp xe tc tcn listtable nonesttables upr"
# Groups whose text is read apart from what is around them; of these, some have the asterisk.
_HEADERS = "header headerl headerr headerf footer footerl footerr footerf"
_APART = f"{_HEADERS} fonttbl stylesheet info title author subject creatim footnote listtext pntext"
_STARRED = "annotation atnauthor pntext fldinst"
_FACTS = {"title": "title", "author": "authors", "subject": "subject", "creatim": "created_at"}
_NOT_READ = {"objemb": "embedded files are not read", "mmath": "equations are not read"}
_BREAKS = ("par", "sect", "page", "column", "\n", "\r")
_DEEPEST = 10_000  # groups inside each other
_DEEPEST_LIST = 8
_MOST_EDGES = 100  # that columns of a table have
_NEAR = 30  # twentieths of a point between edges of cells that are one
_BARE_NUMBER = re.compile(r"(\d{1,6})[.)]")
_WRITTEN_NUMBER = re.compile(r"\d|\w{2}|\w\W")  # not the "o" that some bullets are


@dataclass(frozen=True, slots=True)
class _State:
    """What holds inside a group. `into` collects its text; it is None where none is read."""

    into: list[str] | None
    apart: str = ""  # the group's name, if its text is read apart
    codec: str = ""  # of the font, if it is another than the document's
    repeated: int = 1  # characters that stand for the one before, for programs without Unicode
    struck: bool = False
    raised: bool = False
    hidden: bool = False
    deleted: bool = False


@dataclass(slots=True)
class _Cell:
    edge: int
    text: str = ""
    below: bool = False  # it continues the cell above
    beside: bool = False  # it continues the cell before
    rows: int = 1


@dataclass(slots=True)
class _Table:
    """The table being read: its rows, the cells as the next row defines them, and their texts."""

    rows: list[tuple[bool, list[_Cell]]] = field(default_factory=list)
    defined: list[_Cell] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # of the cell being read
    is_head: bool = False
    marks: set[str] = field(default_factory=set)  # of the cell that is defined next

    def end_row(self) -> None:
        row: list[_Cell] = []
        for number, text in enumerate(self.texts):
            known = number < len(self.defined)
            cell = replace(self.defined[number], text=text) if known else _Cell(1 << 30, text)
            if cell.beside and row:
                row[-1].edge = cell.edge
            else:
                row.append(cell)
        self.rows.append((self.is_head, row))
        self.texts = []

    def write(self) -> str:
        """Return the table as HTML; cells between the same edges are in one column."""
        edges: list[int] = []
        for edge in sorted(cell.edge for _, row in self.rows for cell in row):
            if not edges or edge > edges[-1] + _NEAR:
                edges.append(edge)
        edges = edges[:_MOST_EDGES]
        above: dict[int, _Cell] = {}
        rows: list[list[tuple[_Cell, int]]] = []
        for _, row in self.rows:
            begin, kept = 0, []
            for cell in row:
                end = bisect_right(edges, cell.edge)
                if cell.below and begin in above:
                    above[begin].rows += 1
                else:
                    above[begin] = cell
                    kept.append((cell, max(1, end - begin)))
                begin = end
            rows.append(kept)
        heads = sum(1 for _ in takewhile(lambda row: row[0], self.rows))
        written = "<table><thead>" if heads else "<table>"
        for number, kept in enumerate(rows):
            cells = (
                f'<td colspan="{wide}" rowspan="{cell.rows}">{cell.text}</td>'
                for cell, wide in kept
            )
            written += "</thead>" * (number == heads > 0) + f"<tr>{''.join(cells)}</tr>"
        return f"{written}</table>"


class _RtfReader:
    """Reads one document; `facts` are what it says of itself."""

    def __init__(self, source: SourceFile) -> None:
        self.facts: dict[str, str] = {}
        self._source = source
        self._words: list[str] = []  # of the paragraph
        self._state = _State(self._words)
        self._html: list[str] = []
        self._table = _Table()
        self._paragraph = dict.fromkeys(("level", "depth", "in_table"), 0)
        self._label = ""
        self._lists: list[str] = []  # those that are open
        self._below: list[str] = []  # notes and comments, for below the paragraph or table
        self._around: dict[str, None] = {}  # what stands above and below pages
        self._codec, self._author, self._notes = "cp1252", "", 0
        self._font = self._style = 0  # being defined
        self._codecs: dict[int, str] = {}  # by the font
        self._levels: dict[int, int] = {}  # of headings, by the style
        self._warnings: dict[str, None] = {}

    def read(self, data: str) -> str:
        """Return the document as HTML."""
        stack: list[_State] = []
        at = repeats = 0  # characters to come that repeat the last
        fresh = starred = False
        while token := _TOKEN.match(data, at):
            at = token.end()
            word, sign, group = token["word"], token["sign"], token["group"]
            if group == "{":
                stack.append(self._state)
                fresh, starred, repeats = True, False, 0
                if len(stack) > _DEEPEST:
                    why = "its groups nest too deeply"
                    raise self._source.error(CorruptFile, why, "open and save it again")
                continue
            if group and stack:
                inner, self._state = self._state, stack.pop()
                if inner.into is not None and inner.into is not self._state.into:
                    self._end_apart(inner.apart, "".join(inner.into).replace("</s><s>", ""))
            elif word:
                number = int(token["number"]) if token["number"] else None
                if word == "bin":
                    at += max(0, number or 0)
                elif word == "u" and number is not None:
                    self._write(chr(number % 0x10000))
                    repeats = self._state.repeated
                    continue
                elif fresh and (starred or word in _SPECIAL):
                    self._begin_apart(word)
                else:
                    self._control(word, number)
            elif sign == "*":
                starred = fresh
                continue
            elif sign in _BREAKS:
                self._control(sign, None)
            elif sign or token["bytes"] or token["text"]:
                repeats = self._write_all(token, repeats)
            elif fresh:  # a line end
                continue
            fresh, repeats = False, repeats if token["text"] is None and not word else 0
        self._end_paragraph(done=True)
        for what in self._warnings:
            self._source.warn(what)
        self._html += [f"<p>{text}</p>" for text in self._around]
        written = "".join(self._html)
        return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _write_all(self, token: re.Match[str], repeats: int) -> int:
        """Write a sign or a run of text but for the characters that repeat the last."""
        if token["sign"]:
            shown = _SIGNS.get(token["sign"], "")
        else:
            given = token["text"] or ""
            data = bytes.fromhex(token["bytes"].replace("\\'", "")) if token["bytes"] else b""
            data = (data or given.encode("latin-1"))[repeats:]
            shown = data.decode(self._state.codec or self._codec, "replace")
            if repeats and token["bytes"]:
                self._write(shown)
                return max(0, repeats - len(token["bytes"]) // 4)
        self._write(shown if not token["sign"] or not repeats else "")
        return 0

    def _write(self, text: str) -> None:
        state = self._state
        if state.into is None or state.hidden or state.deleted or not text:
            if state.into is not None and state.hidden and text.strip():
                self._warnings["hidden text is not read"] = None
            return
        written = escape(text)
        written = f"<sup>{written}</sup>" if state.raised else written
        state.into.append(f"<s>{written}</s>" if state.struck else written)

    def _begin_apart(self, word: str) -> None:
        """Begin a group that is read apart, or not at all."""
        known = word in _APART.split() or word in _STARRED.split()
        self._warnings |= {_NOT_READ[word]: None} if word in _NOT_READ else {}
        if self._state.into is None or (not known and word not in ("shpinst", "mmath")):
            self._state = replace(self._state, into=None)
        elif known:
            self._state = replace(self._state, into=[], apart=word, raised=False, struck=False)

    def _end_apart(self, name: str, text: str) -> None:
        shown = " ".join(unescape(text).split())
        if name in _HEADERS.split() and (line := join_pieces(text)):
            self._around[f"[Page {name[:6]}] {line}"] = None
        elif name in ("listtext", "pntext") and not self._state.apart:
            self._label = re.sub("<.*?>", "", shown)
        elif name == "footnote" and shown:
            self._notes += 1
            self._below.append(f"<p>[Note {self._notes}] {text}</p>")
        elif name == "annotation" and shown:
            self._below.append(f"<p>{escape(label_comment(self._author))} {text}</p>")
        elif name == "fldinst" and PAGE_FIELD.match(text):
            self._write(PAGE if self._state.apart else "")
        elif name == "atnauthor":
            self._author = shown
        elif name in _FACTS and shown:
            self.facts[_FACTS[name]] = shown

    def _control(self, word: str, number: int | None) -> None:
        on, state = number != 0, self._state
        if word in _SIGNS:
            self._write(_SIGNS[word])
        elif word == "plain":
            self._state = _State(state.into, state.apart, repeated=state.repeated)
        elif word in ("strike", "striked"):
            self._state = replace(state, struck=on)
        elif word in ("super", "sub", "nosupersub"):
            self._state = replace(state, raised=word == "super" and on)
        elif word == "v":
            self._state = replace(state, hidden=on)
        elif word == "deleted":
            self._state = replace(state, deleted=on)
        elif word == "uc":
            self._state = replace(state, repeated=max(0, number or 0))
        elif word == "ansicpg":
            self._codec = _find_codec(f"cp{number}")
        elif word == "mac":
            self._codec = "mac-roman"
        elif word == "f" and state.apart == "fonttbl":
            self._font = number or 0
        elif word == "f":
            self._state = replace(state, codec=self._codecs.get(number or 0, ""))
        elif word == "fcharset" and number in _CHARSETS:
            self._codecs[self._font] = _CHARSETS[number]
        elif state.apart == "stylesheet":
            self._style = number or 0 if word == "s" else self._style
            if word == "outlinelevel":
                self._levels[self._style] = (number or 0) + 1
        elif state.apart == "creatim" and word in ("yr", "mo", "dy") and state.into is not None:
            state.into.append(f"{'-' if state.into else ''}{number or 0:02}")
        elif word in _NOT_READ:
            self._warnings[_NOT_READ[word]] = None
        elif state.apart:
            if word in _BREAKS or word == "line":
                self._write("\t")
        elif state.into is not None:
            self._lay_out(word, number or 0)

    def _lay_out(self, word: str, number: int) -> None:
        """Follow a control word that says how paragraphs and tables are laid out."""
        table = self._table
        if word in _BREAKS:
            self._end_paragraph()
        elif word == "line":
            self._words.append("<br>")
        elif word == "pard":
            self._paragraph = dict.fromkeys(self._paragraph, 0)
        elif word in ("intbl", "itap"):
            self._paragraph["in_table"] = number if word == "itap" else 1
        elif word == "s":
            self._paragraph["level"] = self._levels.get(number, 0)
        elif word == "outlinelevel":
            self._paragraph["level"] = number + 1
        elif word == "ilvl":
            self._paragraph["depth"] = min(number, _DEEPEST_LIST)
        elif word == "trowd":
            table.defined, table.is_head, table.marks = [], False, set()
        elif word == "trhdr":
            table.is_head = True
        elif word in ("clvmrg", "clmrg"):
            table.marks.add(word)
        elif word == "cellx":
            marks = table.marks
            table.defined.append(_Cell(number, "", "clvmrg" in marks, "clmrg" in marks))
            table.marks = set()
        elif word == "cell":
            table.texts.append("<br>".join([*table.lines, self._take_line()]))
            table.lines = []
        elif word == "row":
            table.end_row()

    def _take_line(self) -> str:
        line = "".join(self._words).replace("</s><s>", "").replace("</sup><sup>", "").strip()
        self._words.clear()
        return line

    def _end_paragraph(self, *, done: bool = False) -> None:
        line, paragraph = self._take_line(), self._paragraph
        label, self._label = self._label, ""
        if paragraph["in_table"] and not done:
            self._table.lines.append(f"{escape(label)} {line}".strip())
            return
        if self._table.rows or self._table.texts:
            self._close_lists(0)
            if self._table.texts:
                self._table.end_row()
            self._html.append(self._table.write())
            self._table = _Table(defined=self._table.defined)
        level = min(paragraph["level"], 6) if paragraph["level"] < 10 else 0  # 10 is the text's
        numbered = _WRITTEN_NUMBER.search(label)
        bare = _BARE_NUMBER.fullmatch(label)
        if not line:
            pass
        elif label and not level and (bare or not numbered):
            self._add_item("ol" if bare else "ul", bare[1] if bare else "", line)
        else:
            self._close_lists(0)
            tag = f"h{level}" if level else "p"
            self._html.append(f"<{tag}>{escape(label)} {line}</{tag}>")
        if self._below:
            self._close_lists(0)
            self._html += self._below
            self._below.clear()
        if done:
            self._close_lists(0)

    def _add_item(self, kind: str, value: str, line: str) -> None:
        depth = min(self._paragraph["depth"], len(self._lists))
        self._close_lists(depth + 1)
        if len(self._lists) > depth and self._lists[depth] != kind:
            self._close_lists(depth)
        if len(self._lists) > depth:
            self._html.append("</li>")
        else:
            self._html.append(f"<{kind}>")
            self._lists.append(kind)
        self._html.append(f'<li value="{value}">{line}')

    def _close_lists(self, depth: int) -> None:
        while len(self._lists) > depth:
            self._html.append(f"</li></{self._lists.pop()}>")


_SPECIAL = frozenset(f"{_UNREAD} {_APART} fldinst".split())


def _find_codec(name: str) -> str:
    try:
        return codecs.lookup({"cp65001": "utf-8", "cp10000": "mac-roman"}.get(name, name)).name
    except LookupError:
        return "cp1252"
