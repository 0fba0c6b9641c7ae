import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate.core.events import Pruned
from colligate.documents.tokens import token_spans
from colligate.lab.baselines.longllmlingua import LongLLMLingua, keep_best_share
from colligate.library.in_memory import InMemorySources
from support.documents import make_all
from support.prompts import bodies, titles

QUESTION = "Who signed the treaty?"
TEXTS = {
    "weather": "It was cold and grey that day, and many stayed at home by the fire.",
    "treaty": "After long talks Anna Keller signed the treaty at noon in the old hall.",
    "cattle": "Cows were led across the square while bells rang in the tower above.",
}


def shown_in(model):
    prompt = model.calls[0].prompt
    return dict(zip(titles(prompt), bodies(prompt), strict=True))


class Scorer:
    """The question explains what the treaty says of its signing, and follows its document."""

    known = ("Anna", "Keller", "signed", "treaty")

    def __init__(self):
        self.pairs = []

    def __call__(self, prefix, text):
        self.pairs.append((prefix, text))
        if "We can get the answer" in text:
            return [-1.0 if "treaty" in prefix else -2.0 if "cold" in prefix else -3.0] * len(
                token_spans(text)
            )
        told = QUESTION in prefix
        pieces = [text[start:end] for start, end in token_spans(text)]
        return [-1.0 if told and piece in self.known else -5.0 for piece in pieces]


async def test_the_tokens_that_the_question_explains_are_kept_of_the_best_documents(ask, reply):
    said = reply((1, "Anna Keller signed treaty", "Anna Keller signed it."), short="Anna Keller")
    answer, run, model = await ask(
        LongLLMLingua(rate=0.3, extra=5, dynamic=0),
        QUESTION,
        make_all(TEXTS),
        said,
        likelihood=Scorer(),
    )
    shown = shown_in(model)
    assert list(shown) == ["treaty", "weather"]  # the target is reached: no cattle
    assert {"Anna", "Keller", "signed", "treaty"} <= set(re.findall(r"\w+", shown["treaty"]))
    assert len(token_spans(shown["treaty"])) < len(token_spans(TEXTS["treaty"]))
    assert answer.short == "Anna Keller"
    (citation,) = answer.citations
    assert citation.quote == TEXTS["treaty"]  # the document's words, not the compressed ones
    assert any(isinstance(e, Pruned) for _, e in run.trace.events)


async def test_a_better_document_keeps_more(ask):
    answer, _, model = await ask(
        LongLLMLingua(rate=0.5, extra=1000, dynamic=0.3),
        QUESTION,
        make_all(TEXTS),
        likelihood=Scorer(),
    )
    shown = shown_in(model)
    assert list(shown) == ["treaty", "weather", "cattle"]
    shares = [len(token_spans(text)) / len(token_spans(TEXTS[n])) for n, text in shown.items()]
    assert shares == pytest.approx([0.8, 0.5, 0.2], abs=0.1)
    assert [e.span.document_id for e in answer.evidence] == ["treaty", "weather", "cattle"]


async def test_blocks_are_scored_after_what_was_kept_before(ask):
    scorer = Scorer()
    await ask(
        LongLLMLingua(rate=0.5, block=5, extra=1000, dynamic=0),
        QUESTION,
        make_all(TEXTS),
        likelihood=scorer,
    )
    fine = scorer.pairs[3:]
    assert all(len(token_spans(text)) <= 5 for _, text in fine)
    told, untold = fine[0::2], fine[1::2]
    assert [text for _, text in told] == [text for _, text in untold]
    assert all(a == f"{QUESTION}\n\n{b}" for (a, _), (b, _) in zip(told, untold, strict=True))
    assert untold[0][0] == ""
    assert untold[1][0] != TEXTS["treaty"][: len(untold[1][0])]  # only what was kept of it


async def test_a_small_window_is_never_exceeded(make_run, reply):
    long = " ".join(f"Word{n} is here." for n in range(80))
    sizes = []

    def likelihood(prefix, text):
        sizes.append(len(token_spans(prefix)) + len(token_spans(text)))
        return [-1.0] * len(token_spans(text))

    async with InMemorySources(make_all({"long": long})) as sources:
        run, _ = make_run(sources, [reply()], likelihood=likelihood, context_tokens=1400)
        scorer = run.model("scorer")
        scorer.context_tokens = 100
        run.models["reader"] = type(scorer)([reply()])
        run.models["scorer"] = scorer
        await LongLLMLingua(block=20).answer(QUESTION, run)
    assert max(sizes) <= 100
    assert any("window" in warning for warning in run.warnings)


@given(st.lists(st.floats(-9, 9), max_size=30), st.floats(-0.5, 1.5))
@example([1.0, 1.0, 1.0], 0.5)
def test_the_best_share_is_as_large_as_asked_and_none_left_out_is_better(scores, share):
    chosen = keep_best_share(scores, share)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == round(len(scores) * min(1, max(0, share)))
    left = [score for place, score in enumerate(scores) if place not in chosen]
    if chosen and left:
        assert min(scores[place] for place in chosen) >= max(left)
