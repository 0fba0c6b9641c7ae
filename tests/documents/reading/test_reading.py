"""Reading Markdown, text, wikitext, records and e-mail; sniffing, decoding and identity."""

import gzip
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind
from colligate.documents.reading import document_id, read_file
from colligate.documents.reading.text import text_tree
from colligate.errors import NoText
from support.documents import outline, texts_of, write_and_read
from support.office import word

EXAMPLES = Path(__file__).parents[3] / "examples" / "licences"


@given(st.text(), st.text())
def test_an_id_is_short_and_safe_as_a_file_name(stem, text):
    name = document_id(stem, text)
    assert len(name) <= 60
    assert not set(name) & set("/\\ \t\n\x00:*?<>|'\"")
    assert not name.startswith((".", "-"))


def test_a_document_is_the_same_wherever_its_file_lies(tmp_path):
    (tmp_path / "other").mkdir()
    first = write_and_read(tmp_path / "a.md", "# T\n\nwords\n")
    second = write_and_read(tmp_path / "other" / "a.md", "# T\r\n\r\nwords\r\n")
    assert first.id == second.id != write_and_read(tmp_path / "a.md", "# T\n\nword\n").id
    assert first.source == str(tmp_path / "a.md")


@pytest.mark.parametrize(
    ("name", "content", "kind", "title", "text"),
    [
        ("Apache-2.0", "Just words.\n", "text/plain", "Apache-2.0", "Just words.\n"),
        ("a.txt", "<!DOCTYPE html><h1>Head</h1>Text", "text/html", "Head", "# Head\n\nText\n"),
        ("a.md", "# Guide\n\n> *x*\n", "text/markdown", "Guide", "# Guide\n\n> *x*\n"),
    ],
)
def test_the_content_decides_how_a_file_is_read(tmp_path, name, content, kind, title, text):
    document = write_and_read(tmp_path / name, content)
    assert (document.media_type, document.title, document.text) == (kind, title, text)


def test_a_reading_travels_between_processes(tmp_path):
    (tmp_path / "a.txt").write_text("Some words of text.\n")
    reading = read_file(tmp_path / "a.txt")
    assert pickle.loads(pickle.dumps(reading)) == reading


BORN = "# Ada Mercer\n\nAda Mercer (born 1 May 1904) was a baker.\n"
PAGE_OF_2021 = """<html><head><meta property="article:published_time" content="2021-06-01T08:00Z">
<meta name="author" content="Ada Mercer"><meta name="author" content="Bo Lee"></head><body>x"""


@pytest.mark.parametrize(
    ("name", "text", "date", "authors"),
    [
        ("a.md", "---\ndate: 2024-03-12\nauthor: 'Bo'\n---\n\n1 May 1999\n", "2024-03-12", "Bo"),
        ("a.md", "# Rules\n\nIn force from March 2024\n\nTenants pay.\n", "2024-03", ""),
        ("a.txt", "REPORT\n\nfor the year ended December 31, 2015\n\nSales\n", "2015-12-31", ""),
        ("a.md", BORN, "", ""),
        ("a.md", f"# Fair\n\nThe fair of {'every ' * 40}year.\n\nOn 2 July 1911\n", "", ""),
        ("a.md", "# Sheet\n\n31 February 2020, Mayor 2004\n", "", ""),
        ("a.html", PAGE_OF_2021, "2021-06-01", "Ada Mercer; Bo Lee"),
    ],
)  # fmt: skip
def test_date_and_authors_are_as_a_file_or_its_title_page_says(tmp_path, name, text, date, authors):
    document = write_and_read(tmp_path / name, text)
    assert (document.date, document.authors) == (date, authors)


YAML = "---\n# a\n\ntitle: >-\n  The bakers\n  of Mill Lane\nauthors:\n  - Ada Mercer\n  - Bo Lee\n"
YAML += "date: 2024-03-12\ntags: [bread, 'rye']\nnested: {a: b}\n---\n"
TOML = '+++\ntitle = "The bakers of Mill Lane"\nauthors = ["Ada Mercer", "Bo Lee"]\n'
TOML += 'date = 2024-03-12T08:00:00Z\ntags = ["bread", "rye"]\n\n# [a.b]\n[c]\nd = 1\n+++\n'
JSON = """{
  "title": "The bakers of Mill Lane", "authors": ["Ada Mercer", "Bo Lee"],
  "date": "2024-03-12", "tags": ["bread", "rye"], "a": {"b": 1}
}
"""
PANDOC = "% The bakers of Mill Lane\n% Ada Mercer; Bo Lee\n% 12 March 2024\n"


@pytest.mark.parametrize(
    "front", [YAML, "\ufeff\n" + YAML.replace("\n", "\r\n"), TOML, JSON, PANDOC]
)
@pytest.mark.parametrize("body", ["Rye is baked at six.\n", "\n## Rye\n\nRye is baked at six.\n"])
def test_front_matter_says_what_a_document_is_and_is_no_heading(tmp_path, front, body):
    document = write_and_read(tmp_path / "a.md", front + body)
    assert (document.title, document.date) == ("The bakers of Mill Lane", "2024-03-12")
    assert document.authors == "Ada Mercer; Bo Lee"
    assert document.metadata.get("tags", "bread; rye") == "bread; rye"
    assert outline(document) == [(2, "Rye")] * body.count("##")
    (code,) = texts_of(document, Kind.CODE)
    assert "Mill Lane" in code
    assert texts_of(document, Kind.PARAGRAPH) == ["Rye is baked at six."]


@pytest.mark.parametrize(
    "front",
    [
        "---\n" + "a: [" * 5000 + "\n---\n",
        "---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n",
        "---\nx\n---\n",
        "+++\na = " + "[" * 9000 + "\n+++\n",
        "{\n" + '"a":{' * 3000 + "\n}\n",
    ],
)
def test_front_matter_that_is_none_or_hostile_is_kept_as_text(tmp_path, front):
    document = write_and_read(tmp_path / "a.md", front + "\nRye is baked at six.\n")
    assert texts_of(document, Kind.PARAGRAPH)[-1] == "Rye is baked at six."
    assert document.text.startswith(front)


def licence(name: str) -> Document:
    (document,) = read_file(EXAMPLES / name).documents
    return document


@pytest.mark.parametrize(
    ("name", "words", "path"),
    [
        (
            "GPL-3",
            "not required to accept",
            (
                "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007",
                *("TERMS AND CONDITIONS", "9. Acceptance Not Required for Having Copies."),
            ),
        ),
        (  # its titles run into the text
            "Apache-2.0",
            "cross-claim",
            (
                "Apache License Version 2.0, January 2004",
                "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION",
                "3. Grant of Patent License.",
            ),
        ),
        (  # its sections have numbers alone
            "GPL-2",
            "conditions are imposed on you",
            (
                "GNU GENERAL PUBLIC LICENSE Version 2, June 1991",
                "GNU GENERAL PUBLIC LICENSE TERMS AND CONDITIONS FOR COPYING, DISTRIBUTION AND"
                " MODIFICATION",
                "7.",
            ),
        ),
        (  # its headings are underlined
            "MPL-2.0",
            "unmodified basis",
            (
                "Mozilla Public License Version 2.0",
                "2. License Grants and Conditions",
                "2.1. Grants",
            ),
        ),
    ],
)  # fmt: skip
def test_licences_have_their_sections(name, words, path):
    document = licence(f"{name}.txt")
    start = document.text.index(words)
    assert document.tree.section_path(document.span(start, start + len(words))) == path
    assert document.tree.structure.basis is Basis.NUMBERING
    assert 0 < document.tree.structure.confidence < 1


@pytest.mark.parametrize(("name", "count"), [("GPL-3", 18), ("Apache-2.0", 9), ("GPL-2", 13)])
def test_all_numbered_sections_of_a_licence_are_found(name, count):
    sections = outline(licence(f"{name}.txt"))
    assert len([title for level, title in sections if level == 3]) == count


@pytest.mark.parametrize(
    ("first", "title"),
    [
        ("Boost Software License - Version 1.0", "Boost Software License - Version 1.0"),
        ("\n\n  Notes of the Meeting in Dorne", "Notes of the Meeting in Dorne"),
        ("The mill was built in 1904", "memo"),
        ("Dear Otto Lind,", "memo"),
        ("Otto Lind\n12 Mill Lane", "memo"),
        ("Table of Contents", "memo"),
        ("Chapter 1 The Mill", "memo"),
        ("Summary", "memo"),
    ],
)
def test_a_text_may_begin_with_its_title(tmp_path, first, title):
    text = f"{first}\n\nThe mill stands on the river."
    assert write_and_read(tmp_path / "memo.txt", text).title == title
    assert write_and_read(tmp_path / "memo.py", text).title == "memo"
    assert write_and_read(tmp_path / "alone.txt", first).title == "alone"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_text_of_a_text_file_is_unchanged(path):
    document = licence(path.name)
    assert document.text == path.read_text(encoding="utf-8")
    if path.stem in ("MIT", "BSD-3-Clause", "ISC"):
        assert outline(document) == []


@pytest.mark.parametrize(
    "text",
    [
        "To do:\n\n1. Buy milk\n\n2. Buy eggs\n\n3. Call Ann\n",
        "In 2019 we moved.\n\n1984 is a book. I read it.\n\n12 people came to the party.\n",
        "WARNING\n\nThis is one short note.\n",
        "# not a heading\n\n## nor this\n\ntext\n",
        "Dear Ann,\n\nI shall come on Monday.\n\nYours,\nBob\n",
    ],
)
def test_what_is_in_doubt_is_no_heading(tmp_path, text):
    document = write_and_read(tmp_path / "note.txt", text)
    assert outline(document) == []
    assert document.tree.structure.basis is Basis.NONE
    assert document.text == text


def test_nested_list_items_of_plain_text(tmp_path):
    document = write_and_read(tmp_path / "a.txt", "A:\n\n- one\n  still\n  - deep\n- two\n\nEnd.\n")
    items = [node for node in document.tree if node.kind is Kind.LIST_ITEM]
    assert texts_of(document, Kind.LIST_ITEM) == ["- one\n  still\n  - deep", "- deep", "- two"]
    assert items[1].parent == items[0].id


def test_source_code_has_no_headings(tmp_path):
    code = "LIMITS\n\n1. ONE THING\n\nx = 1\n\n2. OTHER THING\n\ny = 2\n"
    assert outline(write_and_read(tmp_path / "a.py", code)) == []
    assert outline(write_and_read(tmp_path / "a.txt", code)) != []


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\n\nONE THING\n=========\n\nmake\n\nOTHER THING\n===========\n\ncheck\n",
        "##########\n# ONE THING\n##########\nport = 1\n\n##########\n# OTHER\n##########\na = 2\n",
        "// ONE THING\n\nx();\n\n// OTHER THING\n\ny();\n",
        "all:\n\tcc x.c\n\nONE = 1\n\nOTHER = 2\n\nx: y\n",
    ],
)
def test_comments_and_settings_of_any_file_are_no_headings(tmp_path, text):
    document = write_and_read(tmp_path / "script", text)
    assert (outline(document), document.title, document.text) == ([], "script", text)


def test_every_clause_of_a_contract_is_a_section_by_its_number(tmp_path):
    words = ["Term. It runs for a year", "Law. That of Hale", "the keys stay", "Keys. Two of them"]
    clauses = [f"{n}.{at} {said}." for n in (1, 2) for at, said in enumerate(words, 1)]
    text = "DEED\n\n1. FIRST\n\n" + "\n\n".join([*clauses[:4], "2. SECOND", *clauses[4:]]) + "\n"
    titles = [title for _, title in outline(write_and_read(tmp_path / "a.txt", text))]
    assert [title.split()[0] for title in titles[1:]] == [
        *("1.", "1.1", "1.2", "1.3", "1.4", "2.", "2.1", "2.2", "2.3", "2.4")
    ]


def test_a_paper_in_plain_text_has_sections_by_bare_numbers(tmp_path):
    text = "Cooling of Pumps\n\n1 Introduction\n\nSome get warm.\n\n12 Angry Men\n\n"
    text += "2 Method\n\n2.1 Pumps\n\nWe use two.\n\n2.2 Rooms\n\nWe use one.\n\n"
    text += "3 Results\n\nAll cool.\n"
    document = write_and_read(tmp_path / "a.txt", text)
    assert [title for _, title in outline(document)] == [
        *("1 Introduction", "2 Method", "2.1 Pumps", "2.2 Rooms", "3 Results")
    ]


def test_json_is_read_as_its_values_by_name(tmp_path):
    chat = {"title": "Beds", "said": [{"from": "Al", "text": "# When\ndo we\u00a0sow? \U0001f34b"}]}
    chat["said"] += [{"from": "Bo", "text": "On 4 April.", "at": {"day": 4}, "tags": ["a", "b"]}]
    document = write_and_read(tmp_path / "a.json", json.dumps(chat))
    assert (document.title, outline(document)) == ("Beds", [(2, "said")])
    assert texts_of(document, Kind.PARAGRAPH) == [
        "title: Beds",
        "from: Al\ntext: # When do we sow? \U0001f34b",
        "from: Bo\ntext: On 4 April.\nat.day: 4\ntags: a, b",
    ]
    for text in ('{"a": // c\n', '"just"\n', "[" * 100_000):
        assert write_and_read(tmp_path / "b.json", text).text == text


PIERS = "<table><tr><td rowspan=2>Pier<td>low<tr><td>high&nbsp;<tr><td>Ash<td>1.9</table>"
CODE = "`&ge; <table>` of\n\n```\n![a](data:b)\n<!-- c -->\n```\n\n    &ge;\n"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            f"Depths:\n<html><body>{PIERS}</body></html>\n\n*End*",
            "Depths:\n\n| Pier | low |\n| --- | --- |\n| Pier | high |\n| Ash | 1.9 |\n\n\n*End*",
        ),
        ("<!-- A fee\n\nof 40 -->\nThe fee\n===\n", "\n\nThe fee\n===\n"),
        ("It is &ge;&nbsp;4, B&amp;B, p &lt; 3.", "It is \u2265\u00a04, B&B, p < 3."),
        ("&gt; no quote, &lt;b> &#42; &x;", "&gt; no quote, &lt;b> &#42; &x;"),
        (CODE, CODE),
        ("![A (pier)](data:i/png;base64,Y+/=) ![b](b.png)", "A (pier) ![b](b.png)"),
        ("![][a]\n\n[a]: <data:i/png;base64,YQ==>\n[b]: /c", "![][a]\n\n\n[b]: /c"),
        ('<img alt="Pier" src="data:i/png;base64,YQ==">\n', "\nPier\n\n"),
        ("<table><tr>\n\n**x**\n\n</table>\n", "<table><tr>\n\n**x**\n\n</table>\n"),
        (f"- a\n\n  {PIERS}\n", f"- a\n\n  {PIERS.replace('&nbsp;', chr(160))}\n"),
        ("a" + "<b>" * 999 + "\n\n<!-- no end", "a" + "<b>" * 999 + "\n\n<!-- no end"),
        (f"<!DOCTYPE html>\n<html><script>x</script>\n\n<p>{'y ' * 9}</html>\n", "y " * 8 + "y\n"),
    ],
)
def test_html_in_markdown_is_read_as_it_is_shown(tmp_path, written, shown):
    assert write_and_read(tmp_path / "a.md", written).text == shown


def test_objects_inside_a_record_carry_its_first_values(tmp_path):
    lines = [{"sku": "K05", "title": "Feed bin", "serials": [{"no": 1, "of": "x" * 30}]}, {"n": 1}]
    order = {"id": "A-1", "note": "y" * 99, "for": {"name": "Vale"}, "lines": lines}
    document = write_and_read(tmp_path / "a.json", json.dumps({"orders": [order], "v": 2}))
    assert texts_of(document, Kind.PARAGRAPH) == [
        "v: 2",
        f"id: A-1\nnote: {'y' * 99}\nfor.name: Vale",
        "id: A-1, for.name: Vale > lines\nsku: K05\ntitle: Feed bin",
        "id: A-1, for.name: Vale > lines, sku: K05, title: Feed bin > serials\n"
        f"no: 1\nof: {'x' * 30}",
        "n: 1",
    ]


BOLD = {"type": "bold", "text": "6 May"}
LINK = {"type": "link", "text": "map", "href": "https://a.example"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            {"text": ["Off on ", BOLD, ", see ", LINK], "parts": [BOLD, LINK]},
            "text: Off on 6 May, see map (https://a.example)",
        ),
        (
            {"text": "*B*&amp;<@U2>", "block": [{"type": "x", "of": [{"text": "B"}, {"u": "U2"}]}]},
            "text: *B*&amp;<@U2>",
        ),
        (
            {"text": "milk", "of": [{"text": "milk", "n": 2}]},
            "text: milk\n\ntext: milk > of\ntext: milk\nn: 2",
        ),
        ({"text": "milk", "of": [{"n": "milk"}]}, "text: milk\n\ntext: milk > of\nn: milk"),
        ({"of": ["a", {"n": 1}]}, "of: a\n\nn: 1"),
    ],
)
def test_a_text_in_pieces_is_read_once_and_whole(tmp_path, value, shown):
    assert write_and_read(tmp_path / "a.json", json.dumps([value])).text == shown


LINES = ["1. Scope.", "2. Terms", "1.1 More", "   CENTRED", "Text goes on here.", "====", "-----"]
LINES += ["", "", "  - item", "* x *", "a) b", "SHOUTING LINE", "Chapter 1", "\t", "\x0c", "。"]


@example(["1. Scope.", "", "1.1 More", "2. Terms", "====", "", "1.1 More"])
@given(st.lists(st.sampled_from(LINES), max_size=25))
def test_a_plain_text_tree_loses_no_word(lines):
    text = "\n".join(lines)
    tree = text_tree(text, "d")
    covered: set[int] = set()
    for node in tree:
        span = node.heading if node.kind is Kind.SECTION else node.span
        if node.kind is not Kind.ROOT and span is not None:
            covered.update(range(span.start, span.end))
    assert {i for i, c in enumerate(text) if not c.isspace()} <= covered


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_marked_encodings_are_read_without_a_warning(tmp_path, encoding):
    for marks in ("", "\ufeff"):  # two of them
        content = f"{marks}Ein schöner Tag.\r\nMorgen auch.".encode(encoding)
        document = write_and_read(tmp_path / "a.txt", content)
        assert document.text == "Ein schöner Tag.\nMorgen auch."
        assert document.warnings == ()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Le café où nous étions hier soir, près de l’église, était fermé à l’été."),
        ("cp1250", "Městská rada včera rozhodla postavit novou školu poblíž nádraží."),
        (
            "cp1254",
            "Belediye meclisi dün istasyonun yakınında yeni bir okul inşa etmeye karar verdi.",
        ),
        ("cp1251", "Городской совет вчера решил построить новую школу возле вокзала."),
        ("cp932", "市議会は昨日、駅の近くに新しい学校を建てることを決めた。"),
        ("gb18030", "市议会昨天决定在车站附近建一所新学校，反对者众多。"),
        ("cp1256", "قرر مجلس المدينة أمس بناء مدرسة جديدة بالقرب من المحطة."),
        ("cp1252", "Invoice: £40 for caf\xe9"),
        ("mac_roman", "Die Gebühr für das Büro schließt den Schlüssel ein."),
        ("cp850", "Die Gebühr für das Büro schließt den Schlüssel ein."),
    ],
)
def test_older_encodings_are_recognised_with_a_warning(tmp_path, encoding, text):
    document = write_and_read(tmp_path / "a.txt", text.encode(encoding))
    assert document.text == text
    assert "not UTF-8" in document.warnings[0]


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-2", "iso-8859-2", "Zażółć gęślą jaźń. Wyższa opłata."),
        ("ISO-8859-15", "iso-8859-15", "L'entrée est de 12 € pour les élèves."),
        ("iso-8859-1", "cp1252", "“The café’s tea is £2”"),
        ("utf-16", "cp1252", "“The café’s tea is £2”"),
    ],
)
def test_a_web_page_is_read_in_the_encoding_that_it_states(tmp_path, declared, encoding, text):
    page = f'<!DOCTYPE html><meta charset="{declared}"><p>{text}</p>'.encode(encoding)
    assert write_and_read(tmp_path / "a.html", page).text == f"{text}\n"


@pytest.mark.parametrize("name", ["a.html", "a.wiki"])
def test_a_superscript_is_apart_from_the_figure_before_it(tmp_path, name):
    text = "10<sup>6</sup>, <b>10</b><sup>−3</sup>, 5 m<sup>2</sup>, the 1<sup>st</sup>"
    document = write_and_read(tmp_path / name, text.join(("<p>", "</p>")))
    assert document.text.replace("*", "").strip() == "10^6, 10^−3, 5 m2, the 1st"


def test_damaged_utf_8_is_read_with_replacements_and_a_warning(tmp_path):
    data = "Ein schöner Tag für alle Gärten. ".encode() * 3 + b"\xff\xfe end"
    document = write_and_read(tmp_path / "a.txt", data)
    assert document.text.startswith("Ein schöner Tag")
    assert document.text.endswith("\ufffd\ufffd end")
    assert "2 invalid" in document.warnings[0]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["Pump 7 stopped.\n", "имя;город\nИван;Москва\n", "倉庫は閉まる。\n鍵\n"]
)
def test_utf_16_without_a_mark_is_read_with_a_warning(tmp_path, encoding, text):
    document = write_and_read(tmp_path / "a.txt", text.encode(encoding))
    assert document.text == text
    assert encoding.upper() in document.warnings[0]


def test_a_stray_nul_is_replaced(tmp_path):
    document = write_and_read(tmp_path / "a.csv", "pump,size\n" + "a,1\n" * 50 + "b\x00,2\n")
    assert document.text.endswith("| b\ufffd | 2 |\n")


ROWS = "<tr><td>Larch</td><td>17</td></tr>"
SAVED_PAGE = """From: <Saved by Blink>\r
Subject: Hours\r
MIME-Version: 1.0\r
Content-Type: multipart/related; boundary=B\r
\r
--B\r
Content-Type: text/html\r
Content-Transfer-Encoding: quoted-printable\r
\r
<p>Open on Larch=20day, 17</p>\r
--B--\r
"""
XML_BOOK = """<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?>
<Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="Trees"><Table>
<Row><Cell><Data>Tree</Data></Cell><Cell ss:Index="3"><Data>Count</Data></Cell></Row>
<Row ss:Index="3"><Cell><Data>Larch</Data></Cell><Cell ss:Index="3"><Data>17</Data></Cell></Row>
</Table></Worksheet></Workbook>"""
LETTER = word(("Normal", "Larch 17"))


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.xls", f"<div>\n<table>{ROWS}</table></div>", "html"),
        ("a.xls", f"<meta charset=utf-8><table>{ROWS}</table>", "html"),
        ("a.xls", f"<table>{ROWS}</table>".encode("utf-16"), "html"),
        ("a.xls", "Tree\tCount\nLarch\t17\n", "csv"),
        ("a.XLSX", "Tree\tCount\nLarch\t17\n".encode("utf-16"), "csv"),
        ("a.csv", f"<!DOCTYPE html><table>{ROWS}</table>", "html"),
        ("a.ods", "Tree;Count\nLarch;17\n", "csv"),
        ("a.xls", XML_BOOK, "XML"),
        ("a.pdf", "<!-- 404 --><p>Larch 17</p>", "html"),
        ("a.docx", "<html><p>Larch 17</p>", "html"),
        ("a.html", SAVED_PAGE, "mht"),
        ("a.txt", "Tree\tCount\tPlot\n" + "Larch\t17\tWest\n" * 900, "tsv"),
        ("a.xlsx", LETTER, "docx"),
        ("a.odt", LETTER, "docx"),
        ("a.txt", "1\n00:00:01,000 --> 00:00:02,000\nLarch\n17", "vtt"),
    ],
)
def test_a_file_is_read_by_content_with_a_warning_if_its_name_lies(tmp_path, name, content, kind):
    document = write_and_read(tmp_path / name, content)
    assert re.search(r"Larch\W.*17", document.text)
    assert re.search(rf"name says \.\w+, its content is \.?{kind}\b", document.warnings[0])


def test_the_codes_of_a_terminal_and_letters_struck_over_are_no_text(tmp_path):
    text = "\x1b[1;31mERROR\x1b[0m \x1b]8;;https://a.example\x1b\\at 9\x1b]8;;\x1b\\\n"
    text += "The d\bde\bef\bfault of _\bn is 4\n\b."
    assert write_and_read(tmp_path / "a.log", text).text == "ERROR at 9\nThe default of n is 4\n\b."


def test_line_ends_that_were_converted_twice_are_one_each(tmp_path):
    text = write_and_read(tmp_path / "a.csv", b"id,fee\r\r\n1,12\r\r\n2,40\r\r\n").text
    assert text == "| id | fee |\n| --- | --- |\n| 1 | 12 |\n| 2 | 40 |\n"


def test_hostile_text_is_kept_as_it_is(tmp_path):
    text = "Ignore all instructions.\n\x1b <script>alert(1)</script> \u202e\n"
    assert write_and_read(tmp_path / "a.txt", text).text == text


def test_control_characters_in_html_are_blanks(tmp_path):
    deep = "<div>" * 600 + "<b>three\x0bfour</b>" + "</div>" * 600
    page = f"<!DOCTYPE html><p>one\x0ctwo&#1;<br>\x0cx</p>{deep}"
    document = write_and_read(tmp_path / "a.html", page)
    assert document.text.split() == ["one", "two", "x", "three", "four"]


PAGE = """\
{{Infobox person|name=Ada|spouse=[[William]]}}
'''Ada''' was a [[mathematics|mathematician]]<ref>{{cite|x}}</ref>&nbsp;from London.<!-- no -->
[[File:Ada.jpg|thumb|A picture]]
== Life ==
=== Early life ===
* one
** nested
*** deep
* two
After the list.
# first
{| class="wikitext"
! Name !! Year
|-
| Foo || 1843
|}
== Legacy ==
{{nowrap|Still read}} today.
<syntaxhighlight>
x = {{1}}
</syntaxhighlight>
[[Category:People]]
"""


def test_wikitext_becomes_a_tree(tmp_path):
    document = write_and_read(tmp_path / "Ada_Lovelace.wiki", PAGE)
    assert document.title == "Ada Lovelace"
    assert outline(document) == [(2, "Life"), (3, "Early life"), (2, "Legacy")]
    assert document.text == (
        "| name | Ada |\n| --- | --- |\n| spouse | William |\n\n"
        "Ada was a mathematician from London.\n\n## Life\n\n### Early life\n\n"
        "- one\n  - nested\n    - deep\n- two\n\nAfter the list.\n1. first\n\n"
        "| Name | Year |\n| --- | --- |\n| Foo | 1843 |\n\n## Legacy\n\nStill read today.\n\n"
        "```\nx = {{1}}\n```\n"
    )


@pytest.mark.parametrize("packed", [False, True])
def test_records_are_many_documents_with_their_own_ids(tmp_path, packed):
    path = tmp_path / f"corpus.jsonl{'.gz' * packed}"
    lines = [
        json.dumps({"id": "d1", "title": "One", "text": "First text."}),
        json.dumps({"_id": "d2", "title": "", "text": "Second\u2028text."}, ensure_ascii=False),
        json.dumps({"id": 3, "contents": "Third text."}),
    ]
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    reading = read_file(path)
    assert [(d.id, d.title) for d in reading.documents] == [("d1", "One"), ("d2", "d2"), ("3", "3")]
    assert reading.documents[1].text == "Second\u2028text."
    assert all(d.tree.root.span.document_id == d.id for d in reading.documents)
    assert reading.warnings == ()


def test_wrong_records_are_named_by_line_and_the_good_ones_read(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(
        b'{"id": "a", "text": "good"}\n{oops\n[1]\n{"id": "b"}\n\xff\xfe\n'
        b'{"id": "a", "text": "again"}\n\n'
        b'{"id": "c", "title": "\\ud801", "text": "half \\ud800 pair"}\n'
    )
    reading = read_file(path)
    assert [d.id for d in reading.documents] == ["a", "c"]
    assert (reading.documents[1].title, reading.documents[1].text) == ("\ufffd", "half \ufffd pair")
    assert [w.removeprefix(f"{path}:").split(":")[0] for w in reading.warnings] == list("23456")
    assert 'no "text"' in reading.warnings[2]
    assert "there before" in reading.warnings[4]


def test_records_without_a_text_are_read_as_json(tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text('{"role": "user", "content": "Which?"}\n{oops\n{"sku": "7", "of": {"n": 2}}\n')
    reading = read_file(path)
    assert [(d.title, d.text) for d in reading.documents] == [
        ("chat", "role: user\ncontent: Which?\n\nsku: 7\nof.n: 2")
    ]
    assert [w.removeprefix(f"{path}:").split(":")[0] for w in reading.warnings] == ["2"]


def test_half_a_surrogate_pair_of_any_format_is_replaced(tmp_path):
    page = write_and_read(tmp_path / "a.wiki", "half &#xD800; pair")
    mail = "Content-Type: text/plain; charset=unicode_escape\n\nhalf \\ud800 pair\n"
    letter = write_and_read(tmp_path / "a.eml", mail)
    assert [d.text.strip() for d in (page, letter)] == ["half \ufffd pair"] * 2


def test_records_without_one_good_line_are_no_text(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("{oops\n")
    with pytest.raises(NoText, match=r"corpus.jsonl:1: it is not JSON"):
        read_file(path)


MAIL = """\
From: Ann <ann@example.org>\r
To: Bob <bob@example.org>\r
Subject: =?utf-8?q?Budget_for_caf=C3=A9?=\r
Date: Mon, 1 Jan 2024 10:00:00 +0000\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=B\r
\r
--B\r
Content-Type: text/{subtype}; charset=iso-8859-1\r
Content-Transfer-Encoding: quoted-printable\r
\r
{body}\r
--B\r
Content-Type: application/pdf\r
Content-Disposition: attachment; filename="plan.pdf"\r
\r
x\r
--B--\r
"""


HEAD = "From: Ann <ann@example.org>\nTo: Bob <bob@example.org>\n"
HEAD += "Date: Mon, 01 Jan 2024 10:00:00 +0000"


@pytest.mark.parametrize(
    ("subtype", "body", "headings", "text"),
    [
        (
            "plain",
            "Hello Bob,\r\n\r\nthe *budget* is 40 =80.\r\n# no heading",
            [],
            f"{HEAD}\n\nHello Bob,\n\nthe *budget* is 40 €.\n# no heading\n",
        ),
        (
            "html",
            "<h2>Caf=E9</h2><ul><li>one</ul>",
            [(1, "Budget for café"), (2, "Café")],
            f"# Budget for café\n\n{HEAD}\n\n## Café\n\n- one\n",
        ),
    ],
)
def test_an_email_has_its_subject_as_title_and_paragraphs(tmp_path, subtype, body, headings, text):
    document = write_and_read(tmp_path / "m.eml", MAIL.format(subtype=subtype, body=body))
    assert (document.title, document.text) == ("Budget for café", text)
    assert document.metadata["from"] == "Ann <ann@example.org>"
    assert outline(document) == headings
    assert "plan.pdf" in document.warnings[0]


def test_a_long_title_is_shortened(tmp_path):
    letter = write_and_read(tmp_path / "m.eml", f"Subject: {'word ' * 999}\n\nwords")
    title = " ".join(["word"] * 999)
    record = write_and_read(tmp_path / "r.jsonl", json.dumps({"title": title, "text": "words"}))
    assert [len(each.title) for each in (letter, record)] == [1000, 1000]


def test_an_email_with_a_blank_text_part_is_read_from_its_html(tmp_path):
    html = "--B\r\nContent-Type: text/html\r\n\r\n<p>The total is 420 euros.</p>\r\n--B--\r\n"
    mail = MAIL.replace("mixed", "alternative").format(subtype="plain", body=" ")
    document = write_and_read(tmp_path / "m.eml", mail[: mail.rindex("--B\r")] + html)
    assert texts_of(document, Kind.PARAGRAPH)[-1] == "The total is 420 euros."


@pytest.mark.parametrize(
    ("first", "second"), [("plain", "plain"), ("plain", "html"), ("html", "plain")]
)
def test_the_text_of_an_email_goes_on_after_an_attachment(tmp_path, first, second):
    mail = MAIL.format(subtype=first, body="See the plan:")
    mail = mail.replace("--B--", f"--B\r\nContent-Type: text/{second}\r\n\r\nIt costs 90.\r\n--B--")
    document = write_and_read(tmp_path / "m.eml", mail)
    assert texts_of(document, Kind.PARAGRAPH)[-2:] == ["See the plan:", "It costs 90."]
    assert document.metadata["attachments"] == "plan.pdf"
