"""E-mail: the subject is the title; the text is who wrote to whom and when, then the body."""

from __future__ import annotations

import email
import email.policy
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from functools import partial

from colligate.documents.document import Document, clean_text
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree
from colligate.errors import CorruptFile

_SHOWN = ("From", "To", "Cc", "Date")
_KEPT_HEADERS = (*_SHOWN, "Subject", "Message-ID", "In-Reply-To")


def read_email(source: SourceFile) -> Document:
    """Read a message in Internet format (RFC 5322); attachments are named, not read."""
    try:
        message = email.message_from_bytes(source.data, EmailMessage, policy=email.policy.default)
        kept = {name: " ".join(str(message.get(name, "")).split()) for name in _KEPT_HEADERS}
        body = message.get_body(("plain", "html"))
        if body is None or not _read_content(body).strip():
            body = message.get_body(("html",)) or body  # the text part was blank
        mixed = message.get_content_subtype() == "mixed"
        texts = [p for p in message.iter_parts() if mixed and (p is body or _is_text(p))]
        if body is not None and body not in texts:
            texts.insert(0, body)
        attached = [
            part.get_filename() or "unnamed"
            for part in message.iter_attachments()
            if part not in texts
        ]
        parts = [(part.get_content_type(), clean_text(_read_content(part))) for part in texts]
    except (
        MessageError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        # The standard library's parser raises all of these at malformed messages.
        why = f"its message is malformed ({error})"
        raise source.error(CorruptFile, why, "save it again") from error
    metadata = {name.lower(): value for name, value in kept.items() if value}
    if attached:
        metadata["attachments"] = ", ".join(attached)
        source.warn(f"attachments are not read: {metadata['attachments']}")
    subject = kept["Subject"] or source.stem
    head = "\n".join(f"{name}: {kept[name]}" for name in _SHOWN if kept[name])
    marked_up = any(kind == "text/html" for kind, _ in parts)
    shown = [parse_html(source, c)[0] if kind == "text/html" else c for kind, c in parts]
    text = "\n\n".join(part for each in (head, *shown) if (part := each.strip("\n"))) + "\n"
    if marked_up:
        return make_document(source, f"# {subject}\n\n{text}", title=subject, metadata=metadata)
    tree = partial(text_tree, prose=False)
    return make_document(source, text, tree=tree, title=subject, metadata=metadata)


def _is_text(part: MIMEPart) -> bool:
    """Report whether a mail program shows a part as text of the message, after an attachment."""
    return (
        part.get_content_type() in ("text/plain", "text/html")
        and not part.get_filename()
        and part.get_content_disposition() != "attachment"
    )


def _read_content(part: MIMEPart) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes) or not content.strip():
        return ""
    charset = part.get_content_charset()
    try:
        return content.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decode(content)[0]
