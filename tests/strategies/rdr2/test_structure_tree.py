from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind, Span, Structure, TreeBuilder, flat_tree
from colligate.documents.markdown import markdown_tree
from colligate.errors import SpanError
from colligate.strategies.rdr2.tree import WIKIPEDIA_SKIPPED, StructureTree, structure_tree
from support.documents import block_spans

TEXT = """# Six Flags

A theme park
in   Texas.

## History

### Construction

Angus Wynne built it in a year.

Visitors came from the first day on.

### Closed rides

## Records

- Tallest coaster: Titan
  - at 245 feet
- Tallest swing

1. first

| ride | feet |
|------|------|
| Titan | 245 |

## References

Nobody knows.

### Books

None.
"""


def document(text: str = TEXT, title: str = "Six flags") -> Document:
    return Document("d", title, text, markdown_tree(text, "d"))


def lines(tree: StructureTree) -> list[str]:
    return [f"{'  ' * node.depth}{node.id}: {node.text}" for node in tree.nodes.values()]


def test_a_page_is_as_in_the_paper() -> None:
    assert lines(structure_tree(document(), skipped=WIKIPEDIA_SKIPPED)) == [
        "-1: Six flags",
        "  0: ==Introduction==",
        "    1: A theme park in Texas.",
        "  2: ==History==",
        "    3: ===Construction===",
        "      4: Angus Wynne built it in a year.",
        "      5: Visitors came from the first day on.",
        "  6: ==Records==",
        "    7: * Tallest coaster: Titan",
        "      8: * at 245 feet",
        "    9: * Tallest swing",
        "    10: * 1. first",
        "    11: | ride | feet | |------|------| | Titan | 245 |",
    ]


def test_a_page_is_as_in_the_released_code() -> None:
    tree = structure_tree(document(), introduction=False, skipped=["records", "References"])
    assert lines(tree) == [
        "0: Six flags",
        "  1: A theme park in Texas.",
        "  2: ==History==",
        "    3: ===Construction===",
        "      4: Angus Wynne built it in a year.",
        "      5: Visitors came from the first day on.",
    ]


def test_only_whole_titles_are_skipped() -> None:
    text = "# A\n\n## Banknotes\n\nmoney\n\n## NOTES\n\nnone\n"
    assert lines(structure_tree(document(text, "A"), skipped=WIKIPEDIA_SKIPPED)) == [
        "-1: A",
        "  0: ==Banknotes==",
        "    1: money",
    ]


def test_a_document_is_not_skipped_for_its_title() -> None:
    tree = structure_tree(document("# Notes\n\nKept.\n", "Notes"), skipped=["notes"])
    assert lines(tree) == ["-1: Notes", "  0: ==Introduction==", "    1: Kept."]


def test_a_top_section_of_another_name_stays() -> None:
    text = "# Report\n\nAbout.\n\n## Results\n\nGood.\n"
    assert lines(structure_tree(document(text, "file-1"))) == [
        "-1: file-1",
        "  0: ==Report==",
        "    1: ===Introduction===",
        "      2: About.",
        "    3: ===Results===",
        "      4: Good.",
    ]


def test_one_of_several_top_sections_is_never_the_title() -> None:
    text = "# One\n\na\n\n# Two\n\nb\n"
    assert lines(structure_tree(document(text, "One")))[1:] == [
        "  0: ==One==",
        "    1: a",
        "  2: ==Two==",
        "    3: b",
    ]


@pytest.mark.parametrize("text", ["one\n\ntwo\n", "# D\n\none\n\ntwo\n"])
def test_a_document_without_headings_has_an_introduction(text: str) -> None:
    tree = structure_tree(document(text, "D"))
    assert lines(tree) == ["-1: D", "  0: ==Introduction==", "    1: one", "    2: two"]
    assert tree.document.slice(tree.nodes[0].span) == "one\n\ntwo"


def test_front_matter_stands_in_the_introduction() -> None:
    text = "---\nyear: 1961\n---\n\n# Park\n\nLead.\n\n## Rides\n\nTitan.\n"
    tree = structure_tree(document(text, "Park"))
    assert lines(tree) == [
        "-1: Park",
        "  0: ==Introduction==",
        "    1: --- year: 1961 ---",
        "    2: Lead.",
        "  3: ==Rides==",
        "    4: Titan.",
    ]
    assert tree.mapped(Span("d", 0, text.index("Lead") + 1)) == (0, 1, 2)


def test_text_after_the_sections_hangs_on_the_root() -> None:
    builder = TreeBuilder("d")
    root = builder.add(Kind.ROOT, 0, 9, None)
    section = builder.add(Kind.SECTION, 0, 4, root, level=1, title="Part")
    builder.add(Kind.PARAGRAPH, 0, 4, section)
    builder.add(Kind.PARAGRAPH, 5, 9, root)
    it = Document("d", "D", "text more", builder.build(Structure(1.0, Basis.MARKUP)))
    assert lines(structure_tree(it)) == ["-1: D", "  0: ==Part==", "    1: text", "  2: more"]


def test_a_text_of_which_nothing_is_known_is_cut_at_blank_lines() -> None:
    text = "one\nline\n \t\ntwo \n\n\n  three   \n"
    it = Document("d", "", text, flat_tree("d", len(text)))
    made = structure_tree(it)
    assert lines(made) == [
        "-1: d",
        "  0: ==Introduction==",
        "    1: one line",
        "    2: two",
        "    3: three",
    ]
    assert [it.slice(made.nodes[i].span) for i in (1, 2, 3)] == ["one\nline", "two", "three"]


def test_headings_alone_are_still_text() -> None:
    assert lines(structure_tree(document("# A\n\n## B\n", "D"))) == [
        "-1: D",
        "  0: ==Introduction==",
        "    1: # A",
        "    2: ## B",
    ]


def test_an_empty_document_is_its_title() -> None:
    tree = structure_tree(document("", "D"))
    assert lines(tree) == ["-1: D"]
    assert tree.mapped(Span("d", 0, 0)) == (-1,)
    assert tree.routed_text(()) == ""


def test_no_text_can_pass_for_another_line() -> None:
    text = "# T\n\na\u2028\t9: ==Fake==\x85b\n\n## H\n\nx\n"
    tree = structure_tree(document(text, "T\n7: no"))
    assert all(len(node.text.splitlines()) == 1 for node in tree.nodes.values())
    assert not any("\t" in node.text for node in tree.nodes.values())


def test_relatives() -> None:
    tree = structure_tree(document(), skipped=WIKIPEDIA_SKIPPED)
    assert tree.content_children(6) == (7, 9, 10, 11)
    assert tree.content_children(2) == ()
    assert tree.content_under(6) == (7, 8, 9, 10, 11)
    assert tree.content_under(2) == (4, 5)
    assert tree.content_under(-1) == (1, 4, 5, 7, 8, 9, 10, 11)
    assert tree.ancestors(8) == (7, 6, -1)
    assert tree.ancestors(-1) == ()


def test_spans_are_mapped_to_ids() -> None:
    tree = structure_tree(document(), skipped=WIKIPEDIA_SKIPPED)

    def mapped(start: str, end: str = "") -> tuple[int, ...]:
        first = TEXT.index(start)
        return tree.mapped(Span("d", first, TEXT.index(end or start, first) + len(end or start)))

    assert mapped("Wynne") == (4,)
    assert mapped("Texas", "Wynne") == (1, 2, 3, 4)
    assert mapped("first day", "coaster") == (5, 6, 7)  # an empty section stands between
    assert mapped("### Closed rides") == (2,)  # it has no node of its own
    assert mapped("# Six") == (-1,)
    assert mapped("Nobody knows") == (-1,)  # left out
    with pytest.raises(SpanError):
        tree.mapped(Span("other", 0, 1))


def test_neighbours_in_one_section_are_one_passage() -> None:
    tree = structure_tree(document(), skipped=WIKIPEDIA_SKIPPED)
    passages = tree.passages([5, 1, 4, 9])
    assert [passage.text for passage in passages] == [
        "A theme park\nin   Texas.",
        "Angus Wynne built it in a year.\n\nVisitors came from the first day on.",
        "- Tallest swing",
    ]
    assert passages[1].section == ("Six Flags", "History", "Construction")


def test_what_content_hangs_on_comes_with_it() -> None:
    tree = structure_tree(document())
    item = next(i for i, node in tree.nodes.items() if node.text == "* at 245 feet")
    assert [p.text for p in tree.passages([item])] == ["- Tallest coaster: Titan\n  - at 245 feet"]
    assert tree.passages([]) == ()


def test_headings_are_no_passages() -> None:
    tree = structure_tree(document())
    assert tree.passages([-1, 0, 2]) == ()


def test_routed_text_is_title_headings_and_content() -> None:
    tree = structure_tree(document(), skipped=WIKIPEDIA_SKIPPED)
    assert tree.routed_text([8, 5]) == (
        "Six flags\n==History==\n===Construction===\nVisitors came from the first day on.\n"
        "==Records==\n* Tallest coaster: Titan\n* at 245 feet"
    )


_PIECES = st.lists(
    st.sampled_from(
        ["# A", "## B", "### C", "#### D", "text", "more\ntext", "- a\n  - b\n- c", "> q\n>\n> - r"]
    ),
    max_size=12,
)


@given(_PIECES, st.booleans())
def test_every_block_of_the_document_is_one_node(pieces: list[str], introduction: bool) -> None:
    it = document("\n\n".join(pieces), "A")
    tree = structure_tree(it, introduction=introduction)
    assert list(tree.nodes) == list(range(tree.root, tree.root + len(tree.nodes)))
    headings = {node.heading for node in it.tree if node.heading}
    content = [node.span for node in tree.nodes.values() if not node.structure]
    if len(headings) < len(block_spans(it)):
        assert content == [span for span in block_spans(it) if span not in headings]
    for i, node in tree.nodes.items():
        assert node.id == i
        assert node.structure or it.slice(node.span).split()[-1] == node.text.split()[-1]
        assert node.children == tuple(k for k in tree.nodes if tree.nodes[k].parent == i)
        if node.parent is not None:
            assert tree.nodes[node.parent].depth == node.depth - 1
            assert node.parent in (i - 1, *tree.ancestors(i - 1))  # pre-order
        assert not node.structure or node.parent is None or tree.content_under(i)
        assert tree.content_under(i) == tuple(k for k in below(tree, i) if not structural(tree, k))
        if not node.structure:
            assert tree.mapped(node.span) == (i,)


def below(tree: StructureTree, node: int) -> list[int]:
    return [k for k in tree.nodes if node in tree.ancestors(k)]


def structural(tree: StructureTree, node: int) -> bool:
    return tree.nodes[node].structure


@given(_PIECES, st.data())
def test_passages_hold_the_answers_and_nothing_else(pieces: list[str], data: st.DataObject) -> None:
    it = document("\n\n".join(pieces), "A")
    tree = structure_tree(it)
    content = [i for i, node in tree.nodes.items() if not node.structure]
    answers = data.draw(st.sets(st.sampled_from(content))) if content else set()
    lit = answers | {k for i in answers for k in tree.ancestors(i) if not structural(tree, k)}
    passages = tree.passages(answers)
    held = "".join("".join(passage.text.split()) for passage in passages)
    assert held == "".join("".join(it.slice(tree.nodes[i].span).split()) for i in sorted(lit))
    assert [p.span.start for p in passages] == sorted(p.span.start for p in passages)
