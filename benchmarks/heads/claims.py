"""Make the claims about sentences that the carried verifier was trained on. All text is English.

    python benchmarks/heads/claims.py DATA OUT --without benchmarks/claims.jsonl
    colligate train head verifier --data OUT --out VERIFIER

`DATA` has corpora as `NAME.corpus.jsonl.gz`; `speeches.py` makes that of `sotu`. The documents of
the claims in `--without`, to judge by, and others with their titles are left out. `OUT` gets
`train.jsonl` and `held_out.jsonl`.

A claim is written by hand (`statements.jsonl`: 387 about 170 sentences) or made from a sentence of
the corpora by rules: cut, reordered or reworded, which keeps the meaning; or with one thing
changed, which does not. The same changes are made to the claims written by hand, and to sources
instead of claims, so that no word alone tells a wrong claim from a right one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from groups import spell_plainly

from colligate.documents import Document, Span, flat_tree
from colligate.documents.sentences import sentence_spans
from colligate.lab.bench.datasets.records import load_records
from colligate.models.pairs import join_title

SETS = "2wikimultihopqa,asqa,financebench,hotpotqa,loong_en,musique,nq20,popqa,sotu,triviaqa"

SUPPORTS, CONTRADICTS, NEITHER = "supports", "contradicts", "neither"
ENTAILED, PARAPHRASED, UNRELATED = "entailed", "paraphrased", "unrelated"
WRITTEN = Path(__file__).parent / "statements.jsonl"

_MOST_WORDS = 36
_MOST_JOINED = 46  # of two sentences that one claim joins


@dataclass(frozen=True)
class Claim:
    """A claim, the sentence that it is checked against after its title, and how they differ."""

    set: str
    document: str
    title: str
    source: str
    claim: str
    kind: str

    @property
    def label(self) -> str:
        if self.kind in (ENTAILED, PARAPHRASED):
            return SUPPORTS
        return NEITHER if self.kind == UNRELATED else CONTRADICTS


@dataclass(frozen=True)
class Sentence:
    """A sentence of a document, and the next one (or nothing)."""

    set: str
    document: str
    title: str
    text: str
    following: str = ""


def read_written(
    file: Path, data: Path, sets: Collection[str], without: Collection[str]
) -> list[tuple[Sentence, list[Claim]]]:
    """Read sentences of these data sets and the claims written about them.

    A line names a sentence by data set, document, start and end; a claim is a text, or words of the
    sentence and what stands in their place. A line without claims is a sentence alone. Documents
    whose id or title is in `without` are left out.
    """
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    lines = [line for line in lines if line["set"] in sets]
    corpora = {
        name: {record["id"]: record for _, record in load_records(data / f"{name}.corpus.jsonl.gz")}
        for name in sorted({line["set"] for line in lines})
    }
    apart = set(map(spell_plainly, without))
    found = []
    for line in lines:
        record = corpora[line["set"]][line["document"]]
        if _is_apart(record, apart):
            continue
        text = " ".join(record["text"][line["start"] : line["end"]].split())
        sentence = Sentence(line["set"], line["document"], record["title"], text)
        claims = [
            _claim(sentence, each.get("text") or text.replace(*each["replace"]), each["kind"])
            for each in line.get("claims", ())
        ]
        found.append((sentence, claims))
    return found


def _is_apart(record: Mapping[str, Any], apart: set[str]) -> bool:
    return not apart.isdisjoint(map(spell_plainly, (record["id"], record["title"])))


def _claim(sentence: Sentence, text: str, kind: str) -> Claim:
    return Claim(sentence.set, sentence.document, sentence.title, sentence.text, text, kind)


# Sentences


def read_sentences(
    data: Path, sets: Sequence[str], without: Collection[str], most: int, seed: int
) -> list[Sentence]:
    """Return at most `most` sentences of each set's corpus, one of a document, in an order drawn.

    Documents whose id or title is in `without` are left out.
    """
    apart = set(map(spell_plainly, without))
    found: list[Sentence] = []
    for name in sets:
        own: list[Sentence] = []
        for _, record in load_records(data / f"{name}.corpus.jsonl.gz"):
            if _is_apart(record, apart):
                continue
            drawn = random.Random(f"{seed} {record['id']}")
            start = drawn.randrange(max(1, len(record["text"]) - 4000))
            start = record["text"].find(". ", start) + 2 if start else 0
            sentences = list(_split(record["text"][start : start + 4000]))
            told = [place for place, each in enumerate(sentences) if _is_told(each)]
            if told:
                # Sentences in which something can be changed are rarer than others.
                best = [place for place in told if _TELLING.search(sentences[place])]
                place = drawn.choice(best if best and drawn.random() < 0.6 else told)
                after = sentences[place + 1] if place + 1 < len(sentences) else ""
                own.append(Sentence(name, record["id"], record["title"], sentences[place], after))
        random.Random(f"{seed} {name}").shuffle(own)
        found += own[:most]
    random.Random(seed).shuffle(found)
    return found


def _split(text: str) -> Iterator[str]:
    document = Document("", "", text, flat_tree("", len(text)), language="en")
    for span in sentence_spans(document, Span("", 0, len(text))):
        yield " ".join(document.slice(span).split())


def _is_told(text: str) -> bool:
    words = text.split()
    return (
        7 <= len(words) <= _MOST_WORDS
        and text[0].isupper()
        and text.endswith(".")
        and not re.search(r"[|=@\\^{}]|https?:", text)
        and sum(each.isdigit() for each in text) < 24
    )


# Words that change the meaning

_OPPOSITES = """
before/after earlier/later first/last more/less more/fewer most/least increase/decrease
increased/decreased increases/decreases increasing/decreasing higher/lower highest/lowest
larger/smaller largest/smallest bigger/smaller biggest/smallest older/younger oldest/youngest
elder/younger eldest/youngest longer/shorter longest/shortest rose/fell rise/fall gained/lost
above/below over/under north/south east/west northern/southern eastern/western
northeast/southwest northwest/southeast won/lost win/lose victory/defeat best/worst better/worse
early/late previous/next predecessor/successor preceded/followed former/current formerly/currently
began/ended begins/ends started/stopped opened/closed joined/left arrived/departed
accepted/rejected approved/rejected supported/opposed allowed/forbidden included/excluded
includes/excludes including/excluding with/without always/never often/rarely usually/rarely
frequently/seldom public/private positive/negative major/minor same/different inside/outside
internal/external upper/lower left/right male/female old/new ancient/modern successful/unsuccessful
likely/unlikely possible/impossible able/unable known/unknown common/rare popular/unpopular
strong/weak high/low large/small big/small long/short rich/poor heavy/light hot/cold warm/cold
success/failure alive/dead born/died bought/sold buys/sells lent/borrowed hired/fired
until/since maximum/minimum profit/loss profits/losses rapidly/slowly quickly/slowly
fully/partly completely/partly fictional/real married/divorced widely/hardly greater/less
exceeds/undercuts outside/inside west/east south/north begin/end start/end agree/refuse
agreed/refused succeeded/failed succeeds/fails remained/left friend/enemy legal/illegal
domestic/foreign permanent/temporary temporarily/permanently direct/indirect directly/indirectly
beginning/end start/finish front/back far/near dangerous/safe easy/difficult simple/complex
active/inactive complete/incomplete equal/unequal dependent/independent presence/absence
"""
_ROLES = """
father/son mother/daughter parent/child husband/father wife/mother brother/father sister/mother
teacher/student employer/employee buyer/seller owner/tenant winner/loser ancestor/descendant
uncle/nephew aunt/niece parents/children sons/brothers grandfather/grandson founded/joined
directed/produced wrote/directed produced/wrote composed/sang directed/starred
killed/saved defeated/supported
"""
_SCOPES = (
    *(("all", ("some", "none", "few", "only some")), ("every", ("no", "only one"))),
    *(("some", ("all", "no")), ("many", ("all", "no", "few")), ("most", ("all", "few", "none"))),
    *(("few", ("many", "most", "all")), ("several", ("all", "no")), ("both", ("neither", "none"))),
    *(("only", ("not only", "also")), ("each", ("no", "only one")), ("none", ("all", "some"))),
    *(("the only", ("one of many", "not the only")), ("one of the", ("the only", "none of the"))),
    *(("usually", ("always", "never")), ("sometimes", ("always", "never"))),
    *(("mainly", ("only", "not")), ("primarily", ("only", "not")), ("often", ("always", "never"))),
    *(("generally", ("always", "never")), ("virtually all", ("few", "hardly any"))),
    *(("any", ("every", "no")), ("always", ("sometimes", "never"))),
)
_HEDGES = (
    *(
        (r"\b(may|might|could) have been\b", ("was", "has been")),
        (r"\b(may|might|could) be\b", ("is",)),
    ),
    *((r"\b(may|might|can|could)\b", ("must", "will")), (r"\b(should)\b", ("must", "does"))),
    (
        r"\b(?:is|was|are|were) (?:often |widely |generally )?(?:considered|believed|thought|said|"
        r"reported|alleged|expected|estimated|supposed|assumed)(?: to be| to have been| as)? ",
        ("is ", "was "),
    ),
    (
        r"\b(?:is|was|were|are) (?:expected|planned|scheduled|due|intended|set) to ",
        ("did ", "already did "),
    ),
    (
        r"\b(?:probably|possibly|perhaps|allegedly|reportedly|supposedly|presumably|apparently|"
        r"likely) ",
        ("", "certainly ", "definitely "),
    ),
    (
        r"\b(?:approximately|about|around|roughly|nearly|almost|an estimated|an approximate) "
        r"(?=[\d$£€])",
        ("exactly ", "precisely "),
    ),
    (
        r"\b(?:planned|proposed|intended|hoped|wanted|offered|agreed|tried|attempted|threatened|"
        r"considered) to ",
        ("did ", "managed to "),
    ),
    (
        r"\b(?:suggest|suggests|suggested|claims|claimed|argues|argued|believes|believed|proposed|"
        r"alleged|speculated) that\b",
        ("proved that", "showed that", "has proven that"),
    ),
    (
        r"\b(?:planned|proposed|alleged|suspected|supposed|estimated|expected|potential) (?=[a-z])",
        ("", "actual ", "confirmed "),
    ),
    (r"\bwas nominated for\b", ("won",)),
    (r"\b(?:must|shall|is required to|are required to)\b", ("may", "need not", "can")),
)
_BE = r"(?:is|was|are|were|has|have|had|can|could|will|would|should|may|might|must|does|did|do)"
_TELLING = re.compile(
    r"\b(?:may|might|could|must|not|never|before|after|more|less|first|last|all|some|only|most|"
    r"until|since|likely|expected|planned|proposed|considered|believed|said|every|many|both|by)\b"
)
_NAME = re.compile(r"[A-Z][\w'’.-]*[\w](?: (?:(?:of|the|de|von|van|and the) )?[A-Z][\w'’.-]*[\w])*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
_UNITS = """
million/billion thousand/million miles/kilometres km/m days/months weeks/months years/months
hours/minutes years/decades annual/quarterly century/decade feet/metres
"""

Changes = Iterable[str]
"""Texts that each differ from a given one in one thing."""


class _Swaps:
    """Pairs of words of which either may stand in the other's place."""

    def __init__(self, pairs: str) -> None:
        self.others: dict[str, list[str]] = {}
        for left, _, right in (each.replace("~", " ").partition("/") for each in pairs.split()):
            self.others.setdefault(left, []).append(right)
            self.others.setdefault(right, []).append(left)
        words = sorted(self.others, key=len, reverse=True)
        self._found = re.compile(rf"\b(?:{'|'.join(words)})\b")

    def apply(self, text: str) -> Changes:
        for match in self._found.finditer(text):
            for new in self.others[match.group()]:
                yield _put(text, match.span(), new)


def _put(text: str, span: tuple[int, int], new: str) -> str:
    old = text[span[0] : span[1]]
    if old[:1].isupper() and new:
        new = new[0].upper() + new[1:]
    changed = f"{text[: span[0]]}{new}{text[span[1] :]}"
    return changed[0].upper() + changed[1:]


_OPPOSITE_SWAPS, _ROLE_SWAPS, _UNIT_SWAPS = map(_Swaps, (_OPPOSITES, _ROLES, _UNITS))


def _negate(text: str, other: str, drawn: random.Random) -> Changes:
    for match in re.finditer(rf"\b{_BE} (?:not|never) ", text):
        yield _put(text, match.span(), match.group().split()[0] + " ")
    for match in re.finditer(rf"\b{_BE}n['’]t\b", text):
        yield _put(text, match.span(), match.group()[:-3])
    if re.search(r"\b(?:not|never|no|n't)\b", text):
        return
    for match in list(re.finditer(rf"\b{_BE} (?!not|never)(?=[a-z])", text))[:2]:
        word = drawn.choice(["not", "not", "never", "no longer"])
        yield _put(text, match.span(), f"{match.group()}{word} ")
    # "He played" -> "He did not play", for regular verbs after a name or a pronoun.
    for match in re.finditer(
        r"(?<=[\w)] )([a-z]{3,})(ed)(?= (?:the|a|an|in|at|for|with|his|her|to)\b)", text
    ):
        before = text[: match.start()].split()[-1]
        if before.istitle() or before.lower() in (
            "he",
            "she",
            "it",
            "they",
            "who",
            "which",
            "that",
        ):
            stem = match.group(1) + (
                "e" if re.search(r"[^aeiou][aeiou]?[vcszgu]$|at$|ir$", match.group(1)) else ""
            )
            yield _put(
                text, match.span(), f"{drawn.choice(['did not', 'never', 'refused to'])} {stem}"
            )


def _change_number(text: str, other: str, drawn: random.Random) -> Changes:
    matches = list(_NUMBER.finditer(text))
    for match in matches:
        old = match.group()
        digits = re.sub(r"\D", "", old)
        if len(digits) == 4 and digits[0] in "12" and digits == old:
            new = str(int(old) + drawn.choice([-30, -11, -10, -3, -2, -1, 1, 2, 3, 10, 12, 40]))
        else:
            place = drawn.randrange(len(old))
            while not old[place].isdigit():
                place = drawn.randrange(len(old))
            drawn_digit = str((int(old[place]) + drawn.randrange(1, 9)) % 10)
            new = old[:place] + drawn_digit + old[place + 1 :]
            new = new if new[0] != "0" else "1" + new
        yield _put(text, match.span(), new)
    if len(matches) > 1:
        one, two = sorted(drawn.sample(matches, 2), key=lambda each: each.start())
        if one.group() != two.group():
            yield _exchange(text, one.span(), two.span())
    for match in re.finditer(rf"\b(?:{'|'.join(_WORDS)})\b", text):
        yield _put(text, match.span(), drawn.choice([w for w in _WORDS if w != match.group()]))
    yield from _UNIT_SWAPS.apply(text)


def _exchange(text: str, one: tuple[int, int], two: tuple[int, int]) -> str:
    first, second = text[slice(*one)], text[slice(*two)]
    return text[: one[0]] + second + text[one[1] : two[0]] + first + text[two[1] :]


_MONTHS = "January February March April May June July August September October November December"


def _find_names(text: str) -> list[re.Match[str]]:
    """Return the names of a sentence; its first word is one only if it is long enough."""
    common = {
        "The",
        "He",
        "She",
        "It",
        "They",
        "This",
        "In",
        "On",
        "After",
        "At",
        "His",
        "Her",
        "As",
    }
    return [
        match
        for match in _NAME.finditer(text)
        if match.group().split()[0] not in common and len(match.group()) > 2
    ]


def _change_name(text: str, other: str, drawn: random.Random) -> Changes:
    elsewhere = [m.group() for m in _find_names(other) if m.group() not in text and m.start()]
    for match in _find_names(text):
        if match.group() in _MONTHS:
            yield _put(
                text, match.span(), drawn.choice([m for m in _MONTHS.split() if m != match.group()])
            )
        elif elsewhere and match.start():
            alike = [each for each in elsewhere if len(each.split()) == len(match.group().split())]
            yield _put(text, match.span(), drawn.choice(alike or elsewhere))


_TOGETHER = re.compile(r"\b(?:and|or|with|between|married|met|near|the|as|well|of)\b")


def _change_roles(text: str, other: str, drawn: random.Random) -> Changes:
    names = _find_names(text)
    names = [each for each in names if each.group() not in _MONTHS]
    for one, two in [
        *pairwise(names),
        *zip(names[:1], names[2:][-1:], strict=False),
    ]:
        # Not of a list, nor of those who did something together.
        between = _NAME.sub("", text[one.end() : two.start()])
        if re.search(r"[a-z]{2}", _TOGETHER.sub("", between)) and one.group() != two.group():
            yield _exchange(text, one.span(), two.span())
    yield from _ROLE_SWAPS.apply(text)
    for match in re.finditer(
        r"\b(?:was|were) (\w+ed|won|written|sold|bought|led|made|built) by\b", text
    ):
        word = {"written": "wrote"}.get(match.group(1), match.group(1))
        yield _put(text, match.span(), word)
    for match in re.finditer(
        r"(?<=[\w)] )(\w{3,}ed|wrote|sold|bought|led|built) (?=[A-Z]|the )", text
    ):
        before = text[: match.start()].split()[-1]
        if before[0].isupper() or before in ("he", "she", "it", "they", "who"):
            word = {"wrote": "written"}.get(match.group(1), match.group(1))
            yield _put(text, match.span(), f"was {word} by ")
    for left, right in (("to", "from"), ("by", "for")):
        for old, new in ((left, right), (right, left)):
            for match in re.finditer(rf"(?<=[a-z]{{2}}[dt] ){old}(?= [A-Z])", text):
                yield _put(text, match.span(), new)


def _change_order(text: str, other: str, drawn: random.Random) -> Changes:
    yield from _OPPOSITE_SWAPS.apply(text)
    parts = re.fullmatch(r"(\w.+?),? (before|after) (\w.+)\.", text)
    if parts and len(parts[1].split()) > 3 and len(parts[3].split()) > 3:
        yield _sentence(f"{parts[3]} {parts[2]} {_lower(parts[1])}")
    for adverb in ("the largest", "the first", "the most", "the highest", "the best", "the oldest"):
        for match in re.finditer(rf"\b{adverb}\b", text):
            second = f"the second {adverb[4:]}" if adverb[4:] != "first" else "the second"
            yield _put(text, match.span(), second)
    for match in re.finditer(r"\b(second|third|fourth|fifth|sixth|seventh)\b", text):
        others = [w for w in "first second third fourth fifth sixth last".split() if w != match[0]]
        yield _put(text, match.span(), drawn.choice(others))


def _change_hedge(text: str, other: str, drawn: random.Random) -> Changes:
    for pattern, news in _HEDGES:
        for match in re.finditer(pattern, text):
            yield _put(text, match.span(), drawn.choice(news))


def _change_scope(text: str, other: str, drawn: random.Random) -> Changes:
    for old, news in _SCOPES:
        for match in re.finditer(rf"\b{old}\b(?! than)", text, re.IGNORECASE):
            yield _put(text, match.span(), drawn.choice(news))


_CHANGES: dict[str, Callable[[str, str, random.Random], Changes]] = {
    "negated": _negate,
    "number": _change_number,
    "name": _change_name,
    "role": _change_roles,
    "order": _change_order,
    "hedge": _change_hedge,
    "scope": _change_scope,
}


def change(text: str, kind: str, other: str, drawn: random.Random) -> str | None:
    """Return a text with one thing of this kind changed, or None if there is none.

    `other` is a text about something else, of which names are taken.
    """
    changed = [each for each in _CHANGES[kind](text, other, drawn) if each != text]
    return drawn.choice(changed) if changed else None


# Rewording that keeps the meaning

_SYNONYMS = """
began/started film/movie film/picture located/situated approximately/about purchased/bought
nearly/almost obtained/got children/kids constructed/built employed/hired assisted/helped
attempted/tried commenced/began ended/finished currently/now currently/at~present formerly/once
formerly/previously frequently/often many/numerous many/a~lot~of large/big requires/needs
required/needed created/made founded/established released/issued released/brought~out
primarily/mainly mainly/chiefly several/a~number~of various/different well-known/famous
entire/whole important/significant shows/demonstrates company/firm town/municipality
physician/doctor automobile/car author/writer novel/book war/conflict won/took defeated/beat
killed/slain murdered/killed wed/married residents/inhabitants increased/grew decreased/fell
rose/went~up fell/went~down increase/growth announced/declared announced/made~known wrote/penned
kingdom/realm final/last before/prior~to until/up~to after/following although/though
whereas/while for~example/for~instance was~forced~to/had~to could/was~able~to
cannot/is~unable~to may/might did~not/didn't does~not/doesn't was~not/wasn't is~not/isn't
per~year/annually annual/yearly monarch/king attorney/lawyer footballer/football~player
singer/vocalist university/institution~of~higher~education died/lost~his~life only/just
only/solely largest/biggest oldest/most~ancient is~considered/is~regarded~as
is~considered/is~seen~as believed/thought expected/anticipated planned/intended
allegedly/it~is~claimed probably/most~likely probably/in~all~likelihood possibly/perhaps
remained/stayed returned/came~back joined/became~a~member~of resigned/stepped~down
appointed/named elected/chosen replaced/took~the~place~of acquired/took~over headed/led
consists~of/is~made~up~of includes/contains depicts/shows received/was~given
"""
_SYNONYM_SWAPS = _Swaps(_SYNONYMS)
_COUNTS = dict(zip("2 3 4 5 6 7 8 9 10 11 12".split(), _WORDS, strict=True))


def reword(sentence: Sentence, drawn: random.Random) -> str:
    """Return a claim that the sentence entails: cut, reordered or in other words."""
    text = sentence.text
    for step, often in _REWORDINGS:
        if drawn.random() < often:
            found = [each for each in step(text, sentence) if len(each.split()) > 3]
            text = drawn.choice(found) if found else text
    return text


def _lower(text: str) -> str:
    keep = len(text) < 2 or text.split()[0] not in _LOWERED
    return text if keep else text[0].lower() + text[1:]


_LOWERED = frozenset(
    "The He She It They This In On After At His Her As When A An Its During".split()
)


def _sentence(text: str) -> str:
    text = text.strip(" ,;.")
    return f"{text[0].upper()}{text[1:]}."


def _cut(text: str, sentence: Sentence) -> Changes:
    bare = re.sub(r" ?\([^()]*\)", "", text)
    if bare != text:
        yield bare
    if _NARROWED.search(text):
        return
    for match in re.finditer(
        r", (?:and|but|which|who|where|while|with|when|although|as|in|for) ", text
    ):
        if len(text[: match.start()].split()) > 5:
            yield _sentence(text[: match.start()])
    for match in re.finditer(r"^(?:In|On|At|During|After|By|For|Since) [^,]{3,60}, ", text):
        yield _sentence(text[match.end() :])
    for match in re.finditer(r", (?:who|which|where) [^,]+, ", text):
        yield text[: match.start()] + " " + text[match.end() :]
    for match in re.finditer(
        r",? and (?=(?:was|is|has|had|were|are|later|then|\w+ed) (?!by ))", text
    ):
        subject = re.match(r"(?:He|She|It|They|The \w+|[A-Z]\w+(?: [A-Z]\w+)*) ", text)
        if subject and len(text[: match.start()].split()) > 3:
            yield _sentence(text[: match.start()])
            yield _sentence(subject.group() + text[match.end() :])
    for match in re.finditer(r",? (?:in|on|at|by|from|for|during|with) [^,.]{4,40}\.$", text):
        if len(text[: match.start()].split()) > 5:
            yield _sentence(text[: match.start()])


# What is denied, or said of one or of all, may hold only where and when the sentence says.
_NARROWED = re.compile(
    r"\b(?:not|never|no|none|nor|neither|nobody|nothing|only|all|every|except|first|last|most|least|"
    r"best|worst|\w{3,}est)\b|n['’]t\b",
    re.IGNORECASE,
)


def _rename(text: str, sentence: Sentence) -> Changes:
    """Put the title for a pronoun, a pronoun or the last name for the title, or quotes about it.

    "He" of a page is whom it is about.
    """
    title = re.sub(r" \(.*\)$", "", sentence.title)
    if not title[:1].isupper() or len(title.split()) > 6:
        return
    for match in re.finditer(r"\b(?:[Hh]e|[Ss]he|It|[Hh]is|Her|[Ii]ts)(?= )", text):
        before, after = text[: match.start()], text[match.end() :]
        if match.group() == "It" and re.match(rf" {_BE} \w+ that\b", after):
            continue  # "It is believed that": it stands for nothing
        if all(name.group() in title for name in _find_names(before)):  # nobody else is meant
            own = "'s" if match.group().lower() in ("his", "her", "its") else ""
            yield f"{before}{title}{own}{after}"
    pronoun = re.match(r"(?:He|She|It)(?= )", sentence.following)
    if pronoun and text.startswith(f"{title} "):
        yield pronoun.group() + text[len(title) :]
        if pronoun.group() != "It" and re.fullmatch(r"(?:[A-Z]\w+ ){1,2}[A-Z]\w+", title):
            yield title.split()[-1] + text[len(title) :]
    elif f" {title} " in f" {text} ":
        yield f" {text} ".replace(f" {title} ", f' "{title}" ', 1).strip()


_LOOSE = re.compile(
    r"\b(?:American|British|English|French|German|Canadian|Australian|Indian|Italian|Japanese|"
    r"professional|famous|popular|notable|prominent|successful|main|feature|studio|musical|"
    r"television|annual|brief|entire|great|new|young|well-known|highly|very|also|then|thus|"
    r"effectively|officially|eventually|subsequently|later) (?=[a-z])"
)


def _loosen(text: str, sentence: Sentence) -> Changes:
    """Leave out a word that only adds to another one."""
    if not _NARROWED.search(text):
        for match in _LOOSE.finditer(text):
            yield text[: match.start()] + text[match.end() :]


def _respell(text: str, sentence: Sentence) -> Changes:
    """Spell a name with one letter more or less."""
    for match in re.finditer(r"(?<= )[A-Z][a-z]+([a-z])[a-z]{2,}\b", text):
        if match.group() not in _MONTHS:
            yield text[: match.start(1)] + match[1] * 2 + text[match.end(1) :]
            yield text[: match.start(1)] + text[match.end(1) :]


def _join(text: str, sentence: Sentence, drawn: random.Random) -> str:
    """Return a claim of this text and of what follows the sentence."""
    after = sentence.following.rstrip(".")
    start, end = text.rstrip("."), _lower(after)
    link = drawn.choice([", and ", "; ", " and ", ", while ", ". "])
    subject = re.match(r"(?:He|She|It|They) (?=was|is|has|had|were|are|\w+ed )", after)
    if subject and drawn.random() < 0.5:
        return f"{start} and {after[subject.end() :]}."
    return f"{start}{link}{after if link == '. ' else end}."


def _replace_words(text: str, sentence: Sentence) -> Changes:
    return _SYNONYM_SWAPS.apply(text)


def _write_numbers(text: str, sentence: Sentence) -> Changes:
    for number, word in _COUNTS.items():
        for match in re.finditer(rf"(?<![\d.,$£€-]){number}(?= [a-z])", text):
            yield _put(text, match.span(), word)
        for match in re.finditer(rf"\b{word}\b(?= [a-z])", text):
            yield _put(text, match.span(), number)
    months = "|".join(_MONTHS.split())
    for match in re.finditer(rf"\b(\d{{1,2}}) ({months}) (\d{{4}})\b", text):
        yield _put(text, match.span(), f"{match[2]} {match[1]}, {match[3]}")
        yield _put(text, match.span(), f"{match[2]} {match[3]}")
    for match in re.finditer(rf"\b({months}) (\d{{1,2}}), (\d{{4}})\b", text):
        yield _put(text, match.span(), f"{match[2]} {match[1]} {match[3]}")
        yield _put(text, match.span(), match[3])


def _move(text: str, sentence: Sentence) -> Changes:
    match = re.fullmatch(
        r"((?:In|On|At|During|After|Before|By|Since|Until|Although|While|When) [^,]{3,70}), (.+)\.",
        text,
    )
    if match:
        yield _sentence(f"{match[2]} {match[1][0].lower()}{match[1][1:]}")
    match = re.fullmatch(
        r"(.+) ((?:in|on|during|after|before|since|until) (?:[\w’' ]+ )?\d{4})\.", text
    )
    if match and "," not in match[1]:
        yield _sentence(f"{match[2]}, {_lower(match[1])}")
    for match in re.finditer(r"([A-Z]\w+(?: [A-Z]\w+)*) and ([A-Z]\w+(?: [A-Z]\w+)*)", text):
        yield text[: match.start()] + f"{match[2]} and {match[1]}" + text[match.end() :]


# Such a sentence says more than who did it: turned, the rest would belong to another word.
_LINKED = re.compile(r"^(?:In|On|At|After|During|Since|By) |,| (?:and|but|that|which|who) ")
_NESTED = frozenset(
    "and by of from in on at for to with about that which who whose is was it".split()
)
_PRONOUN = r"(?:He|She|It|They|We|You|This|That|These|Those|Who|Both|None|Nobody)\b"
_NAME_ENDS = r"(?=\.?$|,| (?:and [a-z]|in|on|at|for|from|since|starring|based|that|which|who)\b)"


def _turn(text: str, sentence: Sentence) -> Changes:
    """Turn active into passive and back, where the pattern is certain."""
    name = rf"((?!{_PRONOUN})[A-Z][\w.'’-]+(?: [A-Z][\w.'’-]+){{0,3}})"
    linked = _LINKED.search(text)
    for verb, done in _VERBS.items():
        match = re.fullmatch(
            rf"(.+?) (?:was|were|is|are) {done} by {name}( (?:in|on|at|for) .+|)\.", text
        )
        if match and not linked:
            yield _sentence(f"{match[2]} {verb} {_lower(match[1])}{match[3]}")
        match = re.search(
            rf"(?:is|was) (?:an?|the) ([^,.]*?) (?:{done}|and {done}) by {name}{_NAME_ENDS}", text
        )
        if match and not _NESTED & set(match[1].split()):
            subject, who = text[: match.start()].strip(" ,"), match[2].rstrip(".")
            if 0 < len(subject.split()) < 9 and subject.split()[-1] not in _NESTED:
                yield f"{who} {verb} {_lower(subject)}."
                yield f"{subject} was {done} by {who}."
                what = match[1].split()[-1]
                if not what.endswith(tuple(_VERBS.values())) and not re.match(_PRONOUN, subject):
                    yield f"{who} {verb} the {what} {_lower(subject)}."
        match = re.fullmatch(rf"{name} {verb} ((?:the |a )?[A-Z][^,]*)\.", text)
        if match and not linked:
            yield _sentence(f"{match[2]} was {done} by {match[1]}")
    for small, large in (
        ("smaller", "larger"),
        ("younger", "older"),
        ("later", "earlier"),
        ("lower", "higher"),
    ):
        match = re.fullmatch(
            rf"(.+) (is|was|are|were) (?:much )?({small}|{large}) than ([^,]+)\.", text
        )
        if match and "," not in match[1]:
            new = small if match[3] == large else large
            yield _sentence(f"{match[4]} {match[2]} {new} than {_lower(match[1])}")
    date = r"([A-Z]\w+ \d+, \d{4}|\d+ [A-Z]\w+ \d{4})"
    match = re.match(rf"{name} \( ?(?:born )?{date}\) ", text)
    if match:
        yield f"{match[1]} was born on {match[2]}."
    match = re.match(rf"{name}\W+\( ?{date} [–-] {date}\) (?:was|is) (an? .+?)(?:,| who|\.)", text)
    if match:
        yield f"{match[1]}, {match[4]}, died on {match[3]}."
        yield f"{match[1]} was born on {match[2]} and died on {match[3]}."


_OPENINGS = (
    *("However", "Later", "Also", "In fact", "Similarly", "Indeed", "As stated", "Overall"),
    *("Likewise", "As a result", "In general", "In addition", "Of these", "Here", "And so"),
    *("According to the text", "Notably", "At the time", "In this case", "Thus", "Yes"),
)


def _open(text: str, sentence: Sentence) -> Changes:
    for opening in _OPENINGS:
        yield f"{opening}, {_lower(text)}"
    title = re.sub(r" \(.*\)$", "", sentence.title)
    yield f"{title}: “{text}”"
    yield f"According to {title}, {_lower(text)}"


_TAIL = re.compile(
    r",? (?:in|on|at|by|with|for|which|who|because|while|and|after) [^,.()]{8,60}\.$"
)


def _add(text: str, other: str, drawn: random.Random) -> str:
    """Return a claim that says more than its source: with words of another sentence."""
    tail = _TAIL.search(other)
    if tail and drawn.random() < 0.5:
        return text.rstrip(".") + tail.group()
    names = [each.group() for each in _find_names(other)]
    own = _find_names(text)
    words = [word for word in other.rstrip(".").split() if word.islower() and len(word) > 5]
    if own and names and drawn.random() < 0.5:
        at = drawn.choice(own).end()
        link = drawn.choice([", also known as ", ", of ", ", like ", " "])
        return f"{text[:at]}{link}{names[-1]}{'' if link == ' ' else ','}{text[at:]}"
    places = [match.end() for match in re.finditer(r"\b(?:an?|the|his|her|its) (?=[a-z])", text)]
    if places and words:
        at = drawn.choice(places)
        return f"{text[:at]}{drawn.choice(words)} {text[at:]}"
    return f"{text.rstrip('.')}, and {_lower(other)}"


_VERBS = {
    **{"directed": "directed", "wrote": "written", "produced": "produced", "founded": "founded"},
    **{"developed": "developed", "published": "published", "created": "created"},
    **{"composed": "composed", "designed": "designed", "built": "built", "defeated": "defeated"},
    **{
        "acquired": "acquired",
        "bought": "bought",
        "owns": "owned",
        "led": "led",
        "killed": "killed",
    },
    **{"replaced": "replaced", "succeeded": "succeeded", "released": "released"},
    **{
        "recorded": "recorded",
        "performed": "performed",
        "hosted": "hosted",
        "appointed": "appointed",
    },
}
_REWORDINGS = (
    *((_turn, 0.5), (_cut, 0.45), (_rename, 0.5), (_move, 0.4), (_write_numbers, 0.3)),
    *((_loosen, 0.3), (_respell, 0.06)),
    *(
        (_replace_words, 0.7),
        (_replace_words, 0.5),
        (_replace_words, 0.3),
        (_cut, 0.25),
        (_open, 0.15),
    ),
)


# All together

# What can be changed nearly everywhere is drawn less often.
_WEIGHTS = {"name": 0.4, "number": 0.6, "role": 0.9, "scope": 2.0, "hedge": 3.0}


def make_claims(
    sentences: Sequence[Sentence],
    written: Sequence[tuple[Sentence, list[Claim]]],
    seed: int,
    times: int = 6,
) -> list[Claim]:
    """Make the claims that are trained on.

    Sentences that were written about come `times` times, and what was written every other time.
    About half of the claims are true, a sixth say more or something else. The source of some is the
    sentence with its neighbour. In a third of the wrong ones the source is changed, not the claim.
    """
    drawn = random.Random(seed)
    made: list[Claim] = []
    for place, sentence in enumerate(sentences):
        other = sentences[place - 1].text
        made += _make(sentence, [], other, drawn)
    for turn in range(times):
        for place, (sentence, claims) in enumerate(written):
            made += claims if turn % 2 == 0 else []
            true = [each.claim for each in claims if each.label == SUPPORTS]
            made += _make(sentence, true, written[place - 1][0].text, drawn)
    drawn.shuffle(made)
    return made


def _make(
    sentence: Sentence, true: Sequence[str], other: str, drawn: random.Random
) -> Iterator[Claim]:
    """Yield a true claim, two changed ones of kinds drawn, and sometimes one of something else."""

    def claim(text: str, kind: str, source: str = sentence.text) -> Claim:
        if wide:
            source += f" {sentence.following}"
        if drawn.random() < 0.2:
            source += f"[{drawn.randrange(1, 40)}]"  # the mark of a note, as pages have it
        return Claim(sentence.set, sentence.document, sentence.title, source, text, kind)

    def say() -> str:
        text = reword(sentence, drawn)
        return _join(text, sentence, drawn) if short and wide and drawn.random() < 0.5 else text

    # What is longer is cut before it is read.
    both = f"{sentence.text} {sentence.following}"
    short = _is_told(sentence.following) and len(both.split()) <= _MOST_JOINED
    wide = bool(sentence.following) and drawn.random() < 0.3
    text = drawn.choice(true) if true and drawn.random() < 0.6 else say()
    yield claim(text, PARAPHRASED if text != sentence.text else ENTAILED)
    kinds = [kind for kind in _CHANGES if change(sentence.text, kind, other, drawn)]
    weights = [_WEIGHTS.get(kind, 1.0) for kind in kinds]
    for _ in range(2):
        if not kinds:
            break
        [kind] = drawn.choices(kinds, weights)
        base = drawn.choice(true) if true and drawn.random() < 0.5 else say()
        base = base if drawn.random() < 0.7 else sentence.text
        turned = change(sentence.text, kind, other, drawn) if kind != "hedge" else None
        if turned and drawn.random() < 0.33:
            if _shows(sentence.text, turned, base):
                yield claim(base, kind, turned)
        elif (changed := change(base, kind, other, drawn)) is not None:
            yield claim(changed, kind)
    again = say()
    yield claim(again, PARAPHRASED if again != sentence.text else ENTAILED)
    if short and not wide and drawn.random() < 0.3:
        yield claim(_join(again, sentence, drawn), UNRELATED)
    elif drawn.random() < 0.5:
        yield claim(_add(drawn.choice([again, text, sentence.text]), other, drawn), UNRELATED)
    if drawn.random() < 0.3:
        if sentence.following and not wide:
            yield claim(sentence.following, UNRELATED)
        else:
            yield claim(other, UNRELATED)


def _shows(text: str, changed: str, claim: str) -> bool:
    """Return whether a claim of a text still holds the words that were changed in it."""
    old = set(text.lower().split()) - set(changed.lower().split())
    return bool(old) and old <= set(claim.lower().split())


def write_claims(out: Path, claims: Sequence[Claim]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (
        (out / "train.jsonl").open("w", encoding="utf-8") as train,
        (out / "held_out.jsonl").open("w", encoding="utf-8") as held_out,
    ):
        for each in claims:
            record = {
                "claim": each.claim,
                "evidence": join_title(each.title, each.source),
                "label": each.label,
                **{"set": each.set, "document": each.document, "kind": each.kind},
            }
            file = held_out if is_kept(each.document) else train
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def is_kept(document: str) -> bool:
    """Return whether a document is kept from training, to watch it by: one in twenty."""
    return hashlib.sha256(f"kept:{document}".encode()).digest()[0] % 20 == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--without", type=Path)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--sentences", type=int, default=1500, help="drawn of each set")
    parser.add_argument("--times", type=int, default=8, help="of sentences that were written about")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    apart: set[str] = set()
    if given.without is not None:
        judged = list(map(json.loads, given.without.read_text("utf-8").splitlines()))
        apart |= {each["document"] for each in judged if "document" in each}
        apart |= {quote["title"] for each in judged for quote in each["quotes"]}
    sets = given.sets.split(",")
    sentences = read_sentences(given.data, sets, apart, given.sentences, given.seed)
    written = read_written(WRITTEN, given.data, sets, apart)
    claims = make_claims(sentences, written, given.seed, given.times)
    write_claims(given.out, claims)
    print(json.dumps(dict(sorted(Counter(each.kind for each in claims).items()))))


if __name__ == "__main__":
    main()
