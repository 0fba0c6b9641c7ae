from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.core.citing import UNCITED, Joined, Quote, Statement, cite, resolve
from colligate.documents import Document, Page, Span
from colligate.documents.markdown import markdown_tree

TEXT = """# Lease

The tenant pays 900 euros a month. Rent falls due on the third day.

## Notice

Either side may give notice of three months. Notice is given in writing.
"""
PAGES = (Page(1, 0, TEXT.index("## Notice")), Page(2, TEXT.index("## Notice"), len(TEXT)))
LEASE = Document("lease", "Lease", TEXT, markdown_tree(TEXT, "lease"), PAGES, language="en")
RENT = LEASE.passage(Span("lease", TEXT.index("The tenant"), TEXT.index("\n\n## Notice")))
NOTICE = LEASE.passage(Span("lease", TEXT.index("Either"), len(TEXT) - 1))
DOCUMENTS = {"lease": LEASE}
QUESTION = "What is the rent and how long is the notice?"


def said(passage: int, quote: str, sentence: str) -> Statement:
    return Statement(passage=passage, quote=quote, sentence=sentence)


def cited(*statements: Statement):
    return cite(QUESTION, statements, [RENT, NOTICE], DOCUMENTS)


def test_a_quote_becomes_the_sentences_it_stands_in_with_section_and_page():
    found = cited(
        said(1, "pays 900 euros", "The rent is 900 euros a month."),
        said(2, "notice of three months", "Notice is three months."),
    )
    assert found.text == "The rent is 900 euros a month. [1] Notice is three months. [2]"
    rent, notice = found.citations
    assert rent.quote == "The tenant pays 900 euros a month."
    assert (rent.section, rent.page) == (("Lease",), 1)
    assert notice.quote == "Either side may give notice of three months."
    assert (notice.section, notice.page) == (("Lease", "Notice"), 2)
    assert found.dropped == ()


def test_both_places_are_recorded():
    found = cited(
        said(1, "900 euros", "The rent is 900 euros."),
        said(2, "three months", "Notice: three months."),
    )
    assert [found.text[s:e] for c in found.citations for s, e in c.answer_spans] == [
        "The rent is 900 euros.",
        "Notice: three months.",
    ]


def test_statements_on_the_same_place_share_a_number():
    found = cited(
        said(1, "900 euros", "The rent is 900 euros."),
        said(1, "pays 900", "The tenant pays 900 euros."),
    )
    assert found.text == "The rent is 900 euros. [1] The tenant pays 900 euros. [1]"
    assert len(found.citations) == 1
    assert len(found.citations[0].answer_spans) == 2


def test_a_quote_with_other_spacing_and_quote_marks_is_located():
    found = cited(said(1, "The  tenant pays\n900 euros", "The tenant pays 900 euros."))
    assert found.citations[0].quote == "The tenant pays 900 euros a month."


def test_an_invented_quote_for_an_unsupported_claim_is_dropped_and_said():
    found = cited(said(1, "The landlord lives in Paris", "The landlord lives in Paris."))
    assert found.text == ""
    assert found.citations == ()
    assert "passage 1 does not hold the quote" in found.dropped[0]


def test_a_real_quote_does_not_carry_another_claim():
    found = cited(said(1, "The tenant pays 900 euros a month.", "The deposit is 2700 euros."))
    assert found.citations == ()
    assert "do not support" in found.dropped[0]


def test_a_changed_number_is_not_cited():
    assert cited(said(1, "pays 950 euros a month", "The rent is 950 euros.")).citations == ()


def test_a_passage_that_was_not_shown_is_not_cited():
    found = cited(said(7, "pays 950 euros", "The rent is 950 euros."))
    assert found.citations == ()
    assert found.dropped == ("a citation was dropped: passage 7 does not exist",)


def test_a_long_quote_of_another_passage_is_taken_from_there():
    found = cited(said(2, "The tenant pays 900 euros a month.", "The rent is 900 euros a month."))
    assert found.citations[0].quote == "The tenant pays 900 euros a month."
    assert RENT.span.contains(found.citations[0].span)


def test_a_short_quote_of_several_other_passages_does_not_count():
    statement = said(2, "900 euros", "The rent is 900 euros a month.")
    assert cite(QUESTION, [statement], [RENT, NOTICE], DOCUMENTS).citations
    assert not cite(QUESTION, [statement], [RENT, NOTICE, RENT], DOCUMENTS).citations


def test_a_neighbour_that_differs_in_what_was_asked_is_not_cited():
    text = (
        "(6) The proposal on transparency was defeated.\n\n(8) The proposal on carbon was defeated."
    )
    minutes = Document("m", "Minutes", text, markdown_tree(text, "m"), language="en")
    first, second = text.split("\n\n")
    passages = [
        minutes.passage(Span("m", 0, len(first))),
        minutes.passage(Span("m", text.index("(8)"), len(text))),
    ]
    question = "What became of the proposal on carbon?"
    quoted = said(1, "The proposal on carbon was defeated.", "The proposal on carbon was defeated.")
    found = cite(question, [quoted], passages, {"m": minutes})
    assert [c.quote for c in found.citations] == [second]


def test_a_misquoted_claim_keeps_the_sentence_of_its_passage_that_says_it():
    found = cited(said(2, "notice in ink", "Notice is given in writing."))
    assert found.citations[0].quote == "Notice is given in writing."
    assert found.citations[0].how == "supporting sentences"


def test_one_unsupported_statement_among_supported_ones_is_marked():
    found = cited(
        said(1, "900 euros", "The rent is 900 euros."), said(2, "nothing", "Pets are welcome.")
    )
    assert found.text == f"The rent is 900 euros. [1] Pets are welcome. {UNCITED}"


def test_what_is_said_twice_is_written_once_with_all_its_places():
    sentence = "Rent: third day. Notice: given in writing."
    found = cited(
        said(1, "Rent falls due on the third day.", sentence),
        said(2, "Notice is given in writing.", sentence),
        said(9, "no such passage", sentence),
    )
    assert found.text == f"{sentence} [1][2]"
    assert [c.answer_spans for c in found.citations] == [((0, len(sentence)),)] * 2


def test_marks_the_model_wrote_itself_are_removed():
    found = cited(said(1, "900 euros", "The rent is 900 euros [1, 2] [uncited]."))
    assert found.text == "The rent is 900 euros. [1]"


def test_a_claim_in_another_language_than_its_source_stands_on_its_quote():
    text = "Le locataire paie 900 euros par mois à la fin du trimestre, selon le contrat de bail."
    bail = Document("bail", "Bail", text, markdown_tree(text, "bail"), language="fr")
    passage = bail.passage(Span("bail", 0, len(text)))
    question = "How much does the tenant have to pay for the apartment each month?"

    def ask(sentence: str):
        statement = said(1, "Le locataire paie 900 euros par mois", sentence)
        return cite(question, [statement], [passage], {"bail": bail})

    assert ask("The tenant has to pay 900 euros for the apartment each month.").citations
    assert not ask("The tenant has to pay 950 euros for the apartment each month.").citations


WORDS = st.sampled_from([*TEXT.split(), "Paris", "42", "[3]", "«»", ""])
SENTENCES = st.lists(WORDS, max_size=8).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 4), SENTENCES, SENTENCES), max_size=4))
def test_whatever_a_model_says_quotes_are_slices_of_the_passage_named(replies):
    found = cited(*(said(*reply) for reply in replies))
    for citation in found.citations:
        assert citation.quote == TEXT[citation.span.start : citation.span.end]
        assert RENT.span.contains(citation.span) or NOTICE.span.contains(citation.span)
        for start, end in citation.answer_spans:
            assert found.text[start:end].strip()
    assert bool(found.text) == bool(found.citations)


def joined(sentence: str, *quotes: tuple[int, str]) -> Joined:
    return Joined(quotes=[Quote(passage=p, quote=q) for p, q in quotes], sentence=sentence)


def test_a_sentence_may_rest_on_two_places_together():
    found = cited(
        joined("It is 900 euros, with three months.", (1, "900 euros"), (2, "three months"))
    )
    assert found.text == "It is 900 euros, with three months. [1][2]"
    assert [c.quote for c in found.citations] == [
        "The tenant pays 900 euros a month.",
        "Either side may give notice of three months.",
    ]


def test_a_number_that_no_quote_has_is_not_carried_by_the_others():
    wrong = joined("It is 900 euros, with six months: 6.", (1, "900 euros"), (2, "three months"))
    stated, dropped = resolve(QUESTION, [wrong], [RENT, NOTICE], DOCUMENTS)
    assert [each.places for each in stated] == [()]
    assert len(dropped) == 1


def test_a_quote_that_adds_nothing_to_the_sentence_is_no_place_of_it():
    found = cited(joined("The rent is 900 euros a month.", (1, "900 euros"), (2, "in writing")))
    assert [c.quote for c in found.citations] == ["The tenant pays 900 euros a month."]


def test_a_quote_with_the_wrong_number_is_found_where_it_stands():
    found = cited(
        joined("It is 900 euros, with three months.", (2, "900 euros"), (1, "three months"))
    )
    assert [c.quote for c in found.citations] == [
        "The tenant pays 900 euros a month.",
        "Either side may give notice of three months.",
    ]


def test_one_invented_quote_does_not_take_the_real_one_with_it():
    stated, _ = resolve(
        QUESTION,
        [joined("The rent is 900 euros a month.", (1, "900 euros"), (2, "as agreed in Rome"))],
        [RENT, NOTICE],
        DOCUMENTS,
    )
    assert [p.span for p in stated[0].places] == [
        Span("lease", TEXT.index("The tenant"), TEXT.index(" Rent falls"))
    ]


def test_a_quote_that_joins_by_the_words_of_the_question_is_a_place_too():
    chain = cite(
        "Where was the tenant of the flat in Mill Street born?",
        [
            joined(
                "The tenant of the flat in Mill Street is Ada Mercer, who was born in Lund.",
                (1, "The flat in Mill Street has one tenant"),
                (2, "Ada Mercer was born in Lund"),
            )
        ],
        [passage_of("a", FLAT), passage_of("b", BORN)],
        {"a": document_of("a", FLAT), "b": document_of("b", BORN)},
    )
    assert [c.quote for c in chain.citations] == [BORN, FLAT]


FLAT = "The flat in Mill Street has one tenant, an engineer."
BORN = "Ada Mercer was born in Lund."


def document_of(name: str, text: str) -> Document:
    return Document(name, name, text, markdown_tree(text, name), language="en")


def passage_of(name: str, text: str):
    return document_of(name, text).passage(Span(name, 0, len(text)))


NUMBERED = """# Terms

## 3. Copies

Access to the source from the same place counts as distribution of the source.

## Fiscal 2022

Revenue was 40 million.
"""


def test_the_number_of_a_heading_is_no_number_of_what_stands_under_it():
    terms = Document("terms", "Terms", NUMBERED, markdown_tree(NUMBERED, "terms"), language="en")
    start = NUMBERED.index("Access")
    under = terms.passage(Span("terms", start, NUMBERED.index("\n\n## Fiscal")))
    wrong = said(1, "Access to the source", "Access to the source counts for 3 years.")
    assert not cite("How long?", [wrong], [under], {"terms": terms}).citations
    # A year in a heading is said of what stands under it.
    start = NUMBERED.index("Revenue")
    fiscal = terms.passage(Span("terms", start, len(NUMBERED) - 1))
    right = said(1, "Revenue was 40 million", "Revenue was 40 million in 2022.")
    assert cite("How much?", [right], [fiscal], {"terms": terms}).citations
