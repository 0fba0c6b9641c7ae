"""Web pages: what belongs to their text, their tables, lists and notes."""

from pathlib import Path

import pytest

from support.documents import write_and_read


def read(tmp_path: Path, body: str) -> str:
    return write_and_read(tmp_path / "a.html", f"<!DOCTYPE html><body>{body}").text.strip()


def table(*rows: str) -> str:
    return "\n".join([rows[0], "|" + " --- |" * (rows[0].count("|") - 1), *rows[1:]])


VANS = "<tr><th rowspan=2>Van<th colspan=2>Loads<tr><th>t<th>pallets"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            f"{VANS}<tr><td rowspan=2>Wren<td>1<td>2<tr><td>3<td>4",
            table("| Van | Loads t | Loads pallets |", "| Wren | 1 | 2 |", "| Wren | 3 | 4 |"),
        ),
        (
            f"{VANS.replace('th', 'td')}<tr><td>W<td>1<td>2",
            table("| Van | Loads t | Loads pallets |", "| W | 1 | 2 |"),
        ),
        (
            "<thead><tr><td>A<td>B<tr><td>in m<td>in t</thead><tr><td>1<td>2",
            table("| A in m | B in t |", "| 1 | 2 |"),
        ),
        (
            "<tr><th>Day<th>Sat<th>Sun<tr><td>Shop<td colspan=2>Closed<tr><td colspan=2>Sum<td>9",
            table("| Day | Sat | Sun |", "| Shop | Closed | Closed |", "| Sum |  | 9 |"),
        ),
        (
            "<tr><td colspan=2>Prices of May<tr><td>Who<td>EUR<tr><td>All<td>9",
            "Prices of May\n\n" + table("| Who | EUR |", "| All | 9 |"),
        ),
        ("<tr><td>a<td rowspan=99>b<tr><td>c", table("| a | b |", "| c | b |")),
        ("<tr><td rowspan=0>a<td>b<tr><td>c", table("| a | b |", "| a | c |")),
        ("<tr><td>Only this.", "Only this."),
        (
            "<tr><td>a<td>b<tr><td>c<td><table><tr><td>i<td>j<tr><td>k</table>",
            table("| a | b |", "| c | i, j; k |"),
        ),
        (
            "<tr><td>a<td>b<tr><td>c<td><table><caption>k</caption></table>",
            "| a | b |\n| --- | --- |\n| c | k |",
        ),
        ("<tr><form><td rowspan=2>a<td>b</form><tr><td>c", "| a | b |\n| --- | --- |\n|  | c |"),
        (
            "<tr><td>Hello<tr><td><table><tr><td>a<td>b<tr><td>c<td>d</table>",
            "Hello\n\n" + table("| a | b |", "| c | d |"),
        ),
        ("<tr><td><h2>Left</h2>x<td><h2>Right</h2>y", "## Left\n\nx\n\n## Right\n\ny"),
    ],
)
def test_each_row_of_a_table_has_all_its_cells(tmp_path, content, shown):
    assert read(tmp_path, f"<table>{content}</table>") == shown


def test_a_table_that_spans_more_than_a_page_can_show_stays_small(tmp_path):
    rows = f"<tr><td colspan=1000 rowspan=1000>{'x' * 150}" * 500
    assert len(read(tmp_path, f"<table>{rows}</table>")) < 5_000_000


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            '<p>Let.<sup><a href="#n1">1</a></sup> Sold.<p id=n1>1 Daily. <a href="#r1">↩</a>',
            "Let. Sold.\n\n1 Daily.",
        ),
        ('<p>Let.<a href="#n1"><sup>a</sup></a> Sold.', "Let. Sold."),
        ('<p>Let<a href="n.html#n1">[1]</a><a href="n.html#n2">[2]</a>, sold.', "Let, sold."),
        ('<p>Let<sup><a href="n.html#n1">1</a></sup> it.', "Let it."),
        ('<p>Let<span><a href="n.html#n1">*</a></span> it.', "Let it."),
        ('<p><a href="#r1">1</a>Daily.', "1 Daily."),
        ('<p>Let <a epub:type="noteref" href="n.html#x">note</a>.', "Let ."),
        ('<p>See <a href="#s4">4</a> and <a href="#s5">clause 5</a>.', "See 4 and clause 5."),
        ('<h2>Fees<a href="#fees">¶</a></h2>', "## Fees"),
        ('<p>10<sup>6</sup> of <a href="https://x.org/a">it</a>', "10^6 of [it](https://x.org/a)"),
    ],
)
def test_marks_of_notes_are_not_in_sentences(tmp_path, body, shown):
    assert read(tmp_path, body) == shown


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("<ol type=a><li>x<li><p>y</ol>", "- a. x\n\n- b. y"),
        ("<ol start=3><li>x<li>y</ol>", "3. x\n4. y"),
        ("<ol reversed><li>x<li>y</ol>", "2. x\n\n1) y"),
        ("<ol><li>x<li value=7>y<li>z</ol>", "1. x\n\n7) y\n8) z"),
        ("<input type=checkbox checked>Meals<br><input type=radio>Bed", "☒ Meals\n☐ Bed"),
        ("<input type=checkbox checked><p>a", "a"),
        ("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby>字", "漢字"),
        ("<div><button aria-controls=a>A</button><button aria-controls=b>B</button></div>", "A B"),
        ("<p>It is <s>30</s> <del>31</del> <ins>45</ins>", "It is ~~30~~ ~~31~~ 45"),
    ],
)
def test_lists_boxes_and_changes_are_as_shown(tmp_path, body, shown):
    assert read(tmp_path, body) == shown


TEXT = "<h1>Boats</h1><p>A licence is valid for six years, and it costs 35 euros.</p>"
LINKS = '<h2>More</h2><ul><li><a href="/a">Ten lakes to see</a></ul>'


@pytest.mark.parametrize(
    "body",
    [
        f"<nav>x</nav>{TEXT}<footer>y</footer>",
        f'<div role=navigation>x</div>{TEXT}<div role="contentinfo">y</div>',
        f"<header>x</header>{TEXT}<dialog open>y</dialog>",
        f"<header><nav>x</nav>{TEXT}</header><div role=alertdialog>y<button>z</button></div>",
        f"{TEXT}<aside>{LINKS}</aside><p hidden>x<p style='display: none'>y",
        f"<article>{TEXT}<aside>{LINKS}</aside></article><div class=c>x<button>y</button></div>",
        f"<div>x</div><main aria-hidden=true>{TEXT}</main><div>{LINKS}</div>",
        f"<div>x<section>{LINKS}</section></div><div><p>y</p><main>{TEXT}</main></div>",
        f"{TEXT.replace('</h1>', '<span class=mw-editsection>[<a href=/e>edit</a>]</span></h1>')}",
        f"{TEXT}<button>Copy</button><template>x</template><span aria-hidden=true>y</span>",
    ],
)
def test_what_surrounds_the_text_of_a_page_is_left_out(tmp_path, body):
    shown = "# Boats\n\nA licence is valid for six years, and it costs 35 euros."
    assert read(tmp_path, body) == shown


@pytest.mark.parametrize(
    "body",
    [
        "<details><summary>And then?</summary><p>word</p></details>",
        "<h3><button aria-controls=p>When?</button></h3><div id=p hidden>word</div>",
        "<article><header><h2>Title</h2></header><p>word<footer>By Ann.</footer></article>",
        f"<main>x</main><div>{'word ' * 50}</div>",
        "<p>text<aside>Note: mind the word.</aside>",
        "<section><p>word</p></section><section><footer>x</footer></section>",
        "<ul><li><a href=/a>word one</a><li><a href=/b>two</a></ul>",
        "<div hidden=until-found>word</div>",
        "<aside epub:type=footnote><p><a href=#r>word</a></p></aside>",
        "<form><label>word<input></label><button>Send</button></form>",
    ],
)
def test_text_of_a_page_that_only_looks_like_furniture_stays(tmp_path, body):
    assert "word" in read(tmp_path, body)


@pytest.mark.parametrize(
    ("stated", "text", "language"),
    [
        ("en-GB", "Ok", "en"),
        ("x", "Ok", "und"),
        ("en", "Der Vertrag endet nach drei Monaten, wenn niemand ihn verlängert.", "de"),
    ],
)
def test_a_page_says_its_language_where_its_text_is_too_short(tmp_path, stated, text, language):
    page = f"<!DOCTYPE html><html lang={stated}><body><p>{text}"
    assert write_and_read(tmp_path / "a.html", page).language == language
