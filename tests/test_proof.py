"""Proofs, whatever the documents hold and whatever a file says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from colligate.core.answer import Answer, make_citation
from colligate.documents.reading import Limits
from colligate.proof import Cited, Source, Status, audit, find_cited, make_proof
from support.documents import MARKDOWN, make

JSON: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "type target source selector exact value start quote document cited_text colligate"
                " file_citation document_title start_char_index".split()
            ),
            inside | st.sampled_from(["Annotation", "file_citation", "TextQuoteSelector"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(MARKDOWN, st.data())
def test_what_a_proof_says_is_read_again(text, data):
    document = make(text or "a")
    start = data.draw(st.integers(0, len(document) - 1))
    end = data.draw(st.integers(start + 1, len(document)))
    citation = make_citation(document, document.span(start, end), [(0, 3)], "exact")
    proof = make_proof(
        Answer("Is it?", "auto", "Yes. [1]", True, citations=(citation,)),
        {document.id: Source(document, None)},
    )
    (cited,) = find_cited(proof)
    assert cited.quote == document.text[start:end]
    assert (cited.start, cited.end) == (start, end)
    assert cited.digests == {document.digest}


@given(JSON)
def test_any_json_is_read_and_none_of_it_holds_without_documents(value):
    findings, problems = audit(list(find_cited(value)), [], Limits())
    assert problems == []
    assert {each.status for each in findings} <= {Status.UNKNOWN, Status.UNCHECKED}


def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_audited(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 nothing")
    (tmp_path / "b.md").write_text("# B\n\nOver.\n")
    files = [tmp_path / "a.pdf", tmp_path / "b.md"]
    cited = [Cited("Over.", "b.md")]
    (found,), problems = audit(cited, files, Limits())
    assert (found.status, problems) == (Status.HOLDS, [])  # what is named is read first
    (found,), (problem,) = audit(cited, files[:1], Limits())
    assert found.status is Status.UNKNOWN
    assert "a.pdf" in problem
