"""Answers and progress as text for other programs: nothing that a document wrote is active."""

import errno
import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml.html import document_fromstring
from markdown_it import MarkdownIt
from markdown_it.token import Token

from colligate import Answer, Citation, Span
from colligate.errors import ColligateError
from colligate.export import FORMATS, render_answer, render_event, write_export

MARKDOWN = MarkdownIt("commonmark").enable("table")
PIECES = st.sampled_from(
    [*"![]()<>\\/`*_&;:#-= \n1?a\"'", "![x](u)", "<img src=u>", "[1]: u\n", "<!--", "```\n", "[1]"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def answer(text: str, *citations: dict[str, Any]) -> dict[str, Any]:
    return {"answer": text, "citations": list(citations)}


def citation(title: str, section: list[str], page: int | None = None) -> dict[str, Any]:
    return {"title": title, "section": section, "page": page}


def tokens(text: str) -> Iterator[Token]:
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or []


@given(TEXTS, TEXTS.filter(str.strip), TEXTS)
def test_no_image_and_no_html_whatever_is_written(text, title, heading):
    rendered = render_answer(answer(text, citation(title, [heading]))).text
    assert not {"image", "html_inline", "html_block"} & {token.type for token in tokens(rendered)}


@given(TEXTS, st.data())
def test_a_place_in_the_answer_is_found_in_the_text(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    rendered = render_answer(answer(text))
    begin, stop = rendered.locate((start, end))
    plain = [char for at, char in enumerate(rendered.text) if at not in inserted(rendered.shifts)]
    assert "".join(plain) == text
    assert rendered.text[begin:stop].replace("\\", "") == text[start:end].replace("\\", "")


def inserted(shifts: tuple[int, ...]) -> set[int]:
    return {at + number for number, at in enumerate(shifts)}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "asking", "line": "asking a\r\n\r\ndata: {}"},
        {"event": "noted", "line": "one\u2028two\nthree"},
        {"event": "queued", "place": 2},
        {"event": "another\npackage's"},
    ],
)
def test_an_event_is_one_line(event):
    assert len(render_event(event).splitlines()) == 1


QUOTE = "Fees (table):\n| late | 10 % |\n# 1. *No* <b>credit</b> & $5_000 ![x](http://example.org)"
PLACE = {
    **citation("Rules & <b>laws</b>", ["Rules", "Fees"], 3),
    **{"document": "rules-1", "quote": QUOTE, "source": "/office/rules.pdf"},
    **{"date": "2024-05-01", "authors": "Mercer, Ada; Bob {O'Neil}; C. Roe & Co"},
}
USAGE = {"calls": 1, "input_tokens": 678, "output_tokens": 76, "seconds": 4.8, "cost_usd": 0.002}
USAGE |= {"by_role": {}, "scoring_passes": 24}


def whole(text: str, *citations: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = {"short_answer": None, "ground": "documents", "how": "", "warnings": [], "evidence": []}
    asked = {"question": "What does a late <i>payer</i> pay?", "strategy": "auto", "usage": USAGE}
    return {**answer(text, *citations), **asked, **said, "found": bool(citations), **more}


def read_html(content: bytes) -> Any:
    return document_fromstring(content.decode())


def squeeze(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def paid() -> dict[str, Any]:
    later = {**PLACE, "page": 9}
    bare = {**PLACE, "document": "notes-2", "title": "Notes", "date": "", "authors": ""}
    text = "A late payer pays 10 %. [1][2] He may appeal. [3]"
    more = {"warnings": ["notes.md <img> was read in part"], "probability": 0.874}
    return whole(text, PLACE, later, bare, short_answer="10 %", **more)


@pytest.mark.parametrize("ending", [".md", ".html", ".docx"])
def test_a_file_has_the_table_beside_the_answer(paid, ending):
    """Its cells name the citation or, where the answer does not cite it, the page."""
    named = {"document": "rules-1", "title": "Rules | <b>laws</b>", "column": "late | fee"}
    place = {**PLACE, "start": 0, "end": 9}
    said = {**named, "text": "10 %", "citation": place}
    more = {**said, "document": "more", "title": "More", "citation": {**place, "start": 5}}
    none = {**named, "document": "notes-2", "title": "Notes", "text": "", "citation": None}
    content = FORMATS[ending].render({**paid, "citations": [place], "table": [said, more, none]})
    if ending == ".docx":
        (table,) = docx.Document(io.BytesIO(content)).tables
        rows = [[cell.text for cell in row.cells] for row in table.rows]
    else:
        page = content if ending == ".html" else MARKDOWN.render(content.decode()).encode()
        rows = [[squeeze(td.text_content()) for td in row] for row in read_html(page).xpath("//tr")]
    assert rows == [
        ["document", "late | fee"],
        ["Rules | <b>laws</b>", "10 % [1]"],
        ["More", "10 % (page 3)"],
        ["Notes", "not found"],
    ]


@pytest.mark.parametrize("ending", [".md", ".html", ".docx"])
def test_a_file_says_the_answer_its_sources_and_what_it_took(paid, ending):
    content = FORMATS[ending].render(paid)
    if ending == ".docx":
        lines = [each.text for each in docx.Document(io.BytesIO(content)).paragraphs]
    else:
        page = content if ending == ".html" else MARKDOWN.render(content.decode()).encode()
        lines = [each.text_content() for each in read_html(page).xpath("//h1|//h2|//p|//li")]
    lines = list(map(squeeze, lines))
    assert lines[:4] == [paid["question"], "10 %", paid["answer"], "Sources"]
    where = "[1] Rules & <b>laws</b> › Rules › Fees, page 3, 2024-05-01 (/office/rules.pdf)"
    assert lines[4:6] == [where, squeeze(QUOTE)]
    assert lines[-3:-1] == ["Warnings", "notes.md <img> was read in part"]
    cost = "1 call, 678 tokens in, 76 out, $0.0020, 24 texts judged, 4.8 s"
    assert lines[-1] == f"colligate, auto; likely right: 87%; {cost}"


@given(TEXTS, TEXTS.filter(str.strip), TEXTS)
def test_a_quote_is_shown_as_it_is_and_nothing_in_a_file_is_active(text, quote, title):
    cited = whole(text, {**PLACE, "quote": quote, "title": title}, warnings=[title])
    page = read_html(FORMATS[".html"].render(cited))
    assert not page.xpath("//img|//a|//script|//body//*[@src or @href]")
    [shown] = page.xpath("//blockquote[preceding-sibling::h2]")
    assert squeeze(shown.text_content()) == squeeze(quote)
    markdown = FORMATS[".md"].render(cited).decode()
    assert not {"image", "html_inline", "html_block"} & {token.type for token in tokens(markdown)}


def test_characters_that_no_file_can_hold_do_no_harm():
    odd = whole("Due. [1]\x00\x1b[2J\ud800", {**PLACE, "quote": "a\x0bb\ufffe", "title": "\udc00"})
    for each in FORMATS.values():
        assert each.render(odd)


def test_documents_are_listed_once_as_bibtex(paid):
    written = FORMATS[".bib"].render(paid).decode()
    assert written == (
        "@misc{rules-1,\n"
        "  title = {{Rules \\& <b>laws</b>}},\n"
        "  author = {{Mercer, Ada} and Bob {\\textbraceleft}O'Neil{\\textbraceright} "
        "and C. Roe \\& Co},\n"
        "  year = {2024},\n"
        "  month = {5},\n"
        "  note = {rules.pdf, pages 3, 9},\n"
        "}\n"
        "\n"
        "@misc{notes-2,\n"
        "  title = {{Notes}},\n"
        "  note = {rules.pdf, page 3},\n"
        "}\n"
    )


@pytest.mark.parametrize("ending", [".md", ".html", ".docx"])
def test_line_ends_of_other_systems_are_line_ends(ending):
    said = [("Due.{0}Soon. [1]", "In May.{0}In June.{1}In July.")] * 2
    made = [
        FORMATS[ending].render(whole(text.format(*ends), {**PLACE, "quote": quote.format(*ends)}))
        for (text, quote), ends in zip(said, [("\n", "\n"), ("\r\n", "\f")], strict=True)
    ]
    if ending == ".docx":
        made = [[p.text for p in docx.Document(io.BytesIO(each)).paragraphs] for each in made]
    assert made[0] == made[1]


@given(TEXTS, TEXTS)
def test_no_text_ends_a_bibtex_entry(title, authors):
    cited = whole("Yes. [1]", {**PLACE, "title": title, "authors": authors})
    written = FORMATS[".bib"].render(cited).decode()
    depths = list(accumulate({"{": 1, "}": -1}.get(char, 0) for char in written))
    assert depths.index(0, written.index("{")) == written.rindex("}")


def in_notebook(text: str, quote: str, *stretches: tuple[int, int], **more: Any) -> Any:
    at = Span("rules-1", 0, max(1, len(quote)))
    source = ("Rules & laws", ("Rules & laws", "Fees"), 3, stretches, "exact", "/office/rules.pdf")
    cited = Answer("What is due?", "auto", text, True, citations=(Citation(at, quote, *source),))
    return document_fromstring(replace(cited, **more)._repr_html_())


def test_a_mark_in_a_notebook_opens_its_quote():
    text = "It costs [1] euro. [1] No more is due. [uncited]"
    page = in_notebook(text, QUOTE, (0, 18), short="1 euro", warnings=("<b> was read in part",))
    [source] = page.xpath("//details[not(@open)]")
    where = "[1]Rules & laws › Fees, page 3 (rules.pdf)"
    assert squeeze(source.text_content()) == where + squeeze(QUOTE)
    assert source.xpath("string(.//mark)") == QUOTE
    assert source.getprevious().text == "1 euro"
    assert source.getprevious().tail == "\nIt costs [1] euro. "  # brackets of the statement's own
    assert source.tail == " No more is due. [uncited]"
    assert "<b> was read in part" in page.text_content()


def test_values_in_a_notebook_have_their_quotes_below():
    page = in_notebook('{"due": "[1]"}', QUOTE, filled={"due": "[1]"})
    assert page.xpath("string(//pre)") == '{"due": "[1]"}'
    assert page.xpath("string(//pre/following-sibling::details//mark)") == QUOTE


@given(TEXTS, TEXTS, TEXTS)
def test_nothing_in_a_notebook_is_active(text, quote, short):
    page = in_notebook(f"{text} [1]", quote, (0, len(text)), short=short, warnings=(text,))
    known = {"html", "body", "div", "details", "summary", "blockquote", "small", "mark", "b", "br"}
    assert {each.tag for each in page.iter()} <= known
    assert {name for each in page.iter() for name in each.attrib} <= {"class", "style"}


@pytest.mark.posix
def test_an_export_that_fails_leaves_the_file_of_before(paid, tmp_path, monkeypatch):
    file = tmp_path / "answer.md"
    file.write_text("of before")
    file.chmod(0o640)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", Mock(side_effect=full))
        with pytest.raises(ColligateError, match="No space left"):
            write_export(paid, file)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["of before"]
    write_export(paid, file)
    assert file.read_text() != "of before"
    assert file.stat().st_mode & 0o777 == 0o640
