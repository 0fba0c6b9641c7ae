"""DOCX through mammoth, whose HTML is then read like any page's.

kreuzberg's own DOCX reader (4.10.4) loses every "&", "<" and ">" of the text, flattens nested
lists and does not see lists that a style makes; mammoth does none of this.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading.limits import check_archive
from colligate.documents.reading.markup import parse_html
from colligate.documents.reading.source import Source, markdown_document
from colligate.errors import CorruptFile

# Styles beyond mammoth's own map. "List Bullet 2" is the second level of a list to its reader.
_STYLES = "\n".join(
    [
        "p[style-name='Title'] => h1.title:fresh",
        *(f"p[style-name='heading {n}'] => h6:fresh" for n in (7, 8, 9)),
        *(
            f"p[style-name='List {kind} {n}'] => "
            + " > ".join(["ul|ol > li"] * (n - 1))
            + f" > {tag} > li:fresh"
            for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
            for n in (2, 3, 4, 5)
        ),
    ]
)
_TITLE = re.compile(r'<h1 class="title">(.*?)</h1>')
_HEADING = re.compile(r"^(?=#{1,5} )", re.MULTILINE)
_CORE = "docProps/core.xml"
_PROPERTIES = {
    "title": "{http://purl.org/dc/elements/1.1/}title",
    "authors": "{http://purl.org/dc/elements/1.1/}creator",
    "subject": "{http://purl.org/dc/elements/1.1/}subject",
    "created_at": "{http://purl.org/dc/terms/}created",
    "modified_at": "{http://purl.org/dc/terms/}modified",
}


def read_docx(source: Source) -> Document:
    """A Word document; pictures are left out.

    Raises:
        ReadingError: if it is damaged, encrypted or unpacks to too much.
    """
    # Imported here: few files are DOCX, and every command would wait for it.
    import mammoth  # type: ignore[import-untyped]

    check_archive(source.data, str(source.path), source.limits)
    try:
        converted = mammoth.convert_to_html(
            io.BytesIO(source.data), style_map=_STYLES, convert_image=_no_picture
        )
        metadata = _metadata(source.data)
    except Exception as error:  # mammoth lets whatever the XML and zip readers raise through
        raise CorruptFile(
            f"cannot read {source.path}", f"it is damaged ({error})", "open and save it again"
        ) from error
    text = parse_html(source, converted.value).text
    titles = _TITLE.findall(converted.value)
    if len(titles) == 1 and text.startswith("# "):
        first, line_end, rest = text.partition("\n")
        text = first + line_end + _HEADING.sub("#", rest)  # the title stands above the headings
    return markdown_document(
        source,
        text,
        title=metadata.get("title") if not titles else None,
        metadata=metadata,
    )


def _no_picture(_: Any) -> list[Any]:
    return []


def _metadata(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if _CORE not in archive.namelist():
            return {}
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        core = etree.fromstring(archive.read(_CORE), parser)
    found = {name: (core.findtext(tag) or "").strip() for name, tag in _PROPERTIES.items()}
    return {name: value for name, value in found.items() if value}
