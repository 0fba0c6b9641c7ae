"""Office files made by hand, member by member."""

import io
import zipfile
from collections.abc import Sequence

import docx
from docx.oxml import parse_xml

from support.documents import pack

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def relations(*targets: tuple[str, str, str]) -> str:
    """The relationships of a part: (id, type, target) each."""
    listed = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for name, kind, target in targets
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{listed}</Relationships>'


def word(*paragraphs: tuple[str, str], inside: str = "", table: Sequence[str] = ()) -> bytes:
    """A Word document of paragraphs, (style, text) each, of XML in the last, and of a row."""
    made = docx.Document()
    made.core_properties.title = ""
    for style, text in paragraphs:
        last = made.add_paragraph(text, style)
    if inside:
        last._p.append(parse_xml(inside))
    if table:
        cells = made.add_table(1, len(table)).rows[0].cells
        for cell, text in zip(cells, table, strict=True):
            cell.text = text
    saved = io.BytesIO()
    made.save(saved)
    return saved.getvalue()


def with_members(data: bytes, members: dict[str, str]) -> bytes:
    """Return an archive with these members added or replaced."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return pack({name: archive.read(name) for name in archive.namelist()} | members)


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


def slides(*contents: str, shown: Sequence[int] = ()) -> bytes:
    """A deck of shapes; `shown` are the numbers of the slides in their order, all by default."""
    numbers = range(1, len(contents) + 1)
    ids = "".join(f'<p:sldId id="{255 + i}" r:id="r{i}"/>' for i in shown or numbers)
    related = relations(*((f"r{i}", "slide", f"slides/slide{i}.xml") for i in numbers))
    listed = f"<p:presentation {P} {R}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"
    members = {"ppt/presentation.xml": listed, "ppt/_rels/presentation.xml.rels": related}
    for i, content in zip(numbers, contents, strict=True):
        tree = f"<p:cSld><p:spTree>{content}</p:spTree></p:cSld>"
        members[f"ppt/slides/slide{i}.xml"] = f"<p:sld {A} {P} {R}>{tree}</p:sld>"
    return pack(members)


SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def row_xml(number: int, cells: Sequence[str], more: str = "") -> str:
    """A row of a sheet: texts and, where they are digits, numbers."""
    written = "".join(
        f'<c r="{chr(65 + at)}{number}"><v>{cell}</v></c>'
        if cell.replace(".", "").isdigit()
        else f'<c r="{chr(65 + at)}{number}" t="inlineStr"><is><t>{cell}</t></is></c>'
        for at, cell in enumerate(cells)
        if cell
    )
    return f'<row r="{number}" {more}>{written}</row>'


URN = "urn:oasis:names:tc:opendocument:xmlns"


def open_document(kind: str, body: str, styles: str = "") -> bytes:
    spaces = " ".join(
        f'xmlns:{short}="{URN}:{name}:1.0"'
        for short, name in (("o", "office"), ("x", "text"), ("t", "table"), ("s", "style"))
    )
    inside = f"<o:body><o:{kind}>{body}</o:{kind}></o:body>"
    content = f"<o:document-content {spaces}>{styles}{inside}</o:document-content>"
    mimetype = f"application/vnd.oasis.opendocument.{kind}"
    return pack({"mimetype": mimetype, "content.xml": content})


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SPACES = " ".join(
    f'xmlns:{short}="{name}"'
    for short, name in {
        "w": W,
        "r": OFFICE,
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "v": "urn:schemas-microsoft-com:vml",
        "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "w14": "http://schemas.microsoft.com/office/word/2010/wordml",
        "c": "http://schemas.openxmlformats.org/drawingml/2006/chart",
    }.items()
)


def word_xml(body: str, **parts: str) -> bytes:
    """A Word document of the XML of its body, and that of other parts by their names."""
    members = {f"word/{name}.xml": f"<w:{name} {SPACES}>{parts[name]}</w:{name}>" for name in parts}
    main = f"<w:document {SPACES}><w:body>{body}</w:body></w:document>"
    return with_members(word(("Normal", "")), members | {"word/document.xml": main})


def line(*runs: str, properties: str = "") -> str:
    """The XML of a paragraph: each run is its text, or XML."""
    inside = "".join(
        run if run.startswith("<") else f'<w:r><w:t xml:space="preserve">{run}</w:t></w:r>'
        for run in runs
    )
    return f"<w:p><w:pPr>{properties}</w:pPr>{inside}</w:p>"


def open_cell(text: str, repeated: str = "") -> str:
    return f"<t:table-cell {repeated}><x:p>{text}</x:p></t:table-cell>"
