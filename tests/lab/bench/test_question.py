"""Questions: their right answers, and samples that stay the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.bench.question import Question, draw_sample

QUESTIONS = [Question(f"q{n}", "?") for n in range(200)]


@given(st.permutations(QUESTIONS[:12]), st.integers(0, 12), st.integers(0, 12), st.integers())
def test_a_larger_limit_begins_with_the_smaller(
    shuffled: list[Question], less: int, more: int, seed: int
) -> None:
    less, more = sorted((less, more))
    fewer = draw_sample(QUESTIONS[:12], less, seed)
    assert len(fewer) == less
    assert draw_sample(shuffled, more, seed)[:less] == fewer
    assert draw_sample(iter(shuffled), None, seed)[:less] == fewer


def test_a_seed_draws_its_own_and_from_everywhere() -> None:
    first, second = draw_sample(QUESTIONS, 50, seed=1), draw_sample(QUESTIONS, 50, seed=2)
    assert {q.id for q in first} != {q.id for q in second}
    assert 5 < sum(QUESTIONS.index(q) < 50 for q in first) < 25
