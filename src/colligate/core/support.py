"""Does a text support a claim? A lexical test that errs on the side of saying no.

It cannot prove entailment; it catches what small models do most: answering from memory and
citing an unrelated passage, or changing a number on the way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations

from colligate.core.numbers import (
    FRACTIONS,
    NUMBER,
    find_number_word,
    find_other_readings,
    write_fractions,
    write_number,
    write_number_words,
)
from colligate.documents import Document, Span
from colligate.documents.sentences import sentence_spans

ENOUGH = 0.5  # of what the claim adds to the question must be in the source
# Of the whole claim, including the question's words: quoted words need less than sentences that
# were only found to be near. "All rights reserved." supports nothing.
QUOTED = 0.3
NEAR = 0.6


@dataclass(frozen=True, slots=True)
class Support:
    """How much of a claim is in a source.

    `added` is the share of what the claim adds to the question, `whole` the share of all its
    content words, both in [0, 1]; `missing` are the added words that are not there.
    """

    added: float
    whole: float
    missing: tuple[str, ...]

    def enough(self, whole: float = QUOTED) -> bool:
        """Return whether the source holds every added number, half of what is added, and `whole`
        of the claim."""
        numbers = any(is_number(word) for word in self.missing)
        return self.added >= ENOUGH and self.whole >= whole and not numbers


def support(claim: str, source: str, question: str = "") -> Support:
    """Compare a claim with the text that should support it.

    What the claim adds to the question counts most: the question's own words prove little. A claim
    that adds nothing ("Yes.") misses nothing.

    >>> support("It is Paris.", "You may copy it.", "What is the capital of France?").missing
    ('pari',)
    """
    words = list(dict.fromkeys(split_content_words(claim)))
    asked = set(split_content_words(question))
    there = {*split_content_words(source), *find_other_readings(source).values()}
    if there.isdisjoint(_POWERS):  # "50 m²" may be 50 square metres
        words = [word for word in words if word not in _POWERS]
    read = find_other_readings(claim)
    found = {word for word in words if word in there or read.get(word) in there}
    added = [word for word in words if word not in asked]
    missing = tuple(word for word in added if word not in found)
    return Support(
        added=1.0 if not added else 1 - len(missing) / len(added),
        whole=1.0 if not words else len(found) / len(words),
        missing=missing,
    )


def has_all_numbers(claim: str, source: str, question: str = "") -> bool:
    """Return whether every number that the claim adds is in the source.

    This is all that can be checked if claim and source are in different languages.
    """
    return not any(is_number(word) for word in support(claim, source, question).missing)


def find_supporting_sentences(
    claim: str, document: Document, within: Span, *, most: int = 2
) -> Iterator[Span]:
    """Yield the sentence of a passage that shares most content words with a claim, then the best
    run of two neighbours, and so on up to `most`; nothing if no word is shared."""
    wanted = set(split_content_words(claim))
    sentences = sentence_spans(document, within)
    words = [set(split_content_words(document.slice(s))) & wanted for s in sentences]
    for length in range(1, most + 1):
        shared = [len(set().union(*words[i : i + length])) for i in range(len(words) - length + 1)]
        if not any(shared):
            return
        at = shared.index(max(shared))
        yield Span(document.id, sentences[at].start, sentences[at + length - 1].end)


def widen_to_sentences(document: Document, span: Span, within: Span) -> Span:
    """Widen a span to the whole sentences it touches, inside a passage."""
    touched = [s for s in sentence_spans(document, within) if s.overlaps(span)]
    if not touched:
        return span
    return Span(document.id, min(span.start, touched[0].start), max(span.end, touched[-1].end))


# Content words: those that carry meaning

# Words, numbers with their separators (1,234.5), and each CJK character by itself. A dash joins two
# numbers: 1887-1891. The vowel signs of Indic scripts are no letters for `re`, but part of a word.
_LETTER = rf"[^\W\d_㐀-䶿一-鿿぀-ヿ{FRACTIONS}]"
_SIGNS = "".join(
    chr(code) for code in range(0x900, 0xE00) if unicodedata.category(chr(code))[0] == "M"
)
WORD = re.compile(
    rf"{_LETTER}+(?:[{_SIGNS}\u200c\u200d]+{_LETTER}*)*(?:['’][^\W\d_]+)?"
    rf"|[㐀-䶿一-鿿぀-ヿ]|{NUMBER}(?:[.,:/]\d+)*|(?<=[^\W\d_])\^[23](?!\d)"
)

# Function words of a claim prove nothing about its source. English only: in other languages
# they are common in any passage, so keeping them only makes the test a little milder.
_FUNCTION_WORDS_TEXT = """
a about above according after all also although an and any are as at be because been before being
between both but by can cannot could did do does doing down during each either every few for from
further had has have having he her here hers him his how however i if in into is it its itself
just may me might more most must my neither no nor not of off on once one only or other our out
over own per said same say says shall she should so some state stated states such than that the
their them then there therefore these they this those through to too under until up upon us very
via was we were what when where whether which while who whom whose why will with within without
would yes you your
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())


# Models leave out accents: Lumière, Lumiere. Of Latin letters alone: й and и are two letters.
_PLAIN = {
    code: plain[0]
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))
    if len(plain := unicodedata.normalize("NFD", chr(code))) > 1 and plain[0].isascii()
} | {ord("’"): "'"}


def split_content_words(text: str) -> list[str]:
    """Return the content words of a text in order, case-folded and roughly stemmed.

    >>> split_content_words("The licences terminate after thirty days.")
    ['licenc', 'terminat', '30', 'day']
    >>> split_content_words("Lumière") == split_content_words("Lumiere")
    True
    """
    folded = write_number_words(_fold(text))
    found = []
    for match in WORD.finditer(folded):
        word = find_number_word(match) or match.group()
        if word not in _FUNCTION_WORDS:
            found.append(_stem(word))
    return found


def _fold(text: str) -> str:
    """Return a text in lower case, without accents or fractions of one character, m² as m^2."""
    text = _POWER.sub("^", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", write_fractions(text))
    return text.casefold().translate(_PLAIN)


# The place before a power, which is not a number of its own: 50 m², 50 m2, E = mc2.
_POWER = re.compile(r"(?<=[^\W\d_])(?=[²³])|(?:(?<=\bm)|(?<=\b[ckm]m)|(?<=\bmc))(?=[23]\b)")
_POWERS = {"^2", "^3"}


def find_capitalised(question: str) -> set[str]:
    """Return the content words of a question that begin with a capital, but for its first word."""
    capitalised = (word for word in question.split()[1:] if word[0].isupper())
    return set(split_content_words(" ".join(capitalised)))


def find_spelled_out(question: str, title: str) -> set[str]:
    """Return the abbreviations of a question that a title spells out, in small letters.

    >>> find_spelled_out("How long is a notice under the GPL?", "GNU General Public License")
    {'gpl'}
    """
    initials = "".join(word[0] for word in re.findall(r"\w+", title)).upper()
    named = re.findall(r"\b[A-Z]{3,}\b", question)
    return {each.casefold() for each in named if each in initials}


_DENIES = re.compile(r"\b(?:no|not|never|neither|nor)\b|n['’]t\b", re.I)


def find_new_words(reply: str, question: str) -> str:
    """Return the words of a sentence that its question lacks; "" if they are not together.

    >>> find_new_words("The mill was built by Otto Lind in Dorne.", "Who built the mill in Dorne?")
    'Otto Lind'
    >>> find_new_words("The mill was not built by Otto Lind.", "Who built the mill?")
    ''
    """
    asked = set(split_content_words(question))
    tokens = list(re.finditer(r"\S+", reply))
    words = [set(split_content_words(token[0])) for token in tokens]
    new = [place for place, own in enumerate(words) if own - asked]
    if not new or _DENIES.search(reply):
        return ""
    first, last = new[0], new[-1]
    if any(own and own <= asked for own in words[first:last]):
        return ""
    while first > 1 and not words[first - 1] and tokens[first - 1][0][0].isupper():
        first -= 1  # "May" 5, "The" Who: function words that are names here
    return reply[tokens[first].start() : tokens[last].end()].strip(" .,;:\"'")


WHO = re.compile(r"\bwho(?:m|se)?\b", re.I)
_NAME_PART = r"[^\W\d_a-z][\w'’-]*\.?"


def complete_name(short: str, sentence: str) -> str:
    """Return a name of one word as a sentence has it in full; the first word of the sentence, which
    has a capital in any case, is not put before it.

    >>> complete_name("Murray", "It was written by Mitch Murray in 1962.")
    'Mitch Murray'
    """
    if not re.fullmatch(_NAME_PART, short):
        return short
    name = rf"{re.escape(short.rstrip('.'))}\b(?: {_NAME_PART}){{0,3}}"
    full = re.search(rf"(?<=[\w,] )(?:{_NAME_PART} ){{0,3}}{name}", sentence)
    found = full or re.match(name, sentence)
    return found[0].rstrip(".") if found else short


_ITEM = (
    rf"(?:[$€£¥]\s?)?\d[\d,.]*(?<![,.])(?:\s?%|\s[mb]illion)?"
    rf"|(?:[Tt]he )?{_NAME_PART}(?: (?:of |the |de |van |von )*{_NAME_PART})*"
)
_LIST = re.compile(rf"(?:{_ITEM})(?: ?, (?:{_ITEM}))* ?,? and (?:{_ITEM})")
_NEAR_RESPECTIVELY = 400  # characters before the word that are looked at
_RIGHT_BEFORE, _RIGHT_BEHIND = 40, 100  # characters between a list and the word
_DAY_OF_SEVERAL = re.compile(r"[A-Z][a-z]+ \d{1,2}, (?=\d{4}(?:, \d{4})*,? and \d{4}\b)")  # years
_Items = list[tuple[str, set[str]]]
# What compares two items may say the one beside the other's name: "up from $3 in 2018".
COMPARISON = re.compile(
    r"\b(?:from|than|compar\w+|versus|vs|against|before|prior|previous\w*|earlier|last)\b", re.I
)


def pair_respectively(short: str, question: str, sentence: str) -> str:
    """Return what "respectively" gives to what a question names, where an answer is another item.

    English alone; a question that compares is left alone.

    >>> sentence = "Sales in 2018 and 2017 were $15.7 million and $15.6 million, respectively."
    >>> pair_respectively("$15.7 million", "What were the sales in 2017?", sentence)
    '$15.6 million'
    """
    asked, said = set(split_content_words(question)), set(split_content_words(short))
    if COMPARISON.search(question):
        return short
    for one, other in find_respective_lists(sentence):
        named = [at for at, (_, words) in enumerate(one) if words <= asked]
        given = [at for at, (_, words) in enumerate(other) if said <= words or words <= said]
        if said and len(named) == len(given) == 1:
            return short if named == given else other[named[0]][0]
    return short


def find_respective_lists(sentence: str) -> Iterator[tuple[_Items, _Items]]:
    """Yield the list right before each "respectively" and the one that it is paired with, in both
    orders: the first behind the word if there is one of its length, otherwise the last before it.

    Names and numbers are seen. An item is its text and its content words.
    """
    parts = re.split(r"\brespectively\b", _DAY_OF_SEVERAL.sub("", sentence))
    for before, after in pairwise(parts):
        near = before[-_NEAR_RESPECTIVELY:]
        found = list(_LIST.finditer(near))
        if not found or found[-1].end() < len(near) - _RIGHT_BEFORE:
            continue
        behind = _LIST.search(after[:_RIGHT_BEHIND])
        last, *others = (
            [(item, set(split_content_words(item))) for item in re.findall(_ITEM, each[0])]
            for each in (found.pop(), *filter(None, [behind]), *reversed(found))
        )
        other = next((each for each in others if len(each) == len(last)), None)
        if other and all(words for _, words in (*other, *last)):
            yield from permutations((other, last))


def is_number(word: str) -> bool:
    """Return whether a content word is a number."""
    return word.lstrip(".^")[:1].isdigit()


def _stem(word: str) -> str:
    """Strip the most common English endings: enough to match terminate and terminates."""
    if is_number(word):
        return write_number(word)
    word = word.removesuffix("'s")
    if not word.isascii():
        return word
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word[: -len(ending)]
            return word if ending == "y" and stem[-1] in "aeou" else stem  # play, plays
    return word
