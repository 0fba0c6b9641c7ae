"""Is an answer about what was asked?

A small reader that gets only passages about other things answers all the same: asked for the
members of one band, it gives those of another. What a question is about mostly has a name, so an
answer counts only if some document that was read has one of the question's names.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from colligate.core.answer import Answer
from colligate.core.citing import NOT_FOUND
from colligate.core.run import Run
from colligate.core.support import split_content_words
from colligate.documents import Document

_ENGLISH = re.compile(r"\b(?:what|which|who|whom|whose|when|where|why|how)\b", re.I)
_WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*")
# What stands before a word that has a capital as the first of its sentence, or greets somebody.
_BEFORE_FIRST = re.compile(
    r"(?:^\W*(?:(?:hi|hello|hey|dear)[,\s]+)?"
    r"|(?:[?!:]|\b(?!(?:mrs?|ms|dr|prof|st|mt|vs|[a-z])\.)\w+\.)[^\w\s]*\s+[^\w\s]*)(?=\w)",
    re.I,
)
_ACCENTS = re.compile("[\u0300-\u036f]+")
_ALIKE = 5  # letters: "Canada" and "Canadian", "Betelgeuse" and "Betelguese"
_SHORTEST = 3  # letters of a word that tells one name from another

# Words of names that tell what kind of thing it is: a river of another name is another river.
_KINDS = frozenset(
    """
    act agreement article association award bank battle bay bill book border bridge building castle
    cathedral championship church city club code college committee company conference conservatory
    constitution contract corporation council county court cup department district division dollar
    dollars east eastern election empire euro euros festival film form franc francs group high
    hospital house inc institute international island item king kingdom lake law league lease
    licence license ltd major middle mount mountain mountains museum national new north northern
    ocean olympics page paper park party peninsula policy pound pounds president prince protocol
    province public queen region report republic river road saint school science sea section series
    song south southern standard state states station street super table team theatre tour tower
    town treaty university valley war west western world yen january february march april may june
    july august september october november december monday tuesday wednesday thursday friday
    saturday sunday
    """.split()
)


def find_names(question: str) -> list[list[str]]:
    """Return the names in a question, each as the words that tell it from others of its kind.

    They are told by their capitals, so there are none in a question that is not English or written
    in capitals throughout. Abbreviations are left out: documents often write them in full.

    >>> find_names("Which river is the Kraai River a tributary of?")
    [['Kraai']]
    """
    words = list(_WORD.finditer(question))
    content = [word.group() for word in words if split_content_words(word.group())]
    if not _ENGLISH.search(question) or all(word[0].isupper() for word in content):
        return []
    names: list[list[str]] = []
    end = -1  # of the word of a name before
    first = {found.end() for found in _BEFORE_FIRST.finditer(question)}
    for found in words:
        if found.start() in first:
            continue
        word = found.group().removesuffix("'s").removesuffix("’s")
        if not word[0].isupper() or not split_content_words(word):
            continue
        if question[end : found.start()] != " ":
            names.append([])
        end = found.end()
        abbreviates = len(word) < _SHORTEST or not word[1:].islower()
        if not abbreviates and word.casefold() not in _KINDS:
            names[-1].append(word)
    return [name for name in names if name]


def mentions(text: str, names: Sequence[Sequence[str]]) -> bool:
    """Return whether a text has half of the words of one of these names, or words that begin alike.

    >>> mentions("A poem of Kipling's.", [["Rudyard", "Kipling"]])
    True
    """
    folded = _fold(text)
    return any(2 * sum(_begins(word, folded) for word in name) >= len(name) for name in names)


def _begins(word: str, folded: str) -> bool:
    """Return whether a word of a folded text begins as this one does."""
    return re.search(rf"\b{re.escape(_fold(word)[:_ALIKE])}", folded) is not None


def _fold(text: str) -> str:
    """Return a text without capitals and accents."""
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).casefold()


async def check_subject(answer: Answer, run: Run) -> Answer:
    """Return the answer, or a refusal if no document that was read has a name of its question.

    A single document is what the question is about, whatever it is called there. Documents in
    another language than English may write names in another way.
    """
    names = find_names(answer.question)
    if not (answer.found and answer.citations and names):
        return answer
    if len(await run.sources.documents()) < 2:
        return answer
    cited = [citation.span.document_id for citation in answer.citations]
    for name in dict.fromkeys([*cited, *(each.span.document_id for each in answer.evidence)]):
        if await asyncio.to_thread(_may_name_one, await run.document(name), names):
            return answer
    asked = " or ".join(f"“{' '.join(name)}”" for name in names)
    run.warn(
        f"an answer was left out: no document that was read mentions {asked}. "
        "If the documents use another name for it, ask with that one"
    )
    return replace(answer, text=NOT_FOUND, found=False, short=None, citations=())


def _may_name_one(document: Document, names: Sequence[Sequence[str]]) -> bool:
    """Return whether a document has one of these names, or is in another language."""
    if document.language not in ("en", "und"):
        return True
    return mentions(f"{document.title}\n{document.source}\n{document.text}", names)
