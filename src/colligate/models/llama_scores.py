"""Log-probabilities of given text under llama.cpp, which tells only those of what it writes.

So it is made to write the text. A grammar of literal tokens leaves it one thing to write, and
the numbers are those of the whole vocabulary, before the grammar. A token that is no whole
character (a rare letter or an emoji is several) cannot be written so: there the model writes
something else, and the token is looked up among the alternatives it had.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby

from colligate.errors import ServerFailed
from colligate.models.label_odds import odds_of
from colligate.models.llama_engine import Engine, Token
from colligate.models.protocols import LabelOdds, Message
from colligate.models.text import encodable

_LIKELIEST = 2000  # looked through first: to list a whole vocabulary takes up to seconds
_CERTAIN = 1e4


def likelihoods(
    engine: Engine, prefix: str, continuations: Sequence[str], stopped: threading.Event
) -> list[list[float]]:
    """Log-probabilities of each continuation's tokens after the prefix, all taken literally."""
    before = engine.tokens(prefix, beginning=True)
    return [_score(engine, before, engine.pieces(text), stopped) for text in continuations]


def label_odds(
    engine: Engine,
    messages: Sequence[Message],
    labels: Sequence[str],
    forced: str,
    stopped: threading.Event,
) -> LabelOdds:
    """Odds of the labels after the messages in the template and the answer's forced beginning."""
    before = engine.prompt_tokens(messages) + engine.tokens(forced)
    return odds_of(
        {
            label: sum(_score(engine, before, engine.pieces(encodable(label)), stopped))
            for label in labels
        }
    )


def _score(
    engine: Engine, prefix: list[int], continuation: list[Token], stopped: threading.Event
) -> list[float]:
    if continuation and len(prefix) + len(continuation) > engine.context:
        raise engine.too_small(len(prefix) + len(continuation))
    scores: list[float] = []
    context = list(prefix)
    for writable, run in groupby(continuation, _writable):
        ids = [token.id for token in run]
        if writable:
            scores += _written(engine, context, ids, stopped)
            context += ids
            continue
        for token in ids:
            scores.append(_looked_up(engine, context, token, stopped))
            context.append(token)
    return scores


def _writable(token: Token) -> bool:
    try:
        return not token.piece.decode().startswith("\0")
    except UnicodeDecodeError:
        return False


def _written(
    engine: Engine, context: list[int], ids: list[int], stopped: threading.Event
) -> list[float]:
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in ids)
    request = {"max_tokens": len(ids), "grammar": grammar, "temperature": 0.0, "logprobs": 1}
    tokens = engine.complete(context, request, stopped)
    if [token["id"] for token in tokens] != ids:
        raise ServerFailed(
            f"{engine.name} cannot score this continuation", "llama.cpp wrote other tokens"
        )
    return [token["logprob"] for token in tokens]


def _looked_up(engine: Engine, context: list[int], token: int, stopped: threading.Event) -> float:
    # What is written instead must be whole characters, or llama.cpp says nothing of it.
    whole = engine.tokens("a")[-1]
    for most in (_LIKELIEST, engine.vocabulary()):
        bias = [[whole, _CERTAIN]]
        request = {"max_tokens": 1, "temperature": 0.0, "logprobs": most, "logit_bias": bias}
        for written in engine.complete(context, request, stopped):
            for alternative in written["top_logprobs"]:
                if alternative["id"] == token:
                    return float(alternative["logprob"])
    raise ServerFailed(
        f"{engine.name} cannot score this continuation", f"llama.cpp does not show token {token}"
    )
