"""Subtitles: what is said, as paragraphs of whole sentences that begin with their time."""

from __future__ import annotations

import html
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from colligate.documents.document import Document
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree
from colligate.documents.sentences import SENTENCE_END

_TIME = r"(?:(\d{1,4}):)?(\d\d?):(\d\d)[.,]\d{1,3}"
_TIMES = re.compile(rf"[ \t]*{_TIME}(?:[ \t]*-->[ \t]*|,){_TIME}.*")  # SRT and VTT; SBV
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]*>|<[\d:.]+>|\{\\[^{}\n]*\}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>\n]+)>")
_NOT_SPOKEN = re.compile(r"WEBVTT|NOTE\b|STYLE\b|REGION\b")


def read_subtitles(source: SourceFile) -> Document:
    """Read SRT, WebVTT or SBV without the numbers, times and tags of its cues."""
    cues = _without_repeats(list(_iter_cues(source.text)))
    written = "\n\n".join(_write_paragraphs(cues, set(_VOICE.findall(source.text)))) + "\n"
    if not cues:
        source.warn("it has no times and was read as plain text")
        written = source.text
    return make_document(source, written, tree=partial(text_tree, prose=False), title=source.stem)


@dataclass(frozen=True, slots=True)
class _Cue:
    """The lines that are shown together, in seconds from the beginning."""

    start: int
    end: int
    lines: tuple[str, ...]


def _iter_cues(text: str) -> Iterator[_Cue]:
    """Yield the cues: their lines are all between two lines of times but a number or name."""
    times: tuple[int, int] | None = None
    lines: list[str] = []
    skipped = False  # inside a note or a style
    for line in (*text.split("\n"), ""):
        if found := _TIMES.match(line):
            if lines and lines[-1] and (lines[-1].isdigit() or not all(lines[-2:])):
                lines.pop()
            if times is not None:
                yield _Cue(*times, _clean(lines))
            times = (_seconds(found.groups()[:3]), _seconds(found.groups()[3:]))
            lines, skipped = [], False
        else:
            begins = times is None or lines[-1:] == [""]
            begins = begins and _NOT_SPOKEN.match(line) is not None
            skipped = bool(line) and (skipped or begins)
            lines += [] if skipped else [line]
    if times is not None:
        yield _Cue(*times, _clean(lines))


def _seconds(parts: Iterable[str | None]) -> int:
    hours, minutes, seconds = (int(part or 0) for part in parts)
    return 3600 * hours + 60 * minutes + seconds


def _clean(lines: Iterable[str]) -> tuple[str, ...]:
    plain = (html.unescape(_TAG.sub("", _VOICE.sub(r"\1: ", line))) for line in lines)
    return tuple(filter(None, (" ".join(line.split()) for line in plain)))


def _without_repeats(cues: list[_Cue]) -> list[_Cue]:
    """Return the cues without the lines that roll: each is shown again, above the next one."""
    pairs = [(a, b) for a, b in pairwise(cues) if a.lines and b.lines]
    rolling = [a for a, b in pairs if b.lines[0].startswith(a.lines[-1])]
    if 2 * len(rolling) <= len(pairs):
        return cues
    kept: list[_Cue] = []
    shown: tuple[str, ...] = ()
    for cue in cues:
        new = tuple(line for line in cue.lines if line not in shown)
        if new and kept and shown and new[0].startswith(kept[-1].lines[-1]):  # it grows
            kept[-1] = _Cue(kept[-1].start, cue.end, (*kept[-1].lines[:-1], *new))
        elif new:
            kept.append(_Cue(cue.start, cue.end, new))
        shown = cue.lines or shown
    return kept


_LONG, _LONGEST = 30, 120  # seconds of a paragraph
_PAUSE = 2  # seconds
_SPEAKER = re.compile(r"([^\W\d_][^:.!?]{,40}): ")


def _write_paragraphs(cues: Iterable[_Cue], voices: Container[str]) -> Iterator[str]:
    """Yield paragraphs that begin with their time: they end with a speaker's turn or, after a
    while, with a sentence; speech without sentences ends at a pause."""
    begun, end, speaker = 0, 0, ""
    words: list[str] = []
    for cue in cues:
        for line in cue.lines:
            ended = not words or SENTENCE_END.search(words[-1]) is not None
            said = _SPEAKER.match(line)
            name = said[1] if said and (ended or said[1] in voices) else speaker
            late = cue.start - begun
            may_end = late >= _LONG and (ended or cue.start - end >= _PAUSE)
            if words and (name != speaker or may_end or late >= _LONGEST):
                yield f"[{_clock(begun)}] {' '.join(words)}"
                words = []
            if not words:
                begun = cue.start
            elif said and said[1] == speaker:
                line = line[said.end() :]
            speaker = name
            words.append(line)
        end = cue.end
    if words:
        yield f"[{_clock(begun)}] {' '.join(words)}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
