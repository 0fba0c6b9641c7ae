"""LongRefiner's scores of the nodes of an article (sections 4.2 to 4.4 of its specification)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from colligate.evidence.article import Article, Level


class GSMode(StrEnum):
    """How a selected title's weight reaches what stands under it."""

    PAPER = "paper"  # all the way down, shared among the children at each step
    CODE = "code"  # as the released code has it: one step, by L + 1


def local_scores(article: Article, leaf_scores: Sequence[float]) -> list[float]:
    """A score for each node: a paragraph's own, else the mean of the children's.

    `leaf_scores` are in the order of `article.leaves`.
    """
    scores = [0.0] * len(article.nodes)
    for leaf, score in zip(article.leaves, leaf_scores, strict=True):
        scores[leaf] = score
    for node in reversed(article.nodes):
        if node.children:
            scores[node.id] = sum(scores[child] for child in node.children) / len(node.children)
    return scores


def min_max(scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """The scores of all nodes of all articles of a question, moved to [0, 1]; all equal are 0.

    The paper leaves this step out, its code has it: without it local scores, which may be
    logits, and global ones are of no common measure.
    """
    pool = [score for row in scores for score in row]
    if not pool:
        return [[] for _ in scores]
    low = min(pool)
    width = max(pool) - low
    return [[(score - low) / width if width else 0.0 for score in row] for row in scores]


def global_scores(
    article: Article, selected: Collection[int], mode: GSMode = GSMode.PAPER
) -> list[float]:
    """A score for each node, from the titles that were selected as helpful (ids of their nodes).

    `PAPER`: a selected node has 1; any other the score of its parent, divided by the number of
    the parent's children. `CODE`: 1 for a selected node, and for each node whose parent is
    selected 1 / (L + 1) besides, where L counts the sub-sections of a parent that is a section
    and the paragraphs of one that is a sub-section; a selected abstract gives its paragraphs
    nothing.
    """
    scores = [0.0] * len(article.nodes)
    for node in article.nodes:
        own = 1.0 if node.id in selected else 0.0
        if node.parent is None:
            scores[node.id] = own
        elif mode is GSMode.CODE:
            inherited = _one_step(article, node.parent) if node.parent in selected else 0.0
            scores[node.id] = own + inherited
        else:
            inherited = scores[node.parent] / len(article.nodes[node.parent].children)
            scores[node.id] = max(own, inherited)
    return scores


def combined(local: Sequence[float], scope: float, global_: Sequence[float]) -> list[float]:
    """LS + R_q * GS for each node; `scope` is R_q, the share of the whole in what is asked."""
    return [ls + scope * gs for ls, gs in zip(local, global_, strict=True)]


def _one_step(article: Article, parent: int) -> float:
    node = article.nodes[parent]
    if node.level is Level.ABSTRACT:
        return 0.0
    counted = Level.SUBSECTION if node.level is Level.SECTION else Level.PARAGRAPH
    return 1 / (sum(article.nodes[child].level is counted for child in node.children) + 1)
