"""Answers and progress as text for other programs; answers as files (Markdown, HTML, Word, BibTeX)
and in notebooks.

Documents and models wrote the texts, so nothing in them may load an image or become HTML: an
address that a model was led to write would tell its server what the documents say.
"""

from __future__ import annotations

import html
import inspect
import io
import os
import re
import shutil
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from colligate.errors import ColligateError, UsageError

# The start of an image, of a tag, comment or link in angle brackets, and of a link definition
# (`[1]: address`). After an odd number of backslashes it is text already.
_ACTIVE = re.compile(r"(\\*)(?:!(?=\[)|<(?=[A-Za-z/!?])|\](?=:))")
# In a text that is not Markdown: what has a meaning anywhere, and what has one at a line's start.
_MARKS = re.compile(r"[\\`*\[\]<|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_FIRST_MARKS = re.compile(r"^(\d*)([#+=.)>-])", re.MULTILINE)


@dataclass(frozen=True)
class RenderedAnswer:
    """The answer with its sources below; backslashes were inserted at `shifts` (code points)."""

    text: str
    shifts: tuple[int, ...]

    def locate(self, span: tuple[int, int]) -> tuple[int, int]:
        """Return where a span of the answer is in `text`."""
        start, end = span
        return start + bisect_left(self.shifts, start), end + bisect_left(self.shifts, end)


def render_answer(answer: Mapping[str, Any]) -> RenderedAnswer:
    """Escape an answer (the object of `ask --json`) and list its sources below.

    JSON in the shape of a schema stays as it is: it has nothing to escape, and no sources below.
    """
    raw: str = answer["answer"]
    active = (match for match in _ACTIVE.finditer(raw) if len(match[1]) % 2 == 0)
    shifts = tuple(match.end(1) for match in active)
    text = "\\".join(raw[start:end] for start, end in pairwise((0, *shifts, len(raw))))
    if rows := lay_out(answer):
        text += "\n\n" + _mark_up_table(rows)
    if answer["citations"] and "filled" not in answer:
        places = (escape_markdown(describe_place(each)) for each in answer["citations"])
        lines = [f"[{n}] {place}" for n, place in enumerate(places, 1)]
        # Two blanks at the end of a line keep Markdown from joining it with the next.
        text += "\n\nSources:\n\n" + "  \n".join(lines)
    return RenderedAnswer(text, shifts)


def lay_out(answer: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of an answer's table under the names of its columns; none without a table.

    A cell ends with the number of its citation, or with its page if the answer does not cite it.
    """
    if not answer.get("table"):
        return []
    numbers = {_key(each): at for at, each in reversed([*enumerate(answer["citations"], 1)])}
    rows: dict[str, dict[str, list[str]]] = {}
    titles: dict[str, str] = {}
    columns = list(dict.fromkeys(each["column"] for each in answer["table"]))
    for each in answer["table"]:
        cells = rows.setdefault(each["document"], {name: [] for name in columns})
        titles[each["document"]] = each["title"]
        said = "not found"
        if cited := each["citation"]:
            page = f"(page {cited['page']})" if cited["page"] else ""
            number = numbers.get(_key(cited))
            said = " ".join(f"{each['text']} {f'[{number}]' if number else page}".split())
        cells[each["column"]].append(said)
    lines = [
        [" ".join(titles[name].split()), *("; ".join(dict.fromkeys(c)) for c in cells.values())]
        for name, cells in rows.items()
    ]
    return [["document", *columns], *lines]


def _key(citation: Mapping[str, Any]) -> tuple[Any, ...]:
    return citation["document"], citation["start"], citation["end"]


def describe_place(citation: Mapping[str, Any], *, with_folder: bool = False) -> str:
    """Return title, headings, page, row, date and file of a citation in one line, and a
    mark if it is not known whether the answer says the same."""
    titled = f"{citation['title']} ("  # what tells it from others of its title is in brackets
    headings = [each for each in citation["section"] if not titled.startswith(f"{each} (")]
    where = " › ".join([citation["title"], *headings])
    page = "" if citation["page"] is None else f", page {citation['page']}"
    row = f", row {citation['row']}" if citation.get("row") else ""
    date = f", {citation['date']}" if citation.get("date") else ""
    file = citation.get("source", "")
    name = file if with_folder else PurePath(file).name
    words = ", worded differently, please check" if citation.get("meaning") == "unclear" else ""
    return " ".join((where + page + row + date + (f" ({name})" if name else "") + words).split())


def _count(count: int, thing: str) -> str:
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def describe_usage(usage: Mapping[str, Any], model: str = "") -> str:
    """Return what a run cost (the object `usage` of `ask --json`) in one line."""
    tokens = f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out"
    cost = f", ${usage['cost_usd']:.4f}" if usage["cost_usd"] else ""
    passes = usage.get("scoring_passes", 0)
    judged = f", {_count(passes, 'text')} judged" if passes else ""
    by = f"{model}: " if model else ""
    counts = {role: sums["calls"] for role, sums in usage["by_role"].items() if sums["calls"]}
    roles = [f"{role} {calls:,}" for role, calls in counts.items()]
    calls = _count(usage["calls"], "call") + (f" ({', '.join(roles)})" if len(roles) > 1 else "")
    split = [f"{what} {took:.1f}" for what, took in usage.get("split", {}).items() if took >= 0.05]
    parts = f" ({', '.join(split)})" if len(split) > 1 else ""
    return f"{by}{calls}, {tokens}{cost}{judged}, {usage['seconds']:.1f} s{parts}"


def describe_chance(answer: Mapping[str, Any]) -> str:
    """Return how likely an answer is right, in a few words; empty if it is not known."""
    chance: float | None = answer.get("probability")
    if chance is None or not answer["found"]:
        return ""
    return f"likely right: {min(chance, 0.99):.0%}"


def render_event(event: Mapping[str, Any]) -> str:
    """Return the line of an event that `Event.to_json` wrote, or the event's name without one."""
    if event.get("event") == "queued":
        return f"waiting in the queue, at place {event.get('place')}"
    # A line break would end a comment in an event stream; half a surrogate pair cannot be sent.
    line = " ".join(str(event.get("line") or event.get("event", "")).split())
    return line.encode(errors="replace").decode()


def escape_markdown(text: str) -> str:
    """Return a text as Markdown that shows the same characters."""
    return _FIRST_MARKS.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", text))


class Format(NamedTuple):
    """A kind of file: its media type, and the bytes of an answer (the object of `ask --json`)."""

    media_type: str
    render: Callable[[Mapping[str, Any]], bytes]


def choose_format(path: Path) -> Format:
    """Return the format that a file's ending names, if the file can be written.

    UsageError if no format has this ending, or the file cannot be written in its folder.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        endings = ", ".join(FORMATS)
        what, hint = f"no answer is written as {path.name}", f"give a name that ends in {endings}"
        raise UsageError(what, f"no format has the ending {path.suffix!r}", hint)
    require_writable(path)
    return found


def require_writable(path: Path) -> None:
    """Raise a UsageError for a file that cannot be written in its folder."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        why = "it is a folder"
        if not path.is_dir():
            why = f"the folder {path.parent} does not exist or cannot be written to"
        raise UsageError(f"cannot write {path}", why, "give another file")


def write_export(answer: Mapping[str, Any], path: Path) -> None:
    """Write an answer to a file, in the format that its ending names."""
    write_file(path, choose_format(path).render(answer))


def write_file(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    target = path.resolve()  # a link stays, and what it leads to is replaced
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_bytes(content)
        if target.exists():  # what exists keeps its permissions
            shutil.copymode(target, fresh)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise ColligateError(f"cannot write {path}", why, "give another file") from error


# Characters that XML cannot hold, and those that reorder what is around them.
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _replace_unseen(text: str) -> str:
    lines = re.sub(r"\r\n?|\f", "\n", text)
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", lines)


def _list_blocks(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a file says, from top to bottom: the kind of each block and its text."""
    yield "title", _title(answer)
    if short := _short(answer):
        yield "short", short
    yield "code" if "filled" in answer else "answer", answer["answer"]
    if rows := lay_out(answer):
        yield "table", "\n".join("\t".join(row) for row in rows)
    if answer["citations"]:
        computed = "; a figure is computed from them" if answer["ground"] == "computed" else ""
        yield "heading", f"Sources{computed}"
    for number, citation in enumerate(answer["citations"], 1):
        said = [each["path"] for each in answer.get("values", ()) if each["citation"] == number]
        place = describe_place(citation, with_folder=True)
        yield "source", f"[{number}] {place}" + (f": {', '.join(said)}" if said else "")
        yield "quote", inspect.cleandoc(citation["quote"])
    if not answer["found"]:
        yield "heading", "What was read"
        read = Counter(each["document"] for each in answer["evidence"])
        yield "text", "None of these passages supports an answer." if read else "No passage."
        for document, passages in read.items():
            yield "item", f"{document}: {_count(passages, 'passage')}"
    if answer["warnings"]:
        yield "heading", "Warnings"
    for warning in answer["warnings"]:
        yield "item", warning
    cost = describe_usage(answer["usage"], answer.get("model", ""))
    how = f" ({answer['how']})" if answer["how"] else ""
    facts = (f"colligate, {answer['strategy']}{how}", describe_chance(answer), cost)
    yield "note", "; ".join(filter(None, facts))


def _short(answer: Mapping[str, Any]) -> str:
    short = " ".join((answer["short_answer"] or "").split())
    return "" if short == answer["answer"].strip() else short


def _render_markdown(answer: Mapping[str, Any]) -> str:
    blocks = (_mark_up(kind, _replace_unseen(text)) for kind, text in _list_blocks(answer))
    return "\n\n".join(blocks) + "\n"


def _mark_up(kind: str, text: str) -> str:
    if kind == "answer":  # its own Markdown stays, but a code block must not take in what follows
        shown = render_answer({"answer": text, "citations": ()}).text
        return re.sub(r"^(\s*)(?=```|~~~)", r"\1\\", shown, flags=re.MULTILINE)
    if kind == "code":
        return "\n".join(f"    {line}" for line in text.splitlines())
    if kind == "table":
        return _mark_up_table([row.split("\t") for row in text.split("\n")])
    lines = [escape_markdown(line.strip()) for line in text.splitlines()]
    match kind:
        case "quote":
            return "  \n".join(f"> {line}" for line in lines)
        case "source":  # the number's brackets need no backslash
            number, _, place = text.partition(" ")
            return f"{number} {escape_markdown(place)}"
    return _SIGNS.get(kind, "{}").format(" ".join(lines))


def _mark_up_table(rows: Sequence[Sequence[str]]) -> str:
    head, *lines = [[*map(escape_markdown, row)] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *lines))


_SIGNS = {"title": "# {}", "heading": "## {}", "short": "**{}**", "item": "- {}"}


def _title(answer: Mapping[str, Any]) -> str:
    return " ".join(_replace_unseen(answer["question"]).split())


_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.6 Georgia, serif; }}
h1, h2 {{ line-height: 1.25; }}
blockquote {{ margin: .3rem 0 1.2rem; padding-left: 1rem; border-left: 3px solid #bbb; }}
body, blockquote {{ overflow-wrap: anywhere; }}
</style>
{body}"""


def _render_html(answer: Mapping[str, Any]) -> str:
    from markdown_it import MarkdownIt

    written = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link"])
    body = written.render(_render_markdown(answer))
    return _PAGE.format(title=html.escape(_title(answer)), body=body)


_STYLES = {"title": "Title", "heading": "Heading 1", "quote": "Quote", "item": "List Bullet"}


def _render_docx(answer: Mapping[str, Any]) -> bytes:
    import docx

    document = docx.Document()
    facts = document.core_properties  # the template names itself
    facts.title, facts.author, facts.comments = _title(answer)[:255], "colligate", ""
    for kind, text in _list_blocks(answer):
        if kind == "table":
            rows = [row.split("\t") for row in _replace_unseen(text).split("\n")]
            table = document.add_table(len(rows), len(rows[0]), "Table Grid")
            for row, cells in zip(rows, table.rows, strict=True):
                for said, cell in zip(row, cells.cells, strict=True):
                    cell.text = said
            continue
        paragraph = document.add_paragraph(style=_STYLES.get(kind))
        paragraph.add_run(_replace_unseen(text)).bold = kind == "short" or None
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


# Notebooks

# Jupyter would set what stands between two dollars as a formula.
_CELL = (
    '<div class="tex2jax_ignore mathjax_ignore"><div style="white-space: pre-wrap">{}</div>{}</div>'
)
_SOURCE = (
    '<details style="display: inline">'
    '<summary style="display: inline; text-decoration: underline">[{}]</summary>'
    "<blockquote><small>{}</small><br><mark>{}</mark></blockquote></details>"
)


def render_cell(answer: Mapping[str, Any]) -> str:
    """Return an answer as HTML without scripts, for a notebook: each mark opens its quote."""

    def show(text: str) -> str:
        return html.escape(_replace_unseen(text))

    text, citations = answer["answer"], answer["citations"]
    sources = [
        _SOURCE.format(number, show(describe_place(each)), show(inspect.cleandoc(each["quote"])))
        for number, each in enumerate(citations, 1)
    ]
    stated = [span for each in citations for span in each["answer_spans"]]
    if "filled" in answer:  # JSON: its brackets are no marks
        stated = [(0, len(text))]
    shown, done = "", 0
    for mark in re.finditer(r"\[(\d{1,4})\]", text):
        own = any(start <= mark.start() < end for start, end in stated)
        if not own and 0 < int(mark[1]) <= len(sources):
            shown += show(text[done : mark.start()]) + sources[int(mark[1]) - 1]
            done = mark.end()
    shown += show(text[done:])
    if "filled" in answer:
        shown = f"<pre>{shown}</pre>{' '.join(sources)}"
    if short := _short(answer):
        shown = f"<b>{show(short)}</b>\n{shown}"
    notes = (describe_chance(answer), *answer["warnings"], describe_usage(answer["usage"]))
    below = "".join(f"<br><small>{show(note)}</small>" for note in notes if note)
    return _CELL.format(shown, below)


# BibTeX: one entry for each document cited.

_LATEX = str.maketrans(
    {char: rf"\{char}" for char in "&%$#_"}
    | {"\\": r"{\textbackslash}", "~": r"{\textasciitilde}", "^": r"{\textasciicircum}"}
    | {"{": r"{\textbraceleft}", "}": r"{\textbraceright}"}  # a brace alone would end the field
)


def _render_bibtex(answer: Mapping[str, Any]) -> str:
    cited: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for citation in answer["citations"]:
        cited[citation["document"]].append(citation)
    return "\n".join(_write_entry(*each) for each in cited.items())


def _write_entry(document: str, citations: list[Mapping[str, Any]]) -> str:
    first = citations[0]
    authors = filter(str.strip, first.get("authors", "").split(";"))
    year, _, rest = first.get("date", "").partition("-")
    pages = sorted({each["page"] for each in citations if each["page"] is not None})
    noted = [_to_latex(PurePath(first.get("source", "")).name)]
    if pages:
        noted.append(f"page{'s' * (len(pages) > 1)} {', '.join(map(str, pages))}")
    fields = {
        "title": f"{{{_to_latex(first['title'])}}}",  # its capitals stay
        "author": " and ".join(map(_write_author, authors)),
        "year": _to_latex(year),
        "month": rest[:2].lstrip("0"),
        "note": ", ".join(filter(None, noted)),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    key = re.sub(r"[^A-Za-z0-9_.:-]+", "-", document)
    return "\n".join([f"@misc{{{key},", *lines, "}", ""])


def _write_author(name: str) -> str:
    """Return a name; one with a comma or "and" must not be taken apart by BibTeX."""
    return f"{{{_to_latex(name)}}}" if re.search(r",|\band\b", name, re.I) else _to_latex(name)


def _to_latex(text: str) -> str:
    return " ".join(_replace_unseen(text).split()).translate(_LATEX)


def _encoded(render: Callable[[Mapping[str, Any]], str]) -> Callable[[Mapping[str, Any]], bytes]:
    return lambda answer: render(answer).encode()


FORMATS = {
    ".md": Format("text/markdown", _encoded(_render_markdown)),
    ".html": Format("text/html", _encoded(_render_html)),
    ".docx": Format(
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document", _render_docx
    ),
    ".bib": Format("application/x-bibtex", _encoded(_render_bibtex)),
}
"""The formats of files, by their endings."""
