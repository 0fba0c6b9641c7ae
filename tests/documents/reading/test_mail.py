"""What is attached to a message: other messages are in its text, files are documents."""

import base64
from email.message import EmailMessage
from pathlib import Path

import pytest

from colligate.documents.reading import Reading, read_file
from support.documents import text_pdf, write_and_read

EVENT = """BEGIN:VCALENDAR\r
BEGIN:VTIMEZONE\r
TZID:Europe/Rome\r
BEGIN:STANDARD\r
DTSTART:19961027T030000\r
END:STANDARD\r
END:VTIMEZONE\r
BEGIN:VEVENT\r
UID:71\r
SUMMARY:Visit of the mill\\, west side\r
DTSTART;TZID=Europe/Rome:20260914T083000\r
DTEND:20260914T093000Z\r
ORGANIZER;CN="Ada Holm":mailto:ada@example.org\r
DESCRIPTION:Bring boots.\\nAsk for the\r
  keeper.\r
BEGIN:VALARM\r
DESCRIPTION:Reminder\r
END:VALARM\r
END:VEVENT\r
END:VCALENDAR\r
"""
SHOWN = """Visit of the mill, west side
Start: 2026-09-14 08:30 (Europe/Rome)
End: 2026-09-14 09:30 UTC
Organizer: Ada Holm <ada@example.org>
Bring boots.
Ask for the keeper."""


def letter(subject: str, text: str, subtype: str = "plain") -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"] = subject, "Ada Hölm <ada@example.org>"
    message.set_content(text, subtype)
    return message


def nested(times: int) -> EmailMessage:
    message = letter("Level 0", "The bottom.")
    for level in range(1, times + 1):
        outer = letter(f"Level {level}", "See below.")
        outer.add_attachment(message)
        message = outer
    return message


def read(folder: Path, message: EmailMessage, name: str = "fwd.eml") -> Reading:
    (folder / name).write_bytes(message.as_bytes())
    return read_file(folder / name)


def test_a_message_that_is_attached_is_read_in_its_place(tmp_path):
    [document] = read(tmp_path, nested(1)).documents
    assert document.text == (
        "From: Ada Hölm <ada@example.org>\n\nSee below.\n\n"
        "Subject: Level 0\nFrom: Ada Hölm <ada@example.org>\n\nThe bottom.\n"
    )
    assert document.warnings == ()


PACKED = """Subject: Fwd
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=B

--B
Content-Type: message/rfc822
Content-Transfer-Encoding: base64

{}
--B
Content-Type: text/plain; charset=iso-8859-1
Content-Disposition: attachment; filename=notes.txt
Content-Transfer-Encoding: quoted-printable

The caf=E9 is shut.
--B--
"""


def test_the_encoding_of_what_is_attached_is_that_of_its_head(tmp_path):
    inner = base64.encodebytes(letter("Level 0", "The bottom.").as_bytes()).decode()
    (tmp_path / "a.eml").write_text(PACKED.format(inner))
    message, notes = read_file(tmp_path / "a.eml").documents
    assert "Subject: Level 0\nFrom: Ada Hölm" in message.text
    assert "The bottom." in message.text
    assert (notes.text, notes.warnings) == ("The café is shut.", ())


def test_messages_in_very_many_others_are_named(tmp_path):
    [document] = read(tmp_path, nested(9)).documents
    assert document.text.count("See below.") == 6
    assert "more than 5 others are not read: 1" in document.warnings[0]


def test_attached_files_are_documents_that_say_where_they_are_from(tmp_path):
    inner = letter("Orders", "One more.")
    inner.add_attachment("Boat;Crew\nWren;4\n", "csv", filename="boäts.csv")
    message = letter("Fwd: Orders", "See below.")
    message.add_attachment(inner)
    pdf = text_pdf([["The quay is 9 metres long."], ["Second page."]])
    message.add_attachment(pdf, "application", "pdf", filename="quay.pdf")
    message.add_attachment(b"\x00\x01" * 40, "application", "octet-stream", filename="../x.bin")
    message.add_attachment(EVENT, "calendar", filename="visit.ics")
    reading = read(tmp_path, message)
    first, *attached = reading.documents
    assert [each.title for each in attached] == [
        f"fwd.eml, attachment {name}" for name in ("boäts.csv", "quay.pdf", "visit.ics")
    ]
    assert "| Wren | 4 |" in attached[0].text
    assert [page.number for page in attached[1].pages] == [1, 2]
    assert attached[2].text.strip() == SHOWN
    assert {each.source for each in reading.documents} == {str(tmp_path / "fwd.eml")}
    assert first.metadata["attachments"] == "boäts.csv, quay.pdf, ../x.bin, visit.ics"
    [warning] = reading.warnings
    assert "the attachment ../x.bin is not read: it is not text but binary data" in warning


def test_an_attached_message_file_is_read_to_some_depth(tmp_path):
    message = letter("Level 0", "The bottom.")
    for level in range(1, 9):
        outer = letter(f"Level {level}", f"Level {level}.")
        content = message.as_bytes()
        outer.add_attachment(content, "application", "octet-stream", filename="in.eml")
        message = outer
    reading = read(tmp_path, message)
    assert len(reading.documents) == 6
    assert "the attachment in.eml is not read" in reading.warnings[-1]


def invitation() -> EmailMessage:
    message = letter("Visit", "Please come.\n> When is it?")
    message.add_alternative('<p>Please come.</p><img src="cid:a">', "html")
    html = message.get_payload()[1]
    html.add_related(b"\x89PNG\r\n\x1a\n", "image", "png", cid="<a>")
    message.add_alternative(EVENT.encode(), "text", "calendar", params={"method": "REQUEST"})
    return message


def with_picture() -> EmailMessage:
    message = letter("Visit", '<p>Please come.</p><img alt="" src="cid:a">', "html")
    message.add_related(b"\x89PNG\r\n\x1a\n", "image", "png", cid="<a>")
    return message


@pytest.mark.parametrize(
    ("make", "text"),
    [(invitation, f"Please come.\n> When is it?\n\n{SHOWN}\n"), (with_picture, "Please come.\n")],
)
def test_each_text_of_a_message_is_read_once(tmp_path, make, text):
    [document] = read(tmp_path, make()).documents
    assert document.text.endswith(f"From: Ada Hölm <ada@example.org>\n\n{text}")
    assert "pictures in the text are not read: 1" in document.warnings[0]


@pytest.mark.parametrize(
    ("charset", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "Er kostet € 45 – also „viel“."),
        ("gb2312", "gb18030", "租賃給李鎔基先生。"),
    ],
)
def test_a_smaller_encoding_is_read_as_the_one_it_is_part_of(tmp_path, charset, encoding, text):
    data = text.encode(encoding)
    head = f"Subject: =?{charset}?B?{base64.b64encode(data).decode()}?=\n"
    head += f'Content-Type: text/plain; charset="{charset}"\n\n'
    document = write_and_read(tmp_path / "a.eml", head.encode() + data)
    assert (document.title, document.text) == (text, f"{text}\n")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "koi8-r"])
def test_headers_may_be_in_bare_letters_after_a_mark(tmp_path, encoding):
    subject = "Größe" if encoding != "koi8-r" else "Дверь"
    text = f"Subject: {subject}\nContent-Type: text/plain; charset={encoding}\n\n{subject} 9.\n"
    document = write_and_read(tmp_path / "a.eml", text.encode(encoding))
    assert (document.title, document.text) == (subject, f"{subject} 9.\n")


BOUNCE = """Subject: Undelivered
Content-Type: multipart/report; report-type=delivery-status; boundary=B

--B
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org

Final-Recipient: rfc822; kurt@example.org
Diagnostic-Code: smtp; 552 5.2.2 mailbox full

--B
Content-Type: text/rfc822-headers

Subject: Supper
Received: from nowhere

--B--
"""


def test_a_report_says_why_which_message_was_not_delivered(tmp_path):
    document = write_and_read(tmp_path / "a.eml", BOUNCE)
    assert document.text == (
        "Reporting-MTA: dns; mx.example.org\n\nFinal-Recipient: rfc822; kurt@example.org\n"
        "Diagnostic-Code: smtp; 552 5.2.2 mailbox full\n\nSubject: Supper\n"
    )
    assert document.warnings == ()


def test_a_plain_part_that_lacks_the_words_of_the_page_is_not_read(tmp_path):
    message = letter("Statement", "Your program cannot show this message.")
    message.add_alternative("<p>HT 4471: 412.60 EUR, due on <a href='/a-b-c'>21 May</a>.", "html")
    [document] = read(tmp_path, message).documents
    assert document.text.endswith("HT 4471: 412.60 EUR, due on [21 May](/a-b-c).\n")
    assert "cannot show" not in document.text


def test_a_mailbox_has_a_document_for_each_message(tmp_path):
    messages = (letter("First", "One.\n\n>From here."), letter("Second", "Two."))
    line = b"From a@example.org Mon Aug 31 09:00:00 2026\n"
    (tmp_path / "in.mbox").write_bytes(b"\n".join(line + each.as_bytes() for each in messages))
    documents = read_file(tmp_path / "in.mbox").documents
    assert [each.title for each in documents] == ["First", "Second"]
    assert documents[0].text.endswith("One.\n\nFrom here.\n")


def test_a_sentence_that_begins_with_from_is_no_message(tmp_path):
    body = b"\n\nFrom 1 October it costs 9 euros.\n\nFrom 9:30 on, ask\nada@example.org.\n\nAda\n\n"
    line = b"From 184@xxx Mon Aug 03 07:02:11 +0000 2026\nSubject: Lockers"
    (tmp_path / "in.mbox").write_bytes((line + body) * 2)
    first, second = read_file(tmp_path / "in.mbox").documents
    assert first.text == second.text == body.decode().strip() + "\n"


def test_a_calendar_is_read_by_its_events(tmp_path):
    assert write_and_read(tmp_path / "a.ics", EVENT).text == f"{SHOWN}\n"


CLOSED = """BEGIN:VCALENDAR\r
BEGIN:VEVENT\r
DTSTART;VALUE=DATE:20261221\r
DTEND;VALUE=DATE:20270102\r
EXDATE;TZID=Europe/Rome:20261224T173000,20261225T173000\r
SUMMARY:Café\r
END:VEVENT\r
"""


def test_an_event_of_whole_days_ends_on_its_last_and_names_exceptions(tmp_path):
    folded = CLOSED.encode().replace(b"\xa9", b"\r\n \xa9")
    message = letter("Closed", "See below.")
    message.add_alternative(folded, "text", "calendar")
    shown = (
        "Start: 2026-12-21\nEnd: 2027-01-01\n"
        "Except: 2026-12-24 17:30 (Europe/Rome), 2026-12-25 17:30 (Europe/Rome)\nCafé\n"
    )
    document = write_and_read(tmp_path / "a.ics", folded)
    assert (document.text, document.warnings) == (shown, ())
    assert read(tmp_path, message).documents[0].text.endswith(f"See below.\n\n{shown}")
    one = write_and_read(tmp_path / "b.ics", folded.replace(b"20270102", b"20261221"))
    assert "Start: 2026-12-21\nEnd: 2026-12-21\n" in one.text
