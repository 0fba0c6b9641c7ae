"""Questions of yes or no: does a sentence say so, or does it say otherwise?

A small reader that is asked such a question over a passage says "yes" to most of them. Asked to
compare the question with one sentence, as a claim, it is right far more often (docs/benchmarks.md).
"""

from __future__ import annotations

import re

from colligate.core.citing import LONGEST_QUOTE, Place, Stated, remove_model_marks
from colligate.core.meaning import Meaning, check_short_answer, compare_words
from colligate.core.odds_verifier import OddsVerifier
from colligate.core.orders import has_commands_around
from colligate.core.run import Run
from colligate.core.support import (
    NEAR,
    find_supporting_sentences,
    is_number,
    support,
)
from colligate.documents import Passage

_ASKS = re.compile(
    r"\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|may(?! \d{4}\b)|might|must|"
    r"shall|should|will|would)(?:n['’]t)?\b",
    re.I,
)
# "Is it open or closed?", "Is there a fee, and how much is it?", "Is there a fee? How much is it?"
_ASKS_MORE = re.compile(
    r"\bor\b|(?:\b(?:and|so|yes),?|[.:;!]|, by) (?:who|what|which|when|where|why|how)\b"
    r"|\?[^?\w]*\w[^?]*\?"
    # "Can you tell me when it ends?", "Do you know who signed?", "Does it say where?"
    r"|^\W*(?:can|could|will|would) you (?:please |kindly )?"
    r"(?:tell|list|show|give|name|explain|find|describe|summari[sz]e)\b"
    r"|\b(?:tell|know|say|state|mention|explain|show)s?(?: me| us)?,? "
    r"(?:who(?:m|se)?|what|which|when|where|why|how)\b",
    re.I,
)
_IS_IT_TRUE = re.compile(r"\W*is it (?:true|right|correct|the case) that\s+", re.I)

# Odds, chosen on 44 claims of the building part of benchmarks/meaning.jsonl, each as a question
# beside its sentence: 30 verdicts were right and 3 wrong, of 11 there was none.
_SAYS_SO = 0.6
_SAYS_NEARLY = 0.75  # in other words: "Was it built by her?" "It was opened by her."
_DENIES = 0.6
# Share of the question's words from which a sentence that denies something denies just this: that
# the tenant does not pay for the garden says nothing about the water.
_SAME = 0.8


def asks_verdict(question: str) -> bool:
    """Return whether a question, in English, is answered by yes or no.

    >>> asks_verdict("May the tenant keep a dog?")
    True
    >>> asks_verdict("Is the tenant or the landlord liable?")
    False
    """
    return _ASKS.match(question) is not None and _ASKS_MORE.search(question) is None


async def wants_verdict(question: str, passage: Passage, run: Run) -> bool:
    """Return whether a question is one of yes or no over a passage: "Was kostet es?" is none."""
    if not asks_verdict(question):
        return False
    return (await run.document(passage.document_id)).language in ("en", "und")


async def read_verdict(question: str, passage: Passage, run: Run) -> tuple[str, Stated | None]:
    """Return "Yes" or "No" and the sentence that says so; "" and None if the best sentence of the
    passage does not tell.

    The rules of meaning decide first, then the reader's odds that the sentence states or denies it.
    """
    document = await run.document(passage.document_id)
    claim = _IS_IT_TRUE.sub("", question).rstrip(" ?")
    span = next(find_supporting_sentences(claim, document, passage.span), None)
    if span is None or len(span) > LONGEST_QUOTE:
        return "", None
    if has_commands_around(document, span):
        return "", None
    sentence = remove_model_marks(document.slice(span))
    context = " ".join([passage.full_title, *passage.section, sentence])
    shared = support(claim, context)
    by_words = compare_words(claim, sentence)
    denied = Meaning.CONTRADICTS in (by_words, check_short_answer("Yes", question, sentence))
    if denied and shared.whole >= _SAME:
        said = "No"
    elif by_words is Meaning.SUPPORTS:
        said = "Yes"
    else:
        states, denies, _ = await OddsVerifier(run).compare(question, sentence)
        agrees = states >= (_SAYS_NEARLY if shared.missing else _SAYS_SO) and shared.enough(NEAR)
        differs = denies >= _DENIES and all(map(is_number, shared.missing))
        said = "Yes" if agrees else "No" if differs else ""
    if not said:
        return "", None
    place = Place(span, "verdict", Meaning.SUPPORTS)
    return said, Stated(f"{said}: “{sentence}”", (place,))
