"""Reading PDFs: the pages, the text, the headings and what bad files get."""

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pypdfium2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from liteparse import TextItem, WordBox

from colligate.documents import Basis, Document, Kind
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import SourceFile
from colligate.documents.reading.formats import PDF
from colligate.documents.reading.pdf.layout import select_rising
from colligate.documents.reading.pdf.numbering import ListedHeading, assign_levels, split_number
from colligate.documents.reading.pdf.reader import escape_line, read_pdf
from colligate.documents.reading.pdf.rtl import order_words
from colligate.documents.sentences import split_sentences
from colligate.errors import CorruptFile, EncryptedFile, NoText
from support.documents import outline

BODY = "Body text that says one thing after another and goes on like this for a while."

# One line of a page: x, y from the top (both in points), size, font (F1 plain, F2 bold), text.
Line = tuple[float, float, float, str, str]


def heading(y: float, text: str, size: float = 16) -> Line:
    return (72, y, size, "F2", text)


def body(y: float, lines: int = 4, text: str = BODY) -> list[Line]:
    return [(72, y + 13 * n, 10, "F1", text) for n in range(lines)]


def page(title: str, *lines: Line, size: float = 16) -> list[Line]:
    return [heading(80, title, size), *body(110), *lines]


def make_pdf(
    pages: Sequence[Sequence[Line]],
    *,
    outline: Sequence[tuple[str, int, int]] = (),
    title: str = "",
    made: str = "",
    author: str = "",
    encrypted: bool = False,
    drawn: bytes = b"",
    annotations: Sequence[str] = (),
) -> bytes:
    """A small PDF. `outline` holds (title, level from 1, page from 0); page 1 has `drawn` too, and
    `annotations`, the fields of a form among them."""
    objects: dict[int, bytes] = {}
    first_page, first_mark = 10, 10 + 2 * len(pages)
    kids = " ".join(f"{first_page + 2 * i} 0 R" for i in range(len(pages)))
    objects[2] = f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode()
    objects |= {500 + n: f"<< /Type /Annot {a} >>".encode() for n, a in enumerate(annotations)}
    notes = " ".join(f"{number} 0 R" for number in objects if number >= 500)
    fonts = ""
    for n, name in enumerate(("Helvetica", "Helvetica-Bold", "Courier"), start=1):
        objects[2 + n] = f"<< /Type /Font /Subtype /Type1 /BaseFont /{name} >>".encode()
        fonts += f"/F{n} {2 + n} 0 R "
    for i, lines in enumerate(pages):
        content = "\n".join(
            f"BT /{font} {size} Tf {x} {792 - y} Td ({_escape(text)}) Tj ET"
            for x, y, size, font, text in lines
        ).encode("latin-1")
        content += b"\n" + drawn if i == 0 else b""
        objects[first_page + 2 * i] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << {fonts}"
            f">> >> /Contents {first_page + 2 * i + 1} 0 R /Annots [{notes if i == 0 else ''}] >>"
        ).encode()
        stream = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
        objects[first_page + 2 * i + 1] = stream
    fields = f"/Fields [{notes}] /DA (/F1 0 Tf) /DR << /Font << {fonts}>> >>"
    form = f"/AcroForm << {fields} >>" if "/FT" in str(annotations) else ""
    root = f"<< /Type /Catalog /Pages 2 0 R {form}"
    if outline:
        root += f" /Outlines {first_mark} 0 R"
        _add_outline(objects, first_mark, first_page, outline)
    objects[1] = (root + " >>").encode()
    facts = f"/Title ({_escape(title)}) /Author ({author}) /CreationDate ({made})"
    objects[6] = f"<< {facts} >>".encode()
    trailer = "/Root 1 0 R /Info 6 0 R /ID [<00112233445566778899aabbccddeeff> <00>]"
    if encrypted:
        wrong = "ab" * 32
        objects[7] = f"<< /Filter /Standard /V 1 /R 2 /O <{wrong}> /U <{wrong}> /P -4 >>".encode()
        trailer += " /Encrypt 7 0 R"
    out = b"%PDF-1.4\n"
    places = {}
    for number in sorted(objects):
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, objects[number])
    table = len(out)
    size = max(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        out += b"%010d 00000 %s \n" % (places.get(number, 0), b"n" if number in places else b"f")
    return out + f"trailer << /Size {size} {trailer} >>\nstartxref\n{table}\n%%EOF\n".encode()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _add_outline(
    objects: dict[int, bytes], root: int, first_page: int, outline: Sequence[tuple[str, int, int]]
) -> None:
    facts = {root: "/Type /Outlines"}
    kids: dict[int, list[int]] = {root: []}
    open_ = [(0, root)]
    for number, (title, level, page) in enumerate(outline, start=root + 1):
        while open_[-1][0] >= level:
            open_.pop()
        parent = open_[-1][1]
        open_.append((level, number))
        facts[number] = f"/Title ({_escape(title)}) /Parent {parent} 0 R"
        facts[number] += f" /Dest [{first_page + 2 * page} 0 R /XYZ 0 792 0]"
        kids[parent].append(number)
        kids[number] = []
    for found in filter(None, kids.values()):
        for one, other in pairwise(found):
            facts[one] += f" /Next {other} 0 R"
            facts[other] += f" /Prev {one} 0 R"
    for number, found in kids.items():
        ends = f" /First {found[0]} 0 R /Last {found[-1]} 0 R /Count {len(found)}" if found else ""
        objects[number] = f"<< {facts[number]}{ends} >>".encode()


def read(data: bytes, name: str = "report.pdf", *, use_outline: bool = True) -> Document:
    return read_pdf(SourceFile(Path(name), data, PDF), use_outline=use_outline)


def page_number(document: Document, title: str) -> int:
    section = next(s for s in document.tree.sections if s.title == title)
    return document.page_of(section.span).number


def check_places(document: Document) -> None:
    """Pages tile the text, and every title is a slice of its heading's line."""
    assert document.pages[0].start == 0
    assert document.pages[-1].end == len(document.text)
    for before, after in pairwise(document.pages):
        assert before.end == after.start
        assert before.number + 1 == after.number
    for section in document.tree.sections:
        if section.heading is not None:
            assert section.title in document.slice(section.heading)


CHAPTERS = [
    page("Beginnings", heading(200, "First steps", 13), *body(230)),
    page("Further on", heading(200, "A bold remark", 13), *body(230)),
    [*body(80), heading(200, "Last steps", 13), *body(230)],
]


def test_outline_gives_titles_levels_and_pages():
    marks = [("Beginnings", 1, 0), ("First steps", 2, 0), ("Further on", 1, 1)]
    marks += [("Last   steps", 2, 2), ("Quiet heading", 1, 3)]
    quiet: list[Line] = [(72, 80, 10, "F1", "2 Quiet heading"), *body(110)]  # as text looks
    data = make_pdf([*CHAPTERS, quiet], outline=marks)
    document = read(data)
    assert [t for t in outline(document) if t[1] != "A bold remark"] == [
        *((1, "Beginnings"), (2, "First steps"), (1, "Further on"), (2, "Last steps")),
        (1, "2 Quiet heading"),
    ]
    assert document.tree.structure.basis is Basis.OUTLINE
    assert document.tree.structure.confidence > 0.7
    assert page_number(document, "Last steps") == 3
    check_places(document)
    by_layout = read(data, use_outline=False)
    assert {(1, "Beginnings"), (2, "First steps")} <= set(outline(by_layout))
    assert by_layout.tree.structure.basis is Basis.LAYOUT
    assert by_layout.tree.structure.confidence < 0.5


def test_author_and_date_are_those_of_the_file_or_its_title_page():
    made = "D:20190228120000Z"
    plain = make_pdf([page("Report", *body(120))], made=made, author="Ada Mercer")
    dated = make_pdf([page("Report", heading(90, "3 March 2018", 12), *body(120))], made=made)
    assert (read(plain).date, read(plain).authors) == ("2019-02-28", "Ada Mercer")
    assert read(dated).metadata["date"] == "2018-03-03"


@pytest.mark.parametrize(
    ("dated", "date"),
    [
        ("Date of Report (Date of earliest event reported): July 1, 2022", "2022-07-01"),
        ("Securities Exchange Act of 1934 For the fiscal year ended May 26, 2019", "2019-05-26"),
    ],
)
def test_a_report_to_the_sec_has_the_name_of_its_company_its_form_and_its_date(dated, date):
    lines = [heading(150, "FORM 8-K", 13), *body(180, 1, text="Line. " * 30)]
    lines += [*body(210, 1, text=dated), heading(250, "Amcor plc", 13)]
    lines += body(280, 1, text="(Exact name of registrant as specified in its charter)")
    data = make_pdf([page("UNITED STATES", *lines)], made="D:20230504120000Z")
    document = read(data, "amcor_8k.pdf")
    assert (document.title, document.date) == ("Amcor plc, Form 8-K", date)


def test_numbering_gives_levels_without_an_outline():
    pages = [
        page("1 Methods", heading(200, "1.1 Data", 13), *body(230)),
        page("1.2 Model", heading(200, "2 Results"), *body(230), size=13),
        page("2.1 Main", size=13),
    ]
    document = read(make_pdf(pages))
    expected = [
        (1, "1 Methods"),
        (2, "1.1 Data"),
        (2, "1.2 Model"),
        (1, "2 Results"),
        (2, "2.1 Main"),
    ]
    assert outline(document) == expected
    assert document.tree.structure.basis is Basis.NUMBERING
    check_places(document)


def contents_pdf() -> bytes:
    rows = [("1 Apples", 1, 100), ("1.1 Apple trees", 1, 115), ("2 Pears", 2, 130)]
    rows += [("2.1 Pear trees", 3, 145)]
    dots = ". " * 40
    contents: list[Line] = [heading(70, "Contents")]
    for title, number, y in rows:
        contents += [(72, y, 10, "F1", f"{title} {dots}{number}")]

    def printed(number: int, *lines: Line) -> list[Line]:
        return [*lines, *body(300), (300, 760, 10, "F1", str(number))]

    return make_pdf(
        [
            [heading(300, "Fruit", 24)],
            contents,
            printed(1, *page("1 Apples", heading(200, "1.1 Apple trees", 12))),
            printed(2, *page("2 Pears")),
            printed(3, (72, 80, 10, "F1", "2.1 Pear trees"), *body(110)),
        ]
    )


def test_contents_list_gives_headings_and_its_own_lines_are_none():
    document = read(contents_pdf())
    found = [t for t in outline(document) if t[1][0].isdigit()]
    assert found == [(1, "1 Apples"), (2, "1.1 Apple trees"), (1, "2 Pears"), (2, "2.1 Pear trees")]
    assert document.tree.structure.basis is Basis.CONTENTS
    assert page_number(document, "2.1 Pear trees") == 5
    check_places(document)


@pytest.mark.parametrize("top", ["Annals 7, 104{0}, Hale", "Annals", "The Annals {0}", "- {0} -"])
def test_running_headers_and_page_numbers_are_no_text(top):
    titles = [f"{n} Chapter about {name}" for n, name in enumerate(("ants", "bees", "cats"), 1)]
    pages = [
        [
            (72, 30, 9, "F2", top.format(n)),
            *(heading(100, title), *body(130)),
            (300, 770, 9, "F1", str(n)),
        ]
        for n, title in enumerate(titles, 1)
    ]
    document = read(make_pdf(pages))
    assert "Annals" not in document.text
    assert [title for _, title in outline(document)] == titles
    texts = [document.text[page.start : page.end] for page in document.pages]
    assert [text.count("\n\n") for text in texts] == [2, 2, 1]


@pytest.mark.parametrize("label", ["{}", "2027 report {}"])
def test_a_page_number_below_the_text_of_a_page_that_ends_early_is_no_text(label):
    pages = [
        [*body(80 + 20 * n), (300, 220 + 70 * n, 9, "F1", label.format(40 + n))] for n in range(4)
    ]
    assert "4" not in read(make_pdf(pages)).text


def test_a_heading_that_fills_its_line_is_kept_and_a_bold_beginning_is_text():
    pages = [
        [heading(80, "Duties of tenants and of all persons there", 18), *body(97)],
        [heading(80, f"Bold. {BODY}", 10), *body(93)],
    ]
    document = read(make_pdf(pages))
    assert [t for _, t in outline(document)] == ["Duties of tenants and of all persons there"]


def test_captions_and_lines_that_look_like_markdown_stay_text():
    lines: list[Line] = [
        (72, 180, 10, "F1", "# include <stdio.h> is the first line of the program."),
        (72, 220, 10, "F1", "<!-- a comment that never ends"),
        (72, 260, 10, "F1", "``` is a fence and should not swallow what follows"),
    ]
    pages = [
        page("1 Harvest", heading(200, "Figure 1. Apples by year", 12)),
        page("2 Storage", heading(200, "Table 2: Pears in store", 12)),
        page("3 Code", *lines, *body(300)),
    ]
    document = read(make_pdf(pages))
    assert [title for _, title in outline(document)] == ["1 Harvest", "2 Storage", "3 Code"]
    assert "Figure 1. Apples by year" in document.text
    assert "# include <stdio.h>" in document.text
    assert not [n for n in document.tree if n.kind is Kind.CODE]


def test_a_label_and_its_figures_are_in_one_row():
    labels = ["Revenues", "Cost of revenues", "Marketing", "Operating income", "Net income"]
    columns = (455, 506, 550)
    lines: list[Line] = [(x, 180, 8, "F2", str(2017 - n)) for n, x in enumerate(columns)]
    rows = []
    for n, label in enumerate(labels):
        figures = [f"({i}1{n},692)" if n % 2 else f"{i}1{n},692" for i in range(3)]
        figures[1] = figures[1] if n != 2 else ""
        cells = zip((72, *columns), (label, *figures), strict=True)
        lines += [(x, 194 + 13 * n, 10, "F1", cell) for x, cell in cells if cell]
        rows.append(f"| {label} | {figures[0]} | {figures[1]}")
    text = read(make_pdf([page("1 Results", *lines, *body(300)), page("2 More")])).text
    assert all(any(line.startswith(row) for line in text.splitlines()) for row in rows)
    assert "|  | 2017 | 2016 | 2015 |" in text


def test_lines_printed_over_one_another_are_read():
    lines: list[Line] = [
        (80, 73, 8, "F2", "Cost of revenues"),
        (80, 73, 14, "F2", "The quick brown fox jumps over the lazy dog and sleeps all day in"),
        (250, 73, 10, "F2", "2017"),
    ]
    assert "2017" in read(make_pdf([lines])).text


def test_two_columns_of_text_with_figures_stay_columns():
    left, right = "Pears grow well in the shade of an", "Plums want sun and water, as in"
    lines: list[Line] = []
    for n in range(20):
        lines.append((60, 120 + 13 * n, 10, "F1", f"{left} oak"))
        lines.append((320, 120 + 13 * n, 10, "F1", "2019." if n == 12 else f"{right} a bog"))
    text = read(make_pdf([[heading(80, "1 Fruit"), *lines], page("2 More")])).text
    assert "|" not in text
    assert f"{left} oak {left} oak" in text
    assert f"{right} a bog {right} a bog" in text


ROPES = [("N-11", "Rope 8 mm", "4.10"), ("N-12", "Rope 10 mm", "6.20"), ("N-13", "Chain", "9.00")]
COLUMNS = (72, 180, 300)


def table(y: float, *rows: Sequence[str], columns: Sequence[float] = COLUMNS) -> list[Line]:
    return [
        (x, y + 14 * n, 10, "F1", text)
        for n, row in enumerate(rows)
        for x, text in zip(columns, row, strict=False)
        if text
    ]


def tables_of(*pages: Sequence[Line], drawn: bytes = b"") -> list[list[str]]:
    """The rows of each table that is read."""
    lines = read(make_pdf(pages, drawn=drawn)).text.splitlines()
    found = "\n".join(line if line.startswith("|") else "" for line in lines).strip()
    return [part.split("\n") for part in re.split(r"\n{2,}", found)]


def ruled(xs: Sequence[float], ys: Sequence[float]) -> bytes:
    """The lines around the cells of a table; y runs down the page."""
    across = [f"{xs[0]} {792 - y} m {xs[-1]} {792 - y} l S" for y in ys]
    down = [f"{x} {792 - ys[0]} m {x} {792 - ys[-1]} l S" for x in xs]
    return "\n".join([*across, *down, ""]).encode()


def test_the_cells_of_a_ruled_table_may_go_on_over_lines():
    lines = table(80, ("Part", "Net", "Unit"), ("", "weight", "price"), ("Flange", "1.20", "14.80"))
    lines += table(122, ("Gasket for the", "0.05", "0.95"), ("inner valve",), ("Hub", "2.00", "9"))
    drawn = ruled((68, 176, 296, 380), (69, 98, 112, 140, 154))
    (rows,) = tables_of([*lines, *body(300)], drawn=drawn)
    assert rows == [
        *("| Part | Net weight | Unit price |", "|---|---|---|", "| Flange | 1.20 | 14.80 |"),
        *("| Gasket for the inner valve | 0.05 | 0.95 |", "| Hub | 2.00 | 9 |"),
    ]


def test_the_last_row_of_a_ruled_table_keeps_the_lines_of_its_widest_cell():
    columns = (72, 100, 500)
    lines = table(80, ("No.", "Rule", "Fine"), ("1", BODY, "15 EUR"), ("", BODY), columns=columns)
    lines += table(122, ("2", BODY, "20 EUR"), ("", BODY), ("", BODY), columns=columns)
    (rows,) = tables_of(lines, drawn=ruled((68, 96, 496, 560), (69, 84, 112, 154)))
    assert rows[0] == "| No. | Rule | Fine |"
    assert rows[2:] == [f"| 1 | {BODY} {BODY} | 15 EUR |", f"| 2 | {BODY} {BODY} {BODY} | 20 EUR |"]


def test_a_table_without_a_head_gets_an_empty_one():
    (rows,) = tables_of([*table(100, *ROPES), *body(300)])
    assert rows[:3] == ["|  |  |  |", "|---|---|---|", "| N-11 | Rope 8 mm | 4.10 |"]


def test_groups_of_rows_have_the_head_that_stands_above_them():
    columns = (72, 130, 230, 330)
    lines = table(100, ("Lot", "Code", "Article", "Price"), ("Lot A",), columns=columns)
    lines += table(128, *(("", *row) for row in ROPES), columns=columns)
    lines += table(170, ("", "Prices of lot B hold until the end of the month."), columns=(0, 90))
    lines += table(184, ("Lot B",), *(("", *row) for row in ROPES[:2]), columns=columns)
    first, second = tables_of([heading(70, "Stock"), *lines, *body(300)])
    head = ["| Lot | Code | Article | Price |", "|---|---|---|---|"]
    assert first == [*head, "| Lot A |", *(f"|  | {' | '.join(row)} |" for row in ROPES)]
    assert second == [*head, "| Lot B |", *(f"|  | {' | '.join(row)} |" for row in ROPES[:2])]


@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_table_over_pages_has_its_head_on_each(is_repeated):
    head = ("Code", "Article", "Price")
    rows = [(f"N-{n}", f"Rope of {n} mm", f"{n}.50") for n in range(1, 100)]
    parts = [rows[:30], rows[30:60], rows[60:]]
    pages = [table(60, *([head] if is_repeated or not n else []), *p) for n, p in enumerate(parts)]
    found = tables_of(*pages)
    assert [part[0] for part in found] == ["| Code | Article | Price |"] * 3
    assert [row for part in found for row in part[2:]] == [f"| {' | '.join(row)} |" for row in rows]


def budget(y: float) -> list[Line]:
    """A table from y on whose figures end where their heads, of size 9 above it, do."""
    rows = [("Gifts", "$ 8,500", "$ 9,120", "$ 9,000"), ("Total income", *["$ 9,700"] * 3), ()]
    rows += [("Rope and sails", *["$ 2,000"] * 3), ("Dues", *["$ 3,100"] * 3)]
    heads = ((214, 2026), (289, 2027), (364, 2028))
    lines: list[Line] = [(x, 120, 9, "F2", f"Budget {year}") for x, year in heads]
    return [*lines, heading(y + 28, "Expenses", 10), *table(y, *rows, columns=(72, 235, 310, 385))]


BUDGET = ["|  | Budget 2026 | Budget 2027 | Budget 2028 |", "|---|---|---|---|"]


def test_a_head_that_begins_before_its_figures_is_above_them():
    (rows,) = tables_of([heading(70, "Budget", 18), *budget(y=134), *body(300)])
    assert rows[:2] == BUDGET


def test_the_name_of_a_group_is_no_heading_and_its_rows_have_the_head_above():
    lines = [heading(138, "Income", 10), (72, 156, 10, "F1", "Money and other goods for the")]
    (rows,) = tables_of([heading(60, "Budget", 18), *lines, *budget(y=168), *body(300)])
    assert rows[:3] == [*BUDGET, "| Income |"]


def test_a_title_in_a_table_is_not_its_head():
    lines = table(100, ("Fees of the harbour in the year 2026",), ("Length", "Boats", "Summer"))
    (rows,) = tables_of([*lines, *table(128, *ROPES), *body(300)])
    assert rows[0] == "| Length | Boats | Summer |"


def test_nested_items_are_below_what_they_belong_to():
    items = [(72, "a. Keep it clean."), (72, "b. Before you leave:"), (100, "i. sweep the attic;")]
    items += [(100, "ii. close the valves;"), (100, "iii. read the meters."), (72, "c. Pay.")]
    lines: list[Line] = [(x, 100 + 16 * n, 10, "F1", text) for n, (x, text) in enumerate(items)]
    assert read(make_pdf([[heading(70, "Duties"), *lines]])).text.splitlines()[2:] == [
        *("- a. Keep it clean.", "- b. Before you leave:", "    - i. sweep the attic;"),
        *("    - ii. close the valves;", "    - iii. read the meters.", "- c. Pay."),
    ]


@pytest.mark.parametrize("turn", ["0 1 -1 0 500 72", "0 -1 1 0 100 700", "-1 0 0 -1 540 700"])
def test_text_drawn_in_another_direction_is_read_in_its_order(turn):
    words = ["Inspections of the house", "The caretaker keeps the record", "in the green folder."]
    drawn = [f"1 0 0 1 0 {-30 * n} cm BT /F1 12 Tf ({text}) Tj ET" for n, text in enumerate(words)]
    turned = "".join(f"q {turn} cm {each} Q\n" for each in drawn).encode()
    alone = read(make_pdf([[], body(80)], drawn=turned)).text
    below = read(make_pdf([body(80)], drawn=turned)).text
    for text in (alone.split(BODY)[0], below.rsplit(BODY)[-1]):
        assert " ".join(words) == " ".join(text.replace("#", "").split())


def test_a_watermark_is_named():
    drawn = b"BT /F1 60 Tf .7 .7 -.7 .7 100 300 Tm (DRAFT 7) Tj ET"
    (warning,) = read(make_pdf([body(80), body(80)], drawn=drawn)).warnings
    assert warning.endswith("text at an angle is not read: 'DRAFT 7' on page 1")


TICKED = "/Subtype /Widget /FT /Btn /T (t{0}) /AS /{1} /V /{1} /F 4 /AP << /N << /Yes 6 0 R >> >>"


def test_what_is_filled_in_and_ticked_in_a_form_is_read():
    lines: list[Line] = [(72, 100, 11, "F1", "Guests:"), (72, 130, 11, "F1", "Lunch wanted:")]
    lines += [(200, 130, 11, "F1", "yes"), (260, 130, 11, "F1", "no"), (72, 200, 11, "F1", "Extra")]
    fields = [
        "/Subtype /Widget /FT /Tx /T (guests) /V (84) /F 4 /Rect [150 688 250 702]",
        TICKED.format(1, "Off") + " /Rect [186 660 196 670]",
        TICKED.format(2, "Yes") + " /Rect [246 660 256 670]",
        "/Subtype /Widget /FT /Ch /T (more) /F 4 /Rect [150 560 250 600] /Ff 2097152"
        " /Opt [(Chairs) (Piano) (Stage)] /V [(Chairs) (Stage)] /I [0 2]",
    ]
    text = read(make_pdf([lines], annotations=fields)).text
    assert re.search(r"Guests:\W+84", text)
    assert re.search(r"\[ \] ?yes\W+\[x\] ?no", text)
    assert "[x] Chairs, Stage" in text


def test_a_ticked_box_of_a_turned_page_stands_with_its_label():
    drawn = b"BT /F1 11 Tf 0 1 -1 0 100 72 Tm (Lunch asked:) Tj ET"
    box = TICKED.format(1, "Yes") + " /Rect [91 150 101 160]"
    data = make_pdf([[]], drawn=drawn, annotations=[box])
    assert "Lunch asked: [x]" in read(data.replace(b"/Type /Page ", b"/Type /Page/Rotate 90 ")).text


def test_comments_are_read_and_attachments_are_named():
    notes = [
        "/Subtype /Text /Rect [300 700 320 720] /Contents (It is 45 since May.) /T (Ada Mercer)",
        "/Subtype /Link /Rect [72 700 100 720] /Contents (a link)",
    ]
    document = pypdfium2.PdfDocument(make_pdf([body(80)], annotations=notes))
    document.new_attachment("prices.csv").set_data(b"a,b")
    saved = io.BytesIO()
    document.save(saved)
    found = read(saved.getvalue())
    assert found.text.endswith("\n\nComment (Ada Mercer): It is 45 since May.")
    (warning,) = found.warnings
    assert warning.endswith("attachments are not read: prices.csv")


def test_what_is_typed_on_a_page_stands_there_and_a_mark_has_its_words():
    lines: list[Line] = [(72, 100, 11, "F1", "The rent is .............. euros a month.")]
    lines += [(72, 130, 11, "F1", "The notice period is two months."), *body(300)]
    typed = "/Subtype /FreeText /IT /FreeTextTypewriter /F 4 /Contents"
    on_words = "/Rect [170 655 240 672] /QuadPoints [171 672 189 672 171 658 189 658]"
    notes = [
        f"{typed} (85.00) /Rect [140 688 200 703]",
        f"{typed} (Why?) /Rect [72 658 120 672]",
        f"/Subtype /StrikeOut {on_words}",
        f"/Subtype /Highlight {on_words} /Contents (three?) /T (Ada Mercer)",
    ]
    text = read(make_pdf([lines], annotations=notes)).text
    assert "The rent is 85.00 euros a month." in text
    said = text.split("\n\n")[-3:]
    assert said == ["Comment: Why?", "Comment on ~~two~~", 'Comment (Ada Mercer) on "two": three?']


def test_pages_tile_and_empty_ones_are_said():
    document = read(make_pdf([[*body(80)], [], [*body(80, text="The third page speaks.")]]))
    check_places(document)
    assert [page.number for page in document.pages] == [1, 2, 3]
    assert document.pages[1].start == document.pages[1].end
    assert document.pages[2].start <= document.text.index("The third page")
    (warning,) = document.warnings
    assert "page 2" in warning


def test_a_page_of_very_many_lines_is_read_without_them():
    few, many = (read(make_pdf(CHAPTERS, drawn=b"0 0 m 9 9 l S " * n)) for n in (9, 20_001))
    assert many.text == few.text
    assert few.warnings == ()
    (warning,) = many.warnings
    assert warning.endswith("drawings of over 20,000 lines were left out: page 1")


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        *(("unbreak", "able", "unbreakable"), ("capabili", "ties", "capabilities")),
        *(("Schleusen", "meisterei", "Schleusenmeisterei"), ("har", "bour", "harbour")),
        *(("price", "determining", "price-determining"), ("non", "refundable", "non-refundable")),
        *(("2026", "27", "2026-27"), ("COVID", "19", "COVID-19"), ("e", "mail", "e-mail")),
        *(("Smith", "Jones", "Smith-Jones"), ("state-of-the", "art", "state-of-the-art")),
    ],
)
def test_words_broken_over_lines_are_whole_and_true_hyphens_stay(first, second, whole):
    lines: list[Line] = [
        (72, 80, 10, "F1", f"This paragraph is long enough to be broken in its middle, {first}-"),
        (72, 92, 10, "F1", f"{second} and it goes on so that readers and search engines find it."),
    ]
    assert f"middle, {whole} and it" in read(make_pdf([lines])).text


def halves(first: str, second: str) -> Document:
    """Two pages, the first with a footnote, which end and begin with two texts."""
    note = (72, 740.0, 7.0, "F1", "1 Wear from ordinary use is no damage.")
    above = [*body(80), *body(200), *body(320, 2), (72, 346.0, 10.0, "F1", first), note]
    return read(make_pdf([above, [(72, 80.0, 10.0, "F1", second), *body(93, 3)]]))


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("the deposit is returned within", "fifteen days.", "within\nfifteen days."),
        ("it is read by all of the har-", "bour masters.", "of the harbour masters."),
        ("it is a long-", "term plan.", "is a long-term plan."),
    ],
)
def test_a_sentence_that_goes_on_over_a_page_end_is_whole(first, second, whole):
    document = halves(first, second)
    text = document.text
    assert any(whole in text[start:end] for start, end in split_sentences(text))
    assert text.index("Wear from") < text.index(whole)
    assert document.pages[1].start == text.index(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [("the deposit is returned.", "fifteen days"), ("see the table of fees", "Fees of 2027")],
)
def test_a_text_that_begins_anew_on_the_next_page_stays_apart(first, second):
    document = halves(first, second)
    assert f"{first}\n\n1 Wear" in document.text
    assert f"\n\n{second}" in document.text


def test_a_raised_figure_is_apart_from_the_figure_before_it():
    raised = b"(%s) Tj /F1 5.8 Tf 3.3 Ts (%s) Tj 0 Ts /F1 10 Tf "
    sentence = raised % (b"In 106 tests 10", b"6") + raised % (b" cycles on 90 m", b"2")
    cell = b"BT /F1 10 Tf 300 464 Td %s ET" % raised % (b"8,200", b"3")
    drawn = b"BT /F1 10 Tf 72 600 Td %s ET " % sentence + cell
    rows = table(300, *ROPES[:2], ("N-13", "Hook"), ("N-14", "Pin", "82003"))
    text = read(make_pdf([[*body(80), *rows]], drawn=drawn)).text
    assert "In 106 tests 10^6 cycles on 90 m2" in text
    assert "| Hook | 8,200^3 |" in text
    assert "| Pin | 82003 |" in text


@pytest.mark.parametrize(
    ("initial", "rest", "expected"),
    [
        ("L", "arch boards are stacked with laths", "Larch boards are"),
        ("A", "cross the yard stands a shed of larch", "Across the yard"),
        ("A", "shed of larch stands in the yard", "A shed of"),
    ],
)
def test_a_large_first_letter_is_in_its_word(initial, rest, expected):
    lines = [(100, 100 + 14 * n, 12, "F1", text) for n, text in enumerate((rest, "for a week."))]
    text = read(make_pdf([[(72, 114, 40, "F1", initial), *lines, *body(128)]])).text
    assert expected in text
    assert f"{initial}\n" not in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("HARBOUR RULES", "HARBOUR RULES"),
        ("OFFICE HOURS 9 TO 17", "OFFICE HOURS 9 TO 17"),
        ("123456789", "1 2 3 4 5 6 7 8 9"),
        ("A1B2C3D4", "A 1 B 2 C 3 D 4"),
    ],
)
def test_words_whose_letters_are_spaced_out_are_whole(words, expected):
    drawn = f"BT /F1 12 Tf 4 Tc 72 700 Td ({words}) Tj ET".encode()
    assert f"{expected}\n" in read(make_pdf([body(300)], drawn=drawn)).text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            [".03-5550147", "ןופלט", ".(7", "םיה", "בוחר", ")1995"],
            "1995 (רחוב הים 7). טלפון 03-5550147.",
        ),
        (["הפיחמ", "Dana", "Levi", "תלהנמה"], "המנהלת Dana Levi מחיפה"),
    ],
)
def test_text_from_right_to_left_is_in_the_order_it_is_read(words, expected):
    boxes = [WordBox(w[::-1] if w[0] > "א" else w, 50.0 * n, 0, 40, 9) for n, w in enumerate(words)]
    line = TextItem("", 0, 0, 400, 9, words=boxes)
    assert order_words([line]) == expected


def test_what_the_document_writes_elsewhere_decides_on_a_hyphen():
    broken: list[Line] = [
        (72, 80, 10, "F1", "The fees are in one list and the fines in another, since the long-"),
        (72, 92, 10, "F1", "term plan and the water-"),
        (72, 104, 10, "F1", "way plan are kept apart by the office of the harbour."),
    ]
    text = read(make_pdf([[*broken, *body(200, 1, text="No waterway is long-term.")]])).text
    assert "since the long-term plan and the waterway plan" in text


@pytest.mark.parametrize(
    ("metadata", "name", "expected"),
    [
        ("The Fruit Report", "report.pdf", "The Fruit Report"),
        ("untitled", "report.pdf", "Beginnings"),
        ("Microsoft Word - draft7.docx", "report.pdf", "Beginnings"),
        ("report_final.pdf", "report.pdf", "Beginnings"),
        ("", "annual_report-2023.pdf", "annual report 2023"),
    ],
)
def test_title(metadata, name, expected):
    pages = CHAPTERS if metadata else [body(80)]
    assert read(make_pdf(pages, title=metadata), name).title == expected


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (make_pdf(CHAPTERS, encrypted=True), EncryptedFile, "password"),
        (make_pdf([[], []]), NoText, "--ocr reads it"),
        (b"", CorruptFile, "damaged"),
        (b"%PDF-1.7\nnothing of the kind", CorruptFile, "damaged"),
        (b"\x00" * 500, CorruptFile, "damaged"),
    ],
    ids=["encrypted", "scanned", "empty", "text", "zeros"],
)
def test_what_cannot_be_read(data, kind, said):
    with pytest.raises(kind, match=said):
        read(data)


@settings(max_examples=25)
@given(cut=st.integers(min_value=0, max_value=3000), flip=st.integers(min_value=0, max_value=2000))
def test_damage_anywhere_is_an_error_or_a_document(cut, flip):
    data = bytearray(contents_pdf()[: 3000 + cut])
    data[flip] ^= 0x15
    try:
        document = read(bytes(data))
    except (CorruptFile, NoText, EncryptedFile):
        return
    check_places(document)


def test_levels_follow_numbers_indents_and_parts():
    listed = ["Part I", "Item 1. Business", "Item 1A. Risk", "Part II", "Item 2. Rest"]
    assert assign_levels(ListedHeading(split_number(t)[0]) for t in listed) == [1, 2, 2, 1, 2]
    nested = ["I. One", "A. Two", "B. Three", "II. Four", "A. Five"]
    assert assign_levels(ListedHeading(split_number(t)[0]) for t in nested) == [1, 2, 2, 1, 2]
    indented = [ListedHeading(None, x) for x in (50, 70, 70, 50, 70, 90)]
    assert assign_levels(indented) == [1, 2, 2, 1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20))
def test_rising_selects_pairs_that_rise(pairs):
    found = select_rising(pairs)
    assert set(found) <= set(pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))
    assert bool(found) == bool(pairs)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_escaped_text_is_one_paragraph(text):
    tree = markdown_tree(escape_line(text), "x")
    assert [n.kind for n in tree][1:] == [Kind.PARAGRAPH]
