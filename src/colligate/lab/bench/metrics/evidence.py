"""Whether the gold documents, and the answer itself, were retrieved, kept as evidence and cited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colligate.documents.sentences import split_sentences
from colligate.errors import ColligateError
from colligate.lab.bench.metrics.alce import str_em
from colligate.lab.bench.metrics.answers import (
    MARK,
    normalise_squad,
    remove_citation_marks,
    wants_short,
)
from colligate.lab.bench.metrics.groups import Entails, Measures, MetricGroup, import_extra
from colligate.lab.bench.metrics.short_answers import containment
from colligate.lab.bench.outcome import Outcome, Piece
from colligate.lab.bench.question import Question, QuestionReading, QuestionTask

_IN_WORDS = (QuestionTask.SHORT, QuestionTask.READINGS, QuestionTask.SET)


def evidence_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Return gold recall of what was retrieved, of each stage and of the evidence.

    `gold_any_STAGE`, `gold_all_STAGE` and `gold_share_STAGE` are given for the stages `retrieved`,
    `evidence` and those that the strategy names; `retrieved` only where there was a search.
    `gold_precision_STAGE` is the share of a stage's documents that are gold, unknown of none.
    `NAME_gold` and `NAME_other` are the mean scores of both kinds of documents. For
    `answer_in_evidence` the titles of the evidence and the texts handed to the reader, which a
    compressor may have shortened, are joined. `gold_words_in_evidence` is the share of the words
    of the gold texts that the evidence has from their documents. `evidence_words` are unknown of
    what failed. `compression` is how many times fewer words the reader gets than the question's
    documents have.
    """
    measures: dict[str, float] = {}
    if question.gold:
        stages = {**outcome.stages, "evidence": collect_documents(outcome.evidence)}
        if has_searched(outcome):
            stages = {"retrieved": collect_documents(outcome.retrieved), **stages}
        for stage, documents in stages.items():
            recall = gold_recall(question.gold, documents)
            measures.update({f"gold_{how}_{stage}": value for how, value in recall.items()})
            if there := set(documents):
                precision = len(there.intersection(question.gold)) / len(there)
                measures[f"gold_precision_{stage}"] = precision
        for name, scores in outcome.ratings.items():
            for kind, is_gold in (("gold", True), ("other", False)):
                some = [p for id_, p in scores.items() if (id_ in question.gold) is is_gold]
                if some:
                    measures[f"{name}_{kind}"] = fmean(some)
    handed = _list_handed(outcome)
    if answers := verbatim_answers(question):
        shown = "\n".join([*(piece.title for piece in outcome.evidence), *handed])
        measures["answer_in_evidence"] = containment(shown, answers)
    if question.gold_texts:
        measures["gold_words_in_evidence"] = _share_of_words(question, outcome)
    if outcome.error:
        return measures
    words = _count_words(handed)
    measures["evidence_words"] = float(words)
    if words and all(document.text for document in question.documents) and question.documents:
        measures["compression"] = _count_words(each.text for each in question.documents) / words
    return measures


EVIDENCE = MetricGroup("evidence", evidence_measures, lower=("evidence_words", "docscore_other"))


def gold_recall(gold: Collection[str], found: Iterable[str]) -> dict[str, float]:
    """Return how much of the gold was found: `any` of it, `all`, and its `share`."""
    wanted = set(gold)
    share = len(wanted & set(found)) / len(wanted)
    return {"any": float(share > 0), "all": float(share == 1), "share": share}


def verbatim_answers(question: Question) -> tuple[str, ...]:
    """Return the answers that a text may contain word for word; whole paragraphs never are."""
    return question.answers if question.task in _IN_WORDS else ()


def collect_documents(pieces: Iterable[Piece]) -> list[str]:
    """Return the documents of pieces, each once, in the order of their first piece."""
    return list(dict.fromkeys(piece.document for piece in pieces))


def has_searched(outcome: Outcome) -> bool:
    """Tell whether it searched; what failed before is counted as a search without results."""
    rounds = outcome.usage.get("retrieval_rounds", 0)
    return bool(outcome.retrieved or rounds or outcome.error)


def _share_of_words(question: Question, outcome: Outcome) -> float:
    wanted = Counter((id_, word) for id_, text in question.gold_texts for word in text.split())
    found = Counter((e.document, word) for e in outcome.evidence for word in e.text.split())
    return (wanted & found).total() / max(1, wanted.total())


def _list_handed(outcome: Outcome) -> Sequence[str]:
    """Return the texts that were handed to the reader, as it was shown them."""
    return outcome.passages or [piece.text for piece in outcome.evidence]


def _count_words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)


# RDR2's measures of the passages that are handed to a reader, best first

DEPTH = 5  # RDR2's k


def _measure_passages(question: Question, outcome: Outcome) -> Measures | None:
    """Return the measures of what was handed to the reader; a short question is one reading."""
    readings = question.readings
    if not readings and wants_short(question):
        readings = (QuestionReading(question.text, question.answers),)
    if not readings:
        return None
    return passage_scores(_list_handed(outcome), readings)


def passage_scores(
    passages: Sequence[str], readings: Sequence[QuestionReading], k: int = DEPTH
) -> dict[str, float]:
    """Return P-EM, P-HIT, P-SCORE and P-LEN of the first `k` passages.

    P-EM and P-HIT are STR-EM and HIT of the passages together. P-SCORE is the mean over `k` ranks
    of STR-EM divided by the rank: at most .4567 for 5. P-LEN is the mean number of words over `k`
    ranks. A rank without a passage counts 0.
    """
    first = passages[:k]
    together = str_em("\n".join(first), readings)
    by_rank = sum(str_em(text, readings) / rank for rank, text in enumerate(first, 1))
    return {
        "p_em": together,
        "p_hit": float(together == 1),
        "p_score": by_rank / k,
        "p_len": _count_words(first) / k,
    }


PASSAGES = MetricGroup("passages", _measure_passages, lower=("p_len",))


def routing_measures(_: Question, outcome: Outcome) -> Measures | None:
    """Return how often RDR2's router broke a rule, and replied with nothing usable, a subtree."""
    subtrees = outcome.counts.get("subtrees", 0)
    if not subtrees:
        return None
    counts = {"xpl_avg": "expelled", "col_rate": "collapsed"}
    return {name: outcome.counts.get(of, 0) / subtrees for name, of in counts.items()}


ROUTING = MetricGroup("routing", routing_measures, lower=("xpl_avg", "col_rate"))


# Rankings of what searches returned, through pytrec_eval (trec_eval's own code)

CUTS = (1, 5, 10, 20, 50, 100)
_NAMES = {"ndcg_cut": "ndcg", "recall": "recall", "map_cut": "map", "P": "precision"}


def retrieval_measures(question: Question, outcome: Outcome) -> Measures | None:
    """Rank what searches returned: by document, and by passage for an answer in it."""
    if not has_searched(outcome):
        return None
    measures: dict[str, float] = {}
    if question.gold:
        grades = question.meta.get("qrels") or dict.fromkeys(question.gold, 1)  # BEIR's
        excluded = question.meta.get("excluded_ids", ())  # BRIGHT's
        ranked = [each for each in collect_documents(outcome.retrieved) if each not in excluded]
        measures.update(retrieval_scores(ranked, grades))
    if answers := verbatim_answers(question):
        texts = [piece.text for piece in outcome.retrieved]
        if texts and not any(texts):
            why = "it keeps the places of retrieved passages without their texts"
            raise ColligateError("hit_at_K cannot be measured of a row", why, "ask again")
        measures.update(hit_scores(texts, answers))
    return measures or None


RETRIEVAL = MetricGroup("retrieval", retrieval_measures, modules=("pytrec_eval",))


def retrieval_scores(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """Return nDCG, MRR, recall, MAP and precision at 1, 5, 10, 20, 50 and 100, as `NAME_at_K`.

    `ranked` are documents, best first, each once; `grades` how relevant documents are, those
    above 0 are gold. Only nDCG distinguishes grades. An empty ranking scores 0.
    """
    if not ranked:
        names = ("mrr", *_NAMES.values())
        return {f"{name}_at_{k}": 0.0 for name in names for k in CUTS}
    cuts = ",".join(map(str, CUTS))
    measures = {f"{theirs}.{cuts}" for theirs in _NAMES} | {"recip_rank"}
    relevant = {"q": dict(grades)}
    run = {"q": {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}}
    evaluator = import_extra("pytrec_eval").RelevanceEvaluator(relevant, measures)
    found = evaluator.evaluate(run)["q"]
    first = found["recip_rank"]  # 1 / the rank of the first gold document, wherever it is
    scores = {f"mrr_at_{k}": float(first if first * k >= 1 else 0) for k in CUTS}
    for theirs, ours in _NAMES.items():
        scores.update({f"{ours}_at_{k}": float(found[f"{theirs}_{k}"]) for k in CUTS})
    return scores


def hit_scores(passages: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """Return `hit_at_K`: 1 where one of the first K passages contains an answer."""
    wanted = [gold for gold in map(normalise_squad, answers) if gold]
    said = enumerate(map(normalise_squad, passages), 1)
    first = next((rank for rank, text in said if any(gold in text for gold in wanted)), None)
    return {f"hit_at_{k}": float(first is not None and first <= k) for k in CUTS}


# Citations: of the right documents, in every statement, and whether they support it

AT_MOST = 3  # citations of a sentence that ALCE looks at


def citation_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Return precision and recall of cited documents, and the share of cited statements.

    `citation_precision` is the share of cited documents that are gold, `citation_recall` the
    share of gold documents that are cited; both only where the gold is known.
    """
    said = split_statements(outcome.text) if outcome.answered else []
    marked = sum(bool(each.marks) for each in said)
    measures = {"cited_statements": marked / len(said) if said else 0.0}
    if question.gold:
        cited = set(collect_documents(outcome.citations)) if outcome.answered else set()
        gold = set(question.gold)
        measures["citation_precision"] = len(cited & gold) / len(cited) if cited else 0.0
        measures["citation_recall"] = len(cited & gold) / len(gold)
    return measures


async def nli_citation_measures(_: Question, outcome: Outcome, nli: Entails) -> dict[str, float]:
    """Return ALCE's citation recall and precision, over statements and the passages they cite.

    A statement is supported if its passages together entail it. A citation is precise if its
    statement is supported and it alone entails it, or the others without it do not.
    """
    said = split_statements(outcome.text) if outcome.answered else []
    supported = precise = given = 0
    for each in said:
        if not each.marks or max(each.marks) > len(outcome.citations) or min(each.marks) < 1:
            continue
        pieces = [outcome.citations[mark - 1] for mark in each.marks[:AT_MOST]]
        given += len(pieces)
        claim = remove_citation_marks(each.text)
        if await nli(_join(pieces), claim):
            supported += 1
            precise += await _count_needed(pieces, claim, nli)
    return {
        "citation_recall_nli": supported / len(said) if said else 0.0,
        "citation_precision_nli": precise / given if given else 0.0,
    }


async def _count_needed(pieces: Sequence[Piece], claim: str, nli: Entails) -> int:
    """Return how many passages of a supported claim are needed for it."""
    if len(pieces) == 1:
        return 1
    needed = 0
    for place, piece in enumerate(pieces):
        others = [*pieces[:place], *pieces[place + 1 :]]
        alone = await nli(_join([piece]), claim)
        needed += alone or not await nli(_join(others), claim)
    return needed


def _join(pieces: Sequence[Piece]) -> str:
    return "\n".join(f"Title: {piece.title}\n{piece.text}" for piece in pieces)


CITATIONS = MetricGroup("citations", citation_measures)
NLI_CITATIONS = MetricGroup("nli_citations", ask=nli_citation_measures, needs="nli")

_MARKS = re.compile(rf"((?:\s*{MARK})+[.!?]?)")


@dataclass(frozen=True)
class CitedStatement:
    """A statement of an answer, and the numbers of its marks."""

    text: str
    marks: tuple[int, ...]


def split_statements(text: str) -> list[CitedStatement]:
    """Return the statements of an answer: each up to its marks, the rest by sentences."""
    parts = _MARKS.split(text)
    found = [
        CitedStatement(said.strip(), tuple(dict.fromkeys(map(int, re.findall(r"\d+", marks)))))
        for said, marks in zip(parts[::2], parts[1::2], strict=False)
    ]
    rest = parts[-1]
    found += [CitedStatement(rest[start:end], ()) for start, end in split_sentences(rest)]
    return [each for each in found if re.search(r"\w", each.text)]
