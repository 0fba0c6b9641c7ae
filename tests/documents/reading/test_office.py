"""Office files, e-books and web pages, made here by hand: their headings, lists and tables."""

import csv
import html
import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from docx.oxml.ns import nsdecls
from hypothesis import assume, example, given
from hypothesis import strategies as st

from colligate.core.answer import make_citation
from colligate.documents import Kind
from colligate.documents.reading import SourceFile
from colligate.documents.reading.tables import read_separated
from colligate.errors import EncryptedFile
from colligate.export import describe_place
from support.documents import outline, pack, texts_of, write_and_read
from support.office import (
    SHEETS,
    A,
    P,
    R,
    open_cell,
    open_document,
    relations,
    row_xml,
    shape,
    slides,
    with_members,
    word,
)

FIELD = f'<w:fldSimple {nsdecls("w")} w:instr=" IF 2 > 1 "><w:r><w:t>700</w:t></w:r></w:fldSimple>'
DOCX = word(
    ("Heading 1", "Overview"),
    ("Normal", "R&D: 3 < 5 > 2, café 正文."),
    ("List Bullet", "one"),
    ("List Bullet 2", "deep"),
    ("Heading 2", "Details"),
    ("Normal", "# no heading"),
    ("Normal", "EUR "),
    inside=FIELD,
    table=("AT&T", "a|b"),
)
DOCX_TEXT = (
    "# Overview\n\nR&D: 3 < 5 > 2, café 正文.\n\n- one\n  * deep\n\n## Details\n\n"
    "\\# no heading\n\nEUR 700\n\n| AT&T | a\\|b |\n| --- | --- |\n"
)
TITLED = word(("Title", "Report"), ("Heading 1", "First"), ("Heading 2", "x"), ("Heading 1", "Two"))
SIGNED = word(("Heading 1", "Lease"), ("Normal", "Acme Ltd.\n---------------\nDirector"))


def test_each_slide_is_a_section_and_a_page_in_the_order_shown(tmp_path):
    deck = slides(
        shape("title", (0, "Deck &amp; title")) + shape("body", (0, "Café 正文")),
        shape("title", (0, "Second")) + shape("body", (0, "bullet"), (1, "nested")),
        shape("body", (0, "No title.")),
        shape("title", (0, "Taken out")),
        shown=(2, 1, 3),
    )
    document = write_and_read(tmp_path / "deck.pptx", deck)
    assert document.text == (
        "## Second\n\nbullet\n\n- nested\n\n## Deck & title\n\nCafé 正文\n\n"
        "## Slide 3\n\nNo title.\n\n## Taken out\n\n"
    )
    assert [document.text[page.start :][:6] for page in document.pages] == [
        *("## Sec", "## Dec", "## Sli", "## Tak")
    ]
    assert [page.number for page in document.pages] == [1, 2, 3, 4]
    assert document.pages[-1].end == len(document.text)


def test_hidden_slides_are_named(tmp_path):
    deck = slides(shape("body", (0, "Shown.")), shape("body", (0, "For us alone.")))
    part = f'<p:sld {A} {P} show="0"><p:spTree>{shape("body", (0, "Us."))}</p:spTree></p:sld>'
    deck = with_members(deck, {"ppt/slides/slide2.xml": part})
    document = write_and_read(tmp_path / "deck.pptx", deck)
    assert "Us." in document.text
    (warning,) = document.warnings
    assert warning.endswith("hidden slides are read: 2")


CHART = (
    '<c:chartSpace xmlns:c="c"><c:chart><c:ser><c:tx><c:v>Visits</c:v></c:tx><c:cat>'
    '<c:pt idx="0"><c:v>May</c:v></c:pt><c:pt idx="1"><c:v>June</c:v></c:pt></c:cat><c:val>'
    '<c:pt idx="1"><c:v>130</c:v></c:pt></c:val></c:ser><c:ser><c:tx><c:v>Share</c:v></c:tx><c:val>'
    '<c:numCache><c:formatCode>0%</c:formatCode><c:pt idx="0"><c:v>0.25</c:v></c:pt></c:numCache>'
    "</c:val></c:ser></c:chart></c:chartSpace>"
)


def cell(text: str, spans: str = "") -> str:
    return f"<a:tc {spans}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"


def test_what_hangs_on_a_slide_is_read_after_its_text(tmp_path):
    rows = (
        cell("Van", 'rowSpan="2"') + cell("Loads", 'gridSpan="2"') + cell("", 'hMerge="1"'),
        cell("", 'vMerge="1"') + cell("t") + cell("kg"),
        cell("Wren") + cell("1") + cell("2"),
    )
    frame = "<p:graphicFrame><a:graphic>{}</a:graphic></p:graphicFrame>"
    table = "".join(f"<a:tr>{row}</a:tr>" for row in rows)
    struck = shape("", (0, "Old")).replace("<a:r>", '<a:r><a:rPr strike="sngStrike"/>')
    deck = slides(
        shape("title", (0, "Top"))
        + f"<p:grpSp><p:grpSp>{struck}</p:grpSp></p:grpSp>"
        + frame.format(f"<a:tbl>{table}</a:tbl>")
        + frame.format('<c:chart xmlns:c="c" r:id="c1"/>')
        + frame.format('<d:relIds xmlns:d="d" r:dm="d1"/>')
    )
    notes = shape("sldNum", (0, "7")) + shape("body", (0, "Smile."))
    parts = {
        "charts/chart1.xml": ("c1", CHART),
        "diagrams/data1.xml": ("d1", f"<d {A}><pt><a:t>A</a:t></pt><pt/><pt><a:t>B</a:t></pt></d>"),
        "notesSlides/n1.xml": ("n", f"<p:notes {A} {P}>{notes}</p:notes>"),
        "comments/c1.xml": ("k", '<c><cm authorId="0"><text>Too long.</text></cm></c>'),
    }
    related = relations(*((key, "x", f"../{name}") for name, (key, _) in parts.items()))
    members = {f"ppt/{name}": content for name, (_, content) in parts.items()}
    members["ppt/slides/_rels/slide1.xml.rels"] = related
    members["ppt/commentAuthors.xml"] = '<a><b id="0" name="Ann"/></a>'
    document = write_and_read(tmp_path / "deck.pptx", with_members(deck, members))
    assert document.text == (
        "## Top\n\n~~Old~~\n\n| Van | Loads t | Loads kg |\n| --- | --- | --- |\n| Wren | 1 | 2 |"
        "\n\n|  | Visits | Share |\n| --- | --- | --- |\n| May |  | 25% |\n| June | 130 |  |\n\n"
        "A\n\nB\n\n[Speaker's notes] Smile.\n\n[Comment by Ann] Too long.\n\n"
    )
    assert document.warnings == ()


def test_lists_tables_and_pictures_of_a_slide(tmp_path):
    bullet = '<a:p><a:pPr lvl="{}"><a:bu{}/></a:pPr><a:r><a:t>{}</a:t></a:r></a:p>'
    items = [(0, "Char", "a"), (1, "AutoNum", "first"), (1, "AutoNum", "second"), (0, "Char", "b")]
    body = shape("body", (0, "X")).replace("</p:txBody>", "{}</p:txBody>")
    cells = "".join(map(cell, "PQ"))
    table = f"<a:graphic><a:tbl><a:tr>{cells}</a:tr></a:tbl></a:graphic>"
    table = f"<p:graphicFrame>{table}</p:graphicFrame>"
    picture = '<p:pic><p:nvPicPr><p:cNvPr id="3" name="x" descr="A ship"/></p:nvPicPr></p:pic>'
    number = (
        shape("sldNum", (0, ""))
        .replace("<a:r>", '<a:fld type="slidenum">')
        .replace("<a:t></a:t></a:r>", "<a:t>77</a:t></a:fld>")
    )
    listed = body.format("".join(bullet.format(*item) for item in items))
    deck = slides(picture + listed + table + number + shape("title", (0, "Top")))
    document = write_and_read(tmp_path / "deck.pptx", deck)
    assert document.text == (
        "## Top\n\nA ship\n\nX\n\n- a\n  1. first\n  2. second\n- b\n\n| P | Q |\n| --- | --- |\n\n"
    )


def sheet(*rows: tuple[str, ...]) -> str:
    cells = "".join(row_xml(i, row) for i, row in enumerate(rows, start=1))
    return f'<worksheet xmlns="{SHEETS}"><sheetData>{cells}</sheetData></worksheet>'


def rows_of(cells: str) -> str:
    return (
        f'<worksheet xmlns="{SHEETS}"><sheetData><row r="1">{cells}</row></sheetData></worksheet>'
    )


def workbook(hidden: str = "", **sheets: str) -> bytes:
    names = list(sheets)
    listed = "".join(
        f'<sheet name="{name}" sheetId="{i}" r:id="r{i}" '
        f'state="{"hidden" if name == hidden else "visible"}"/>'
        for i, name in enumerate(names, 1)
    )
    book = f'<workbook xmlns="{SHEETS}" {R}><sheets>{listed}</sheets></workbook>'
    parts = [(f"r{i}", "worksheet", f"worksheets/s{i}.xml") for i in range(1, len(names) + 1)]
    related = {"xl/workbook.xml": book, "xl/_rels/workbook.xml.rels": relations(*parts)}
    return pack(related | {f"xl/worksheets/s{i}.xml": sheets[n] for i, n in enumerate(names, 1)})


def test_each_sheet_is_a_section_with_its_table(tmp_path):
    book = workbook(Sales=sheet(("Area", "EUR"), ("N &amp; Süd", "2.5")), Costs=sheet(("Fee", "9")))
    document = write_and_read(tmp_path / "book.xlsx", book)
    assert outline(document) == [(2, "Sales"), (2, "Costs")]
    assert texts_of(document, Kind.TABLE) == [
        "| Area | EUR |\n| --- | --- |\n| N & Süd | 2.5 |",
        "| Fee | 9 |\n| --- | --- |",
    ]
    assert (document.title, document.warnings) == ("book", ())


def test_what_a_sheet_lacks_or_hides_is_said(tmp_path):
    formulas = (
        "<c><f>SUM(A1:A2)</f></c><c><f>A1</f><v></v></c>"  # never computed
        '<c><f>A2</f><v>2</v></c><c t="str"><f>IF(A1,"","x")</f><v></v></c>'
        '<c><f t="shared" si="0"/><v>3</v></c>'
    )
    book = workbook("Draft", Sums=rows_of(formulas), Draft=sheet(("Rent", "999")))
    document = write_and_read(tmp_path / "a.xlsx", book)
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "formulas without a stored value are blank: 2",
        "hidden sheets are read: Draft",
    ]


FORMATS = ("General", "9", "0.0%", '0"%"', "14", "20", "dd/mm/yyyy hh:mm", "[Red]0.00", "mmm yy")


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        ("General", "0.5", "0.5"),
        ("General", "0.30000000000000004", "0.3"),
        ("General", "12345678901", "12345678901"),
        ("General", "1E+3", "1000"),
        ("9", "0.125", "12.5%"),
        ("0.0%", "-0.25", "-25.0%"),
        ('0"%"', "4", "4%"),
        ("14", "45292", "2024-01-01"),
        ("20", "0.385416666666667", "09:15:00"),
        ("dd/mm/yyyy hh:mm", "45292.5", "2024-01-01 12:00:00"),
        ("mmm yy", "45292", "2024-01-01"),
        ("14", "99999999", "99999999"),
        ("[Red]0.00", "3", "3.00"),
    ],
)
def test_a_number_of_a_sheet_is_shown_as_its_format_means_it(tmp_path, form, value, shown):
    own = [name for name in FORMATS if not name.isdigit()]
    ids = [int(name) if name.isdigit() else 170 + own.index(name) for name in FORMATS]
    listed = "".join(
        f'<numFmt numFmtId="{170 + i}" formatCode="{html.escape(each)}"/>'
        for i, each in enumerate(own)
    )
    styles = f'<styleSheet xmlns="{SHEETS}"><numFmts>{listed}</numFmts><cellXfs>'
    styles += "".join(f'<xf numFmtId="{i}"/>' for i in ids) + "</cellXfs></styleSheet>"
    cell = f'<c r="A1" s="{FORMATS.index(form)}"><f>A2</f><v>{value}</v></c>'
    content = with_members(workbook(S=rows_of(cell)), {"xl/styles.xml": styles})
    assert f"| {shown} |" in write_and_read(tmp_path / "a.xlsx", content).text


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        ('<c t="s"><v>1</v></c><c t="s"><v>9</v></c><c><v>1</v></c>', "| Fee due |  | 1 |"),
        ('<c t="s"><v>2</v></c><c><v>1</v></c>', "| two lines | 1 |"),
        ('<c t="b"><v>1</v></c><c t="e"><v>#REF!</v></c>', "| TRUE | #REF! |"),
        ('<c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c>', "| 1 |  | 2 |"),
        ('<c r="B1"><v>1</v></c><c r="D1"><v>2</v></c>', "|  | 1 |  | 2 |"),
        ('<c><v>1</v></c></row><row r="1048576"><c><v>2</v></c>', "| 1 |\n| --- |\n\n| 2 |"),
    ],
)
def test_cells_of_a_sheet_stand_in_their_columns(tmp_path, cells, shown):
    runs = "<si><t>x</t></si><si><r><t>Fee</t></r><rPh><t>fi</t></rPh><r><t> due</t></r></si>"
    runs += "<si><t>two_x000D_\nlines</t></si>"
    strings = {"xl/sharedStrings.xml": f'<sst xmlns="{SHEETS}">{runs}</sst>'}
    content = with_members(workbook(S=rows_of(cells)), strings)
    assert shown in write_and_read(tmp_path / "a.xlsx", content).text


def test_what_is_struck_out_in_a_sheet_is_between_tildes(tmp_path):
    fonts = '<fonts><font/><font><strike/></font><font><strike val="0"/></font></fonts>'
    used = "".join(f'<xf fontId="{n}"/>' for n in range(3))
    styles = f'<styleSheet xmlns="{SHEETS}">{fonts}<cellXfs>{used}</cellXfs></styleSheet>'
    old = "<r><rPr><strike/></rPr><t>89</t></r><r><rPr><strike/></rPr><t>.00 </t></r>"
    cells = f'<c t="inlineStr" s="1"><is>{old}<r><t>79.00</t></r></is></c>'
    cells += "".join(f'<c s="{n}"><v>{n}2</v></c>' for n in range(3))
    content = with_members(workbook(S=rows_of(cells)), {"xl/styles.xml": styles})
    text = write_and_read(tmp_path / "a.xlsx", content).text
    assert "| ~~89.00~~ 79.00 | 2 | ~~12~~ | 22 |" in text


GAP, TWICE = '<t:table-cell t:number-columns-repeated="2"/>', 't:number-columns-repeated="2"'
ODS = open_document(
    "spreadsheet",
    '<t:table t:name="Fees">'
    f"<t:table-row>{open_cell('Share')}{GAP}{open_cell('12.5 %')}</t:table-row>"
    f'<t:table-row t:number-rows-repeated="2">{GAP}</t:table-row>'
    f'<t:table-row t:number-rows-repeated="2">{open_cell("7", TWICE)}</t:table-row>'
    '<t:table-row t:number-rows-repeated="1048570"><t:table-cell/></t:table-row></t:table>',
)


def test_a_row_below_very_many_equal_ones_keeps_its_number(tmp_path):
    rows = f'<t:table-row t:number-rows-repeated="1500">{open_cell("7")}</t:table-row>'
    rows += f"<t:table-row>{open_cell('last')}</t:table-row>"
    content = open_document("spreadsheet", f'<t:table t:name="Fees">{rows}</t:table>')
    text = write_and_read(tmp_path / "a.ods", content).text
    assert (text.count("| 7 |"), text.count("|  |"), text.count("| last |")) == (1_000, 501, 1)


NOTE = "<x:note><x:note-body><x:p>Since 1900.</x:p></x:note-body></x:note>"
ODT = open_document(
    "text",
    f'<x:h x:outline-level="1">Head</x:h><x:p>AT&amp;T{NOTE} caf&#233; 正文</x:p>'
    "<x:list><x:list-item><x:p>one</x:p>"
    "<x:list><x:list-item><x:p>deep</x:p></x:list-item></x:list></x:list-item></x:list>"
    '<x:h x:outline-level="2">Sub</x:h><t:table>'
    f"<t:table-row>{open_cell('A')}</t:table-row><t:table-row>{open_cell('1')}</t:table-row>"
    "</t:table>",
)


def test_an_opendocument_file_says_who_made_it_and_when(tmp_path):
    facts = "<m><initial-creator>Ann</initial-creator><creation-date>2020-01-02</creation-date></m>"
    document = write_and_read(tmp_path / "a.odt", with_members(ODT, {"meta.xml": facts}))
    made = {"authors": "Ann", "created_at": "2020-01-02", "date": "2020-01-02"}
    assert made.items() <= document.metadata.items()


def test_a_large_sheet_is_whole(tmp_path):
    rows = [("n", "a", "b", "c", "d"), *((str(i), "1", "2", "3", "4") for i in range(25_000))]
    document = write_and_read(tmp_path / "large.xlsx", workbook(Large=sheet(*rows)))
    assert document.text.count("\n|") >= 25_001
    assert document.text.rstrip().endswith("| 24999 | 1 | 2 | 3 | 4 |")


def test_separated_values_are_a_table(tmp_path):
    for name, content in (
        ("a.csv", 'name,value\n"a, b",2\ncafé,3\n'),
        ("a.tsv", "name\tvalue\na, b\t2\ncafé\t3\n"),
        ("c.csv", 'name,value,note\n"a,\n b",2\n,,\n café,3\n'),
        ("b.csv", "name;value\na, b;2\ncafé;3\n"),
    ):
        (table,) = texts_of(write_and_read(tmp_path / name, content), Kind.TABLE)
        rows = [row for row in table.split("\n") if row != "|  |"]
        assert rows[-2:] == ["| a, b | 2 |", "| café | 3 |"]


@pytest.mark.parametrize(
    ("name", "content", "date"),
    [
        ("a.csv", "order,date,amount\n1,2019-01-03,10\n", ""),
        ("a.csv", "Stock of March 2024,,\norder,date,amount\n1,2019-01-03,10\n", "2024-03"),
        ("a.xlsx", workbook(S=sheet(("Stock of March 2024",), ("1", "2019-01-03"))), "2024-03"),
    ],
)
def test_the_date_of_a_sheet_is_above_its_table(tmp_path, name, content, date):
    assert write_and_read(tmp_path / name, content).date == date


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'name,value\n\n,\n"Ada\nMercer",12\nBo,13\n\n'),
        ("a.tsv", "name\tvalue\n\n\t\nAda Mercer\t12\nBo\t13\n"),
        (
            "a.xlsx",
            workbook(S=sheet(("name", "value"), ("",), ("",), ("Ada Mercer", "12"), ("Bo", "13"))),
        ),
    ],
)
def test_a_citation_names_the_row_as_a_spreadsheet_does(tmp_path, name, content):
    document = write_and_read(tmp_path / name, content)

    def row_of(text: str) -> int | None:
        at = document.text.index(text)
        span = document.span(at, at + len(text))
        citation = make_citation(document, span, [(0, 4)], "exact")
        place = describe_place(citation.to_json())
        assert place.endswith(f", row {citation.row} ({name})")
        return citation.row

    assert [row_of(text) for text in ("name", "value", "Ada Mercer", "12", "Bo")] == [1, 1, 4, 4, 5]


def test_a_table_outside_sheets_has_no_rows(tmp_path):
    document = write_and_read(tmp_path / "a.md", "Text.\n\n| a | b |\n|---|---|\n| c | 1 |\n")
    assert document.row_of(document.span(len(document) - 8, len(document) - 1)) is None


@given(
    st.integers(2, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.text("ab ,;|\t\"'*#", min_size=1), min_size=width, max_size=width),
            min_size=1,
        )
    )
)
@example([[";", ";"], [" ", " "]])
@example([[";", ";"], [" ", " "], [";", ";"]])
def test_every_cell_of_separated_values_is_in_the_text(rows):
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    cells = re.sub(r"[\s|]", "", "".join(cell for row in rows for cell in row))
    assume(cells)
    document = read_separated(SourceFile(Path("a.csv"), file.getvalue().encode()))
    assert re.sub(r"[\s|\\-]", "", document.text) == cells
    covered = "".join(document.slice(node.span) for node in document.tree.leaves)
    assert "".join(covered.split()) == "".join(document.text.split())


def test_one_wide_row_does_not_widen_all_others(tmp_path):
    content = ",".join("a" * 3_000) + "\n" + "b\n" * 3_000
    document = write_and_read(tmp_path / "a.csv", content)
    assert len(document.text) < 20 * len(content)
    assert document.text.count("b") == 3_000


CHAPTER = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>c</title></head><body>{}'
EPUB = pack(
    {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="c.opf"/>'
        "</rootfiles></container>",
        "c.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>My Book</dc:title></metadata>'
        '<manifest><item id="a" href="a.xhtml"/><item id="b" href="b.xhtml"/>'
        '<item id="n" href="n.xhtml" properties="nav"/></manifest><spine>'
        '<itemref idref="n"/><itemref idref="b"/><itemref idref="a"/></spine></package>',
        "a.xhtml": CHAPTER.format("<h1>Two</h1><p>End&nbsp;here.</p></body></html>"),
        "b.xhtml": CHAPTER.format("<h1>One</h1><p>Caf&#233; &amp; 正文.</p><h2>Part</h2>"),
        "n.xhtml": CHAPTER.format("<p>One, Two</p>"),
    }
)


def test_a_book_is_refused_if_its_chapters_are_encrypted_and_not_if_its_fonts_are(tmp_path):
    locked = "<encryption><CipherReference URI='{}'/></encryption>"
    font = with_members(EPUB, {"META-INF/encryption.xml": locked.format("f.otf")})
    assert write_and_read(tmp_path / "a.epub", font).title == "My Book"
    chapter = with_members(EPUB, {"META-INF/encryption.xml": locked.format("a%2Exhtml")})
    with pytest.raises(EncryptedFile, match="encrypted"):
        write_and_read(tmp_path / "a.epub", chapter)


def test_a_chapter_that_a_book_lists_and_lacks_is_said(tmp_path):
    with zipfile.ZipFile(io.BytesIO(EPUB)) as archive:
        listed = archive.read("c.opf").decode()
    listed = listed.replace("<spine>", '<spine><itemref idref="c9"/>')
    document = write_and_read(tmp_path / "a.epub", with_members(EPUB, {"c.opf": listed}))
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "it lists a chapter that it does not have: c9"
    ]


HTML = (
    "<!doctype html><html lang=en><head><title>Page &amp; title</title><style>x{}</style>"
    '<meta name="description" content="about"></head><body><script>alert(1)</script>'
    "<h1>Main</h1><p>caf&eacute; &lt;b&gt;</p><h2>Sub</h2><ul><li>one<ul><li>deep</ul>"
    "<li>two</ul><table><tr><th>A<th>B<tr><td>1<td>2</table><pre><code>x = 1\ny = 2</code>"
    '</pre><img src="data:image/png;base64,AAAA" alt="a ship"><p># no heading</p>'
)


@pytest.mark.parametrize(
    "paragraph", ["<p>para {}\n", "<p><font size=2>para {}</p>\n", "<div>" * 60 + "<p>para {}"]
)
def test_no_paragraph_of_sloppy_html_is_lost(tmp_path, paragraph):
    count = 20 if "div" in paragraph else 300
    page = "<html><body>" + "".join(paragraph.format(i) for i in range(count))
    document = write_and_read(tmp_path / "a.html", page)
    assert [f"para {i}" in document.text for i in range(count)] == [True] * count


def test_lines_of_html_that_would_underline_a_heading_are_text(tmp_path):
    document = write_and_read(
        tmp_path / "a.html",
        "<h1>Lease</h1><p>Total<br>=====<br>900</p><p>=====</p><p>Landlord<br><span>---</span></p>"
        "<dl><dt>Fee</dt><dd>-</dd></dl><p>2020 <span>-</span> 2021<br>- <b>item</b></p>"
        "<div><p>a</p># b</div><pre><code>x\n===\n<i># c</i>\n</code></pre><p>-----</p>"
        "<table><tr><td>A</td><td>--</td></tr><tr><td># 5</td><td>=</td></tr></table>",
    )
    assert outline(document) == [(1, "Lease")]
    kept = ["Total\n\\=====\n900", "Landlord\n\\---", "Fee\n\n\\-", "2020 - 2021\n\\- **item**"]
    kept += ["x\n===\n# c\n", "\n\\-----\n", "# 5"]
    assert [text for text in kept if text not in document.text] == []
    assert "\\# 5" not in document.text


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("<msup><mn>10</mn><mn>6</mn></msup>", "10^6"),
        ("<mfrac><mn>1</mn><mrow><mi>x</mi><mo>+</mo><mn>2</mn></mrow></mfrac>", "1/(x+2)"),
        ("<msqrt><mn>2</mn></msqrt>", "\u221a(2)"),
        (
            "<semantics><msup><mn>10</mn><mn>6</mn></msup>"
            '<annotation encoding="application/x-tex">10^{6}</annotation></semantics>',
            "10^{6}",
        ),
    ],
)
def test_a_formula_of_html_is_one_line_of_text(tmp_path, formula, shown):
    content = f"<p>Of <math>{formula}</math> items <mark>500</mark> and <ins>60</ins> remain.</p>"
    document = write_and_read(tmp_path / "a.html", content)
    assert document.text == f"Of {shown} items 500 and 60 remain.\n"


OUTPUTS = [
    {"output_type": "stream", "text": ["0.914\n"]},
    {"data": {"text/plain": "fig", "image/png": "AAAA"}},
    {"data": {"text/plain": "x", "text/markdown": ["## Table"]}},
    {"ename": "E", "evalue": "no \x1b[0;31mfile\x1b[0m", "traceback": ["no text"]},
    {"data": {"text/plain": "<x at 0x7>", "text/html": ["<table><td>a", "<td>1</table>"]}},
]
CELLS = [
    {"cell_type": "markdown", "source": ["# Notes\n", "\n", "text"]},
    {"cell_type": "code", "outputs": OUTPUTS, "source": "# no heading\nx=```"},
    {"cell_type": "code", "outputs": [], "source": ""},
]


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.docx", DOCX, "Overview", DOCX_TEXT),
        ("a", DOCX, "Overview", DOCX_TEXT),
        ("a.docx", TITLED, "Report", "# Report\n\n## First\n\n### x\n\n## Two\n"),
        ("a.docx", SIGNED, "Lease", "# Lease\n\nAcme Ltd.\n\\---------------\nDirector\n"),
        (
            "a.odt",
            ODT,
            "Head",
            "# Head\n\nAT&T café 正文\n\n[Note *] Since 1900.\n\n- one\n  * deep\n\n## Sub\n\n"
            "| A |\n| --- |\n| 1 |\n",
        ),
        (
            "a.ods",
            ODS,
            "a",
            "## Fees\n\n| Share |  |  | 12.5 % |\n| --- | --- | --- | --- |\n|  |\n|  |\n"
            "| 7 | 7 |\n| 7 | 7 |\n",
        ),
        ("a.epub", EPUB, "My Book", "# One\n\nCafé & 正文.\n\n## Part\n\n\n# Two\n\nEnd here.\n"),
        (
            "a.html",
            HTML,
            "Page & title",
            "# Main\n\ncafé <b>\n\n## Sub\n\n- one\n  * deep\n- two\n\n| A | B |\n| --- | --- |\n"
            "| 1 | 2 |\n\n```\nx = 1\ny = 2\n```\n\na ship\n\n\\# no heading\n",
        ),
        (
            "a.ipynb",
            json.dumps({"cells": CELLS, "nbformat": 4, "metadata": {}}),
            "Notes",
            "# Notes\n\ntext\n\n````\n# no heading\nx=```\n````\n\n```\n0.914\n```\n\n"
            "```\nfig\n```\n\n## Table\n\n```\nE: no file\n```\n\n| a | 1 |\n| --- | --- |\n",
        ),
        (
            "a.rtf",
            r"{\rtf1\ansi{\pard\s1\outlinelevel0 Head\par}{\pard caf\'e9 text.\par}}",
            "Head",
            "# Head\n\ncafé text.\n",
        ),
    ],
)
def test_what_a_file_becomes(tmp_path, name, content, title, text):
    document = write_and_read(tmp_path / name, content)
    assert (document.title, document.text, document.warnings) == (title, text, ())
    headings = re.findall(r"^#+ (.*)$", text.replace("\n# no", ""), re.M)
    assert [shown for _, shown in outline(document)] == (headings or ["Title", "Section"])
