from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.linkage import average_linkage

# Whole numbers, so that many distances are equal.
POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


@given(POINTS)
def test_each_merge_joins_the_two_clusters_that_are_nearest_on_average(points):
    rows = np.array(points, dtype=float)
    apart = np.abs(rows[:, None] - rows[None]).sum(axis=-1)
    clusters = {at: [at] for at in range(len(points))}
    merges = average_linkage(apart.copy())
    assert len(merges) == len(points) - 1
    for made, (left, right, height) in enumerate(merges, len(points)):
        means = [apart[np.ix_(a, b)].mean() for a, b in combinations(clusters.values(), 2)]
        a, b = clusters.pop(left), clusters.pop(right)
        assert left < right
        assert height == pytest.approx(apart[np.ix_(a, b)].mean())
        assert height == pytest.approx(min(means))
        clusters[made] = a + b
