"""How near a reply comes to the one that was to be learnt, for DualRAG's three roles.

A reply that inference could not read is wrong in all of them, though a run asks again and then
helps itself. Values are in [0, 1]; what does not apply to a sample is not among its values, and
those whose names begin with "_" are for `summed` alone.

- "reasoner": `need_retrieve_accuracy`, whether it comes to the same verdict; of many replies also
  the F1 of either verdict, `need_retrieve_f1` and, of the far rarer other one, `enough_f1`.
- "identifier": `entity_precision`, `entity_recall`, `entity_f1` of the names, compared by their
  words; `keyword_f1`, of the content words of all queries together.
- "summarizer": `none_accuracy`, whether it finds something where there is something to find and
  nothing where there is nothing, and `none_recall`, the same where there is nothing; where there
  is something `token_f1`, of the words that it states; `quote_precision`, the share of its quotes
  that stand in the prompt, where it quotes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from pydantic import BaseModel

from colligate.bench.metrics.short_answers import word_overlap
from colligate.core.prompts import Reasoning
from colligate.core.support import split_content_words
from colligate.models.structured import parse
from colligate.strategies.dualrag.knowledge import ELSE, sort_name_words
from colligate.strategies.dualrag.prompts import Entities, Summary, clean_entities
from colligate.training.samples import Sample

T = TypeVar("T", bound=BaseModel)

_MORE, _SAID_MORE = "_more", "_said_more"  # verdicts, which `summed` makes F1 of


def score(sample: Sample, reply: str) -> Mapping[str, float]:
    """What a reply is worth beside the sample's own."""
    match sample.task:
        case "reasoner":
            return _reasoner(sample, reply)
        case "identifier":
            return _identifier(sample, reply)
        case "summarizer":
            return _summarizer(sample, reply)
    raise ValueError(f"{sample.task} is no task of DualRAG")


def summed(scores: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The mean of each value over the replies of one task that have it, and F1 of verdicts."""
    names = dict.fromkeys(name for each in scores for name in each if name[0] != "_")
    found = {name: fmean(each[name] for each in scores if name in each) for name in names}
    if any(_MORE in each for each in scores):
        verdicts = [(each[_MORE], each.get(_SAID_MORE)) for each in scores]
        found["need_retrieve_f1"] = _verdict_f1(1.0, verdicts)
        found["enough_f1"] = _verdict_f1(0.0, verdicts)
    return found


def _reasoner(sample: Sample, reply: str) -> dict[str, float]:
    more, said = parse(sample.target, Reasoning)[0].need_retrieve, _read(reply, Reasoning)
    values = {_MORE: float(more), "need_retrieve_accuracy": 0.0}
    if said is not None:
        values["need_retrieve_accuracy"] = float(said.need_retrieve == more)
        values[_SAID_MORE] = float(said.need_retrieve)
    return values


def _identifier(sample: Sample, reply: str) -> dict[str, float]:
    names, queries = _asked(parse(sample.target, Entities)[0])
    said = _read(reply, Entities)
    said_names, said_queries = _asked(said) if said is not None else (set(), set())
    same = len(names & said_names)
    return {
        "entity_precision": same / len(said_names) if said_names else 0.0,
        "entity_recall": same / len(names) if names else 0.0,
        "entity_f1": _f1(same, len(names), len(said_names)),
        "keyword_f1": _f1(len(queries & said_queries), len(queries), len(said_queries)),
    }


def _asked(entities: Entities) -> tuple[set[tuple[str, ...]], set[str]]:
    """The entities by their words, and the content words of all queries, as inference has them."""
    asked = [
        (name, queries) for name, queries in clean_entities(entities.entities, "") if name != ELSE
    ]
    words = {
        word for _, queries in asked for query in queries for word in split_content_words(query)
    }
    return {sort_name_words(name) for name, _ in asked}, words


def _summarizer(sample: Sample, reply: str) -> dict[str, float]:
    right, said = parse(sample.target, Summary)[0].statements, _read(reply, Summary)
    statements = said.statements if said is not None else []
    values = {"none_accuracy": float(said is not None and bool(statements) == bool(right))}
    if right:
        stated = " ".join(each.sentence for each in statements)
        values["token_f1"] = word_overlap(stated, [" ".join(each.sentence for each in right)]).f1
    else:
        values["none_recall"] = values["none_accuracy"]
    if statements:
        prompt = _bare(sample.prompt[-1].content)
        quoted = [_bare(each.quote) in prompt for each in statements if each.quote.strip()]
        values["quote_precision"] = sum(quoted) / len(statements)
    return values


def _read(reply: str, schema: type[T]) -> T | None:
    """The reply as inference reads it, None where it cannot."""
    try:
        return parse(reply, schema)[0]
    except ValueError:
        return None


def _verdict_f1(verdict: float, pairs: Sequence[tuple[float, float | None]]) -> float:
    right = sum(more == verdict for more, _ in pairs)
    said = sum(said == verdict for _, said in pairs)
    return _f1(sum(more == said == verdict for more, said in pairs), right, said)


def _f1(same: int, right: int, said: int) -> float:
    return 2 * same / (right + said) if same else 0.0


def _bare(text: str) -> str:
    return " ".join(text.split())
