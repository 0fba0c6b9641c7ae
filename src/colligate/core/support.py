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
    there = {*split_content_words(source), *_find_other_readings(source).values()}
    if there.isdisjoint(_POWERS):  # "50 m²" may be 50 square metres
        words = [word for word in words if word not in _POWERS]
    read = _find_other_readings(claim)
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
_VULGAR = "¼-¾⅐-⅞"  # fractions of one character
_LETTER = rf"[^\W\d_㐀-䶿一-鿿぀-ヿ{_VULGAR}]"
_SIGNS = "".join(
    chr(code) for code in range(0x900, 0xE00) if unicodedata.category(chr(code))[0] == "M"
)
_START = r"(?:\.(?<![\w.].))?\d+"
NUMBER = rf"(?:{_START}(?:[.,]\d+|['’]\d{{3}}(?!\d))*(?:\s?[{_VULGAR}])?|[{_VULGAR}])"
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

_COUNTED = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety hundred"
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())} | {
    word: str(10 * number) for number, word in enumerate(_TENS.split(), 2)
}
_ONE = "|".join(_COUNTED.split()[1:10])
_TEN = "|".join(_TENS.split()[:-1])
_SEVERAL = re.compile(rf"\b({_TEN})[-\u2010\u2011 ]({_ONE})\b(?!-)|\b({_ONE}) hundred\b")


# From one to twelve in German, Spanish and French, without accents and without articles ("un").
_ELSEWHERE = {
    word: str(number)
    for first, words in (
        (1, "eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf"),
        (2, "dos tres cuatro cinco seis siete ocho nueve diez once doce"),
        (2, "deux trois quatre cinq six sept huit neuf dix onze douze"),
    )
    for number, word in enumerate(words.split(), first)
}
# These are also other words ("very", "back", "new", a month, a name): numbers before a measure.
_ALSO_WORDS = frozenset("elf dos tres once doce sept neuf dix".split())
_MEASURE = re.compile(
    r"\s(?:tagen?|monaten?|wochen|jahren?|stunden|prozent|meses|anos|dias|semanas|horas|por ciento|"
    r"jours|mois|semaines|ans|annees|heures|pour cent|euros?)\b"
)


# "One of the largest", "no one", "the other one": no number is stated.
_NO_NUMBER = re.compile(
    r"\b(?:one of|no one|(?:this|that|other|another|which) one)\b(?![-\u2010\u2011])"
    r"|\bthe one (?=(?:in|at|that|who|with|from)\b)"
)


def _add_number_words(found: re.Match[str]) -> str:
    """Return "forty-five" as "45" and "two hundred" as "200"."""
    if found[3]:
        return f"{NUMBER_WORDS[found[3]]}00"
    return str(int(NUMBER_WORDS[found[1]]) + int(NUMBER_WORDS[found[2]]))


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
    folded = _NO_NUMBER.sub(" ", _SEVERAL.sub(_add_number_words, _fold(text)))
    found = []
    for match in WORD.finditer(folded):
        word = match.group()
        if word not in _ALSO_WORDS or _MEASURE.match(folded, match.end()):
            word = NUMBER_WORDS.get(word) or _ELSEWHERE.get(word, word)
        if word not in _FUNCTION_WORDS:
            found.append(_stem(word))
    return found


def _fold(text: str) -> str:
    """Return a text in lower case, without accents or fractions of one character, m² as m^2."""
    text = _POWER.sub("^", text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _FRACTION.sub(_write_fraction, text))
    return text.casefold().translate(_PLAIN)


# Before a power, which is no number by itself: 50 m², 50 m2, E = mc2.
_POWER = re.compile(r"(?<=[^\W\d_])(?=[²³])|(?:(?<=\bm)|(?<=\b[ckm]m)|(?<=\bmc))(?=[23]\b)")
_POWERS = {"^2", "^3"}
_FRACTION = re.compile(rf"(?:(\d)\s?)?([{_VULGAR}])")


def _write_fraction(found: re.Match[str]) -> str:
    """Return "2½" as "2.5" and "½" as "0.5"."""
    return f"{found[1] or ' 0'}{f'{unicodedata.numeric(found[2]):g}'[1:]}"


_POINT_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})")
_COMMA_THOUSANDS = re.compile(r"(?<!^0),(?=\d{3}(?!\d)|\d\d,)")  # 1,250 and 1,23,456, not 0,125


def write_number(digits: str) -> str:
    """Return a number in digits without separators of thousands, with a decimal point.

    >>> [write_number(each) for each in ("1,234.5", "3,5", ".5", "1'250", "1.850,50", "2½")]
    ['1234.5', '3.5', '0.5', '1250', '1850.50', '2.5']
    """
    if digits.isdecimal():
        return digits
    digits = _FRACTION.sub(_write_fraction, digits)
    digits = re.sub(r"['’\s]", "", digits)
    if _POINT_THOUSANDS.fullmatch(digits):
        return digits.replace(".", "").replace(",", ".")
    digits = _COMMA_THOUSANDS.sub("", digits).replace(",", ".")
    return f"0{digits}" if digits.startswith(".") else digits


# "1.850" is 1850 or 1.85, but for what is stated in decimals in any language.
MAY_BE_THOUSANDS = re.compile(
    r"(?<![\d.,:/])[1-9]\d{0,2}\.\d{3}(?!\d|[.,:/]\d)"
    r"(?!\s?(?:%|per\s?cent|pro[zc]ent|por cien|pour cent|thousand|[mb]illi|trilli|times\b"
    r"|[ckmµ]?[glmsvw]\b))",
    re.IGNORECASE,
)
_ENGLISH = re.compile(
    r"\b(?:the|and|is|was|were|are|of|with|from|its?|has|have)\b|\b0\.\d", re.IGNORECASE
)
# "Was" is German and Dutch, too, and "is" is Dutch.
_NOT_ENGLISH = re.compile(r"\b(?:de[rn]?|die|das|een|het)\b", re.IGNORECASE)


def has_decimal_points(text: str) -> bool:
    """Return whether a text is in English, or has a number below one: 1.234 is between 1 and 2.

    >>> has_decimal_points("The ratio was 1.234."), has_decimal_points("Es waren 1.234.")
    (True, False)
    """
    return bool(_ENGLISH.search(text)) and not _NOT_ENGLISH.search(text)


CURRENCY_CODES = (
    "AED|ARS|AUD|BRL|CAD|CHF|CLP|CNY|CZK|DKK|EUR|GBP|HKD|HUF|ILS|JPY|KRW|MXN|NOK|NZD|PLN|RUB|RMB|"
    "SAR|SEK|SGD|THB|TWD|USD|ZAR"
)
_SEPARATED = re.compile(r"[.\d]\d*(?:[.,']\d+)+|\.\d+")
_CURRENCY_BEFORE = re.compile(rf"(?:[$€£¥]|\b(?:{CURRENCY_CODES}))\s?$", re.IGNORECASE)
_AMOUNT_BEHIND = re.compile(
    r"\s?(?:[%$€£¥]|per\s?cent|prozent|por ciento|pour cent|thousand|[mb]illi|trilli|dollar|euro|"
    rf"pound|fran|(?:{CURRENCY_CODES})\b)",
    re.IGNORECASE,
)


def _find_other_readings(text: str) -> dict[str, str]:
    """Return the numbers of a text that may be written otherwise, each with that: 1.850 is also
    1850 where the point may stand for thousands, $4.50 also 4.5. Of a section or a version the
    zeros count."""
    folded, found = _fold(text), {}
    for match in _SEPARATED.finditer(folded):
        number = write_number(match[0])
        before = folded[max(0, match.start() - 5) : match.start()]
        if MAY_BE_THOUSANDS.match(folded, match.start()):
            if before.rstrip().endswith(("$", "£")) or has_decimal_points(text):
                continue
            found[number] = number.replace(".", "")
        elif (number.endswith("0") and number.count(".") == 1) and (
            _CURRENCY_BEFORE.search(before) or _AMOUNT_BEHIND.match(folded, match.end())
        ):
            found[number] = number.rstrip("0").rstrip(".")
    return found


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
