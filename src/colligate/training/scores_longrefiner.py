"""How near a reply comes to the one that was to be learnt, for LongRefiner's three tasks.

Replies are read by what reads them at inference. Values are in [0, 1]; what does not apply to a
sample is not among its values. With W what is wanted and F what is found, precision is
|W and F| / |F|, recall |W and F| / |W|, and F1 2 |W and F| / (|W| + |F|); all are 1 where both
are empty, and 0 where one is.

- "scope": `accuracy`, whether the reply names the wanted label first, and the same for the
  questions of either label alone, `local_accuracy` and `global_accuracy`; `named`, whether it
  names a label at all. Of many replies also `balanced_accuracy`, the mean of the two labels'.
- "selection": `exact`, whether the titles are the wanted ones and no others; `title_precision`,
  `title_recall` and `title_f1` of the parts that they name; `some_f1`, the last where there is
  something to choose, and `none_accuracy`, whether nothing is chosen where nothing is wanted.
- "structuring": `coverage`, the share of the text's characters, blanks apart, that the reply
  brings back into sections, and `usable`, whether that is as much as inference asks for.
  `boundary_precision`, `boundary_recall` and `boundary_f1` of the paragraphs with which a section
  or a sub-section begins, the first of the text left out, and `level_f1` of these paragraphs each
  with the level of what begins there; of the texts alone in which one begins, since to find none
  where there is none is what a reply does that says nothing. A paragraph is what stands between
  blank lines; one within which a section begins counts as its first.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from colligate.documents import Document, Tree
from colligate.strategies.longrefiner.method import Refiner, parse_scope
from colligate.strategies.longrefiner.selection import parse_titles
from colligate.strategies.longrefiner.skeleton import recover
from colligate.training.longrefiner_samples import extract_text, make_plain_document, outlined
from colligate.training.samples import Sample

_PARAGRAPH = re.compile(r"(?:\A|\n[^\S\n]*\n)\s*(?=\S)")


def score(sample: Sample, reply: str) -> Mapping[str, float]:
    """What a reply is worth beside the sample's own.

    Raises:
        FaultyRecord: a structuring sample's prompt is not the one that inference sends now.
    """
    match sample.task:
        case "scope":
            return _scope(sample, reply)
        case "selection":
            return _selection(sample, reply)
        case "structuring":
            return _structuring(sample, reply)
    raise ValueError(f"{sample.task} is no task of LongRefiner")


def summed(scores: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The mean of each value over the replies of one task that have it; labels also in balance."""
    names = dict.fromkeys(name for each in scores for name in each)
    found = {name: fmean(each[name] for each in scores if name in each) for name in names}
    if "local_accuracy" in found and "global_accuracy" in found:
        found["balanced_accuracy"] = fmean((found["local_accuracy"], found["global_accuracy"]))
    return found


def _scope(sample: Sample, reply: str) -> dict[str, float]:
    wanted, said = parse_scope(sample.target), parse_scope(reply)
    right = float(said == wanted)
    of_label = "global_accuracy" if wanted else "local_accuracy"
    return {"accuracy": right, of_label: right, "named": float(said is not None)}


def _selection(sample: Sample, reply: str) -> dict[str, float]:
    article = outlined(sample)
    wanted, found = set(parse_titles(sample.target, article)), set(parse_titles(reply, article))
    precision, recall, f1 = _agreement(wanted, found)
    return {
        "exact": float(found == wanted),
        "title_precision": precision,
        "title_recall": recall,
        "title_f1": f1,
        **({"some_f1": f1} if wanted else {"none_accuracy": float(not found)}),
    }


def _structuring(sample: Sample, reply: str) -> dict[str, float]:
    text = make_plain_document(extract_text(sample))
    found = recover(reply, text)
    wanted = _boundaries(recover(sample.target, text).tree, text)
    there = _boundaries(found.tree, text)
    covered = {
        "coverage": found.coverage,
        "usable": float(found.coverage >= Refiner.coverage),
    }
    if not wanted:
        return covered
    precision, recall, f1 = _agreement({at for at, _ in wanted}, {at for at, _ in there})
    return {
        **covered,
        "boundary_precision": precision,
        "boundary_recall": recall,
        "boundary_f1": f1,
        "level_f1": _agreement(wanted, there)[2],
    }


def _boundaries(tree: Tree, text: Document) -> set[tuple[int, int]]:
    """Paragraphs with which sections begin, by number from 1, each with the section's level."""
    starts = [match.end() for match in _PARAGRAPH.finditer(text.text)]
    places = ((bisect_right(starts, node.span.start) - 1, node.level) for node in tree.sections)
    return {(at, level) for at, level in places if at > 0}


def _agreement(wanted: Collection[object], found: Collection[object]) -> tuple[float, float, float]:
    """Precision, recall and F1."""
    if not wanted or not found:
        same = float(not wanted and not found)
        return same, same, same
    right = len(set(wanted) & set(found))
    return right / len(found), right / len(wanted), 2 * right / (len(wanted) + len(found))
