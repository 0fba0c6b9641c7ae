from hypothesis import given
from hypothesis import strategies as st

from colligate.core.events import Pruned
from colligate.documents.tokens import estimate_tokens
from colligate.lab.baselines.fim import FiM, place_in_u_shape
from support.documents import make_all
from support.prompts import titles

QUESTION = "What is worth most?"
WORTH = {"iron": 1.0, "gold": 9.0, "clay": 0.0, "silver": 5.0, "copper": 3.0}


def documents():
    return make_all(
        {name: f"The {name} lies here, in the ground below the hill." for name in WORTH}
    )


def biased(prompt, spans):
    """What a document is worth, and far more for the first and the last place."""
    values = []
    for place, (start, end) in enumerate(spans):
        own = next((w for name, w in WORTH.items() if name in prompt[start:end]), 0.0)
        values.append(own + 100 * abs(place - len(spans) // 2))
    return values


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_the_better_a_document_the_nearer_it_is_to_an_end(ranked):
    placed = place_in_u_shape(ranked)
    assert sorted(placed) == sorted(ranked)
    depth = {item: min(at, len(placed) - 1 - at) for at, item in enumerate(placed)}
    assert [depth[item] for item in ranked] == [rank // 2 for rank in range(len(ranked))]


async def test_the_bias_of_places_is_taken_off(ask):
    answer, run, model = await ask(FiM(), QUESTION, documents(), attention=biased)
    assert titles(model.calls[0].prompt) == ["gold", "copper", "clay", "iron", "silver"]
    assert [e.span.document_id for e in answer.evidence] == titles(model.calls[0].prompt)
    assert [e.score for e in answer.evidence] == [9, 3, 0, 1, 5]
    assert answer.evidence[-1].reason == "rank 2 by calibrated attention"
    assert run.meter.report().scoring_passes == 2
    assert not run.warnings


async def test_a_dummy_is_as_long_as_its_document_and_says_nothing(ask):
    prompts = []

    def note(prompt, spans):
        prompts.append((prompt, spans))
        return [0.0] * len(spans)

    await ask(FiM(), QUESTION, documents(), attention=note)
    (true, spans), (dummy, places) = prompts
    assert "gold" in true
    assert "gold" not in dummy
    assert true.endswith(f"Question: {QUESTION}")
    assert dummy.endswith(f"Question: {QUESTION}")
    for (a, b), (c, d) in zip(spans, places, strict=True):
        assert abs(estimate_tokens(true[a:b]) - estimate_tokens(dummy[c:d])) <= 2


async def test_without_attention_it_says_what_it_ranked_by(ask):
    answer, run, model = await ask(FiM(), "Where does the clay lie?", documents())
    assert titles(model.calls[0].prompt)[0] == "clay"
    assert any("without attention" in warning for warning in run.warnings)
    assert answer.evidence[0].reason == "rank 1 by relevance"


async def test_a_small_window_leaves_out_the_worst_not_the_last(ask):
    _, run, model = await ask(FiM(), QUESTION, documents(), attention=biased, context_tokens=4170)
    kept = titles(model.calls[0].prompt)
    assert 2 <= len(kept) < 5
    assert set(kept) == {"gold", "silver", "copper", "iron"} - set(
        ["iron", "copper"][: 4 - len(kept)]
    )
    assert any(isinstance(e, Pruned) for _, e in run.trace.events)
