"""What stands beside the text of a Word document: numbers, notes, boxes, comments, changes."""

import pytest

from support.documents import outline, write_and_read
from support.office import line, relations, with_members, word_xml


def level(at: int, form: str, text: str, more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def numbering(*kinds: str, more: str = "") -> str:
    """Lists 1, 2, ... of these levels, and others."""
    made = [
        f'<w:abstractNum w:abstractNumId="{n}">{k}</w:abstractNum>' for n, k in enumerate(kinds)
    ]
    for n in range(len(kinds)):
        made.append(f'<w:num w:numId="{n + 1}"><w:abstractNumId w:val="{n}"/></w:num>')
    return "".join(made) + more


def item(text: str, at: int = 0, number: int = 1, style: str = "") -> str:
    place = f'<w:ilvl w:val="{at}"/><w:numId w:val="{number}"/>'
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return line(text, properties=f"{styled}<w:numPr>{place}</w:numPr>")


CLAUSE = level(0, "decimal", "%1.") + level(1, "decimal", "%1.%2") + level(2, "lowerLetter", "(%3)")


def test_clauses_have_the_numbers_that_word_shows(tmp_path):
    body = (
        item("Definitions", style="Heading1")
        + item("Boat means a hull.", 1)
        + item("Term", style="Heading1")
        + item("Three months:", 1)
        + item("in writing;", 2)
        + item("by hand.", 2)
        + line("A line between.")
        + item("It ends at once:", 1)
        + item("if unpaid.", 2)
    )
    document = write_and_read(tmp_path / "a.docx", word_xml(body, numbering=numbering(CLAUSE)))
    assert document.text.split("\n\n") == [
        *("# 1. Definitions", "1.1 Boat means a hull.", "# 2. Term", "2.1 Three months:"),
        *("(a) in writing;", "(b) by hand.", "A line between."),
        *("2.2 It ends at once:", "(a) if unpaid.\n"),
    ]
    assert outline(document) == [(1, "1. Definitions"), (1, "2. Term")]


RESTARTED = (
    '<w:num w:numId="9"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0">'
    '<w:startOverride w:val="1"/></w:lvlOverride></w:num>'
)


@pytest.mark.parametrize(
    ("kinds", "body", "shown"),
    [
        (level(0, "decimal", "%1."), item("a") + line("x") + item("b"), "1. a\n\nx\n\n2. b\n"),
        (level(0, "decimal", "%1."), item("a") + line("x") + item("b", 0, 9), "x\n\n1. b\n"),
        (level(0, "upperRoman", "Article %1"), item("a") * 4, "Article IV a\n"),
        (
            level(0, "upperRoman", "%1.") + level(1, "decimal", "%1.%2", "<w:isLgl/>"),
            item("a") * 2 + item("b", 1),
            "2.1 b\n",
        ),
        (
            level(0, "upperRoman", "%1.") + level(1, "decimalZero", "%1.%2", "<w:isLgl/>"),
            item("a") * 2 + item("b", 1),
            "2.01 b\n",
        ),
        (level(0, "chineseCounting", "第%1条"), item("a") * 36, "第三十六条 a\n"),
        (level(0, "decimal", "Proposal %1:"), item("a") * 3, "Proposal 3: a\n"),
        (level(0, "bullet", "o"), item("a") * 2, "- a\n- a\n"),
        (level(0, "decimalZero", "%1"), item("a"), "01 a\n"),
        (
            level(0, "decimal", "%1.", '<w:pStyle w:val="Quote"/>'),
            line("a", properties='<w:pStyle w:val="Quote"/>'),
            "1. a\n",
        ),
        ("", item("a", 3, 7), "a\n"),  # of a list that is not defined
    ],
)
def test_a_number_follows_its_list(tmp_path, kinds, body, shown):
    parts = {"numbering": numbering(kinds, more=RESTARTED)}
    if "Quote" in kinds:
        parts["styles"] = (
            '<w:style w:type="paragraph" w:styleId="Quote"><w:name w:val="Quote"/><w:pPr><w:numPr>'
            '<w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
        )
    assert write_and_read(tmp_path / "a.docx", word_xml(body, **parts)).text.endswith(shown)


def noted(kind: str, number: int) -> str:
    return f'<w:r><w:{kind}Reference w:id="{number}"/></w:r>'


def note(kind: str, number: int, text: str, more: str = "") -> str:
    return f'<w:{kind} w:id="{number}" {more}>{line(text)}</w:{kind}>'


MARKED = noted("footnote", 2).replace("<w:r>", "<w:r><w:t> Or</w:t>")  # a mark of its own: *
MARKED = MARKED.replace("/></w:r>", ' w:customMarkFollows="1"/><w:t>*</w:t></w:r>')


def test_notes_and_comments_stand_below_their_paragraph(tmp_path):
    row = f"<w:tr><w:tc>{line('Total', noted('footnote', 3))}</w:tc><w:tc>{line('9')}</w:tc></w:tr>"
    content = word_xml(
        line("It is let.", MARKED, " It is sold.", noted("endnote", 2))
        + line("The price", noted("comment", 0), " is 7 euros.")
        + f"<w:tbl>{row}{row.replace('Total', 'All').replace(noted('footnote', 3), '')}</w:tbl>"
        + line("End."),
        footnotes=note("footnote", 2, "By the day.") + note("footnote", 3, "Without tax."),
        endnotes=note("endnote", 2, "Once."),
        comments=note("comment", 0, "Per hour?", 'w:author="Ann"'),
    )
    assert write_and_read(tmp_path / "a.docx", content).text == (
        "It is let. Or It is sold.\n\n[Note 1] By the day.\n\n[Note i] Once.\n\nThe price is "
        "7 euros.\n\n[Comment by Ann] Per hour?\n\n| Total | 9 |\n| --- | --- |\n| All | 9 |\n\n"
        "[Note 2] Without tax.\n\nEnd.\n"
    )


def box(text: str) -> str:
    return f"<w:txbxContent>{line(text)}</w:txbxContent>"


BOXES = (
    '<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wp:anchor><wps:txbx>'
    f"{box('Call 0555.')}</wps:txbx></wp:anchor></w:drawing></mc:Choice><mc:Fallback><w:pict>"
    f"<v:textbox>{box('Call 0555.')}</v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    f"<w:r><w:drawing><wp:inline><wps:txbx>{box('Ring.')}</wps:txbx></wp:inline></w:drawing></w:r>"
)


def run(text: str, properties: str) -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def ticked(value: int) -> str:
    return (
        f'<w:sdt><w:sdtPr><w14:checkbox><w14:checked w14:val="{value}"/></w14:checkbox></w:sdtPr>'
        "<w:sdtContent><w:r><w:t>X</w:t></w:r></w:sdtContent></w:sdt>"
    )


def math(inside: str) -> str:
    return f"<m:oMath>{inside}</m:oMath>"


def part(name: str, text: str) -> str:
    return f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>"


FRACTION = f"<m:f>{part('num', 'a+1')}{part('den', 'b')}</m:f>"
SIGN = '<m:naryPr><m:chr m:val="∑"/></m:naryPr>'
SUM = f"<m:nary>{SIGN}{part('sub', 'i=1')}{part('sup', 'n')}</m:nary>"
DELETED = '<w:del w:author="A"><w:r><w:delText>30</w:delText></w:r></w:del>'
DELETED_ROW = f"<w:tr><w:trPr><w:del/></w:trPr><w:tc>{line('no')}</w:tc></w:tr>"
NESTED = f"<w:tbl><w:tr><w:tc>{line('i')}</w:tc><w:tc>{line('j')}</w:tc></w:tr></w:tbl>"
CHOICE = (
    '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:result w:val="1"/>'
    '<w:listEntry w:val="North"/><w:listEntry w:val="South"/></w:ddList></w:ffData></w:fldChar>'
    "</w:r>"
    "<w:r><w:instrText> FORMDROPDOWN </w:instrText></w:r>"
    '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
)
REFERENCE = (
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> REF _R1 \\r </w:instrText>'
    '</w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>4.2</w:t></w:r>'
    '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
)


def rows(*texts: tuple[str, ...]) -> str:
    made = ("".join(f"<w:tc>{line(text)}</w:tc>" for text in row) for row in texts)
    return "".join(f"<w:tr>{row}</w:tr>" for row in made)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (line("Help. ", BOXES, "More."), "Help. More.\n\nCall 0555.\n\nRing."),
        (line("It is ", DELETED, "<w:ins><w:r><w:t>45</w:t></w:r></w:ins>"), "It is 45"),
        (
            line("a", "<w:moveFrom><w:r><w:t>b</w:t></w:r></w:moveFrom>")
            + line("<w:moveTo><w:r><w:t>b</w:t></w:r></w:moveTo>"),
            "a\n\nb",
        ),
        (line(run("30", "<w:strike/>"), run("40", "<w:dstrike/>"), " 45"), "~~3040~~ 45"),
        (line(run("a", '<w:vanish w:val="0"/>'), run("x", "<w:vanish/>")), "a"),
        (line(ticked(1), " Meals") + line(ticked(0), " Bed"), "☒ Meals\n\n☐ Bed"),
        (
            '<w:tbl><w:tr><w:trPr><w:gridBefore w:val="1"/></w:trPr>'
            f"<w:tc>{line('B')}</w:tc></w:tr>{rows(('c', 'd'))}</w:tbl>",
            "|  | B |\n| --- | --- |\n| c | d |",
        ),
        (line("Depot: ", CHOICE), "Depot: South"),
        (line("See clause ", REFERENCE, "."), "See clause 4.2."),
        (line("y = ", math(FRACTION + SUM)), "y = (a+1)/b∑_(i=1)^n"),
        (f"<w:p><m:oMathPara>{math(part('e', 'x'))}</m:oMathPara></w:p>", "x"),
        (
            f"<w:tbl>{rows(('a', 'b'), ('c', 'd'))}{DELETED_ROW}</w:tbl>",
            "| a | b |\n| --- | --- |\n| c | d |",
        ),
        (
            f"<w:tbl><w:tr><w:tc>{line('a')}</w:tc><w:tc>{NESTED}<w:p/></w:tc></w:tr>"
            f"{rows(('b', 'c'))}</w:tbl>",
            "| a | i, j |\n| --- | --- |\n| b | c |",
        ),
        (f"<w:tbl>{rows(('A notice in a frame.',))}</w:tbl>", "A notice in a frame."),
    ],
)
def test_what_is_shown_is_read_once(tmp_path, body, shown):
    document = write_and_read(tmp_path / "a.docx", word_xml(body))
    assert document.text == f"{shown}\n"
    assert len(document.warnings) == body.count("<w:vanish/>")


def test_the_header_of_all_pages_is_read_once_and_without_their_numbers(tmp_path):
    names = ("header1", "header2", "footer1")
    listed = "".join(f'<w:{name[:6]}Reference r:id="{name}"/>' for name in names)
    page = '<w:fldSimple w:instr=" PAGE "><w:r><w:t>3</w:t></w:r></w:fldSimple>'
    content = with_members(
        word_xml(
            line("Text.") + f"<w:sectPr>{listed}</w:sectPr>",
            header1=line("River Hall"),
            header2=line("River Hall"),
            footer1=line("Draft", "<w:r><w:tab/></w:r>", "Page ", page),
        ),
        {"word/_rels/document.xml.rels": relations(*((n, "header", f"{n}.xml") for n in names))},
    )
    shown = write_and_read(tmp_path / "a.docx", content).text
    assert shown == "Text.\n\n[Page header] River Hall\n\n[Page footer] Draft\n"


def test_what_of_a_word_document_is_not_read_is_said(tmp_path):
    chart = '<w:r><w:drawing><wp:inline><c:chart r:id="c"/></wp:inline></w:drawing></w:r>'
    content = with_members(word_xml(line("x", chart)), {"word/embeddings/a.bin": "?"})
    document = write_and_read(tmp_path / "b.docx", content)
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "embedded files are not read",
        "a chart or a diagram is not read",
    ]
