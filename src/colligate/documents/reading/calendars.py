"""Calendars (iCalendar, RFC 5545): each event as a paragraph of lines."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from functools import partial

from colligate.documents.document import Document, clean_text
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree

_SHOWN = {"SUMMARY": "", "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "DURATION": "Duration"}
_SHOWN |= {name: name.capitalize() for name in ("LOCATION", "ORGANIZER", "ATTENDEE", "STATUS")}
_SHOWN |= {"RECURRENCE-ID": "In place of", "RDATE": "Also", "EXDATE": "Except"}
_SHOWN |= {"RRULE": "Repeats", "DESCRIPTION": "", "COMMENT": "Comment", "URL": "Address"}
_EVENTS = ("VEVENT", "VTODO", "VJOURNAL")
FOLD = re.compile(rb"\r?\n[ \t]")  # of a line, perhaps inside of a letter
_PROPERTY = re.compile(r'([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^";:]*))*):(.*)')
_NAME = re.compile(r';CN="?([^";:]*)')
_ZONE = re.compile(r';TZID="?([^";:]*)')
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPED = re.compile(r"\\(.)")


def read_calendar(source: SourceFile) -> Document:
    """Read the events and tasks of a calendar."""
    tree = partial(text_tree, prose=False)
    text = write_events(replace(source, data=FOLD.sub(b"", source.data)).text)
    return make_document(
        source, text if text.strip() else source.text, tree=tree, title=source.stem
    )


def write_events(text: str) -> str:
    """Return the events of a calendar as plain text."""
    events: list[list[str]] = []
    within: list[str] = []
    for line in clean_text(text).split("\n"):
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
            if name == "DTEND" and f"Start: {_write_value('', value)}" not in events[-1]:
                with suppress(ValueError, OverflowError):  # a day: it is the one after the last
                    value = (date.fromisoformat(value) - timedelta(1)).strftime("%Y%m%d")
            times = value.split(",") if name in ("RDATE", "EXDATE") else [value]
            events[-1].append(label + ", ".join(_write_value(options, each) for each in times))
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
