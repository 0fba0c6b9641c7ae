"""Texts in OpenDocument: numbers, notes, comments, merged cells and what is struck out."""

import pytest

from support.documents import write_and_read
from support.office import open_cell, open_document, with_members


def open_item(text: str, *inner: str) -> str:
    nested = f"<x:list>{''.join(inner)}</x:list>" if inner else ""
    return f"<x:list-item><x:p>{text}</x:p>{nested}</x:list-item>"


def open_level(at: int, form: str, more: str = 's:num-suffix="."') -> str:
    return f'<x:level x:level="{at}" s:num-format="{form}" {more}/>'


LEVELS = open_level(1, "1") + open_level(2, "1", 'x:display-levels="2"')
PREFIX = 's:num-prefix="(" s:num-suffix=")"'
STYLES = (
    f'<x:list-style s:name="L">{LEVELS}{open_level(3, "a", PREFIX)}</x:list-style>'
    f"<x:outline-style>{LEVELS}</x:outline-style>"
    '<s:style s:name="S"><s:text-properties s:text-line-through-style="solid"/></s:style>'
    '<s:style s:name="P" s:parent-style-name="S"/><s:style s:name="N">'
    '<s:text-properties s:text-line-through-style="none"/></s:style>'
    '<s:style s:name="H"><s:text-properties x:display="none"/></s:style>'
)
COVERED = "<t:covered-table-cell/>"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            '<x:list x:style-name="L">'
            + open_item("Term", open_item("Ends.", open_item("at once")), open_item("Stays."))
            + '</x:list><x:p>x</x:p><x:list x:style-name="L" x:continue-numbering="true">'
            + f'{open_item("Fees")}</x:list><x:list x:style-name="L">{open_item("New")}</x:list>',
            "1. Term\n\n   1.1 Ends.\n\n   (a) at once\n\n   1.2 Stays.\n\nx\n\n2. Fees\n\n1) New",
        ),
        (
            '<x:h x:outline-level="1">A</x:h><x:h x:outline-level="2">B</x:h>'
            '<x:h x:outline-level="2">C</x:h><x:h x:outline-level="1">D</x:h>',
            "# 1. A\n\n## 1.1 B\n\n## 1.2 C\n\n# 2. D",
        ),
        (
            '<x:tracked-changes><x:p>gone</x:p></x:tracked-changes><x:p><x:span x:style-name="S">30'
            '</x:span> 45<x:span x:style-name="H">x</x:span></x:p>',
            "~~30~~ 45",
        ),
        (
            '<x:p x:style-name="P">Pay <x:span x:style-name="S">30</x:span>.</x:p>'
            '<x:p x:style-name="P"/><x:p x:style-name="P">A<x:span x:style-name="N">b</x:span>'
            '</x:p><x:p>A <x:span x:style-name="P">fee</x:span></x:p>',
            "~~Pay 30.~~\n\nAb\n\nA ~~fee~~",
        ),
        (
            "<x:p>A<x:note><x:note-citation>1</x:note-citation><x:note-body><x:p>Note.</x:p>"
            "</x:note-body></x:note> b<o:annotation><creator>Ann</creator><x:p>Why?</x:p>"
            "</o:annotation><f><text-box><x:p>Box.</x:p></text-box></f>.</x:p><x:p>End.</x:p>",
            "A b.\n\n[Note 1] Note.\n\n[Comment by Ann] Why?\n\nBox.\n\nEnd.",
        ),
        (
            "<t:table><t:table-header-rows><t:table-row>"
            + open_cell("Van", 't:number-rows-spanned="2"')
            + open_cell("Loads", 't:number-columns-spanned="2"')
            + f"{COVERED}</t:table-row><t:table-row>{COVERED}{open_cell('t')}{open_cell('kg')}"
            + "</t:table-row></t:table-header-rows><t:table-row>"
            + open_cell("Wren", 't:number-rows-spanned="2"')
            + f"{open_cell('1')}{open_cell('2')}</t:table-row><t:table-row>{COVERED}"
            + f"{open_cell('3')}{open_cell('4')}</t:table-row></t:table>",
            "| Van | Loads t | Loads kg |\n| --- | --- | --- |\n| Wren | 1 | 2 |\n| Wren | 3 | 4 |",
        ),
    ],
)
def test_an_opendocument_text_is_read_as_shown(tmp_path, body, shown):
    page = "<p>Hall<tab/>Page <page-number>3</page-number></p>"
    styles = f"<a><master-page><header>{page}</header></master-page></a>"
    content = with_members(open_document("text", body, STYLES), {"styles.xml": styles})
    document = write_and_read(tmp_path / "a.odt", content)
    assert document.text == f"{shown}\n\n[Page header] Hall\n"
    assert len(document.warnings) == body.count('"H"')
