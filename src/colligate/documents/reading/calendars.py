"""Calendars (iCalendar, RFC 5545): each event as a paragraph of lines."""

from __future__ import annotations

import re
from functools import partial

from colligate.documents.document import Document, clean_text
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree

_SHOWN = {"SUMMARY": "", "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "DURATION": "Duration"}
_SHOWN |= {name: name.capitalize() for name in ("LOCATION", "ORGANIZER", "ATTENDEE", "STATUS")}
_SHOWN |= {"RRULE": "Repeats", "DESCRIPTION": "", "COMMENT": "Comment", "URL": "Address"}
_EVENTS = ("VEVENT", "VTODO", "VJOURNAL")
_PROPERTY = re.compile(r'([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^";:]*))*):(.*)')
_NAME = re.compile(r';CN="?([^";:]*)')
_ZONE = re.compile(r';TZID="?([^";:]*)')
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPED = re.compile(r"\\(.)")


def read_calendar(source: SourceFile) -> Document:
    """Read the events and tasks of a calendar."""
    tree = partial(text_tree, prose=False)
    text = write_events(source.text)
    return make_document(
        source, text if text.strip() else source.text, tree=tree, title=source.stem
    )


def write_events(text: str) -> str:
    """Return the events of a calendar as plain text."""
    events: list[list[str]] = []
    within: list[str] = []
    for line in re.sub(r"\n[ \t]", "", clean_text(text)).split("\n"):
        found = _PROPERTY.match(line)
        name, options, value = found.groups() if found else ("", "", "")
        name = name.upper()
        if name == "BEGIN":
            within.append(value.strip().upper())
            events += [[]] if within[-1] in _EVENTS else []
        elif name == "END":
            del within[-1:]
        elif name in _SHOWN and within and within[-1] in _EVENTS:
            label = f"{_SHOWN[name]}: " if _SHOWN[name] else ""
            events[-1].append(label + _write_value(options, value))
    return "\n\n".join("\n".join(filter(None, lines)) for lines in events) + "\n"


def _write_value(options: str, value: str) -> str:
    if time := _TIME.fullmatch(value.strip()):
        zone = _ZONE.search(options)
        shown = "-".join(time.groups()[:3]) + (f" {time[4]}:{time[5]}" if time[4] else "")
        return shown + (" UTC" if time[6] else f" ({zone[1]})" if zone else "")
    value = _ESCAPED.sub(lambda each: "\n" if each[1] in "nN" else each[1], value)
    value = re.sub(r"^mailto:", "", value.strip(), flags=re.IGNORECASE)
    name = _NAME.search(options)
    return f"{name[1]} <{value}>" if name and name[1] != value else value
