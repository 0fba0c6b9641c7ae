"""Sheets of any format: titles, heads, tables beside each other, notes, and what is hidden."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from colligate.documents.document import Document
from colligate.documents.reading import read_file
from colligate.errors import CorruptFile
from support.documents import pack, write_and_read
from support.office import OFFICE, SHEETS, open_cell, open_document, row_xml

DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
THREADS = "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"
Rows = Sequence[Sequence[str]]


def xlsx(
    rows: str, before: str = "", after: str = "", related: Mapping[str, tuple[str, str]] = {}
) -> bytes:
    """A workbook of a sheet: its rows, what is around them, and targets and parts by kind."""
    part = f'<worksheet xmlns="{SHEETS}" xmlns:r="{OFFICE}">{before}'
    listed = "".join(
        f'<Relationship Id="{kind}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for kind, (target, _) in related.items()
    )
    link = f'<Relationship Id="a" Type="{OFFICE}/worksheet" Target="worksheets/a.xml"/>'
    return pack(
        {
            "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" xmlns:r="{OFFICE}"><sheets>'
            '<sheet name="S" sheetId="1" r:id="a"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f"<Relationships>{link}</Relationships>",
            "xl/worksheets/a.xml": f"{part}<sheetData>{rows}</sheetData>{after}</worksheet>",
            "xl/worksheets/_rels/a.xml.rels": f"<Relationships>{listed}</Relationships>",
        }
        | {f"xl/{target.removeprefix('../')}": xml for target, xml in related.values() if xml}
    )


def as_xlsx(rows: Rows) -> bytes:
    return xlsx("".join(row_xml(n, cells) for n, cells in enumerate(rows, 1) if any(cells)))


def as_ods(rows: Rows) -> bytes:
    return ods(*("".join(map(open_cell, cells or [""])) for cells in rows))


def ods(*rows: str, before: str = "") -> bytes:
    written = "".join(f"<t:table-row>{cells}</t:table-row>" for cells in rows)
    return open_document("spreadsheet", f'<t:table t:name="S">{before}{written}</t:table>')


def as_csv(rows: Rows) -> bytes:
    return "".join(";".join(cells) + "\n" for cells in rows).encode()


def row_of(document: Document, text: str) -> int | None:
    at = document.text.index(text)
    return document.row_of(document.span(at, at + len(text)))


TITLED = [["Boats of the quay"], ["as of 3 May 2026"], [], ["Boat", "Crew"], ["Wren", "4"]]
KEYS = [["Report", "Boats"], ["Boat", "Crew", "Berth", "Fee"], ["Wren", "4", "7", "90"]]
KEYS += [["Gull", "2", "8", "40"]]
DATED = [["Boats", "", "", "3 May"], *KEYS[1:]]
UNNAMED = [["Wren", "4", "90"], ["Gull", "2", "40"], ["Tern", "3", "60"]]
YEARS = [["", "2025", "2026"], ["Wren", "400", "900"], ["Gull", "200", "700"]]
SIZES = [["Size", "36", "37", "38"], ["Boot", "4", "0", "2"], ["Shoe", "9", "9", "1"]]
GROUPS = [["Boat", "Crew"], ["North"], ["Wren", "4"], [], ["South"], ["Gull", "2"], []]
GROUPS += [["Total", "6"]]
BELOW = [["Boat", "Crew"], ["Wren", "4"], [], ["Berth", "Boat", "Fee"], ["7", "Wren", "90"], []]
BELOW += [["Fees are paid in May."]]
DEEP = [["", "2025", "", "2026", ""], ["Boat", "Crew", "Fee", "Crew", "Fee"]]
DEEP += [["Wren", "4", "90", "5", "95"], ["Gull", "2", "40", "2", "45"]]
BESIDE = [["Boats", "", "", "Berths"], ["Boat", "Crew", "", "Berth", "Fee"]]
BESIDE += [["Wren", "4", "", "North", "90"], ["Gull", "2", "", "South", "40"], ["Tern", "3"]]
SPACED = [["", "2025", "", "2026"], ["Wren", "400", "", "900"], ["Gull", "200", "", "700"]]


def table(head: str, *rows: str) -> str:
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows])


@pytest.mark.parametrize("kind", ["xlsx", "ods", "csv"])
@pytest.mark.parametrize(
    ("rows", "text", "places"),
    [
        (
            TITLED,
            "Boats of the quay\nas of 3 May 2026\n\n" + table("| Boat | Crew |", "| Wren | 4 |"),
            {"Boat |": 4, "Wren": 5},
        ),
        (
            KEYS,
            "Report Boats\n\n"
            + table("| Boat | Crew | Berth | Fee |", "| Wren | 4 | 7 | 90 |",
                    "| Gull | 2 | 8 | 40 |"),
            {"Boat |": 2, "Gull": 4},
        ),
        (
            DATED,
            "Boats 3 May\n\n"
            + table("| Boat | Crew | Berth | Fee |", "| Wren | 4 | 7 | 90 |",
                    "| Gull | 2 | 8 | 40 |"),
            {"Gull": 4},
        ),
        (
            UNNAMED,
            table("|  |  |  |", "| Wren | 4 | 90 |", "| Gull | 2 | 40 |", "| Tern | 3 | 60 |"),
            {"Wren": 1, "Tern": 3},
        ),
        (
            [["Owner:", "Ada"], ["Quay:", "North"], ["Since:", "May"]],
            table("|  |  |", "| Owner: | Ada |", "| Quay: | North |", "| Since: | May |"),
            {"Ada": 1},
        ),
        (YEARS, table("|  | 2025 | 2026 |", "| Wren | 400 | 900 |", "| Gull | 200 | 700 |"), {}),
        (SIZES, table("| Size | 36 | 37 | 38 |", "| Boot | 4 | 0 | 2 |", "| Shoe | 9 | 9 | 1 |"),
         {"Shoe": 3}),
        (
            GROUPS,
            table("| Boat | Crew |", "| North |", "| Wren | 4 |", "|  |", "| South |",
                  "| Gull | 2 |", "|  |", "| Total | 6 |"),
            {"Gull": 6, "Total": 8},
        ),
        (
            BELOW,
            table("| Boat | Crew |", "| Wren | 4 |")
            + "\n\n"
            + table("| Berth | Boat | Fee |", "| 7 | Wren | 90 |")
            + "\n\nFees are paid in May.",
            {"| Wren | 4": 2, "Berth": 4, "90": 5},
        ),
        (
            DEEP,
            table("| Boat | 2025 Crew | 2025 Fee | 2026 Crew | 2026 Fee |",
                  "| Wren | 4 | 90 | 5 | 95 |", "| Gull | 2 | 40 | 2 | 45 |"),
            {"2025 Crew": 2, "Wren": 3},
        ),
        (
            BESIDE,
            "Boats\n\n"
            + table("| Boat | Crew |", "| Wren | 4 |", "| Gull | 2 |", "| Tern | 3 |")
            + "\n\nBerths\n\n"
            + table("| Berth | Fee |", "| North | 90 |", "| South | 40 |"),
            {"Boat |": 2, "Tern": 5, "North": 3},
        ),
        (SPACED, table("|  | 2025 |  | 2026 |", "| Wren | 400 |  | 900 |",
                       "| Gull | 200 |  | 700 |"), {}),
    ],
    ids="titled keys dated unnamed labels years sizes groups below deep beside spaced".split(),
)  # fmt: skip
def test_the_head_of_a_table_is_the_row_that_names_its_columns(tmp_path, kind, rows, text, places):
    make = {"xlsx": as_xlsx, "ods": as_ods, "csv": as_csv}[kind]
    if kind == "csv":  # else a title has no separator
        rows = [[*row, *[""] * (len(rows[-1]) - len(row))] if any(row) else [] for row in rows]
    document = write_and_read(tmp_path / f"a.{kind}", make(rows))
    shown = document.text.removeprefix("## S\n\n").rstrip("\n")
    lines = (line.rstrip("| ") for line in shown.split("\n"))
    assert list(lines) == [line.rstrip("| ") for line in text.split("\n")]
    assert {each: row_of(document, each) for each in places} == places


@pytest.mark.parametrize(
    ("rows", "head"),
    [
        (UNNAMED, ""),
        ([["Boats of the quay"], [], *UNNAMED], "Boats of the quay"),
        ([["Boats of the quay"], *YEARS], "Boats of the quay | 2025 | 2026"),
    ],
)
def test_the_head_of_a_later_row_has_the_title_of_its_table(tmp_path, rows, head):
    document = write_and_read(tmp_path / "a.xlsx", as_xlsx(rows))
    at = document.text.rindex("\n| ") + 1
    assert document.table_head(document.span(at, at + 3)) == head


MERGED = [["Fees of the quay"], ["Place", "Dues (EUR)"], ["", "Low", "High"]]
MERGED += [["North", "4", "9"], ["", "5", "8"], ["South", "all"]]


def test_merged_cells_are_in_each_of_their_rows_and_heads_in_each_column(tmp_path):
    cells = "".join(f'<mergeCell ref="{at}"/>' for at in "A1:C1 A2:A3 B2:C2 A4:A5 B6:C6".split())
    rows = "".join(row_xml(n, row) for n, row in enumerate(MERGED, 1))
    content = xlsx(rows, after=f"<mergeCells>{cells}</mergeCells>")
    assert write_and_read(tmp_path / "a.xlsx", content).text == (
        "## S\n\nFees of the quay\n\n"
        "| Place | Dues (EUR) Low | Dues (EUR) High |\n| --- | --- | --- |\n"
        "| North | 4 | 9 |\n| North | 5 | 8 |\n| South | all |\n"
    )
    north = open_cell("North", 't:number-rows-spanned="2"')
    below = "<t:covered-table-cell/>" + open_cell("5")
    spanned = ods(open_cell("Place") + open_cell("Dues"), north + open_cell("4"), below)
    assert "| North | 5 |" in write_and_read(tmp_path / "a.ods", spanned).text


@pytest.mark.parametrize("threads", [False, True])
def test_notes_links_and_boxes_of_a_sheet_are_read(tmp_path, threads):
    rows = row_xml(1, ["Boat", "Fee"]) + row_xml(2, ["Wren", "90"]) + '<row r="3"/>'
    note = '<comment ref="{}"><text><r><t>Ada:</t></r><r><t> {}</t></r></text></comment>'
    notes = note.format("B2", "paid in May") + note.format("B3", "to be named")
    related = {
        "comments": ("../c.xml", f'<comments xmlns="{SHEETS}">{notes}</comments>'),
        "hyperlink": ("https://example.org/wren", ""),
        "drawing": (
            "../d.xml",
            f'<wsDr xmlns:a="{DRAWING}"><sp><txBody><a:p><a:r><a:t>The quay</a:t></a:r>'
            "<a:r><a:t> is shut.</a:t></a:r></a:p></txBody></sp></wsDr>",
        ),
    }
    if threads:
        thread = '<threadedComment ref="B2"><text>{}</text></threadedComment>'
        replies = thread.format("Ada: paid in May") + thread.format("Bo: no, June")
        xml = f'<ThreadedComments xmlns="{THREADS}">{replies}</ThreadedComments>'
        related["threadedComment"] = ("../t.xml", xml)
    links = '<hyperlinks><hyperlink ref="A2" r:id="hyperlink"/></hyperlinks>'
    text = write_and_read(tmp_path / "a.xlsx", xlsx(rows, after=links, related=related)).text
    said = " [note: Bo: no, June]" if threads else ""
    assert f"| Wren (https://example.org/wren) | 90 [note: Ada: paid in May]{said} |" in text
    assert ("[note: Ada: to be named]" in text) is not threads
    assert text.endswith("\n\nThe quay is shut.\n")


def test_dates_notes_and_links_of_an_opendocument_sheet_are_read(tmp_path):
    day = '<t:table-cell o:date-value="2026-05-03"><x:p>3.5.</x:p></t:table-cell>'
    cell = (
        '<t:table-cell><o:annotation><x:p>paid in May</x:p></o:annotation><x:p><x:a h:href="https://'
        'example.org" xmlns:h="http://www.w3.org/1999/xlink">90</x:a></x:p></t:table-cell>'
    )
    text = write_and_read(tmp_path / "a.ods", ods(day + cell)).text
    assert "| 2026-05-03 | 90 (https://example.org) [note: paid in May] |" in text


def test_hidden_rows_and_columns_are_read_with_a_warning(tmp_path):
    rows = row_xml(1, ["Boat", "Fee", "Crew"]) + row_xml(2, ["Wren", "90", "4"], 'hidden="1"')
    columns = '<cols><col min="2" max="2" hidden="1"/><col min="9" max="16384" hidden="1"/></cols>'
    hidden = "hidden rows and columns are read: column B, row 2 of S"
    document = write_and_read(tmp_path / "a.xlsx", xlsx(rows, before=columns))
    assert "| Wren | 90 | 4 |" in document.text
    assert [each.partition(": ")[2] for each in document.warnings] == [hidden]
    columns = '<t:table-column/><t:table-column t:visibility="collapse"/>'
    wren = f'</t:table-row><t:table-row t:visibility="filter">{open_cell("Wren")}'
    sheet = ods(open_cell("Boat") + open_cell("Fee") + wren, before=columns)
    document = write_and_read(tmp_path / "a.ods", sheet)
    assert [each.partition(": ")[2] for each in document.warnings] == [hidden]


CASES = Path(__file__).parents[2] / "cases"


def test_an_old_workbook_is_read_as_it_is_shown(tmp_path):
    old = (CASES / "xls-formats" / "fees.xls").read_bytes()
    document = write_and_read(tmp_path / "a.xls", old)
    assert document.text == (
        "## Fees\n\nFees of the quay\n\n"
        "| Place | Since | Fee | Share |\n| --- | --- | --- | --- |\n"
        "| North | 2026-05-03 | 1,250.00 € | 12.5% |\n| North | 2026-05-04 | -99.50 € | 50% |\n\n"
        "## Old\n\n| Code | 00042 |\n| --- | --- |\n| Open | TRUE |\n"
    )
    assert [each.partition(": ")[2] for each in document.warnings] == [
        "hidden sheets are read: Old",
        "hidden rows and columns are read: row 5 of Fees",
    ]
    (tmp_path / "b.xls").write_bytes(old[:2_000])
    with pytest.raises(CorruptFile):
        read_file(tmp_path / "b.xls")


def test_a_merged_cell_of_a_whole_sheet_takes_no_memory(tmp_path):
    rows = row_xml(1, ["x" * 20_000]) + "".join(row_xml(n, ["", "1"]) for n in range(2, 6_000))
    merged = '<mergeCells><mergeCell ref="A1:A1048576"/></mergeCells>'
    document = write_and_read(tmp_path / "a.xlsx", xlsx(rows, after=merged))
    assert len(document.text) < 80 << 20


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("sep=;\nBoat;Fee\nWren;4,5\n", table("| Boat | Fee |", "| Wren | 4,5 |")),
        ('"sep=|"\nBoat|Fee\nWren|4;5\n', table("| Boat | Fee |", "| Wren | 4;5 |")),
        ("1,5;2,5\n3,5;4,1\n", table("|  |  |", "| 1,5 | 2,5 |", "| 3,5 | 4,1 |")),
        ('"Boat","Fee"\n"Wren","4,50"\n', table("| Boat | Fee |", "| Wren | 4,50 |")),
        (
            "# logger 3\n# site: Orr, west, 2\ntime,level,flow\n07:00,4.1,2\n08:00,4.2,3\n",
            "\\# logger 3\n\\# site: Orr west 2\n\n"
            + table("| time | level | flow |", "| 07:00 | 4.1 | 2 |", "| 08:00 | 4.2 | 3 |"),
        ),
        (
            "Boats\nprinted, by Ada\n\nBoat,Fee,Crew\nWren,90,4\n\nRows: 1\n",
            "Boats\nprinted by Ada\n\n"
            + table("| Boat | Fee | Crew |", "| Wren | 90 | 4 |")
            + "\n\nRows: 1",
        ),
        (
            "Boat        Fee\nSea wren     90\nGull          7\n",
            table("| Boat | Fee |", "| Sea wren | 90 |", "| Gull | 7 |"),
        ),
        (  # as R writes names of rows
            '"kind","age"\n"T1","oak",18.2\n"T2","ash",15.4\n',
            table("|  | kind | age |", "| T1 | oak | 18.2 |", "| T2 | ash | 15.4 |"),
        ),
        ("id,age\noak,8,\nash,5,\n", table("| id | age |  |", "| oak | 8 |  |", "| ash | 5 |  |")),
        (
            'Nr, Name, Fee\n1, "Holm, Ada", 90\n2, "Roth, Ida", 7\n',
            table("| Nr | Name | Fee |", "| 1 | Holm, Ada | 90 |", "| 2 | Roth, Ida | 7 |"),
        ),
        (
            'part,stock\n"Pipe 2\\" steel, long",12\n"Valve",7\n',
            table("| part | stock |", '| Pipe 2" steel, long | 12 |', "| Valve | 7 |"),
        ),
        (
            'Title,Fee\nOld Mill,4\n"Tis Winter,9\nThe "Long" Road,2\n',
            table("| Title | Fee |", "| Old Mill | 4 |", '| "Tis Winter | 9 |')
            + '\n| The "Long" Road | 2 |',
        ),
        ('a,b,c\n"x, y",2\n"x, z",3\n', table("| a | b | c |", "| x, y | 2 |", "| x, z | 3 |")),
        ("Boat\nWren\n\nGull\n", table("| Boat |", "| Wren |", "|  |", "| Gull |")),
    ],
)
def test_separators_comments_and_notes_of_separated_values(tmp_path, content, text):
    assert write_and_read(tmp_path / "a.csv", content).text == f"{text}\n"


NAMES = "Dupont;Jean\nMoreau;Claire\nLefèvre;Luc\nGarnier;Odile\nRousseau;Aimée\n" * 9


@pytest.mark.parametrize(
    ("content", "language"),
    [
        (f"Surname;First name;Department of the yard\n{NAMES}", "en"),
        (f"N;F\n{NAMES}", "und"),
        ("Boot;Urteil\nWren;Das Boot ist sehr gut und auch nicht teuer gewesen\n", "de"),
    ],
)
def test_names_do_not_tell_the_language_of_a_sheet(tmp_path, content, language):
    assert write_and_read(tmp_path / "a.csv", content).language == language


def test_workbooks_with_sheets_of_one_name_have_the_titles_of_their_files(tmp_path):
    for name in ("north", "south"):
        assert write_and_read(tmp_path / f"{name}.xlsx", as_xlsx(TITLED)).title == name
