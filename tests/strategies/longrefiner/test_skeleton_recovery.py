import random
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind
from colligate.strategies.longrefiner.skeleton import Recovered, recover
from support.documents import make

INTRODUCTION = (
    "Bunk'd is a comedy series that ran on one channel for six years and was then seen on another."
)
SUMMER = (
    "Emma, Ravi and Zuri spend the summer at a camp, where their parents met as teenagers. They"
    " adapt to life there; the camp is named after a creature that lives in the nearby forest."
)
FIRE = (
    "In “We Didn’t Start the Fire” three cabins burn down when lightning strikes. They convince"
    " their parents to buy the camp and put them in charge."
)
CAST = (
    "A few cast members of “Jessie” come back in their roles: one appears as a special guest, and"
    " another says “Mother May I?” while reprising her role of Christina Ross."
)
TEXT = f"{INTRODUCTION}\n\n{SUMMER}\n\n{FIRE}\n\n{CAST}\n"
PLOT_AND_CAST = [("abstract", [INTRODUCTION]), ("Plot", [SUMMER, FIRE]), ("Cast", [CAST])]


def document(text: str = TEXT) -> Document:
    return make(text, "Bunk'd", flat=True)


def outline(given_back: Recovered, source: Document) -> list[tuple[str, list[str]]]:
    tree = given_back.tree
    return [
        (
            node.title,
            [source.slice(n.span) for n in tree.children(node) if n.kind is Kind.PARAGRAPH],
        )
        for node in tree.sections
    ]


def read(skeleton: str, text: str = TEXT) -> list[tuple[str, list[str]]]:
    return outline(recover(skeleton, document(text)), document(text))


def test_the_published_form_is_read():
    given_back = recover(
        "<abstract>Bunk'd is a comedy series...then seen on another.</abstract>"
        "<section: Plot>Emma, Ravi and Zuri...in the nearby forest.<br>"
        "In “We Didn’t Start...put them in charge.</section: Plot>"
        "<section: Cast><sub-section: Main cast>A few cast members...of Christina Ross."
        "</sub-section: Main cast></section: Cast>",
        document(),
    )
    tree = given_back.tree
    assert [(n.kind, n.level, n.title) for n in tree] == [
        (Kind.ROOT, 0, ""),
        (Kind.SECTION, 1, "abstract"),
        (Kind.PARAGRAPH, 0, ""),
        (Kind.SECTION, 1, "Plot"),
        (Kind.PARAGRAPH, 0, ""),
        (Kind.PARAGRAPH, 0, ""),
        (Kind.SECTION, 1, "Cast"),
        (Kind.SECTION, 2, "Main cast"),
        (Kind.PARAGRAPH, 0, ""),
    ]
    leaves = [document().slice(n.span) for n in tree.leaves]
    assert leaves == [INTRODUCTION, SUMMER, FIRE, CAST]
    assert given_back.coverage == 1
    assert given_back.lost == ()
    assert tree.structure.basis is Basis.MODEL
    assert tree.structure.confidence == 1
    assert all(node.heading is None for node in tree)


@pytest.mark.parametrize(
    "skeleton",
    [
        # quotes around titles, and the other mark of an omission
        '<abstract>Bunk\'d is <skip> on another.</abstract><section: "Plot">Emma, Ravi <skip> '
        'nearby forest.<br>In "We Didn\'t Start <skip> in charge.</section: "Plot">'
        "<section: “Cast”>A few cast <skip> Christina Ross.</section: “Cast”>",
        # closing tags that are missing or bear another title, and a fence around it all
        "```\n<abstract>Bunk'd is a … on another.<section: Plot>Emma, Ravi and … forest.\n"
        "In “We Didn’t Start … in charge.</section: Story><section: Cast>A few cast … Ross.\n```",
        # one paragraph a line, other spellings of the tags
        "Here is the structure:\n<Abstract>\nBunk'd is a comedy series...seen on another.\n"
        "</Abstract>\n<SECTION:Plot>\nEmma, Ravi and Zuri...nearby forest.\nIn “We Didn’t Start..."
        "put them in charge.\n</section>\n<section Cast >A few cast ... Ross.</section>",
        # a tag that is never closed, and two marks in one piece
        "<section: Plot\nEmma, Ravi and Zuri...as teenagers. They...nearby forest.<br/>In “We "
        "Didn’t Start...in charge.<section: Cast\nA few cast...Christina Ross.",
    ],
)
def test_lax_forms_are_read(skeleton):
    assert read(skeleton) == PLOT_AND_CAST


@pytest.mark.parametrize(
    ("skeleton", "found"),
    [
        pytest.param(
            '<section: Plot><subsection: "One">Emma, Ravi and...forest.</subsection: "One">'
            "In “We Didn’t...in charge.<sub-section: Two>A few cast...Ross.</section: Plot>",
            [("Plot", [FIRE]), ("One", [SUMMER]), ("Two", [CAST])],
            id="sub-sections, however they are written",
        ),
        pytest.param(
            "<sub-section: Plot>Emma, Ravi and...in charge.",
            [("Plot", [f"{SUMMER}\n\n{FIRE}"])],
            id="a sub-section without a section is one",
        ),
        pytest.param(
            "<section: Plot>Emma, Ravi and...forest.</section: Plot>"
            "<section: Plot>A few cast...Ross.</section: Plot>",
            [("Plot", [SUMMER]), ("Plot", [CAST])],
            id="sections of one title stay apart",
        ),
    ],
)
def test_sections_are_read(skeleton, found):
    assert read(skeleton) == [("abstract", [INTRODUCTION]), *found]


def test_a_paragraph_that_comes_twice_is_found_twice():
    text = f"{SUMMER}\n\n{CAST}\n\n{SUMMER}\n"
    piece = "Emma, Ravi and Zuri...nearby forest."
    assert read(f"<section: A>{piece}<br>A few cast...Ross.<section: B>{piece}", text) == [
        ("A", [SUMMER, CAST]),
        ("B", [SUMMER]),
    ]


def test_what_was_made_up_is_lost():
    made_up = "The pilot was filmed...in the studio lot."
    given_back = recover(
        f"<abstract>Bunk'd is a...on another.</abstract><section: Plot>{made_up}<br>"
        "Emma, Ravi and Zuri...nearby forest.<br>In “We Didn’t Start...in charge.<br>"
        "A few cast members...Christina Ross.",
        document(),
    )
    assert given_back.lost == (made_up,)
    assert given_back.coverage == 1


@pytest.mark.parametrize("moved", [(20,), (21, 23), (19, 20, 21)])
def test_what_was_moved_takes_nothing_along(moved):
    paragraphs = [_made_up(i, 40) for i in range(24)]
    pieces = [f"{' '.join(p.split()[:6])}...{' '.join(p.split()[-6:])}" for p in paragraphs]
    pieces[3:3] = [pieces[i] for i in moved]
    parts = ["<br>".join(pieces[i : i + 5]) for i in range(0, len(pieces), 5)]
    skeleton = "".join(f"<section: {i}>{part}" for i, part in enumerate(parts))
    given_back = recover(skeleton, document("\n\n".join(paragraphs)))
    assert given_back.coverage == 1
    assert given_back.lost == tuple(pieces[3 : 3 + len(moved)])


@pytest.mark.parametrize(
    ("pieces", "stretches"),
    [
        # other blanks, quotation marks, dashes and case
        ('in "we didn\'t  start THE fire"... them in charge.', [FIRE]),
        # only four words of each end are right
        ("Emma, Ravi and Zuri are spending...the very deep in the nearby forest.", [SUMMER]),
        # a word is wrong at either end
        ("Emma, Ravi und Zuri spend the...which lives in the nearby forest.", [SUMMER]),
        # nothing is left out, but a letter
        (CAST.replace("special", "spcial"), [CAST]),
        # without one of its ends a piece reaches to that of its paragraph
        ("Emma, Ravi and Zuri...qqq xxx<br>A few cast...Christina Ross.", [SUMMER, CAST]),
        ("Emma, Ravi and Zuri...", [SUMMER]),
        ("Bunk'd is a...on another.<br>xxx...put them in charge.", [INTRODUCTION, FIRE]),
    ],
)
def test_a_piece_is_found_though_it_is_not_exact(pieces, stretches):
    assert read(f"<section: A>{pieces}")[-1] == ("A", stretches)


def test_an_end_that_is_far_off_is_of_another_paragraph():
    begins = "Emma, Ravi and Zuri"
    text = f"{begins} left.\n\n" + "Much else happened in between. " * 450 + f"\n\n{SUMMER}\n"
    assert read(f"<section: A>{begins}...in the nearby forest.", text) == [("A", [SUMMER])]


def test_headings_are_neither_found_nor_counted_nor_run_over():
    text = f"# Plot twist\n\n{SUMMER}\n\n## Plot twist\n\nPlot twist!\n\n## Cast\n\n{CAST}\n"
    source = make(text)
    given_back = recover(
        "<section: A>Emma, Ravi and Zuri...qqq xxx<br>Plot twist!<br>A few cast members...", source
    )
    assert given_back.coverage == 1
    assert outline(given_back, source) == [("A", [SUMMER, "Plot twist!", CAST])]


_MARKUP = st.sampled_from(
    "<abstract> </abstract> <section:A> </section:A> <sub-section:B> </sub-section:B> <br> ... …"
    ' <skip> <section: </section <sub-section:" <...> < br> </br> \n'.split(" ")
)
_WORDS = st.sampled_from([*TEXT.split(), "Emma, Ravi and Zuri", "put them in charge.", CAST])


@settings(max_examples=300)
@given(
    st.lists(st.one_of(_MARKUP, _WORDS, st.text(max_size=5)), max_size=60).map(" ".join),
    st.one_of(st.just(TEXT), st.lists(st.one_of(_WORDS, _MARKUP), max_size=60).map("\n".join)),
    st.booleans(),
)
def test_any_skeleton_gives_a_tree_within_the_text(skeleton, text, marked):
    source = make(text, flat=not marked)
    given_back = recover(skeleton, source)
    assert 0 <= given_back.coverage <= 1
    leaves = [node.span for node in given_back.tree.leaves]
    assert all(before.end <= after.start for before, after in pairwise(leaves))
    assert all(source.slice(span).strip() for span in leaves)
    for node in given_back.tree.sections:
        inside = [given_back.tree.nodes[i].span for i in node.children]
        assert (node.span.start, node.span.end) == (inside[0].start, inside[-1].end)


def _made_up(seed: int, words: int) -> str:
    source = random.Random(seed)
    return " ".join(
        "".join(source.choices("abcdefghij", k=source.randint(1, 7))) for _ in range(words)
    )


LONG = "\n\n".join(_made_up(i, 90) for i in range(450))


@pytest.mark.parametrize(
    "skeleton",
    [
        "<section: a>" + "x<br>" * 10_000,
        "<section: a>" + "a..." * 12_000,
        "<section: a>" * 4_000,
        "<section" * 6_000,
        "<section" + " " * 50_000,
        "<" * 50_000,
        "<section: a>" + "<" + " " * 25_000 + "..." + "\n" * 25_000,
        "<section: a>" + "<br>".join(f"{_made_up(i, 6)}...{_made_up(-i, 6)}" for i in range(900)),
        "<section: a>" + _made_up(-1, 10_000),
        "<section: a>" + "<br>".join([LONG[900:960] + "..." + LONG[1300:1350]] * 400),
    ],
    ids="breaks marks tags cut cut-blanks brackets blanks nowhere one-piece repeated".split(),
)
def test_a_hostile_skeleton_takes_seconds_at_most(skeleton):
    began = time.perf_counter()
    recover(skeleton, document(LONG))
    assert time.perf_counter() - began < 8
