import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.documents.sentences import sentence_spans, split_sentences
from colligate.errors import SpanError
from support.documents import make


def split(text: str, language: str = "und") -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Item 1A. Risks. We rely on e.g. Foo Inc. for U.S. sales of 3.5 million. Yes.",
            ["Item 1A. Risks.", "We rely on e.g. Foo Inc. for U.S. sales of 3.5 million.", "Yes."],
        ),
        ("§ 3. The term is a year. § 4. It ends.", ["§ 3. The term is a year.", "§ 4. It ends."]),
        ("As § 3.2 says. Then Dr. Smith left.", ["As § 3.2 says.", "Then Dr. Smith left."]),
        (
            "2.1. The licensee pays. 2.2 The licensor ends it.",
            ["2.1. The licensee pays.", "2.2 The licensor ends it."],
        ),
        (
            "(a) The first party pays. It pays at once. (b) The second does not.",
            ["(a) The first party pays.", "It pays at once.", "(b) The second does not."],
        ),
        ("He lives in the U.S. He likes it.", ["He lives in the U.S.", "He likes it."]),
        ("**Bold.** Next. _It._ More.", ["**Bold.**", "Next.", "_It._", "More."]),
        ("He left (at last). “Fine.” Good.", ["He left (at last).", "“Fine.”", "Good."]),
        ("It rose to 3.5%. In 2020 it fell.", ["It rose to 3.5%.", "In 2020 it fell."]),
        ("Two things:\n1. one\n2. two", ["Two things:", "1. one", "2. two"]),
        ("We are\n(a) one,\n(b) two. Not three.", ["We are", "(a) one,", "(b) two.", "Not three."]),
        ("It ends here.\n\n§ 3.", ["It ends here.", "§ 3."]),
    ],
)
def test_english(text, expected):
    assert split(text, "en") == expected
    assert split(text) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "今天很好。我们去吧！你呢？", ["今天很好。", "我们去吧！", "你呢？"]),
        ("ja", "これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("ar", "مرحبا بك. كيف حالك؟ شكرا.", ["مرحبا بك.", "كيف حالك؟", "شكرا."]),
        ("ur", "یہ ایک جملہ ہے۔ یہ دوسرا ہے۔", ["یہ ایک جملہ ہے۔", "یہ دوسرا ہے۔"]),
        ("hi", "यह एक वाक्य है। यह दूसरा है॥ और?", ["यह एक वाक्य है।", "यह दूसरा है॥", "और?"]),
        ("de", "Das ist z. B. gut. Es endet.", ["Das ist z. B. gut.", "Es endet."]),
        ("x-nonsense", "One. !!! 你好。", ["One. !!!", "你好。"]),
    ],
)
def test_other_languages(language, text, expected):
    assert split(text, language) == expected


def test_markdown_blocks_end_sentences():
    text = (
        "# Head\nText goes on\nhere\n- item one\n  goes on\n- item two\n\n"
        "| a. B. | c |\n|---|---|\n| 1. Two. | 3 |\nAfter\n\n"
        "Title\n=====\nUnder it\n> quote\n> goes on\n\nlast\n"
    )
    assert split(text) == [
        *("# Head", "Text goes on\nhere", "- item one\n  goes on", "- item two"),
        *("| a. B. | c |\n|---|---|", "| 1. Two. | 3 |"),
        *("After", "Title\n=====", "Under it\n> quote\n> goes on", "last"),
    ]


@pytest.mark.parametrize(
    "mark",
    ["[12]", " [3]", "[^1]", "[1](#fn1)", "[[1]](#cite-1)", "¹", "<sup>1</sup>", "^12^", "†"],
)
def test_the_mark_of_a_note_stays_with_its_sentence(mark):
    text = f"The fee is due.{mark} It is “low.”{mark.strip()} Nobody is free.\n\n[^1]: Since May."
    assert split(text) == [
        f"The fee is due.{mark}",
        f"It is “low.”{mark.strip()}",
        "Nobody is free.",
        "[^1]: Since May.",
    ]


def test_spans_of_a_document():
    document = make("# H\n\nOne is here. Two is there. Three.\n")
    spans = sentence_spans(document, document.span(5, 30))
    assert [document.slice(span) for span in spans] == ["One is here.", "Two is there"]
    with pytest.raises(SpanError):
        sentence_spans(document, Span("other", 0, 3))


def test_sentences_of_a_long_block_are_those_of_a_short_one():
    assert set(split("One is here. Two is there. " * 2_000)) == {"One is here.", "Two is there."}


WORDS = ["One. ", "two", "。", "！", "؟", "U.S. ", "§ 3. ", "\ud800", "🙂", "...", "Item 1A. "]
MARKS = [" ", "\n", "\n\n", "\r\n", "\xa0", "- ", "1. ", "(a) ", "| x |\n", "# ", "---\n", "> "]
PIECES = st.sampled_from([*WORDS, *MARKS, "”", "*", "**", ")", "[^1]", "[2]", "¹"])


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join)))
def test_sentences_are_ordered_and_leave_nothing_out(text):
    found = split_sentences(text)
    place = 0
    for start, end in found:
        assert not text[place:start].strip()
        assert text[start:end] == text[start:end].strip() != ""
        place = end
    assert not text[place:].strip()


@pytest.mark.parametrize(
    "piece",
    ["word ", "a. ", "(a ", "[^", ".<sup>", "` ", '"', "> ", "- ", "|", "*", " ", "a\n", "§ "],
)
def test_long_runs_of_anything_take_linear_time(piece):
    begun = time.perf_counter()
    split_sentences(piece * (500_000 // len(piece)) + "x.")
    assert time.perf_counter() - begun < 5
