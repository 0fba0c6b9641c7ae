"""LaTeX to Markdown, by its commands and environments.

Formulas and code stay as they are. Comments, settings and what places things on the page are left
out; what stands in other files is named.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest

from colligate.documents.document import Document
from colligate.documents.markdown import format_code, format_table
from colligate.documents.reading.source import SourceFile, make_document

_LEVELS = {"part": 2, "chapter": 2, "section": 2, "subsection": 3, "subsubsection": 4}
_LEVELS |= {"paragraph": 5, "subparagraph": 6, "frametitle": 3}
_SIGNS = {"ldots": "…", "dots": "…", "S": "§", "P": "¶", "copyright": "©", "pounds": "£"}
_SIGNS |= {"euro": "€", "texteuro": "€", "textdegree": "°", "degree": "°", "LaTeX": "LaTeX"}
_SIGNS |= {"TeX": "TeX", "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø"}
_SIGNS |= {"aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "textbackslash": "\\", "par": "\n\n"}
_SIGNS |= {"newline": "\n", "linebreak": "\n", "quad": " ", "qquad": " ", "and": "; ", "dag": "†"}
_COMBINING = "\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030c\u030b\u0327\u030a\u0328"
_COMBINING += "\u0323\u0331\u0361"
_ACCENTS = dict(zip("`'^~\"=.uvHcrkdbt", _COMBINING, strict=True))

_Macro = tuple[int, str | None, str]  # how many arguments, the first if it is optional, the body
# Of the package siunitx, whose units are written by their names.
_RANGES: dict[str, _Macro] = dict.fromkeys(("SIrange", "qtyrange"), (4, "", r"#2–#3 \unit{#4}"))
_RANGES |= {"numrange": (3, "", "#2–#3"), "ang": (2, "", "#2°")}
_MOST = 2000  # characters of a formula
_LONGEST = 20_000  # of what is left out or kept as it is
_VERBATIM = re.compile(
    r"\\begin\{((?:verbatim|Verbatim|lstlisting|minted|alltt|code)\*?)\}(?:\[[^\]\n]*\])?"
    rf"(?:\{{[^}}\n]*\}})?(.{{0,{_LONGEST}}}?)\\end\{{\1\}}"
    r"|\\(?:verb\*?|lstinline)([^\w\s*{])([^\n]*?)\3",
    re.DOTALL,
)
_LEFT_OUT = re.compile(
    rf"^[ \t]*%.*\n|(?<!\\)((?:\\\\)*)%.*(?:\n[ \t]*)?|\\iffalse\b[\s\S]{{0,{_LONGEST}}}?\\fi\b"
    rf"|\\begin\{{comment\}}[\s\S]{{0,{_LONGEST}}}?\\end\{{comment\}}",
    re.MULTILINE,
)
_DISPLAYED = "equation|align|gather|multline|eqnarray|displaymath|math|flalign|alignat"
_FORMULA = re.compile(
    rf"(?P<block>\$\$.{{1,{_MOST}}}?\$\$|\\\[.{{1,{_MOST}}}?\\\]"
    rf"|\\begin\{{(?P<env>(?:{_DISPLAYED})\*?)\}}.{{1,{_MOST}}}?\\end\{{(?P=env)\}})"
    rf"|(?<!\\)\$[^$]{{1,{_MOST}}}\$|\\\(.{{1,{_MOST}}}?\\\)",
    re.DOTALL,
)
_FRAME = re.compile(
    rf"\\label\{{[^{{}}]*\}}|\\(?:begin|end)\{{(?:{_DISPLAYED})\*?\}}|\A\$\$|\$\$\Z|\A\\\[|\\\]\Z"
)
_GROUP = r"\s*+\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+)\}"
_OPTION = r"(?:\s*+\[([^\[\]\n]{0,500})\])?"
_MACRO = re.compile(
    r"\\(renewcommand|(?:new|provide)command|def)\b\*?\s*+\{?\\([A-Za-z]+)\}?"
    rf"(?:\s*+\[(\d)\]{_OPTION}|\s*+((?:#\d)+))?{_GROUP}"
)
_QUANTITY = re.compile(
    rf"\\(?:(?:SI|qty)(?:list|range)?|si|unit)(?![A-Za-z]){_OPTION}((?:{_GROUP}){{1,3}})"
)
_MOST_MACROS = 500
_MOST_USES = 10_000  # of each
_LONGEST_MACRO = 1000
_IS_PLAIN = re.compile(r"(?!\\renew|[\s\S]*\\if|(?:[^#]*#){19})")  # changes and decides nothing
_MOST_EXPANDED = 1_000_000  # characters, besides as many as the file has
_ACCENT = re.compile(
    r"\\([`'^~\"=.]|[uvHcrkdbt](?![A-Za-z]))\s*(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))"
)
_PLACED = "figure|table|tabular[xy]?|longtable|array|minipage|wrapfigure|multicols|thebibliography"
_BOUND = re.compile(
    rf"\\(begin|end)\s*\{{(?:({_PLACED})\*?\}}(?:\[[^\]\n]*\]|\{{[^{{}}\n]*(?:\{{[^{{}}\n]*\}}[^{{}}\n]*)*\}})*"
    r"|(\w+)\*?\})"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?\s*((?:\[[^\[\]\n]{0,500}\]\s?){0,3})((?:\{[^{}]*\}){1,3})")
_RULE = re.compile(
    r"\\(hline|midrule|toprule|bottomrule|cmidrule|addlinespace)(?![A-Za-z])(?:\[[^\]\n]{0,50}\])?"
    r"(?:\([^()\n]{0,50}\))?(?:\{[\d-]{1,9}\})?"
)
_OVERLAY = re.compile(r"(\\[A-Za-z]+(?:\{[a-z]{1,20}\})?)<[\w,.+:@|*-]{1,50}>")  # of slides
_SLIDE = re.compile(rf"(\\begin\{{frame\}}){_OPTION}(?:{_GROUP})?(?:{_GROUP})?")
_ITEM = re.compile(r"\\item\b\s*(?:\[([^\]\n]*)\])?")
_DEEPEST = 40  # commands inside commands
_DROPPED = set(
    "label vspace hspace includegraphics bibliographystyle bibliography usepackage documentclass "
    "pagestyle thispagestyle setlength setcounter addtocounter hypersetup geometry newcommand "
    "renewcommand providecommand newtheorem input include subfile cmidrule cline index def let "
    "newenvironment DeclareMathOperator graphicspath addbibresource date title author".split()
)
_LAST = {"textcolor", "href", "multirow", "colorbox", "parbox", "resizebox", "scalebox", "raisebox"}


def read_latex(source: SourceFile) -> Document:
    """Read a LaTeX file; its title, authors and date are the document's."""
    page = _Page(source.warn)
    text, facts = page.convert(source.text)
    if title := facts.get("title"):
        by = "\n\n".join(filter(None, (facts.get("authors"), facts.get("date"))))
        text = f"# {title}\n\n{by}\n\n{text}"
    return make_document(source, text if text.strip() else source.text, title=title, metadata=facts)


class _Page:
    """One file: what must stay as it is is set aside until the rest is rewritten."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._aside: list[str] = []
        self._notes: list[str] = []
        self._facts: dict[str, str] = {}

    def convert(self, written: str) -> tuple[str, dict[str, str]]:
        """Return a file as Markdown, and what its preamble says."""
        text = written.replace("\x00", " ").replace("\x02", " ").replace("\x03", " ")
        text = _VERBATIM.sub(self._keep_code, text)
        text = _LEFT_OUT.sub(r"\1", text)
        macros = {
            each[2]: (int(each[3] or len(each[5] or "") // 2), each[4], each[6])
            for each in _MACRO.finditer(text)
            if len(each[6]) <= _LONGEST_MACRO and ("#" not in each[6] or _IS_PLAIN.match(each[0]))
        }
        text = _expand(_MACRO.sub("", text), _RANGES | macros)
        text = _QUANTITY.sub(lambda each: each[2].replace("{\\", "{").replace("\\", " "), text)
        before, begin, body = text.partition(r"\begin{document}")
        self.rewrite(before if begin else "")  # for its title
        text = self.rewrite(body.partition(r"\end{document}")[0] if begin else before)
        text = _write_blocks(text)
        notes = "".join(f"\n\n[^{at}]: {note}" for at, note in enumerate(self._notes, 1))
        return self._put_back(text + notes), {n: self._put_back(f) for n, f in self._facts.items()}

    def rewrite(self, text: str) -> str:
        """Return text without commands; environments are marked, for `_write_blocks`."""
        text = _FORMULA.sub(self._keep_formula, text)
        text = _SLIDE.sub(r"\1\\frametitle{\3}\4\n\n", _OVERLAY.sub(r"\1", text))
        text = _ACCENT.sub(_compose, text)
        text = _BOUND.sub(lambda bound: f"\x02{bound[1]}:{bound[2] or bound[3]}\x03", text)
        text = _RULE.sub(lambda rule: "\x02rule\x03" * (rule[1] in ("hline", "midrule")), text)
        text = re.sub(r"\\([%&$#_{}])", lambda sign: self._keep(sign[1]), text)
        text = text.replace("&", "\x02cell\x03")
        text = re.sub(r"\\\\(?:\[[^\]\n]*\])?", lambda _: "\x02row\x03", text)
        text = _ITEM.sub(lambda item: f"\x02item\x03{item[1] or ''} ", text)
        for _ in range(_DEEPEST):
            text, found = _COMMAND.subn(self._rewrite_command, text)
            if not found:
                break
        return self._finish(text)

    def _finish(self, text: str) -> str:
        """Return text without commands of no argument, braces and signs of typesetting."""
        text = re.sub(r"\\([A-Za-z]+)\*?[ \t]*", lambda name: _SIGNS.get(name[1], ""), text)
        text = re.sub(r"\\[,;:!/ -]?|[{}]", "", text.replace("}{", " ")).replace("~", " ")
        text = text.replace("``", "“").replace("''", "”")
        return text.replace("---", "—").replace("--", "–")

    def _rewrite_command(self, command: re.Match[str]) -> str:
        name, options = command[1], command[2]
        values = command[3][1:-1].split("}{")
        value = values[-1] if name in _LAST else values[0]
        if name in ("title", "author", "date"):
            fact = " ".join(value.replace("\x02row\x03", ",").replace(" ,", ",").split())
            self._facts.setdefault("authors" if name == "author" else name, self._finish(fact))
        if name in ("input", "include", "subfile"):
            self._warn(f"another file is not read as part of it: {value}")
        if name in _DROPPED:
            return ""
        if name in _LEVELS:
            title = " ".join(value.split())
            return f"\n\n{'#' * _LEVELS[name]} {title}\n\n" if title else ""
        if name in ("footnote", "footnotetext", "thanks"):
            self._notes.append(self._finish(" ".join(value.split())))
            return f"[^{len(self._notes)}]"
        if name == "bibitem":
            return f"\n\n[{value}] "
        if "cite" in name.lower():
            return f"[{', '.join(filter(None, [value, options.strip().strip('[]')]))}]"
        if name == "caption":
            return f"\n\n{value}\n\n"
        if name == "href":
            return f"[{value}]({values[0]})"
        if name == "multicolumn":
            width = int(values[0]) if values[0].isdecimal() and len(values[0]) < 3 else 1
            return values[-1] + f"\x02cell\x03{_SPANNED}" * (width - 1)
        return " ".join(values) if name not in _LAST else value

    def _keep(self, text: str) -> str:
        self._aside.append(self._put_back(text))
        return f"\x00{len(self._aside) - 1}\x00"

    def _keep_code(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return self._keep(f"`{found[4]}`")
        return f"\n\n{self._keep(format_code(found[2].strip(chr(10))))}\n\n"

    def _keep_formula(self, found: re.Match[str]) -> str:
        if found["block"] is None:
            inside = found[0].strip("$") if found[0][0] == "$" else found[0][2:-2]
            return self._keep(f"${inside.strip()}$")
        inside = _FRAME.sub("", found[0]).strip()
        return f"\n\n{self._keep(f'$$ {inside} $$')}\n\n"

    def _put_back(self, text: str) -> str:
        return re.sub(r"\x00(\d+)\x00", lambda kept: self._aside[int(kept[1])], text)


def _expand(text: str, macros: Mapping[str, _Macro]) -> str:
    """Return text with what macros stand for; one without its arguments stays."""
    most = _MOST_EXPANDED + 2 * len(text)
    for name, (count, default, body) in [*macros.items()][:_MOST_MACROS][::-1] * 2:
        given = [*([_OPTION] if default is not None else []), *([_GROUP] * count)][:count]
        use = re.compile(rf"\\{name}(?![A-Za-z]){''.join(given) or '({})?'}")
        if len(text) < most:
            text = use.sub(partial(_fill, body, default or ""), text, _MOST_USES)
    return text


def _fill(body: str, default: str, use: re.Match[str]) -> str:
    values = use.groups(default)
    return re.sub("#([1-9])", lambda at: "".join(values[int(at[1]) - 1 : int(at[1])]), body)


def _compose(accent: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", (accent[2] or accent[3]) + _ACCENTS[accent[1]])


_MARKED = re.compile(r"\x02(begin|end|item|row|cell|span|rule)(?::(\w+)\*?)?\x03")
_SPANNED = "\x02span\x03"  # by the cell before it
_LISTS = ("itemize", "enumerate", "description")
_TABLES = ("tabular", "tabularx", "longtable", "array")


def _write_blocks(text: str) -> str:
    """Return Markdown for marked lists and tables; an abstract gets a heading."""
    pieces: list[str] = []
    lists: list[str] = []
    table: list[str] | None = None
    place = 0
    for mark in _MARKED.finditer(text):
        said = text[place : mark.start()]
        (pieces if table is None else table).append(said)
        place = mark.end()
        kind, name = mark[1], mark[2]
        if kind == "begin" and name in _TABLES and table is None:
            table = []
        elif kind == "end" and name in _TABLES and table is not None:
            pieces.append(f"\n\n{format_table(_read_rows(''.join(table)))}\n\n")
            table = None
        elif table is not None:
            table.append(mark[0] if kind in ("row", "cell", "span", "rule") else " ")
        elif kind == "begin":
            if name in _LISTS:
                lists.append("1. " if name == "enumerate" else "- ")
            pieces.append("\n\n## Abstract\n\n" if name == "abstract" else "\n\n")
        elif kind == "end":
            if name in _LISTS and lists:
                lists.pop()
            pieces.append("\n\n")
        elif kind == "item":
            pieces.append(f"\n{'   ' * (min(len(lists), 10) - 1)}{lists[-1] if lists else '- '}")
        else:
            pieces.append({"row": "\n", "cell": " & "}.get(kind, ""))
    pieces += [*(table or []), text[place:]]
    lines = "".join(pieces).splitlines()
    kept = [
        f"{m[1]} {line[m.end() :]}" if (m := _IS_ITEM.match(line)) else line.strip()
        for line in lines
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n") + "\n"


def _read_rows(written: str) -> list[list[str]]:
    """Return the rows of a table; a head, down to its first rule, is one if its cells span."""
    rows: list[list[str]] = []
    deep = 0
    for line in written.split("\x02row\x03"):
        deep = deep or len(rows) * ("\x02rule\x03" in line)
        cells = line.replace("\x02rule\x03", "").split("\x02cell\x03")
        cells = [" ".join(cell.split()) for cell in cells]
        rows += [cells] if any(cells) else []
    if 1 < deep < min(len(rows), 4) and _SPANNED in rows[0] and len({*rows[0]}) > 2:  # no title
        for row in rows[:deep]:
            for column, cell in enumerate(row):
                row[column] = row[column - 1] if cell == _SPANNED else cell
        columns = zip_longest(*rows[:deep], fillvalue="")
        rows[:deep] = [[" ".join(dict.fromkeys(filter(None, each))) for each in columns]]
    return [[cell.replace(_SPANNED, "") for cell in row] for row in rows]


_IS_ITEM = re.compile(r"(\s*(?:-|1\.)) +")
