from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Passage, Span
from colligate.strategies.dualrag import Knowledge
from colligate.strategies.dualrag.knowledge import NOTHING, Fragment


def passage(start: int, end: int) -> Passage:
    return Passage(Span("d", start, end), "x" * (end - start), "D")


def fragment(text: str, *places: tuple[int, int]) -> Fragment:
    return Fragment(text, tuple(Span("d", *place) for place in places))


def texts(outline: Knowledge) -> dict[str, list[str]]:
    return {name: [f.text for f in e.fragments] for name, e in outline.entities.items()}


def test_blocks_stand_in_the_order_in_which_entities_were_first_known():
    outline = Knowledge("")
    assert outline.render() == NOTHING
    outline.merge("Lyon", [fragment("Lyon is a city.", (0, 5))], [])
    outline.merge("Rhone", [fragment("The Rhone is a river.", (5, 9))], [])
    outline.merge("Lyon", [fragment("Lyon has trams.", (9, 12))], [])
    assert outline.render() == (
        "#### Lyon\n\nLyon is a city.\n\nLyon has trams.\n\n#### Rhone\n\nThe Rhone is a river."
    )
    assert replace(outline, flat=True).render().count("#") == 0
    assert [name for name, _ in outline.entries] == ["Lyon", "Rhone", "Lyon"]


def test_passages_are_read_once_for_each_entity():
    outline, first, second = Knowledge(""), passage(0, 9), passage(9, 20)
    outline.merge("Lyon", [fragment("a", (0, 3))], [first])
    outline.merge("Lyon", [], [second])
    assert outline.unseen("Lyon", [first, second]) == []
    assert outline.unseen("Rhone", [first, second]) == [first, second]


def test_without_leaves_the_oldest_of_every_entity_out_first():
    outline = Knowledge("")
    outline.merge("A", [fragment("a1", (0, 1)), fragment("a2", (1, 2))], [])
    outline.merge("B", [fragment("b1", (2, 3)), fragment("b2", (3, 4))], [])
    assert outline.render(without=2) == "#### A\n\na2\n\n#### B\n\nb2"
    assert outline.render(without=3) == "#### B\n\nb2"
    assert outline.render(without=4) == NOTHING


places = st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda p: Span("d", p[0], sum(p)))
fragments = st.builds(
    Fragment,
    st.sampled_from(["a", "A.", "b", "c d", "C  d"]),
    st.lists(places, min_size=1, max_size=3, unique=True).map(tuple),
)
merges = st.lists(
    st.tuples(
        st.sampled_from("XYZ"),
        st.lists(fragments, max_size=3),
        st.lists(st.builds(passage, st.integers(0, 5), st.integers(6, 9)), max_size=2),
    ),
    max_size=8,
)


def grown(steps) -> Knowledge:
    outline = Knowledge("")
    for step in steps:
        outline.merge(*step)
    return outline


@given(merges)
def test_no_place_is_ever_lost_and_nothing_stands_twice(steps):
    outline = grown(steps)
    for name, given_, _ in steps:
        for each in given_:
            said = each.text.rstrip(".").lower().split()
            (kept,) = [
                f
                for f in outline.entities[name].fragments
                if f.text.rstrip(".").lower().split() == said
            ]
            assert set(each.spans) <= set(kept.spans)
    assert list(outline.entities) == list(dict.fromkeys(name for name, said, _ in steps if said))
    assert {span for _, each in outline.entries for span in each.spans} == {
        span for _, said, _ in steps for each in said for span in each.spans
    }


@given(merges)
def test_merging_again_changes_nothing(steps):
    outline, once = grown([*steps, *steps]), grown(steps)
    assert texts(outline) == texts(once)
    assert outline.entries == once.entries
