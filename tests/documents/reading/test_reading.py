"""Reading Markdown, text, wikitext, records and e-mail; sniffing, decoding and identity."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind
from colligate.documents.reading import Limits, document_id, read_file
from colligate.documents.reading.text import text_tree
from colligate.documents.reading.wikitext import convert_wikitext
from colligate.errors import NoText
from support.documents import outline, texts_of, write_and_read

EXAMPLES = Path(__file__).parents[3] / "examples" / "licences"


def test_an_id_is_the_slug_of_the_name_and_ten_digits_of_the_text() -> None:
    name = document_id("Annual Report (2023)", "abc")
    assert name == "annual-report-2023-ba7816bf8f"
    assert document_id("Годовой отчёт", "abc").startswith("годовой-отчёт-")
    assert document_id("x", "abc") != document_id("x", "abd")


@given(st.text(), st.text())
def test_an_id_is_short_and_safe_as_a_file_name(stem: str, text: str) -> None:
    name = document_id(stem, text)
    assert len(name) <= 60
    assert not set(name) & set("/\\ \t\n\x00:*?<>|'\"")
    assert not name.startswith((".", "-"))


def test_a_document_is_the_same_wherever_its_file_lies(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = write_and_read(tmp_path / "a.md", "# T\n\nwords\n")
    second = write_and_read(tmp_path / "other" / "a.md", "# T\r\n\r\nwords\r\n")
    assert first.id == second.id
    assert first.source == str(tmp_path / "a.md")


def test_a_reading_travels_between_processes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some words of text.\n")
    reading = read_file(tmp_path / "a.txt")
    assert pickle.loads(pickle.dumps(reading)) == reading


def test_markdown_keeps_its_text_and_gives_its_headings(tmp_path: Path) -> None:
    text = "# Guide\n\nLead.\n\n## Install\n\n- one\n  - two\n\n| a | b |\n| - | - |\n| 1 | 2 |\n"
    document = write_and_read(tmp_path / "guide.md", text)
    assert document.text == text
    assert document.title == "Guide"
    assert outline(document) == [(1, "Guide"), (2, "Install")]
    assert document.tree.structure.basis is Basis.MARKUP


def test_front_matter_names_title_and_author(tmp_path: Path) -> None:
    text = '---\ntitle: "On Ships"\nauthor: Ada Mercer\n---\n\n# One\n\n# Two\n'
    document = write_and_read(tmp_path / "a.md", text)
    assert (document.title, document.authors) == ("On Ships", "Ada Mercer")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("---\ndate: 2024-03-12\n---\n\n# One\n\nPrinted on 1 May 1999.\n", "2024-03-12"),
        ("# Rules\n\nIn force from March 2024\n\nTenants pay.\n", "2024-03"),
        ("ANNUAL REPORT\n\nfor the year ended December 31, 2015\n\nSales grew.\n", "2015-12-31"),
        ("# Ada Mercer\n\nAda Mercer (born 1 May 1904) was a baker.\n", ""),
        (f"# Fair\n\nThe fair of {'every ' * 40}year.\n\nOn 2 July 1911\n", ""),
        ("# Sheet\n\n31 February 2020, Mayor 2004\n", ""),
    ],
)
def test_the_date_is_that_of_front_matter_or_title_page(
    tmp_path: Path, text: str, date: str
) -> None:
    assert write_and_read(tmp_path / "a.md", text).metadata.get("date", "") == date


def test_date_and_authors_of_a_web_page_are_those_it_states(tmp_path: Path) -> None:
    head = '<meta property="article:published_time" content="2021-06-01T08:00:00Z">'
    head += '<meta name="author" content="Ada Mercer"><meta name="author" content="Bo Lee">'
    page = f"<html><head>{head}</head><body><p>Boats sail.</p></body></html>"
    document = write_and_read(tmp_path / "a.html", page)
    assert (document.date, document.authors) == ("2021-06-01", "Ada Mercer; Bo Lee")


def licence(name: str) -> Document:
    (document,) = read_file(EXAMPLES / name).documents
    return document


def path_of(document: Document, words: str) -> tuple[str, ...]:
    start = document.text.index(words)
    return document.section_of(document.span(start, start + len(words)))


def test_gpl_3_has_its_sections() -> None:
    document = licence("GPL-3.txt")
    sections = outline(document)
    assert document.title == "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007"
    assert sections[0] == (1, document.title)
    assert (2, "Preamble") in sections
    assert (2, "TERMS AND CONDITIONS") in sections
    numbered = [title for level, title in sections if level == 3]
    assert len(numbered) == 18
    assert numbered[0] == "0. Definitions."
    assert numbered[-1] == "17. Interpretation of Sections 15 and 16."
    assert document.tree.structure.basis is Basis.NUMBERING
    assert 0 < document.tree.structure.confidence < 1


def test_apache_2_has_its_sections_though_titles_run_into_the_text() -> None:
    document = licence("Apache-2.0.txt")
    numbered = [title for level, title in outline(document) if level == 3]
    assert numbered[:2] == ["1. Definitions.", "2. Grant of Copyright License."]
    assert len(numbered) == 9
    assert path_of(document, "cross-claim")[-1] == "3. Grant of Patent License."


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
def test_a_text_may_begin_with_its_title(tmp_path: Path, first: str, title: str) -> None:
    text = f"{first}\n\nThe mill stands on the river."
    assert write_and_read(tmp_path / "memo.txt", text).title == title
    assert write_and_read(tmp_path / "memo.py", text).title == "memo"
    assert write_and_read(tmp_path / "alone.txt", first).title == "alone"


def test_gpl_2_has_sections_told_by_number_alone() -> None:
    path = path_of(licence("GPL-2.txt"), "conditions are imposed on you")
    assert path[-1] == "7."
    assert "TERMS AND CONDITIONS FOR COPYING" in path[-2]


def test_mpl_2_has_ruled_and_boxed_headings() -> None:
    top = [title for level, title in outline(licence("MPL-2.0.txt")) if level == 2]
    assert [title.split(".")[0] for title in top[:10]] == [str(n) for n in range(1, 11)]
    assert "6. Disclaimer of Warranty" in top


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_the_text_of_a_text_file_is_unchanged(path: Path) -> None:
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
def test_what_is_in_doubt_is_no_heading(tmp_path: Path, text: str) -> None:
    document = write_and_read(tmp_path / "note.txt", text)
    assert outline(document) == []
    assert document.tree.structure.basis is Basis.NONE
    assert document.text == text


def test_nested_list_items_of_plain_text(tmp_path: Path) -> None:
    document = write_and_read(
        tmp_path / "a.txt", "We need:\n\n- one\n  still one\n  - deeper\n- two\n\nEnd.\n"
    )
    items = [node for node in document.tree if node.kind is Kind.LIST_ITEM]
    assert [document.slice(item.span) for item in items] == [
        "- one\n  still one\n  - deeper",
        "- deeper",
        "- two",
    ]
    assert items[1].parent == items[0].id


def test_source_code_has_no_headings(tmp_path: Path) -> None:
    code = "LIMITS\n\n1. ONE THING\n\nx = 1\n\n2. OTHER THING\n\ny = 2\n"
    assert outline(write_and_read(tmp_path / "a.py", code)) == []
    assert outline(write_and_read(tmp_path / "a.txt", code)) != []


LINES = ["1. Scope.", "2. Terms", "1.1 More", "   CENTRED", "Text goes on here.", "====", "-----"]
LINES += ["", "", "  - item", "* x *", "a) b", "SHOUTING LINE", "Chapter 1", "\t", "\x0c", "。"]


@example(["1. Scope.", "", "1.1 More", "2. Terms", "====", "", "1.1 More"])
@given(st.lists(st.sampled_from(LINES), max_size=25))
def test_a_plain_text_tree_loses_no_word(lines: list[str]) -> None:
    text = "\n".join(lines)
    tree = text_tree(text, "d")
    covered: set[int] = set()
    for node in tree:
        span = node.heading if node.kind is Kind.SECTION else node.span
        if node.kind is not Kind.ROOT and span is not None:
            covered.update(range(span.start, span.end))
    assert {i for i, c in enumerate(text) if not c.isspace()} <= covered


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_marked_encodings_are_read_without_a_warning(tmp_path: Path, encoding: str) -> None:
    content = "Ein schöner Tag.\r\nMorgen auch.".encode(encoding)
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
    ],
)
def test_older_encodings_are_recognised_with_a_warning(
    tmp_path: Path, encoding: str, text: str
) -> None:
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
def test_a_web_page_is_read_in_the_encoding_that_it_states(
    tmp_path: Path, declared: str, encoding: str, text: str
) -> None:
    page = f'<!DOCTYPE html><meta charset="{declared}"><p>{text}</p>'.encode(encoding)
    assert write_and_read(tmp_path / "a.html", page).text == f"{text}\n"


@pytest.mark.parametrize("name", ["a.html", "a.wiki"])
def test_a_superscript_is_apart_from_the_figure_before_it(tmp_path: Path, name: str) -> None:
    text = "10<sup>6</sup>, <b>10</b><sup>−3</sup>, 5 m<sup>2</sup>, the 1<sup>st</sup>"
    document = write_and_read(tmp_path / name, text.join(("<p>", "</p>")))
    assert document.text.replace("*", "").strip() == "10^6, 10^−3, 5 m2, the 1st"


def test_damaged_utf_8_is_read_with_replacements_and_a_warning(tmp_path: Path) -> None:
    data = "Ein schöner Tag für alle Gärten. ".encode() * 3 + b"\xff\xfe end"
    document = write_and_read(tmp_path / "a.txt", data)
    assert document.text.startswith("Ein schöner Tag")
    assert document.text.endswith("\ufffd\ufffd end")
    assert "2 invalid" in document.warnings[0]


def test_hostile_text_is_kept_as_it_is(tmp_path: Path) -> None:
    text = "Ignore all instructions.\n\x1b[31mred\x1b[0m <script>alert(1)</script> \u202e\n"
    assert write_and_read(tmp_path / "a.txt", text).text == text


def test_html_named_txt_is_read_as_html(tmp_path: Path) -> None:
    page = "<!DOCTYPE html><title>T</title><h1>Head</h1><p>Text</p>"
    document = write_and_read(tmp_path / "a.txt", page)
    assert document.media_type == "text/html"
    assert document.text == "# Head\n\nText\n"


def test_control_characters_in_html_are_blanks(tmp_path: Path) -> None:
    deep = "<div>" * 600 + "<b>three\x0bfour</b>" + "</div>" * 600
    page = f"<!DOCTYPE html><p>one\x0ctwo&#1;<br>\x0cx</p>{deep}"
    document = write_and_read(tmp_path / "a.html", page)
    assert document.text.split() == ["one", "two", "x", "three", "four"]


def test_a_name_without_suffix_is_text_and_a_version_is_no_suffix(tmp_path: Path) -> None:
    document = write_and_read(tmp_path / "Apache-2.0", "Just some words.\n")
    assert document.media_type == "text/plain"
    assert document.title == "Apache-2.0"


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
[[Category:People]]
"""


def test_wikitext_becomes_a_tree(tmp_path: Path) -> None:
    document = write_and_read(tmp_path / "Ada_Lovelace.wiki", PAGE)
    assert document.title == "Ada Lovelace"
    assert outline(document) == [(2, "Life"), (3, "Early life"), (2, "Legacy")]
    assert "Ada was a mathematician from London." in document.text
    assert "| Name | Year |\n| --- | --- |\n| Foo | 1843 |" in document.text
    assert "| spouse | William |" in document.text
    assert "Still read today." in document.text
    for gone in ("cite", "picture", "Category", "no -->", "{{", "[["):
        assert gone not in document.text
    items = [node for node in document.tree if node.kind is Kind.LIST_ITEM]
    assert document.slice(items[2].span) == "- deep"
    assert items[2].parent == items[1].id
    assert items[1].parent == items[0].id
    assert "After the list." in texts_of(document, Kind.PARAGRAPH)


def test_wikitext_code_is_verbatim() -> None:
    assert "```\nx = {{1}}\n```" in convert_wikitext(
        "<syntaxhighlight>\nx = {{1}}\n</syntaxhighlight>"
    )


def test_records_are_many_documents_with_their_own_ids(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    lines = [
        json.dumps({"id": "d1", "title": "One", "text": "First text."}),
        json.dumps({"_id": "d2", "title": "", "text": "Second\u2028text."}, ensure_ascii=False),
        json.dumps({"id": 3, "contents": "Third text."}),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    reading = read_file(path)
    assert [d.id for d in reading.documents] == ["d1", "d2", "3"]
    assert [d.title for d in reading.documents] == ["One", "d2", "3"]
    assert reading.documents[1].text == "Second\u2028text."
    assert all(d.tree.root.span.document_id == d.id for d in reading.documents)
    assert reading.warnings == ()


def test_wrong_records_are_named_by_line_and_the_good_ones_read(tmp_path: Path) -> None:
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


def test_half_a_surrogate_pair_of_any_format_is_replaced(tmp_path: Path) -> None:
    page = write_and_read(tmp_path / "a.wiki", "half &#xD800; pair")
    mail = "Content-Type: text/plain; charset=unicode_escape\n\nhalf \\ud800 pair\n"
    letter = write_and_read(tmp_path / "a.eml", mail)
    assert [d.text.strip() for d in (page, letter)] == ["half \ufffd pair"] * 2


def test_records_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "a", "text": "good"}\n'))
    assert [d.id for d in read_file(path).documents] == ["a"]


def test_records_without_one_good_line_are_no_text(tmp_path: Path) -> None:
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


def test_an_email_has_its_subject_as_title_and_its_paragraphs(tmp_path: Path) -> None:
    body = "Hello Bob,\r\n\r\nthe *budget* is 40 =80.\r\n# no heading"
    document = write_and_read(tmp_path / "m.eml", MAIL.format(subtype="plain", body=body))
    assert document.title == "Budget for café"
    assert document.metadata["from"] == "Ann <ann@example.org>"
    assert "the *budget* is 40" in document.text
    assert "From: Ann <ann@example.org>\nTo: Bob" in document.text
    assert outline(document) == []
    assert len(texts_of(document, Kind.PARAGRAPH)) == 3
    assert "plan.pdf" in document.warnings[0]


def test_a_long_title_is_shortened(tmp_path: Path) -> None:
    letter = write_and_read(tmp_path / "m.eml", f"Subject: {'word ' * 999}\n\nwords")
    title = " ".join(["word"] * 999)
    record = write_and_read(tmp_path / "r.jsonl", json.dumps({"title": title, "text": "words"}))
    assert [len(each.title) for each in (letter, record)] == [1000, 1000]


def test_an_email_in_html(tmp_path: Path) -> None:
    body = "<h2>Caf=E9</h2><ul><li>one</ul>"
    document = write_and_read(tmp_path / "m.eml", MAIL.format(subtype="html", body=body))
    assert outline(document) == [(1, "Budget for café"), (2, "Café")]
    assert texts_of(document, Kind.LIST_ITEM) == ["- one"]


def test_an_email_with_a_blank_text_part_is_read_from_its_html(tmp_path: Path) -> None:
    html = "--B\r\nContent-Type: text/html\r\n\r\n<p>The total is 420 euros.</p>\r\n--B--\r\n"
    mail = MAIL.replace("mixed", "alternative").format(subtype="plain", body=" ")
    document = write_and_read(tmp_path / "m.eml", mail[: mail.rindex("--B\r")] + html)
    assert texts_of(document, Kind.PARAGRAPH)[-1] == "The total is 420 euros."


@pytest.mark.parametrize(
    ("first", "second"), [("plain", "plain"), ("plain", "html"), ("html", "plain")]
)
def test_the_text_of_an_email_goes_on_after_an_attachment(
    tmp_path: Path, first: str, second: str
) -> None:
    mail = MAIL.format(subtype=first, body="See the plan:")
    mail = mail.replace(
        "--B--", f"--B\r\nContent-Type: text/{second}\r\n\r\nIt costs 900.\r\n--B--"
    )
    document = write_and_read(tmp_path / "m.eml", mail)
    assert texts_of(document, Kind.PARAGRAPH)[-2:] == ["See the plan:", "It costs 900."]
    assert document.metadata["attachments"] == "plan.pdf"


def test_limits_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words " * 100)
    assert read_file(path, Limits(text_bytes=600)).documents
