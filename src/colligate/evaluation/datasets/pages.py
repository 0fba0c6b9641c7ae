"""Documents that a corpus holds page by page: `NAME#p0`, `NAME#p1`, ..., counted from 0."""

from __future__ import annotations

import re

_PAGE = re.compile(r"(?P<document>.+)#p(?P<number>\d+)")


def page_of(id_: str) -> tuple[str, int] | None:
    """The document and the number, from 0, of an entry that is a page.

    >>> page_of("AMCOR_2023Q2_10Q#p12")
    ('AMCOR_2023Q2_10Q', 12)
    """
    found = _PAGE.fullmatch(id_)
    return None if found is None else (found["document"], int(found["number"]))


def document_of_page(id_: str) -> str:
    """The document of an entry: of a page the one it is of, else the entry itself."""
    page = page_of(id_)
    return id_ if page is None else page[0]
