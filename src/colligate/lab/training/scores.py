"""Scores: how near a reply is to the wanted one, for each task that is trained.

Replies are read by the code that reads them at inference. Values are in [0, 1] unless stated. A
metric that does not apply to a sample is not among its values; a name that begins with "_" is only
for `average_values`. With W wanted and F found, F1 is 2 |W and F| / (|W| + |F|).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from pydantic import BaseModel

from colligate.core.prompts import Reasoning
from colligate.documents import Document, Kind, Node, Span, Tree
from colligate.documents.tree import flat_tree
from colligate.errors import FaultyRecord
from colligate.lab.bench.metrics.short_answers import word_overlap
from colligate.lab.training.samples import Sample
from colligate.lab.training.trajectories import sort_name_words
from colligate.library.bm25 import split_words
from colligate.models.structured import parse
from colligate.readers.pointwise import REPLY_TOKENS, is_none
from colligate.strategies.dualrag.knowledge import ELSE
from colligate.strategies.dualrag.prompts import (
    IDENTIFIER_TOKENS,
    REASONER_TOKENS,
    SUMMARY_TOKENS,
    Entities,
    Summary,
    clean_entities,
)
from colligate.strategies.longrefiner import structuring
from colligate.strategies.longrefiner.method import LABEL_TOKENS, parse_scope
from colligate.strategies.longrefiner.selection import TITLES_TOKENS, parse_titles
from colligate.strategies.longrefiner.skeleton import recover
from colligate.strategies.rdr2.method import RDR2
from colligate.strategies.rdr2.router import parse_router_reply
from colligate.strategies.rdr2.tree import StructureNode, StructureTree, SubTree

T = TypeVar("T", bound=BaseModel)
Values = Mapping[str, float]

LOWER_IS_BETTER = frozenset({"xpl_avg", "col_rate"})
"""The router's actions that break a rule, and its replies that cannot be used."""


def score_reply(sample: Sample, reply: str) -> Values:
    """Return the values of one reply to a sample."""
    return STEPS[sample.task].score(sample, reply)


def average_values(values: Sequence[Values]) -> Values:
    """Return the mean of each value over the replies of one task that have it.

    For labels also the mean of both (`balanced_accuracy`), for verdicts the F1 of either.
    """
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for each in values:
        for name, value in each.items():
            by_name[name].append(value)
    found = {name: fmean(of_name) for name, of_name in by_name.items() if name[0] != "_"}
    if "local_accuracy" in found and "global_accuracy" in found:
        found["balanced_accuracy"] = fmean((found["local_accuracy"], found["global_accuracy"]))
    if _MORE in by_name:
        verdicts = [(each[_MORE], each.get(_REPLIED_MORE)) for each in values]
        for name, verdict in (("need_retrieve_f1", 1.0), ("enough_f1", 0.0)):
            right = sum(more == verdict for more, _ in verdicts)
            replied = sum(given == verdict for _, given in verdicts)
            same = sum(more == given == verdict for more, given in verdicts)
            found[name] = _f1(same, right, replied)
    return found


# RDR2's router, by the metrics of the paper's code (its `eval_routing`).
def score_router(sample: Sample, reply: str) -> Values:
    """Score a routing.

    `ans_f1` is the F1 of the paragraphs chosen, 0 if none were; `exp_pre` the precision of the
    headings chosen, 0 if none were; `ref_acc` whether nothing was chosen if nothing should be.
    `xpl_avg` counts the actions that break a rule (0 or more), `col_rate` is 1 if the reply cannot
    be used at all.
    """
    view = shown_subtree(sample.meta["shown"], sample.meta["headings"])
    gold, made = parse_router_reply(sample.target, view), parse_router_reply(reply, view)
    found: dict[str, float] = {}
    if gold.answers:
        same = len(set(made.answers) & set(gold.answers))
        found["ans_f1"] = _f1(same, len(set(gold.answers)), len(set(made.answers)))
    if gold.expansions:
        right = len(set(made.expansions) & set(gold.expansions))
        found["exp_pre"] = right / len(made.expansions) if made.expansions else 0.0
    if not gold.actions:
        found["ref_acc"] = float(not made.actions)
    found["xpl_avg"] = float(len(made.rejected))
    found["col_rate"] = float(made.collapsed)
    return found


def shown_subtree(shown: str, headings: Collection[int]) -> SubTree:
    """Rebuild the subtree that a router was shown from its text, for `parse_router_reply`.

    `headings` are the ids of the lines that are headings: their words do not tell. ValueError if
    the text shows no nodes, or one twice.
    """
    lines = [found for line in shown.split("\n") if (found := _LINE.fullmatch(line))]
    visible = {int(found[2]): (len(found[1]), found[3]) for found in lines}
    if not visible or len(visible) < len(lines):
        raise ValueError("it shows no nodes" if not visible else "it shows a node twice")
    root = min(visible)
    nothing = make_plain_document("")
    span = Span(nothing.id, 0, 0)
    nodes = {}
    # Nodes that are not shown exist without words: ids count up by one in a tree.
    for node in range(root, max(visible) + 1):
        depth, text = visible.get(node, (_HIDDEN, ""))
        nodes[node] = StructureNode(node, node in headings, depth, text, span, None, ())
    tree = StructureTree(nothing, nodes, root)
    return SubTree(tree, (), frozenset(visible), shown)


_LINE = re.compile(r"(\t*)(-?\d+): ?(.*)", re.DOTALL)
_HIDDEN = 1 << 30  # deeper than any other node: a hidden node ends no section


# LongRefiner's three tasks. If W and F are both empty F1 is 1.
def score_scope(sample: Sample, reply: str) -> Values:
    """Score the label of a question.

    `accuracy`: the reply names the wanted label first; the same for questions of either label
    alone, `local_accuracy` and `global_accuracy`. `named`: it names a label.
    """
    wanted, label = parse_scope(sample.target), parse_scope(reply)
    right = float(label == wanted)
    of_label = "global_accuracy" if wanted else "local_accuracy"
    return {"accuracy": right, of_label: right, "named": float(label is not None)}


def score_selection(sample: Sample, reply: str) -> Values:
    """Score the titles that were chosen.

    `exact`: the wanted titles and no others. `title_f1` is of the parts that the titles name;
    `some_f1` is the same if there is something to choose, `none_accuracy` whether nothing was
    chosen if nothing is wanted.
    """
    article = rebuild_outline(sample)
    wanted, found = set(parse_titles(sample.target, article)), set(parse_titles(reply, article))
    f1 = _set_f1(wanted, found)
    return {
        "exact": float(found == wanted),
        "title_f1": f1,
        **({"some_f1": f1} if wanted else {"none_accuracy": float(not found)}),
    }


def score_structuring(sample: Sample, reply: str) -> Values:
    """Score a skeleton; FaultyRecord if the prompt is not the one that inference sends now.

    `coverage` is the share of the text's characters, without blanks, that the reply brings back
    into sections; `usable` whether that is enough for inference. `boundary_f1` is of the paragraphs
    with which a section or sub-section begins, without the first of the text, and `level_f1` of
    these with the level of what begins; only of texts in which one begins, since an empty reply
    finds none either. Paragraphs are separated by blank lines; one within which a section begins
    counts as its first.
    """
    text = make_plain_document(extract_text(sample))
    found = recover(reply, text)
    wanted = _find_boundaries(recover(sample.target, text).tree, text)
    there = _find_boundaries(found.tree, text)
    covered = {"coverage": found.coverage, "usable": float(found.coverage >= structuring.COVERAGE)}
    if not wanted:
        return covered
    return {
        **covered,
        "boundary_f1": _set_f1({at for at, _ in wanted}, {at for at, _ in there}),
        "level_f1": _set_f1(wanted, there),
    }


_PARAGRAPH = re.compile(r"(?:\A|\n[^\S\n]*\n)\s*(?=\S)")


def _find_boundaries(tree: Tree, text: Document) -> set[tuple[int, int]]:
    """Return the paragraphs with which sections begin, by number from 1, each with its level."""
    starts = [match.end() for match in _PARAGRAPH.finditer(text.text)]
    places = ((bisect_right(starts, node.span.start) - 1, node.level) for node in tree.sections)
    return {(at, level) for at, level in places if at > 0}


def extract_text(sample: Sample) -> str:
    """Return the text to structure; FaultyRecord if inference sends another prompt now."""
    before, _, after = structuring.structuring_messages("\0")[0].content.partition("\0")
    content = sample.messages[0].content
    if len(sample.messages) != 2 or not (content.startswith(before) and content.endswith(after)):
        why = "it was made with another version of the prompt"
        raise FaultyRecord(f"cannot read sample {sample.id}", why, "curate the samples again")
    return content[len(before) : len(content) - len(after)]


def make_plain_document(text: str) -> Document:
    """Return a document of which only the text is known."""
    return Document("text", "", text, flat_tree("text", len(text)))


def rebuild_outline(sample: Sample) -> structuring.Article:
    """Rebuild the document of a selection sample, without text, for `parse_titles`."""
    nodes = tuple(
        Node(place, Kind.SECTION, structuring.LEVELS.index(level), title, Span("text", 0, 0))
        for place, (level, title) in enumerate(sample.meta["nodes"])
    )
    return structuring.Article(make_plain_document(""), nodes)


# DualRAG's three roles. A reply that inference could not read is wrong in all of them, although a
# run asks again and then uses a fallback.

_MORE, _REPLIED_MORE = "_more", "_replied_more"  # verdicts, for the F1 of `average_values`


def score_reasoner(sample: Sample, reply: str) -> Values:
    """Score a verdict: `need_retrieve_accuracy` is whether it is the wanted one."""
    more, given = parse(sample.target, Reasoning)[0].need_retrieve, _parse_or_none(reply, Reasoning)
    values = {_MORE: float(more), "need_retrieve_accuracy": 0.0}
    if given is not None:
        values["need_retrieve_accuracy"] = float(given.need_retrieve == more)
        values[_REPLIED_MORE] = float(given.need_retrieve)
    return values


def score_identifier(sample: Sample, reply: str) -> Values:
    """Score entities: `entity_f1` of their names by words, `keyword_f1` of all queries' words."""
    names, queries = _names_and_words(parse(sample.target, Entities)[0])
    given = _parse_or_none(reply, Entities)
    given_names, given_queries = _names_and_words(given) if given is not None else (set(), set())
    return {
        "entity_f1": _f1(len(names & given_names), len(names), len(given_names)),
        "keyword_f1": _f1(len(queries & given_queries), len(queries), len(given_queries)),
    }


def _names_and_words(entities: Entities) -> tuple[set[tuple[str, ...]], set[str]]:
    """Return the entities by their words, and the words of all queries."""
    clean = [(name, asked) for name, asked in clean_entities(entities.entities, "") if name != ELSE]
    words = {
        word for _, asked in clean for query in asked for word in split_words(query.casefold())
    }
    return {sort_name_words(name) for name, _ in clean}, words


def score_summarizer(sample: Sample, reply: str) -> Values:
    """Score statements.

    `none_accuracy`: it finds something if there is something to find and nothing if there is
    nothing; `none_recall` is the same if there is nothing. If there is something, `token_f1` is of
    the words stated. `quote_precision` is the share of its quotes that are in the prompt, if it
    quotes.
    """
    right, given = parse(sample.target, Summary)[0].statements, _parse_or_none(reply, Summary)
    statements = given.statements if given is not None else []
    values = {"none_accuracy": float(given is not None and bool(statements) == bool(right))}
    if right:
        stated = " ".join(each.sentence for each in statements)
        values["token_f1"] = word_overlap(stated, [" ".join(each.sentence for each in right)]).f1
    else:
        values["none_recall"] = values["none_accuracy"]
    if statements:
        prompt = " ".join(sample.prompt[-1].content.split())
        quotes = [" ".join(each.quote.split()) for each in statements]
        values["quote_precision"] = sum(bool(q) and q in prompt for q in quotes) / len(statements)
    return values


def score_reading(sample: Sample, reply: str) -> Values:
    """Score a short answer: `answer_f1` of its words, or `none_accuracy` where there is none."""
    if is_none(sample.target):
        return {"none_accuracy": float(is_none(reply))}
    return {"answer_f1": 0.0 if is_none(reply) else word_overlap(reply, [sample.target]).f1}


def _parse_or_none(reply: str, schema: type[T]) -> T | None:
    try:
        return parse(reply, schema)[0]
    except ValueError:
        return None


def _set_f1(wanted: Collection[object], found: Collection[object]) -> float:
    """Return the F1 of two sets; 1 if both are empty."""
    same = len(set(wanted) & set(found))
    return _f1(same, len(wanted), len(found)) if wanted or found else 1.0


def _f1(same: int, wanted: int, found: int) -> float:
    return 2 * same / (wanted + found) if same else 0.0


@dataclass(frozen=True)
class Step:
    """What scores a task's replies, of at most `tokens` (None: as many as its prompt)."""

    score: Callable[[Sample, str], Values]
    tokens: int | None = None
    schema: type[BaseModel] | None = None


STEPS: Mapping[str, Step] = {
    "router": Step(score_router, RDR2().reply_tokens),
    "scope": Step(score_scope, LABEL_TOKENS),
    "structuring": Step(score_structuring),
    "selection": Step(score_selection, TITLES_TOKENS),
    "reasoner": Step(score_reasoner, REASONER_TOKENS, Reasoning),
    "identifier": Step(score_identifier, IDENTIFIER_TOKENS, Entities),
    "summarizer": Step(score_summarizer, SUMMARY_TOKENS, Summary),
    "reading": Step(score_reading, REPLY_TOKENS),
}
"""The tasks that are trained, by name."""
