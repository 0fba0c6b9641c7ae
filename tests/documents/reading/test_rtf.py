"""RTF, as Word and other programs write it."""

from pathlib import Path

import pytest

from colligate.documents.reading import read_file
from colligate.errors import CorruptFile
from support.documents import outline, write_and_read

HEAD = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Arial;}{\f3\fcharset2 Symbol;}"
    r"{\f5\fcharset204 Arial Cyr;}{\f6\fcharset128 Gothic;}}{\colortbl;\red0;}"
    r"{\stylesheet{\ql Normal;}{\s1\outlinelevel0 heading 1;}}{\*\generator Any;}"
)


def read(tmp_path: Path, body: str) -> str:
    return write_and_read(tmp_path / "a.rtf", f"{HEAD}{body}}}").text


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (r"{\s1 Rules\par}\pard One\line two.\par Three", "# Rules\n\nOne\ntwo.\n\nThree"),
        (r"{\strike 30}{\strike  or 31} 45.\par {\strike\strike0 a}", "~~30 or 31~~ 45.\n\na"),
        (r"It is {\deleted\revauthdel1 30}{\revised 45}.", "It is 45."),
        (r"caf\'e9 \u8364?\emdash\lquote x\rquote\~\{\\\}", "café €—‘x’ {\\\\}"),
        (r"\uc2\u8364\'80\'80\uc0\u233 x\u-10179\u-8704", "€éx😀"),
        (r"{\f5 \'cf\'f0\'e8}{\f6 \'93\'fa} 10{\super 6}", "При日 10^6"),
        (
            r"{\listtext\pard 4.2\tab}\pard Clause.\par{\listtext (a)\tab}\pard\ilvl1 Or.\par",
            "4.2 Clause.\n\n(a) Or.",
        ),
        (
            r"{\listtext\f3\'b7\tab}\pard a\par{\listtext o\tab}\pard\ilvl1 b\par"
            r"{\listtext\f3\'b7\tab}\pard c\par\pard{\pntext 3.\tab}d\par{\pntext 4.\tab}e\par",
            "- a\n  * b\n- c\n\n3. d\n4. e",
        ),
        (
            r"It is let{\super\chftn{\footnote\pard{\super\chftn} By the {\strike hour} day.}}."
            r"{\*\atnauthor Ann}{\*\annotation\pard Check.}\par End.",
            "It is let.\n\n[Note 1] By the ~~hour~~ day.\n\n[Comment by Ann] Check.\n\nEnd.",
        ),
        (
            r"{\header\pard Hall\tab {\field{\*\fldinst PAGE}{\fldrslt 3}}\par}{\footerf Hall}x",
            "x\n\n[Page header] Hall\n\n[Page footer] Hall",
        ),
        (r"See {\field{\*\fldinst REF _R \\r}{\fldrslt 4.2}}.{\xe{x}}{\pict 8950}", "See 4.2."),
        (r"a{\shp{\*\shpinst{\sp{\sn b}{\sv c}}{\shptxt\pard d\par}}{\shprslt d}}", "ad"),
        (r"a\bin4 }}}}b{\*\unknown c{d}}", "ab"),
    ],
)
def test_what_rtf_shows_is_read(tmp_path, body, shown):
    assert read(tmp_path, body) == f"{shown}\n"


ROW = r"\trowd{}\pard\intbl {}\row "


def test_tables_keep_their_columns_and_merged_cells(tmp_path):
    edges = r"{}\cellx1000\cellx2000\cellx3000"
    text = read(
        tmp_path,
        ROW.format(r"\trhdr\cellx1000\cellx3010", r"Van\cell Loads\cell")
        + ROW.format(rf"\trhdr{edges}", r"\cell t\cell kg\par net\cell")
        + ROW.format(edges.format(r"\clvmgf"), r"Wren\cell 1\cell 2\cell")
        + ROW.format(edges.format(r"\clvmrg"), r"\cell 3\cell 4\nestcell 5\nestrow\cell")
        + r"\pard After.\par",
    )
    assert text == (
        "| Van | Loads t | Loads kg net |\n| --- | --- | --- |\n| Wren | 1 | 2 |\n"
        "| Wren | 3 | 4, 5 |\n\nAfter.\n"
    )


def test_rtf_says_who_made_it_and_what_is_not_read(tmp_path):
    facts = r"{\info{\title Rules}{\author Ann}{\creatim\yr2024\mo3\dy5}{\operator Bo}}"
    content = rf"{HEAD}{facts}Shown{{\v hidden}}{{\object\objemb{{\*\objdata 00}}}}\par}}"
    document = write_and_read(tmp_path / "a.rtf", content)
    assert (document.text, document.title, outline(document)) == ("Shown\n", "Rules", [])
    assert (document.authors, document.date) == ("Ann", "2024-03-05")
    assert [warning.partition(": ")[2] for warning in document.warnings] == [
        "hidden text is not read",
        "embedded files are not read",
    ]


@pytest.mark.parametrize("content", [r"{\rtf1 cut \'e", r"{\rtf1 a}}}}b", r"{\rtf1\cell\row\u\f a"])
def test_damaged_rtf_is_read_as_far_as_it_goes(tmp_path, content):
    assert write_and_read(tmp_path / "a.rtf", content).text.strip()


def test_groups_that_nest_too_deeply_are_refused(tmp_path):
    (tmp_path / "a.rtf").write_text(r"{\rtf1 " + "{" * 100_000)
    with pytest.raises(CorruptFile, match="nest"):
        read_file(tmp_path / "a.rtf")
