"""Office files, e-books and web pages, made here by hand: their headings, lists and tables."""

from __future__ import annotations

import csv
import html
import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from colligate.core.answer import make_citation
from colligate.documents import Document, Kind
from colligate.documents.reading import SourceFile
from colligate.documents.reading.tables import read_separated
from colligate.export import describe_place
from support.documents import outline, pack, texts_of, write_and_read


def nesting(document: Document) -> list[int]:
    """How many list items each list item lies in."""
    items = [node for node in document.tree if node.kind is Kind.LIST_ITEM]
    return [
        sum(above.kind is Kind.LIST_ITEM for above in document.tree.ancestors(item))
        for item in items
    ]


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


TYPES = f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" ContentType='
TYPES += '"application/xml"/>{}</Types>'


def relations(*targets: tuple[str, str, str]) -> str:
    """The relationships of a part: (id, type, target) each."""
    listed = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for name, kind, target in targets
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{listed}</Relationships>'


def word_paragraph(text: str, style: str = "", number: str = "") -> str:
    properties = (f'<w:pStyle w:val="{style}"/>' if style else "") + number
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def word_number(level: int) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr>'


def word_style(style_id: str, name: str, inside: str = "") -> str:
    return (
        f'<w:style w:type="paragraph" w:styleId="{style_id}"><w:name w:val="{name}"/>'
        f"{inside}</w:style>"
    )


def word(*body: str) -> bytes:
    def cell(text: str) -> str:
        return f"<w:tc>{word_paragraph(text)}</w:tc>"

    table = "".join(
        f"<w:tr>{cell(a)}{cell(b)}</w:tr>" for a, b in (("Name", "Value"), ("AT&amp;T", "a|b"))
    )
    numbered = '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
    levels = "".join(
        f'<w:lvl w:ilvl="{i}"><w:numFmt w:val="bullet"/><w:lvlText w:val="o"/></w:lvl>'
        for i in range(3)
    )
    main = (
        '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
        'officedocument.wordprocessingml.document.main+xml"/>'
    )
    return pack(
        {
            "[Content_Types].xml": TYPES.format(main),
            "_rels/.rels": relations(("r1", "officeDocument", "word/document.xml")),
            "word/_rels/document.xml.rels": relations(
                ("r1", "styles", "styles.xml"), ("r2", "numbering", "numbering.xml")
            ),
            # As a German Word writes it: the identifiers are German, the names are not.
            "word/styles.xml": f"<w:styles {W}>"
            + word_style("Titel", "Title")
            + word_style("berschrift1", "heading 1")
            + word_style("berschrift2", "heading 2")
            + word_style("Liste", "List Bullet", numbered)
            + word_style("Liste2", "List Bullet 2", numbered)
            + "</w:styles>",
            "word/numbering.xml": f'<w:numbering {W}><w:abstractNum w:abstractNumId="0">{levels}'
            '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
            "</w:numbering>",
            "word/document.xml": f"<w:document {W}><w:body>{''.join(body)}"
            f"<w:tbl>{table}</w:tbl></w:body></w:document>",
        }
    )


def with_members(data: bytes, members: dict[str, str]) -> bytes:
    """Return an archive with these members added or replaced."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return pack({name: archive.read(name) for name in archive.namelist()} | members)


def test_docx_headings_lists_and_tables(tmp_path: Path) -> None:
    content = word(
        word_paragraph("Overview", "berschrift1"),
        word_paragraph("R&amp;D: 3 &lt; 5 &gt; 2, caf&#233; 正文."),
        word_paragraph("one", number=word_number(0)),
        word_paragraph("nested", number=word_number(1)),
        word_paragraph("deep", number=word_number(2)),
        word_paragraph("two", number=word_number(0)),
        word_paragraph("Details", "berschrift2"),
        word_paragraph("by style", "Liste"),
        word_paragraph("below", "Liste2"),
        word_paragraph("# no heading"),
    )
    document = write_and_read(tmp_path / "report.docx", content)
    assert outline(document) == [(1, "Overview"), (2, "Details")]
    assert "R&D: 3 < 5 > 2, café 正文." in document.text
    assert nesting(document) == [0, 1, 2, 0, 0, 1]
    (table,) = texts_of(document, Kind.TABLE)
    assert "AT&T" in table
    assert "a\\|b" in table


def test_a_docx_title_stands_above_the_headings(tmp_path: Path) -> None:
    content = word(
        word_paragraph("Annual Report", "Titel"),
        word_paragraph("First", "berschrift1"),
        word_paragraph("x", "berschrift2"),
        word_paragraph("Second", "berschrift1"),
    )
    document = write_and_read(tmp_path / "a.docx", content)
    assert document.title == "Annual Report"
    assert outline(document) == [(1, "Annual Report"), (2, "First"), (3, "x"), (2, "Second")]


def test_a_line_for_a_signature_in_a_docx_makes_no_heading(tmp_path: Path) -> None:
    lines = "</w:t><w:br/><w:t>".join(("Acme Ltd.", "---------------", "Director"))
    content = word(word_paragraph("Lease", "berschrift1"), word_paragraph(lines))
    document = write_and_read(tmp_path / "a.docx", content)
    assert outline(document) == [(1, "Lease")]
    assert "---------------\nDirector" in document.text


def test_simple_fields_of_a_docx_are_read_and_what_is_lost_is_said(
    tmp_path: Path,
) -> None:
    def field(text: str) -> str:
        run = f"<w:r><w:t>{text}</w:t></w:r>"
        return f'<w:p><w:fldSimple w:instr=" IF 2 > 1 ">{run}</w:fldSimple></w:p>'

    document = write_and_read(tmp_path / "a.docx", word(field("EUR 700 a month")))
    assert "EUR 700 a month" in document.text
    assert document.warnings == ()
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    equation = f"<w:p><m:oMath {math}><m:r><m:t>x=1</m:t></m:r></m:oMath></w:p>"
    content = with_members(word(equation), {"word/charts/chart1.xml": "<c/>"})
    document = write_and_read(tmp_path / "b.docx", content)
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "the figures of charts are not read",
        "equations are not read",
    ]


def test_a_docx_named_txt_is_read_all_the_same(tmp_path: Path) -> None:
    document = write_and_read(tmp_path / "a.txt", word(word_paragraph("Overview", "berschrift1")))
    assert outline(document) == [(1, "Overview")]


A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
R = f'xmlns:r="{OFFICE}"'


def shape(kind: str, *paragraphs: tuple[int, str]) -> str:
    text = "".join(
        f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{words}</a:t></a:r></a:p>'
        for level, words in paragraphs
    )
    place = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="x"/><p:cNvSpPr/>{place}</p:nvSpPr><p:spPr/>'
        f"<p:txBody><a:bodyPr/>{text}</p:txBody></p:sp>"
    )


def slides(*contents: str) -> bytes:
    numbers = range(1, len(contents) + 1)
    ids = "".join(f'<p:sldId id="{255 + i}" r:id="r{i}"/>' for i in numbers)
    return pack(
        {
            "ppt/presentation.xml": f"<p:presentation {P} {R}><p:sldIdLst>{ids}</p:sldIdLst>"
            "</p:presentation>",
            "ppt/_rels/presentation.xml.rels": relations(
                *((f"r{i}", "slide", f"slides/slide{i}.xml") for i in numbers)
            ),
        }
        | {
            f"ppt/slides/slide{i}.xml": f"<p:sld {A} {P} {R}><p:cSld><p:spTree>{content}"
            "</p:spTree></p:cSld></p:sld>"
            for i, content in zip(numbers, contents, strict=True)
        }
    )


def test_each_slide_is_a_section_and_a_page(tmp_path: Path) -> None:
    document = write_and_read(
        tmp_path / "deck.pptx",
        slides(
            shape("title", (0, "Deck &amp; title")) + shape("body", (0, "Café 正文")),
            shape("title", (0, "Second")) + shape("body", (0, "bullet"), (1, "nested")),
            shape("body", (0, "A slide that has no title, only rather long words of its own.")),
        ),
    )
    sections = outline(document)
    assert len(sections) == 3
    assert [title for _, title in sections[:2]] == ["Deck & title", "Second"]
    assert [page.number for page in document.pages] == [1, 2, 3]
    place = document.text.index("nested")
    page = document.page_of(document.span(place, place + 6))
    assert page is not None
    assert page.number == 2
    assert "Café 正文" in document.text
    assert "\ue000" not in document.text
    assert document.pages[-1].end == len(document.text)


def test_lists_tables_and_pictures_of_a_slide(tmp_path: Path) -> None:
    bullet = '<a:p><a:pPr lvl="{}"><a:bu{}/></a:pPr><a:r><a:t>{}</a:t></a:r></a:p>'
    items = [(0, "Char", "a"), (1, "AutoNum", "first"), (1, "AutoNum", "second"), (0, "Char", "b")]
    body = shape("body", (0, "X")).replace("</p:txBody>", "{}</p:txBody>")
    cells = "".join(
        f"<a:tc><a:txBody><a:p><a:r><a:t>{c}</a:t></a:r></a:p></a:txBody></a:tc>" for c in "PQ"
    )
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


def test_slides_are_numbered_as_shown_and_lost_charts_are_said(tmp_path: Path) -> None:
    deck = slides(*(shape("title", (0, f"Part {i}")) for i in range(1, 12)))
    shown = [11, 2, 10, 1, *range(3, 10)]
    ids = "".join(f'<p:sldId id="{255 + i}" r:id="r{i}"/>' for i in shown)
    listed = f"<p:presentation {P} {R}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    members = {"ppt/presentation.xml": listed, "ppt/charts/chart1.xml": "<c/>"}
    document = write_and_read(tmp_path / "deck.pptx", with_members(deck, members))
    assert [title for _, title in outline(document)] == [f"Part {i}" for i in shown]
    assert [page.number for page in document.pages] == list(range(1, 12))
    assert any("figures of charts" in warning for warning in document.warnings)


def test_a_slide_that_was_taken_out_of_the_deck_comes_last(tmp_path: Path) -> None:
    deck = slides(*(shape("title", (0, f"Part {i}")) for i in (1, 2, 3)))
    ids = "".join(f'<p:sldId id="{255 + i}" r:id="r{i}"/>' for i in (3, 2))
    listed = f"<p:presentation {P} {R}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    content = with_members(deck, {"ppt/presentation.xml": listed})
    document = write_and_read(tmp_path / "deck.pptx", content)
    assert [title for _, title in outline(document)] == ["Part 3", "Part 2", "Part 1"]


SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def sheet(*rows: tuple[str, ...]) -> str:
    cells = "".join(
        f'<row r="{i}">'
        + "".join(
            f'<c r="{chr(65 + j)}{i}"><v>{value}</v></c>'
            if value.replace(".", "").isdigit()
            else f'<c r="{chr(65 + j)}{i}" t="inlineStr"><is><t>{value}</t></is></c>'
            for j, value in enumerate(row)
        )
        + "</row>"
        for i, row in enumerate(rows, start=1)
    )
    return f'<worksheet xmlns="{SHEETS}"><sheetData>{cells}</sheetData></worksheet>'


def rows_of(cells: str) -> str:
    return (
        f'<worksheet xmlns="{SHEETS}"><sheetData><row r="1">{cells}</row></sheetData></worksheet>'
    )


def workbook(**sheets: str) -> bytes:
    names = list(sheets)
    listed = "".join(
        f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(names, 1)
    )
    return pack(
        {
            "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" {R}><sheets>{listed}</sheets>'
            "</workbook>",
            "xl/_rels/workbook.xml.rels": relations(
                *((f"r{i}", "worksheet", f"worksheets/s{i}.xml") for i in range(1, len(names) + 1))
            ),
        }
        | {f"xl/worksheets/s{i}.xml": sheets[name] for i, name in enumerate(names, 1)}
    )


def test_each_sheet_is_a_section_with_its_table(tmp_path: Path) -> None:
    document = write_and_read(
        tmp_path / "book.xlsx",
        workbook(
            Sales=sheet(("Region", "Total"), ("Nord &amp; Süd", "12.5")),
            Kosten=sheet(("Item", "Cost"), ("Rent", "100")),
        ),
    )
    assert outline(document) == [(2, "Sales"), (2, "Kosten")]
    first, second = texts_of(document, Kind.TABLE)
    assert "| Nord & Süd | 12.5 |" in first
    assert "| Rent | 100 |" in second
    assert document.title == "book"


def test_what_a_sheet_lacks_or_hides_is_said(tmp_path: Path) -> None:
    formulas = (
        "<c><f>SUM(A1:A2)</f></c><c><f>A1</f><v></v></c>"  # never computed
        '<c><f>A2</f><v>2</v></c><c t="str"><f>IF(A1,"","x")</f><v></v></c>'
        '<c><f t="shared" si="0"/><v>3</v></c>'
    )
    book = workbook(Sums=rows_of(formulas), Draft=sheet(("Rent", "999")))
    names = '<sheet name="Sums" sheetId="1" state="visible" r:id="r1"/>'
    names += '<sheet name="Draft" sheetId="2" state="hidden" r:id="r2"/>'
    listed = f'<workbook xmlns="{SHEETS}" {R}><sheets>{names}</sheets></workbook>'
    content = with_members(book, {"xl/workbook.xml": listed})
    document = write_and_read(tmp_path / "a.xlsx", content)
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "formulas without a stored value are blank: 2",
        "hidden sheets are read: Draft",
    ]
    assert write_and_read(tmp_path / "b.xlsx", workbook(S=sheet(("Rent", "9")))).warnings == ()


FORMATS = ("General", "9", "0.0%", '0"%"', "14", "20", "dd/mm/yyyy hh:mm", "[Red]0.00", "mmm yy")


@pytest.mark.parametrize(
    ("form", "value", "shown"),
    [
        ("General", "0.5", "0.5"),
        ("General", "0.30000000000000004", "0.3"),
        ("General", "12345678901", "12345678901"),
        ("General", "1E+3", "1000"),
        ("9", "0.125", "12.5%"),
        ("0.0%", "-0.25", "-25%"),
        ('0"%"', "4", "4"),
        ("14", "45292", "2024-01-01"),
        ("20", "0.385416666666667", "09:15:00"),
        ("dd/mm/yyyy hh:mm", "45292.5", "2024-01-01 12:00:00"),
        ("mmm yy", "45292", "2024-01-01"),
        ("14", "99999999", "99999999"),
        ("[Red]0.00", "3", "3"),
    ],
)
def test_a_number_of_a_sheet_is_shown_as_its_format_means_it(
    tmp_path: Path, form: str, value: str, shown: str
) -> None:
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
        ('<c t="b"><v>1</v></c><c t="e"><v>#REF!</v></c>', "| TRUE | #REF! |"),
        ('<c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c>', "| 1 |  | 2 |"),
        ('<c r="B1"><v>1</v></c><c r="D1"><v>2</v></c>', "|  | 1 |  | 2 |"),
        ('<c><v>1</v></c></row><row r="1048576"><c><v>2</v></c>', "|\n|  |\n| 2 |"),
    ],
)
def test_cells_of_a_sheet_stand_in_their_columns(tmp_path: Path, cells: str, shown: str) -> None:
    runs = "<si><t>x</t></si><si><r><t>Fee</t></r><rPh><t>fi</t></rPh><r><t> due</t></r></si>"
    strings = {"xl/sharedStrings.xml": f'<sst xmlns="{SHEETS}">{runs}</sst>'}
    content = with_members(workbook(S=rows_of(cells)), strings)
    assert shown in write_and_read(tmp_path / "a.xlsx", content).text


def test_ods_cells_are_read_as_they_are_shown(tmp_path: Path) -> None:
    urn = "urn:oasis:names:tc:opendocument:xmlns"

    def cell(text: str, repeated: str = "") -> str:
        return f"<t:table-cell {repeated}><x:p>{text}</x:p></t:table-cell>"

    gap = '<t:table-cell t:number-columns-repeated="2"/>'
    rows = f"<t:table-row>{cell('Share')}{gap}{cell('12.5 %')}</t:table-row>"
    rows += f'<t:table-row t:number-rows-repeated="2">{gap}</t:table-row>'
    twice = cell("7", 't:number-columns-repeated="2"')
    rows += f'<t:table-row t:number-rows-repeated="2">{twice}</t:table-row>'
    rows += '<t:table-row t:number-rows-repeated="1048570"><t:table-cell/></t:table-row>'
    content = pack(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": f'<o:document-content xmlns:o="{urn}:office:1.0" '
            f'xmlns:x="{urn}:text:1.0" xmlns:t="{urn}:table:1.0"><o:body><o:spreadsheet>'
            f'<t:table t:name="Fees">{rows}</t:table></o:spreadsheet></o:body>'
            "</o:document-content>",
        }
    )
    document = write_and_read(tmp_path / "a.ods", content)
    assert outline(document) == [(2, "Fees")]
    assert document.text.endswith(
        "| Share |  |  | 12.5 % |\n| --- | --- | --- | --- |\n|  |\n|  |\n| 7 | 7 |\n| 7 | 7 |\n\n"
    )


def test_a_large_sheet_is_whole(tmp_path: Path) -> None:
    rows = [("n", "a", "b", "c", "d"), *((str(i), "1", "2", "3", "4") for i in range(25_000))]
    document = write_and_read(tmp_path / "large.xlsx", workbook(Large=sheet(*rows)))
    assert document.text.count("\n|") >= 25_001
    assert document.text.rstrip().endswith("| 24999 | 1 | 2 | 3 | 4 |")


def test_separated_values_are_a_table(tmp_path: Path) -> None:
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
def test_the_date_of_a_sheet_is_above_its_table(
    tmp_path: Path, name: str, content: str | bytes, date: str
) -> None:
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
def test_a_citation_names_the_row_as_a_spreadsheet_does(
    tmp_path: Path, name: str, content: str | bytes
) -> None:
    document = write_and_read(tmp_path / name, content)

    def row_of(text: str) -> int | None:
        at = document.text.index(text)
        span = document.span(at, at + len(text))
        citation = make_citation(document, span, [(0, 4)], "exact")
        place = describe_place(citation.to_json())
        assert place.endswith(f", row {citation.row} ({name})")
        return citation.row

    assert [row_of(text) for text in ("name", "value", "Ada Mercer", "12", "Bo")] == [1, 1, 4, 4, 5]


def test_a_table_outside_sheets_has_no_rows(tmp_path: Path) -> None:
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
def test_every_cell_of_separated_values_is_in_the_table(rows: list[list[str]]) -> None:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    shown = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    full = [at for at, row in enumerate(shown) if any(row)]
    assume(full)  # a blank row stays between others, with one cell
    shown = [row if any(row) else [""] for row in shown[full[0] : full[-1] + 1]]
    source = SourceFile(Path("a.csv"), file.getvalue().encode())
    document = read_separated(source)
    head, _, *body = document.text.splitlines()
    assert [head, *body] == [f"| {' | '.join(row)} |" for row in shown]
    (table,) = document.tree.leaves
    assert document.slice(table.span) == document.text.strip()


def test_one_wide_row_does_not_widen_all_others(tmp_path: Path) -> None:
    content = ",".join("a" * 3_000) + "\n" + "b\n" * 3_000
    document = write_and_read(tmp_path / "a.csv", content)
    assert len(document.text) < 20 * len(content)
    assert document.text.count("b") == 3_000


def chapter(body: str) -> str:
    return f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>c</title></head><body>{body}'


def test_epub_chapters(tmp_path: Path) -> None:
    content = pack(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container version="1.0" xmlns="urn:oasis:names:tc:'
            'opendocument:xmlns:container"><rootfiles><rootfile full-path="c.opf" '
            'media-type="application/oebps-package+xml"/></rootfiles></container>',
            "c.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>My Book</dc:title>'
            "<dc:language>en</dc:language></metadata><manifest>"
            '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="b" href="b.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "a.xhtml": chapter(
                "<h1>Chapter 1</h1><p>Caf&#233; &amp; 正文.</p><h2>Part</h2>"
                "<ul><li>x<ul><li>y</li></ul></li></ul></body></html>"
            ),
            "b.xhtml": chapter("<h1>Chapter 2</h1><p>End&nbsp;here.</p></body></html>"),
        }
    )
    document = write_and_read(tmp_path / "book.epub", content)
    assert document.title == "My Book"
    assert outline(document) == [(1, "Chapter 1"), (2, "Part"), (1, "Chapter 2")]
    assert "Café & 正文." in document.text
    assert nesting(document) == [0, 1]
    assert "title:" not in document.text


def test_odt(tmp_path: Path) -> None:
    urn = "urn:oasis:names:tc:opendocument:xmlns"
    content = pack(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f'<office:document-content xmlns:office="{urn}:office:1.0" '
            f'xmlns:text="{urn}:text:1.0" xmlns:table="{urn}:table:1.0"><office:body>'
            '<office:text><text:h text:outline-level="1">Head</text:h>'
            "<text:p>AT&amp;T caf&#233; 正文</text:p>"
            "<text:list><text:list-item><text:p>one</text:p>"
            "<text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list>"
            '</text:list-item></text:list><text:h text:outline-level="2">Sub</text:h>'
            "<table:table><table:table-row><table:table-cell><text:p>A</text:p></table:table-cell>"
            "</table:table-row><table:table-row><table:table-cell><text:p>1</text:p>"
            "</table:table-cell></table:table-row></table:table></office:text></office:body>"
            "</office:document-content>",
        }
    )
    document = write_and_read(tmp_path / "a.odt", content)
    assert outline(document) == [(1, "Head"), (2, "Sub")]
    assert "café 正文" in document.text
    assert nesting(document) == [0, 1]
    assert len(texts_of(document, Kind.TABLE)) == 1


def test_html_headings_lists_tables_and_code(tmp_path: Path) -> None:
    document = write_and_read(
        tmp_path / "a.html",
        "<!doctype html><html lang=en><head><title>Page &amp; title</title><style>x{}</style>"
        '<meta name="description" content="about"></head><body><script>alert(1)</script>'
        "<h1>Main</h1><p>caf&eacute; &lt;b&gt;</p><h2>Sub</h2><ul><li>one<ul><li>deep</ul>"
        "<li>two</ul><table><tr><th>A<th>B<tr><td>1<td>2</table><pre><code>x = 1\ny = 2</code>"
        '</pre><img src="data:image/png;base64,AAAA" alt="a ship"><p># no heading</p>',
    )
    assert document.title == "Page & title"
    assert outline(document) == [(1, "Main"), (2, "Sub")]
    assert "café <b>" in document.text
    assert nesting(document) == [0, 1, 0]
    assert "| 1 | 2 |" in texts_of(document, Kind.TABLE)[0]
    assert "x = 1\ny = 2" in document.text
    assert "a ship" in document.text
    for gone in ("base64", "alert", "x{}", "about"):
        assert gone not in document.text


@pytest.mark.parametrize(
    "paragraph", ["<p>para {}\n", "<p><font size=2>para {}</p>\n", "<div>" * 60 + "<p>para {}"]
)
def test_no_paragraph_of_sloppy_html_is_lost(tmp_path: Path, paragraph: str) -> None:
    count = 20 if "div" in paragraph else 300
    page = "<html><body>" + "".join(paragraph.format(i) for i in range(count))
    document = write_and_read(tmp_path / "a.html", page)
    assert [f"para {i}" in document.text for i in range(count)] == [True] * count


def test_lines_of_html_that_would_underline_a_heading_are_text(tmp_path: Path) -> None:
    document = write_and_read(
        tmp_path / "a.html",
        "<h1>Lease</h1><p>Total<br>=====<br>900</p><p>=====</p><p>Landlord<br><span>---</span></p>"
        "<dl><dt>Fee</dt><dd>-</dd></dl><p>2020 <span>-</span> 2021<br>- <b>item</b></p>"
        "<div><p>a</p># b</div><pre><code>x\n===\n<i># c</i>\n</code></pre><p>-----</p>"
        "<table><tr><td>A</td><td>--</td></tr><tr><td># 5</td><td>=</td></tr></table>",
    )
    assert outline(document) == [(1, "Lease")]
    for kept in (
        "Total\n\\=====\n900",
        "Landlord\n\\---",
        "Fee\n\n\\-",
        "2020 - 2021\n\\- **item**",
        "x\n===\n# c\n",
        "\n\\-----\n",
        "# 5",
    ):
        assert kept in document.text
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
def test_a_formula_of_html_is_one_line_of_text(tmp_path: Path, formula: str, shown: str) -> None:
    content = f"<p>Of <math>{formula}</math> items <mark>500</mark> and <ins>60</ins> remain.</p>"
    document = write_and_read(tmp_path / "a.html", content)
    assert document.text == f"Of {shown} items 500 and 60 remain.\n"


@pytest.mark.parametrize(
    ("name", "content", "headings", "text"),
    [
        (
            "a.rtf",
            r"{\rtf1\ansi{\pard\s1\outlinelevel0 Head\par}{\pard caf\'e9 text.\par}}",
            [(1, "Head")],
            "# Head\n\ncafé text.\n",
        ),
        (
            "a.rst",
            "Title\n=====\n\nIntro.\n\nSection\n-------\n\n- one\n- two\n",
            [(1, "Title"), (2, "Section")],
            "Title\n=====\n\nIntro.\n\nSection\n-------\n\n- one\n- two\n",
        ),
        (
            "a.org",
            "#+TITLE: T\n* Head :tag:\n:ID: 1\n** Sub\n- a [[http://x.org][link]]\n"
            "| A | B |\n|---+---|\n| 1 | 2 |\n#+begin_src c\n# x\n#+end_src\n",
            [(1, "Head"), (2, "Sub")],
            "# Head\n## Sub\n- a link\n\n| A | B |\n|---|---|\n| 1 | 2 |\n\n```\n# x\n```\n",
        ),
    ],
)
def test_rtf_rst_and_org(
    tmp_path: Path, name: str, content: str, headings: list[tuple[int, str]], text: str
) -> None:
    document = write_and_read(tmp_path / name, content)
    assert outline(document) == headings
    assert document.text == text


def test_a_notebook_has_its_code_and_what_it_printed(tmp_path: Path) -> None:
    outputs = [
        {"output_type": "stream", "text": ["0.914\n"]},
        {"data": {"text/plain": "fig", "image/png": "AAAA"}},
        {"data": {"text/plain": "x", "text/markdown": ["## Table"]}},
        {"ename": "E", "traceback": ["no text"]},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Notes\n", "\n", "text"]},
        {"cell_type": "code", "outputs": outputs, "source": "# no heading\nx=```"},
        {"cell_type": "code", "outputs": [], "source": ""},
    ]
    content = json.dumps({"cells": cells, "nbformat": 4, "metadata": {}})
    document = write_and_read(tmp_path / "a.ipynb", content)
    assert outline(document) == [(1, "Notes"), (2, "Table")]
    assert document.text == (
        "# Notes\n\ntext\n\n````\n# no heading\nx=```\n````\n\n```\n0.914\n```\n\n"
        "```\nfig\n```\n\n## Table\n"
    )
