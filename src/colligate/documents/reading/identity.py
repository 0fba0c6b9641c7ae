"""The name of a document: what its file is called and what it says."""

from __future__ import annotations

import re

from colligate.documents.document import digest

_STEM_LENGTH = 40


def document_id(stem: str, text: str) -> str:
    """A stable, readable id: the file's stem as a slug, and ten hexadecimal digits of its text.

    Letters and digits of every script, dots and hyphens stay; all else becomes one hyphen.

    >>> document_id("Annual Report (2023)", "")
    'annual-report-2023-e3b0c44298'
    """
    slug = re.sub(r"(?:[^\w.]|_)+", "-", stem.lower())[:_STEM_LENGTH].strip("-.")
    return f"{slug or 'document'}-{digest(text)[:10]}"
