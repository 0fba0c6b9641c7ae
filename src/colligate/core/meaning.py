"""Does a sentence say the opposite of a claim that its words would support?

First come rules for what the words show: a claim is laid beside its source, and where both are
alike but for a few words, those are compared: negation, opposites, quantifiers, hedges, numbers
with other units, names in exchanged places. Where claim and source are too different for that,
nothing can be said, unless a verifier is asked. All is conservative, because a false alarm loses a
right answer, and English alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise

from colligate.core.support import (
    COMPARISON,
    WORD,
    find_respective_lists,
    is_number,
    split_content_words,
    support,
)
from colligate.models import Verifier


class Meaning(StrEnum):
    """What a source does with a claim, as far as it can be told."""

    SUPPORTS = "supports"
    CONTRADICTS = "contradicts"
    UNCLEAR = "unclear"


YES = re.compile(r"\W*yes\b", re.I)
_SAYS = 0.6  # share of a question's words from which a sentence speaks of the same
_SENTENCE = 4  # words: a verifier is not asked about less


def check_meaning(claim: str, title: str, source: str, verifier: Verifier | None = None) -> Meaning:
    """Tell what a source under its title does with a claim: by rules, and a verifier if given."""
    verdict = compare_words(claim, source)
    if verifier is None or verdict is not Meaning.UNCLEAR or len(claim.split()) < _SENTENCE:
        return verdict
    most = verifier.most_added
    if most is not None and len(support(claim, f"{title} {source}").missing) > most:
        return verdict
    supports, contradicts, _ = verifier.score(claim, title, source)
    if contradicts >= verifier.limit:
        return Meaning.CONTRADICTS
    return Meaning.SUPPORTS if supports > 0.5 else Meaning.UNCLEAR


_VERB = re.compile(
    r"""\b(?:is|are|was|were|be|been|has|have|had|does|did|will|would|can|cannot|could|may|might|
    must|shall|should)\b
    | (?<=\w[ ])(?<!\bthe[ ])(?<!\bhis[ ])(?<!\bher[ ])(?<!\bits[ ])(?<!\ban[ ])(?<!\ba[ ])
      (?:[a-z]{3,}ed|won|lost|bought|sold|led|shot|wrote|made|took|became|built|held|paid|beat)\b
    | \b[A-Z]\w*[ ][a-z]{3,}s[ ](?:the|an?|[A-Z]\w*)\b | (?:\S+\s+){7}\S""",
    re.VERBOSE,
)


def check_short_answer(
    short: str, question: str, source: str, verifier: Verifier | None = None, title: str = ""
) -> Meaning:
    """Tell what a source does with a short answer made of its words: as `check_meaning` does.

    Only a clause can say the opposite, and a verifier is asked about no more: a name or a number
    does not; "yes" stands for the question. What the question calls uncertain need not be called so
    again: "Who is said to have killed him?"

    >>> check_short_answer("may be terminated", "", "It may not be terminated.").value
    'contradicts'
    >>> check_short_answer("Yes", "May it be terminated?", "It may not be terminated.").value
    'contradicts'
    """
    if YES.match(short):
        return _read_yes(question, source)
    asked = _Text(question).has((_HEDGES - _FREE).intersection(_Text(source).words))
    if asked or not _VERB.search(short):
        return Meaning.SUPPORTS
    return check_meaning(short, title, source, verifier)


def _read_yes(question: str, source: str) -> Meaning:
    """Tell what a source does with "yes": it denies what the question asks, says it, or neither."""
    asked, stated = _Text(question), _Text(source)
    denied = (_negated(stated) - _negated(asked)) & asked.key_set
    if _differs_by_prefix(stated, asked) or (
        not _meets_bound(stated, asked) and any(stated.keys.count(key) == 1 for key in denied)
    ):
        return Meaning.CONTRADICTS
    says = asked.shares(stated) >= _SAYS and not stated.has(_NOT | _NONE)
    return Meaning.SUPPORTS if says else Meaning.UNCLEAR


def compare_words(claim: str, source: str) -> Meaning:
    """Compare a claim with the sentences that it cites, by rules alone.

    >>> compare_words("A acquired B in 2004.", "A was acquired by B in 2004.").value
    'contradicts'
    >>> compare_words("A acquired B in 2004.", "In 2004 B was taken over by A.").value
    'unclear'
    """
    said, stated = _Text(claim), _Text(source)
    if not said.words or not stated.words:
        return Meaning.UNCLEAR
    wanted, even = _even(claim), _even(source)
    at = _find_whole(wanted, even)
    before = re.split(r"[;.]\s", even[: max(at, 0)])[-1]
    # "It is alleged that A is B" and "A is B if C" do not say that A is B.
    if (
        at >= 0
        and not _Text(before).has(_HEDGES | _NOT | _NONE | _REPORTED | _IF)
        and _CONDITIONS.isdisjoint(_Text(even[at + len(wanted) :]).words[:1])
    ):
        return Meaning.SUPPORTS
    if _meets_bound(stated, said) or _meets_bound(said, stated):
        return Meaning.UNCLEAR
    edits = list(_align(stated.keys, said.keys))
    if (
        _changes_locally(stated, said, edits)
        or _exchanges(stated, said, edits)
        or _trades_places(stated, said)
        or _turns_voice(stated, said)
        or _negates(stated, said)
        or _denies_of_all(stated, said)
        or _opposes(stated, said)
        or _differs_by_prefix(stated, said)
        or _names_another_agent(stated, said)
        or _drops_hedge(stated, said)
        or _moves_number(stated, said)
        or _moves_year(stated, said)
        or _changes_currency(claim, source)
        or _pairs_otherwise(claim, source)
    ):
        return Meaning.CONTRADICTS
    return Meaning.UNCLEAR


def changes_year(claim: str, source: str) -> bool:
    """Return whether a claim has a year that its source has not, where the source has another.

    >>> changes_year("In 2023 revenue was $5 million.", "In 2022 revenue was $5 million.")
    True
    """
    said, stated = _Text(claim), _Text(source)
    return any(
        {len(stated.words[old]), len(said.words[new])} == {1}
        and all(map(_YEAR.fullmatch, (stated.words[old][0], said.words[new][0])))
        and said.words[new][0] not in stated.words
        for old, new in _align(stated.keys, said.keys)
    )


def _even(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")


def _find_whole(words: str, text: str) -> int:
    """Return where a text has these words, not as a part of longer ones; -1 if it has not."""
    at = text.find(words)
    while at >= 0 and re.search(r"[\w-]", text[at - 1 : at] + text[at + len(words) :][:1]):
        at = text.find(words, at + 1)
    return at


# Words

_NOT = frozenset("not never cannot neither nor without hardly scarcely".split())
_ALL = frozenset("all every each always entire both any".split())
_NONE = frozenset("no none never neither nobody nothing".split())
_SOME = frozenset(
    "some many most several few often usually sometimes generally mostly partly mainly".split()
)
_ONLY = frozenset("only sole solely exclusively alone".split())
_ORDINALS = frozenset(
    "first second third fourth fifth sixth seventh eighth ninth tenth last".split()
)
_SURE = frozenset("must shall always certainly definitely".split())
_FREE = frozenset("may might can could should sometimes possibly".split())
# Any of these in a claim shows that it does not state a fact outright.
_UNSURE = frozenset(
    """may might could would can should possibly possible perhaps probably probable likely allegedly
    alleged ought claimed claim claims reportedly reported report supposedly supposed said say says
    suggested suggest suggests suggestion thought think held hold regarded seen seems seem
    apparently appears believed believe believes considered consider expected expect expects
    expectation proposed propose proposes proposal proposals planned plan plans intended intend
    intends intention intending scheduled announced estimated estimate estimates approximately about
    around roughly some almost nearly hoped hope hopes wish aim aims aimed going due set asked
    wanted tried unclear unknown disputed counts nominated nominee nominees nomination according
    risk potential chance unconfirmed rumoured rumored anticipated anticipate anticipates likelihood
    able potentially""".split()
)
# Of these, a claim that repeats what they are about must not be without.
_HEDGES = frozenset(
    """may might could should possibly perhaps probably likely allegedly alleged reportedly
    supposedly suggested believed considered expected proposed planned intended scheduled estimated
    approximately nominated hoped discussed reported potentially""".split()
)
# "agreed to acquire", "tried to escape": it may not have come to that.
_ATTEMPTS = frozenset(
    """planned planning plans intended intends agreed attempted tried wanted hoped offered promised
    threatened refused failed sought proposed announced considered scheduled expected""".split()
)
# What somebody argues or denies is not said by the source: "He denies that", "the claim that".
_REPORTED = frozenset(
    """argue argues argued contend contends contended allege alleges alleged assert asserts asserted
    deny denies denied dispute disputes disputed reject rejects rejected argument contention claim
    claims claimed say says said""".split()
)
_IF = frozenset("if unless whether provided".split())
_CONDITIONS = _IF | frozenset("except until only without".split())
# A claim may keep these of its source and drop a hedge: "He said that he hoped to".
_WEAK = frozenset("would said say says wish potential".split())
_CERTAIN = frozenset("certain certainly definitely proven proved undoubtedly exactly".split())
_OPPOSITES: dict[str, set[str]] = {}
for _pair in """
    before/after earlier/later first/last more/less more/fewer most/least most/fewest
    increase/decrease increased/decreased increases/decreases higher/lower highest/lowest
    larger/smaller largest/smallest bigger/smaller biggest/smallest older/younger oldest/youngest
    elder/younger eldest/youngest longer/shorter longest/shortest rose/fell gained/lost above/below
    over/under north/south east/west northern/southern eastern/western won/lost victory/defeat
    best/worst better/worse former/current formerly/currently began/ended started/stopped
    opened/closed joined/left accepted/rejected accepted/refused approved/rejected
    supported/opposed endorsed/rejected included/excluded includes/excludes including/excluding
    with/without always/never often/never usually/never often/rarely always/rarely widely/rarely
    public/private positive/negative positively/negatively major/minor internal/external
    upper/lower male/female likely/unlikely possible/impossible able/unable known/unknown
    common/rare popular/unpopular high/low large/small big/small acquired/sold buy/sell until/since
    until/after maximum/minimum profit/loss father/son mother/daughter parent/child
    teacher/student predecessor/successor east/west many/few most/few all/none some/none
    every/no valid/void legal/illegal consistent/inconsistent domestic/foreign married/divorced
    remained/left slowly/rapidly slowly/quickly easy/difficult dense/sparse earliest/latest
    eastern/western inside/outside reduce/increase strengthen/weaken agreed/refused agrees/refuses
    introduced/discontinued founded/dissolved appointed/dismissed hired/fired acquitted/convicted
    previously/currently colder/warmer cold/warm up/down far/near
    adopted/proposed approved/proposed adopted/discussed approved/discussed agreed/discussed
    completed/planned built/planned built/proposed paid/offered granted/requested ratified/signed
    convicted/accused convicted/charged proven/alleged proven/suggested proved/suggested
    adopted/rejected granted/denied confirmed/denied affirmed/reversed upheld/overturned
    allowed/prohibited allowed/forbidden allows/prohibits permitted/prohibited permits/prohibits
    required/optional mandatory/optional voluntary/mandatory passed/failed succeeded/failed
    success/failure successes/failures guilty/innocent dead/alive born/died imports/exports
    imported/exported arrived/departed attacked/defended ally/enemy allies/enemies strong/weak
    stronger/weaker early/late old/new oldest/newest young/old rich/poor men/women man/woman
    brother/sister husband/wife created/destroyed built/demolished built/destroyed kept/removed
    added/removed expanded/reduced increased/reduced increased/fell increased/declined
    rose/declined rose/dropped grew/shrank grew/fell grew/declined faster/slower fastest/slowest
    heavier/lighter heaviest/lightest strongest/weakest deepest/shallowest widest/narrowest
    wider/narrower richer/poorer cheaper/dearer buyer/seller lender/borrower landlord/tenant
    lessor/lessee licensor/licensee employer/employee plaintiff/defendant debtor/creditor
    winner/loser attacker/defender ancestor/descendant senior/junior superior/inferior
    majority/minority permanent/temporary permanently/temporarily rural/urban present/absent
    true/false similar/different same/different same/more same/less direct/indirect
    directly/indirectly formal/informal active/inactive complete/incomplete dependent/independent
    prior/after prior/following earlier/subsequent preceding/following previous/next
    predecessors/sequels sequel/prequel formerly/now began/stopped launched/cancelled
    least/only short/long left/right top/bottom cause/end caused/ended
    preceded/followed
""".split():
    _one, _, _two = _pair.partition("/")
    _OPPOSITES.setdefault(_one, set()).add(_two)
    _OPPOSITES.setdefault(_two, set()).add(_one)

# "It had not played before", "not until 2004": these negate something else than the verb.
_EXCEPT = frozenset(
    "before until other than except but apart besides unless only just else".split()
)
_AUXILIARIES = frozenset("is was are were be been being has had have do does did will".split())
_SYMMETRIC = frozenset(
    """and or with between married met near versus to borders bordered bordering adjoins resembles
    equals played faced fought divorced sister brother cousin twin wife husband friend rival
    colleague neighbour neighbor partner spouse similar different differs same linked connected
    related adjacent""".split()
)
_GLUE = frozenset("the a an of in on at its his her their this that".split())
_MONTHS = frozenset(
    split_content_words(
        """january february march april maius june july august september october november
        december"""
    )
)
_MAY = re.compile(
    r"\b((?i:in|since|until|during|early|mid|late|this|last|next) )May\b"
    r"|\b((?i:on|by|from|until|to|before|after|since|of|the) \d{1,2}(?:st|nd|rd|th)? )(?i:may)\b"
    r"|\b(\d{1,2}(?:st|nd|rd|th)? )(?i:may)(?=,? \d{4}\b)"
    r"|\b((?i:on|by|from|until|before|after|since) )May(?= \d{1,2}\b)"
    r"|\b(?i:may)(?= \d{1,2},? \d{4}\b|,? \d{4}\b)"
)
_PERIODS = frozenset("second minute hour day week month quarter year".split())
# Words in each other's place: anywhere else they are no opposites.
_DIFFERENT = (
    (["if"], ["unless"]),
    (["at", "least"], ["up", "to"]),
    (["daily"], ["weekly"], ["monthly"], ["quarterly"], ["yearly"]),
    (["daily"], ["weekly"], ["monthly"], ["quarterly"], ["annually"]),
)
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
_FEW = 4  # words: longer differences are other ways to say something


@dataclass(frozen=True)
class _Text:
    """The words of a text: in lower case, as keys to compare by, and which of them are names."""

    text: str

    @cached_property
    def found(self) -> list[re.Match[str]]:
        text = self.text.replace("’", "'").replace("can't", "cannot").replace("won't", "will not")
        text = text.replace("unable to", "not able to")
        text = re.sub(r"\bper annum\b", "per year", text)
        text = re.sub(r"\b(?:bought|purchased|took over|taken over)\b", "acquired", text)
        text = re.sub(r"\bbeat(?:en)?\b", "defeated", text)
        text = _MAY.sub(r"\1\2\3\4Maius", text)  # the month is no "may"
        text = re.sub(r"\b([Nn]on)-(?=\w)", r"\1", text)  # "non-exclusive" is one word
        text = re.sub(r"\b[Nn]o\.(?=\s?\d)", "number", text)  # "No. 5" denies nothing
        return list(WORD.finditer(re.sub(r"n't\b", " not", text)))

    @cached_property
    def forms(self) -> list[str]:
        return [each.group() for each in self.found]

    @cached_property
    def words(self) -> list[str]:
        return [form.casefold() for form in self.forms]

    @cached_property
    def keys(self) -> list[str]:
        return [(split_content_words(word) or [word])[0] for word in self.words]

    @cached_property
    def contents(self) -> list[int]:
        """The places of the words that carry meaning."""
        return [place for place, word in enumerate(self.words) if split_content_words(word)]

    @cached_property
    def key_set(self) -> frozenset[str]:
        return frozenset(self.keys)

    def is_name(self, place: int) -> bool:
        return self.forms[place][:1].isupper() and (
            place > 0 or self.forms[0].casefold() not in _GLUE
        )

    def contents_of(self, part: slice) -> list[str]:
        return [key for key in self.keys[part] if key not in _GLUE]

    def names_of(self, part: slice) -> list[str]:
        places = range(part.start, part.stop)
        return [self.keys[at] for at in places if self.forms[at].isalpha() and self.is_name(at)]

    def content_after(self, place: int) -> str:
        return next((self.keys[at] for at in self.contents if at > place), "")

    def content_before(self, place: int) -> str:
        return next((self.keys[at] for at in reversed(self.contents) if at < place), "")

    def links(self, start: int, stop: int) -> tuple[str, ...]:
        """Return the words of a part that say how its neighbours are connected."""
        return tuple(word for word in self.words[start:stop] if word not in _GLUE | _AUXILIARIES)

    def has(self, words: frozenset[str]) -> bool:
        return not words.isdisjoint(self.words)

    def shares(self, other: _Text) -> float:
        """Return the share of the content words that another text has too."""
        keys = {self.keys[place] for place in self.contents}
        return len(keys & other.key_set) / max(1, len(keys))


Edit = tuple[slice, slice]
"""Words of the source and those of the claim in their place; one of the two may be empty."""


def _align(source: Sequence[str], claim: Sequence[str]) -> Iterator[Edit]:
    """Yield the differences of two texts."""
    matcher = SequenceMatcher(None, source, claim, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield slice(a, b), slice(c, d)


# Rules: each tells whether a claim (`said`) contradicts its source (`stated`)


def _changes_locally(stated: _Text, said: _Text, edits: Sequence[Edit]) -> bool:
    """Compare the few words that differ between words that are alike."""
    for old, new in edits:
        if max(old.stop - old.start, new.stop - new.start) > _FEW:
            continue
        begins = old.start == 0 or new.start == 0
        ends = new.stop == len(said.words) or old.stop == len(stated.words)
        # Alike on both sides, so that the same thing is spoken of.
        if begins and ends:
            continue
        was, now = stated.words[old], said.words[new]
        gone, come = set(was) - set(now), set(now) - set(was)
        for text, part, changed in ((stated, old, gone), (said, new, come)):
            if "the most" in " ".join(text.words[max(0, part.start - 1) : part.stop]):
                changed.discard("most")  # a superlative
        if any(_OPPOSITES.get(word, set()) & come for word in gone):
            return not _compares_others(stated, said)
        if not ends and (
            _quantifies_otherwise(gone, come) or _ranks_otherwise(gone, come, said, new)
        ):
            return True
        if (was, now) in ((["to"], ["from"]), (["from"], ["to"])) and not begins and not ends:
            return True
        differ = any(was != now and was in forms and now in forms for forms in _DIFFERENT)
        if differ and said.has(_NOT | _NONE) == stated.has(_NOT | _NONE):  # unless: if not
            return True
        # "increased to 12", "increased by 12"; "per month", "per year"
        if {*was, *now} == {"to", "by"} and not ends and is_number(said.keys[new.stop]):
            return True
        if stated.words[: old.start][-1:] == ["per"] and _PERIODS.issuperset([*was, *now]):
            return was != now
        odd = len(gone & _NOT) != len(come & _NOT)  # "never" instead of "not" changes nothing
        negated = gone <= _NOT and come <= _NOT | _AUXILIARIES and come & _NOT and odd
        if not ends and negated and said.words[new.stop] not in _ALL | _ONLY:
            return True
        if not ends and gone & _NOT and gone <= _NOT | _AUXILIARIES and not come & (_NOT | _NONE):
            return stated.words[old.stop] not in _ALL | _ONLY | {"necessarily"}
        if (gone & _FREE and come & _SURE) or (gone & _SURE and come & _FREE):
            return True
        if was and now and all(map(stated.is_name, range(old.start, old.stop))):
            names = all(map(said.is_name, range(new.start, new.stop)))
            if names and not begins and _are_others(was, now, stated):
                return True
            if stated.key_set.issuperset(said.keys[new]):  # only in another place
                continue
            if names and _MONTHS.issuperset([*stated.keys[old], *said.keys[new]]):
                return True
            codes = [*stated.forms[old], *said.forms[new]]  # CEO and CFO, USD and EUR
            if (
                names
                and len(codes) == 2
                and "".join(codes).isupper()
                and len({*map(len, codes)}) == 1
            ):
                return True
    return False


def _quantifies_otherwise(gone: set[str], come: set[str]) -> bool:
    if gone & _SOME:
        return bool(come & (_ALL | _NONE | _ONLY)) and not come & _SOME
    if gone & _ALL:
        return bool(come & (_NONE | _SOME | _ONLY)) and not come & _ALL
    if gone & _ONLY:
        return bool(come & _SOME)
    if gone & _NONE:
        return bool(come & (_ALL | _SOME)) and not come & (_NONE | _NOT)
    return False


def _ranks_otherwise(gone: set[str], come: set[str], said: _Text, new: slice) -> bool:
    """Return whether "the largest" has become "the second largest", or "first" "fourth"."""
    following = said.words[new.stop]
    superlative = following.endswith("est") or following in ("most", "best", "least")
    both = bool(gone & _ORDINALS and come & _ORDINALS)
    return both or (bool((gone | come) & (_ORDINALS - {"first"})) and superlative)


_MAYS = frozenset(("may", "maius"))  # a name, a month or neither


def _are_others(was: Sequence[str], now: Sequence[str], stated: _Text) -> bool:
    """Return whether names differ in more than their writing, and no initials stand for a name."""
    return all(
        len(new) > 3
        and new.isalpha()
        and {new, *was}.isdisjoint(_MAYS)
        and new not in stated.words
        and all(new[:3] != old[:3] and SequenceMatcher(None, old, new).ratio() < 0.6 for old in was)
        for new in now
    )


def _compares_others(stated: _Text, said: _Text) -> bool:
    """Return whether both compare, but with different things: "more than B", "fewer than A"."""
    if "than" not in stated.words or "than" not in said.words:
        return False
    places = stated.words.index("than"), said.words.index("than")
    return stated.content_after(places[0]) != said.content_after(places[1])


def _exchanges(stated: _Text, said: _Text, edits: Sequence[Edit]) -> bool:
    """Find two things in exchanged places, but not two of one list, nor a change of voice."""
    if ("by" in stated.words) != ("by" in said.words):
        return False
    replaced = [each for each in edits if max(part.stop - part.start for part in each) <= 2 * _FEW]
    for place, (old, new) in enumerate(replaced):
        for other_old, other_new in replaced[place + 1 :]:
            if _joins(stated.forms[old.stop : other_old.start]):
                continue
            for part in (_Text.contents_of, _Text.names_of):
                was, now = part(stated, old), part(said, new)
                then, there = part(stated, other_old), part(said, other_new)
                if was and then and was != then and was == there and now == then:
                    return _connects_alike(stated.words, said.words)
    return False


@dataclass(frozen=True)
class _Thing:
    """Content words side by side, where they begin, and what is next to them on each side.

    That is the nearest content word, and the words between that link them.
    """

    start: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    def replaces(self, other: _Thing, earlier: _Thing) -> bool:
        """Return whether it has a neighbour of another thing, and none that it had earlier."""
        ours, others = (self.before, self.after), (other.before, other.after)
        kept = (earlier.before, earlier.after)
        return any(our and our == each for our, each in zip(ours, others, strict=True)) and not any(
            our and our[0] == each[0] for our, each in zip(ours, kept, strict=True) if each
        )


def _trades_places(stated: _Text, said: _Text) -> bool:
    """Find two things of which each has a neighbour that the other had, in the other order."""
    if stated.words.count("by") != said.words.count("by") or said.shares(stated) < 0.8:
        return False
    ours, theirs = _things(said, stated), _things(stated, said)
    for one, other in combinations([name for name in ours if name in theirs], 2):
        if (
            (ours[one].start < ours[other].start) != (theirs[one].start < theirs[other].start)
            and ours[one].replaces(theirs[other], theirs[one])
            and ours[other].replaces(theirs[one], theirs[other])
            and not _are_together(ours[one], ours[other], said)
            and not _are_together(theirs[one], theirs[other], stated)
        ):
            return _connects_alike(stated.words, said.words)
    return False


def _things(text: _Text, other: _Text) -> dict[tuple[str, ...], _Thing]:
    """Return the things that a text names once; words side by side in both texts are one thing."""
    pairs = set(pairwise(other.keys))
    units: list[list[int]] = []
    for at in text.contents:
        if units and units[-1][-1] == at - 1 and (text.keys[at - 1], text.keys[at]) in pairs:
            units[-1].append(at)
        else:
            units.append([at])
    names = [tuple(text.keys[at] for at in unit) for unit in units]
    found = {}
    for place, (name, unit) in enumerate(zip(names, units, strict=True)):
        if names.count(name) > 1 or is_number(name[0]) or name[0] in _MONTHS:
            continue
        before: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        if place:
            last = units[place - 1][-1]
            before = text.keys[last], *text.links(last + 1, unit[0])
        if place + 1 < len(units):
            first = units[place + 1][0]
            owner = ["'s"] if text.words[unit[-1]].endswith("'s") else []
            after = text.keys[first], *owner, *text.links(unit[-1] + 1, first)
        found[name] = _Thing(unit[0], before, after)
    return found


def _are_together(one: _Thing, other: _Thing, text: _Text) -> bool:
    """Return whether two things are in one list, or do something together."""
    first, last = sorted((one.start, other.start))
    return _joins(text.forms[first + 1 : last])


def _joins(between: Sequence[str]) -> bool:
    """Return whether words only join what is beside them: "and", "is married to", "merged with".

    Names between them are other things of the list, or parts of theirs.
    """
    links = [word for word in between if word.islower() and word not in _GLUE | _AUXILIARIES]
    return all(word in _SYMMETRIC for word in links) or (len(links) == 2 and links[1] == "with")


def _connects_alike(stated: Sequence[str], said: Sequence[str]) -> bool:
    """Return whether neither text has a word whose opposite is in the other."""
    if ("from" in stated) != ("from" in said):  # "A rents it to B", "B rents it from A"
        return False
    return not any(_OPPOSITES.get(word, set()) & (set(said) - set(stated)) for word in stated)


_TO_BE = frozenset("to be have been".split())
_AHEAD = frozenset("to will would".split())
_BE = frozenset("is was are were been being be".split())


def _turns_voice(stated: _Text, said: _Text) -> bool:
    """Find "A was acquired by B" beside "A acquired B"."""
    return any(
        (place and passive.words[place - 1], passive.keys[place + 1]) in set(_actions(active))
        for passive, active in ((stated, said), (said, stated))
        for place, word in enumerate(passive.words[:-2])
        if word in _BE and "by" in passive.words[place + 2 : place + 10]
    )


_SETTINGS = frozenset("in for from at".split())


def _actions(text: _Text) -> Iterator[tuple[str, str]]:
    """Yield words and the verbs right behind them, where no passive is."""
    for place in range(1, len(text.words)):
        behind = text.words[place + 1 : place + 10]
        # "The house acquired by ...", "The house, acquired in 1990, ..."
        passive = "by" in behind or not _SETTINGS.isdisjoint(behind[:1])
        if text.words[place].endswith("ed") and text.words[place - 1] not in _BE and not passive:
            yield text.words[place - 1], text.keys[place]


def _negates(stated: _Text, said: _Text) -> bool:
    """Find a word that is negated in one text and stated in the other, if they share most words."""
    if said.shares(stated) < 0.7 or said.has(_EXCEPT) != stated.has(_EXCEPT):
        return False
    ours, theirs = _negated(said), _negated(stated)
    for one, other, text in ((ours, theirs, stated), (theirs, ours, said)):
        for key in one - other:
            if text.keys.count(key) == 1 and not text.has(_NOT | _NONE):
                return True
    return False


# "Not without consent": with consent it may be so.
_BOUNDS = frozenset("without unless except until before prior".split())


def _meets_bound(bounded: _Text, other: _Text) -> bool:
    """Return whether one text denies something up to a bound that the other is beyond.

    "It may not be amended except in writing" does not deny that it may be amended in writing.
    """
    if other.has(_NOT | _NONE) or any(_find_bounds(other)):
        return False
    for at in _find_bounds(bounded):
        # "The tenant may not sublet unless the tenant pays": the subject again is no bound.
        new = [bounded.keys[n] for n in bounded.contents if n > at]
        bound = next((key for key in new if key not in bounded.keys[:at]), "")
        if bound in other.key_set and not (_NOT | _NONE).isdisjoint(bounded.words[:at]):
            return True
    return False


def _find_bounds(text: _Text) -> Iterator[int]:
    for place, word in enumerate(text.words):
        prior = word == "prior" and text.words[place + 1 : place + 2] != ["to"]
        if word in _BOUNDS and not prior:
            yield place


def _differs_by_prefix(stated: _Text, said: _Text) -> bool:
    """Find a word beside its negation in the other text: "unsecured", "non-exclusive"."""
    if said.shares(stated) < 0.5 or said.has(_NOT) != stated.has(_NOT):
        return False
    return any(
        (found[1] or found[2]) in set(other.words) - set(one.words) and word not in other.words
        for one, other in ((stated, said), (said, stated))
        for word in one.words
        if (found := _NEGATING.fullmatch(word))
    )


_NEGATING = re.compile(r"(?:un|non)(\w{4,})|(?:in|im|ir|il|dis)(\w{5,})")


def _negated(text: _Text) -> set[str]:
    """Return the content words right behind a negation."""
    found = set()
    for place, word in enumerate(text.words):
        following = text.words[place + 1 : place + 2]
        if word in ("not", "never", "cannot") and not set(following) & (_ALL | _ONLY):
            at = next((at for at in text.contents if at > place), None)
            # "not more than 30 days" limits the number and denies nothing
            limits = at is not None and "than" in text.words[place:at] and is_number(text.keys[at])
            if at is not None and at - place <= 3 and not limits:
                found.add(text.keys[at])
    return found


_VERBS_AHEAD = _AUXILIARIES | _FREE | {"shall", "must", "would"}
_COMPARES = frozenset("more less fewer longer later earlier sooner better worse".split())


def _denies_of_all(stated: _Text, said: _Text) -> bool:
    """Find "No patent rights are waived" beside a claim that patent rights are waived."""
    if said.has(_NOT | _NONE) or stated.has(_EXCEPT | _COMPARES | _NOT):
        return False
    first = next((at for at, word in enumerate(stated.words[:3]) if word == "no"), None)
    if first is None:  # behind the letter or number of an item at most
        return False
    verb = next((at for at, word in enumerate(stated.words) if word in _VERBS_AHEAD), 0)
    behind = [stated.keys[at] for at in stated.contents if at > verb][:1]
    about = {stated.keys[at] for at in stated.contents if first < at < verb}
    shared = about & said.key_set
    alike = len(shared) > 1 or (bool(about) and shared == about)
    return alike and said.key_set.issuperset(behind) and bool(behind)


def _opposes(stated: _Text, said: _Text) -> bool:
    """Find opposites beside the same word, where each stands in one text alone."""
    if said.shares(stated) < 0.6:
        return False
    for place, word in enumerate(said.words):
        others = _OPPOSITES.get(word, set()) & set(stated.words) - set(said.words)
        if word in stated.words or word == "to" or word == "from":
            continue
        for other in others:
            at = stated.words.index(other)
            after = said.content_after(place)
            if after and after == stated.content_after(at):
                before = said.content_before(place)
                near = before == stated.content_before(at) or place == 0 or at == 0
                if near and not _compares_others(stated, said):
                    return said.has(_NOT) == stated.has(_NOT)
    return False


def _names_another_agent(stated: _Text, said: _Text) -> bool:
    """Find "directed by A" in one text and "directed by B" in the other, which has A elsewhere."""
    ours, theirs = _done_by(said), _done_by(stated)
    return any(
        names and theirs[verb] and names.isdisjoint(theirs[verb]) and names <= stated.key_set
        for verb, names in ours.items()
        if verb in theirs
    )


def _done_by(text: _Text) -> dict[str, set[str]]:
    """Return the names after each participle and "by"."""
    found: dict[str, set[str]] = {}
    for place, word in enumerate(text.words):
        names = found.setdefault(text.keys[place - 1], set()) if word == "by" and place else set()
        at = place + 1
        # "by Ada, the owner": the names end there.
        while word == "by" and at < len(text.words):
            named = text.is_name(at)
            if not named and text.words[at] not in (("and", "of") if names else ("the",)):
                break
            names |= {text.keys[at]} if named else set()
            at += 1
    return found


def _drops_hedge(stated: _Text, said: _Text) -> bool:
    """Find a hedge whose next words are in the claim, which states them outright."""
    if said.has(_CERTAIN) and stated.has(_HEDGES) and not stated.has(_CERTAIN):
        return said.shares(stated) >= 0.6
    unsure = _UNSURE.intersection(said.words)
    if said.shares(stated) < 0.8 or not unsure <= set(stated.words):
        return False
    for place, word in enumerate(stated.forms):
        if word in said.words:
            continue
        attempts = word in _ATTEMPTS and stated.words[place + 1 : place + 2] == ["to"]
        nexts = [at for at in stated.contents if at > place][:3]
        following = [stated.keys[at] for at in nexts]
        disputed = (
            word in _REPORTED - _WEAK
            and stated.words[place + 1 : place + 2] == ["that"]
            and stated.keys[place] not in said.key_set  # "argued" for "argues"
        )
        if (word in _HEDGES or attempts or disputed) and following and following[0] in said.key_set:
            at = said.keys.index(following[0])
            kept = (unsure - _WEAK).intersection(said.words[max(0, at - 6) : at])
            # "The plant opened" beside "is expected to open in May": the claim ends with the verb.
            between = stated.words[place + 1 : nexts[0]]
            # A clause behind a comma may say that it did.
            plans = between[:1] == ["to"] and "," not in stated.text
            alone = plans and _TO_BE.issuperset(between) and _ends_done(said, at)
            alike = alone or sum(key in said.key_set for key in following) > 1
            # "It was expected to open in May, but opened in June."
            happened = between[:1] == ["to"] and said.words[at] in stated.words[nexts[0] + 1 :]
            ahead = said.words[max(0, at - 2) : at]  # "is to open"
            planned = ahead[-1:] == ["to"] and ahead[0] in _BE
            if alike and not kept and not planned and not happened:
                return True
    return False


def _ends_done(text: _Text, place: int) -> bool:
    """Return whether a text ends with the word at a place, and that is a past tense."""
    done = text.words[place].endswith("ed") and not text.has(_AHEAD)
    return done and place == len(text.words) - 1


def _moves_number(stated: _Text, said: _Text) -> bool:
    """Find a number of the source with the unit of another one."""
    ours, theirs = _measures(said), _measures(stated)
    units = {unit for _, unit in theirs}
    return any(
        ((number, unit) not in theirs and unit in units and number in {n for n, _ in theirs})
        or (unit in _SCALES and any(n == number and u in _SCALES - {unit} for n, u in theirs))
        or (
            (number, unit) not in theirs
            and any(unit in kind and any((number, u) in theirs for u in kind) for kind in _KINDS)
        )
        for number, unit in ours
    )


def _moves_year(stated: _Text, said: _Text) -> bool:
    """Find a number of the source with the year of another one, where years and numbers alternate.

    "It was 10 million in 2022 and 12 million in 2023."
    """
    ours = [key for key in said.keys if is_number(key)]
    places = [at for at, key in enumerate(stated.keys) if is_number(key)]
    theirs = [stated.keys[at] for at in places]
    years = [_YEAR.fullmatch(number) is not None for number in theirs]
    alternate = len(theirs) > 2 and all(one != other for one, other in pairwise(years))
    dated = [_YEAR.fullmatch(number) is not None for number in ours]
    if sorted(dated) != [False, True] or len(theirs) % 2 or not alternate:
        return False
    pairs = [{*pair} for pair in zip(theirs[::2], theirs[1::2], strict=True)]
    near = all(b - a <= _FEW for a, b in zip(places[::2], places[1::2], strict=True))
    return near and {*ours} not in pairs and {*ours} <= {*theirs}


def _changes_currency(claim: str, source: str) -> bool:
    """Find an amount of the source with the sign of another currency."""
    ours, theirs = (set(_MONEY.findall(text)) for text in (claim, source))
    amounts = {amount for _, amount in theirs}
    return any(each not in theirs and each[1] in amounts for each in ours)


def _pairs_otherwise(claim: str, source: str) -> bool:
    """Find items of two lists that "respectively" pairs with others."""
    if COMPARISON.search(claim):
        return False
    said = set(split_content_words(claim))
    for one, other in find_respective_lists(source):
        places = [
            [at for at, (_, words) in enumerate(each) if words <= said] for each in (one, other)
        ]
        if len(places[0]) == len(places[1]) == 1 and places[0] != places[1]:
            return True
    return False


_SCALES = frozenset(
    (split_content_words(word) or [word])[0]
    for word in ("thousand", "million", "billion", "trillion")
)


_KINDS = tuple(
    frozenset(split_content_words(each))
    for each in (
        "feet yards miles metres",
        "seconds minutes hours days weeks months years",
        "dollars euros pounds yen",
        "percent basis",
    )
)
_MONEY = re.compile(r"([$€£¥])\s?(\d(?:[\d,.]*\d)?)")


def _measures(text: _Text) -> set[tuple[str, str]]:
    """Return numbers, but not years, with the words right behind them."""
    return {
        (key, text.keys[place + 1])
        for place, key in enumerate(text.keys[:-1])
        if is_number(key)
        and not (len(key) == 4 and key.isdecimal())
        and text.words[place + 1].isalpha()
        and len(text.words[place + 1]) > 2
        and text.words[place + 1] not in _GLUE | _SYMMETRIC
        and text.found[place + 1].start() - text.found[place].end() <= 1  # no mark between
    }
