"""Subtitles: sentences are whole, and each paragraph begins with its time."""

import pytest

from colligate.documents import Kind
from support.documents import texts_of, write_and_read

ROLLING = """WEBVTT
Kind: captions

00:00:00.000 --> 00:00:03.000 align:start position:0%
 
The mortar <00:00:01.000><c>has to rest for</c>

00:00:03.000 --> 00:00:03.010 align:start position:0%
The mortar has to rest for
 

00:00:03.010 --> 00:00:06.000 align:start position:0%
The mortar has to rest for
nine <00:00:04.000><c>days.</c>
"""
GROWING = "".join(
    f"{n}\n00:00:0{n},000 --> 00:00:0{n + 1},000\n{text}\n\n"
    for n, text in enumerate(["The", "The pump", "The pump stops", "The pump stops\nat noon."], 1)
)
MEETING = """WEBVTT

NOTE made by a machine

STYLE
::cue { color: red }

7c/1-0
00:00:58.120 --> 00:01:01.000
<v Ann Orr>The roof was inspected on the</v>

7c/2-0
01:01.000 --> 01:05.000 line:0
<v Ann Orr>following day: by <i>Vale &amp; Sons</i>.</v>

7c/3-0
00:01:05.000 --> 00:01:09.000
<v Bo Lind>What did they find?</v>
"""


@pytest.mark.parametrize(
    ("name", "content", "paragraphs"),
    [
        (
            "a.srt",
            "1\r\n00:00:01,000 --> 00:00:03,000\r\nIt costs\r\n\r\n"
            "2\r\n00:00:03,000 --> 00:00:05,000\r\n40\r\n\r\n"
            "3\r\n00:01:10,000 --> 00:01:12,000\r\n<b>euros.</b>\r\n- Who pays?\r\n",
            ["[00:00:01] It costs 40", "[00:01:10] euros. - Who pays?"],
        ),
        ("a.vtt", ROLLING, ["[00:00:00] The mortar has to rest for nine days."]),
        ("a.srt", GROWING, ["[00:00:01] The pump stops at noon."]),
        (
            "a.vtt",
            MEETING,
            [
                "[00:00:58] Ann Orr: The roof was inspected on the following day: by Vale & Sons.",
                "[00:01:05] Bo Lind: What did they find?",
            ],
        ),
        (
            "a.sbv",
            "0:00:01.000,0:00:03.000\nThe lock opens\n\n0:00:03.000,0:00:05.000\nat seven.\n",
            ["[00:00:01] The lock opens at seven."],
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:03,000\nNOTE THE VALVE.\n"
            "2\n00:00:03,000 --> 00:00:04,000\nOK.\n",
            ["[00:00:01] NOTE THE VALVE. OK."],
        ),
        ("a.srt", "No times at all.\n", ["No times at all."]),
        (
            "a.srt",
            "".join(
                f"{n}\n00:0{n // 6}:{n % 6}0,000 --> 00:0{n // 6}:{n % 6}9,000\n"
                f"Step {n}{'.' * (n % 4 == 3)}\n"
                for n in range(8)
            ),
            ["[00:00:00] Step 0 Step 1 Step 2 Step 3.", "[00:00:40] Step 4 Step 5 Step 6 Step 7."],
        ),
    ],
)
def test_sentences_of_subtitles_are_whole_and_paragraphs_timed(tmp_path, name, content, paragraphs):
    document = write_and_read(tmp_path / name, content)
    assert texts_of(document, Kind.PARAGRAPH) == paragraphs
    assert document.title == "a"
