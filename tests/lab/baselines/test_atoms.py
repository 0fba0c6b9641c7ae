import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.baselines.asc import select_agreed, split_atoms


@st.composite
def sampled(draw):
    samples = draw(st.integers(1, 6))
    topics = draw(st.lists(st.tuples(st.integers(0, samples - 1), st.integers(0, 4)), max_size=12))
    found = [(sample, f"topic {topic} {'x' * at}") for at, (sample, topic) in enumerate(topics)]
    vectors = np.eye(5)[[topic for _, topic in topics]] if topics else np.empty((0, 5))
    return samples, topics, found, vectors


@given(sampled(), st.floats(0, 1), st.integers(1, 20))
def test_clusters_stand_for_what_shares_of_the_samples_say(case, least, most):
    samples, topics, found, vectors = case
    kept = select_agreed(found, vectors, samples, distance=0.5, least=least, most=most)
    said = {topic: {sample for sample, other in topics if other == topic} for _, topic in topics}
    support = {topic: len(by) / samples for topic, by in said.items()}
    bar = min(least, max(support.values(), default=0))
    assert len(kept) == min(most, sum(share >= bar for share in support.values()))
    for each in kept:
        topic = int(each.split()[1])
        assert support[topic] >= bar
        assert each == max((text for _, text in found if f"topic {topic} " in text), key=len)
    assert bool(kept) == bool(found)


def test_near_sentences_are_one_and_far_ones_are_not():
    found = split_atoms(["It is red.", "It is rather red.", "It is old."])
    vectors = np.array([[1.0, 0.0], [0.99, np.sqrt(1 - 0.99**2)], [0.0, 1.0]])
    kept = select_agreed(found, vectors, 3, distance=0.15, least=0.5, most=9)
    assert kept == ["It is rather red."]
