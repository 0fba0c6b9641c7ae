"""From statements with quotes to verified places: what is cited, marked and dropped."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.core.answer import COMPUTED, UNCITED, Claim, Verdict
from colligate.documents import Page, Span
from colligate.library.in_memory import InMemorySources
from colligate.readers.citing import ComputedStatement, Quote, Statement, cite, locate_statements
from support.documents import make

TEXT = """# Lease

The tenant pays 900 euros a month. Rent falls due on the third day.

## Notice

Either side may give notice of three months. Notice is given in writing.
"""
PAGES = (Page(1, 0, TEXT.index("## Notice")), Page(2, TEXT.index("## Notice"), len(TEXT)))
LEASE = make(TEXT, "Lease", "lease", pages=PAGES)
RENT = LEASE.passage(Span("lease", TEXT.index("The tenant"), TEXT.index("\n\n## Notice")))
NOTICE = LEASE.passage(Span("lease", TEXT.index("Either"), len(TEXT) - 1))
PAYS = "The tenant pays 900 euros a month."
QUESTION = "What is the rent and how long is the notice?"


class Judge:
    """A check that finds what its words say; it keeps the claims that it was asked about."""

    name = "scripted"

    def __init__(self, **verdicts: Verdict) -> None:
        self.verdicts, self.asked, self.calls = verdicts, [], 0

    async def judge(self, claims, run):
        self.asked += claims
        self.calls += 1
        found = []
        for claim in claims:
            words = (v for word, v in self.verdicts.items() if word in claim.statement)
            found.append(next(words, Verdict.SUPPORTED))
        return found


def said(passage: int, quote: str, sentence: str) -> Statement:
    return Statement(passage=passage, quote=quote, sentence=sentence)


def joined(sentence: str, *quotes: tuple[int, str], **more) -> ComputedStatement:
    own = [Quote(passage=p, quote=q) for p, q in quotes]
    return ComputedStatement(quotes=own, sentence=sentence, **more)


@pytest.fixture
async def cited(make_run):
    """`await cited(*statements)` cites them over the two passages of the lease."""
    async with InMemorySources([LEASE]) as sources:

        async def do(*statements, check=None, short="", passages=(RENT, NOTICE)):
            run, _ = make_run(sources)
            run.check = check
            return await cite(QUESTION, statements, dict(enumerate(passages, 1)), run, short=short)

        yield do


async def test_a_quote_becomes_the_sentences_it_stands_in_with_section_and_page(cited):
    found = await cited(
        said(1, "pays 900 euros", "The rent is 900 euros a month."),
        said(2, "notice of three months", "Notice is three months."),
    )
    assert found.text == "The rent is 900 euros a month. [1] Notice is three months. [2]"
    rent, notice = found.citations
    assert (rent.quote, rent.section, rent.page) == (PAYS, ("Lease",), 1)
    assert notice.quote == "Either side may give notice of three months."
    assert (notice.section, notice.page) == (("Lease", "Notice"), 2)
    assert [found.text[s:e] for c in found.citations for s, e in c.answer_spans] == [
        "The rent is 900 euros a month.",
        "Notice is three months.",
    ]


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        (said(1, "The  tenant pays\n900 euros", "The rent is 900 euros."), "normalised"),
        (said(2, PAYS, "The rent is 900 euros a month."), "exact"),  # not in the one it names
        (said(0, "tenant pays 900 euros", "The rent is 900 euros."), "exact"),
        (said(1, "The tenant payed 900 euros a month", "The rent is 900 euros."), "fuzzy"),
    ],
)
async def test_a_quote_is_found_where_it_is(cited, statement, how):
    [citation] = (await cited(statement)).citations
    assert (citation.quote, citation.how) == (PAYS, how)


@pytest.mark.parametrize(
    ("quote", "passage"),
    [
        ("The landlord lives in Paris", 1),
        ("pays 950 euros a month", 7),
        ("The tenant payed 900 euros a month", 2),  # like one of 1
    ],
)
async def test_a_statement_without_a_located_quote_has_no_citation(cited, quote, passage):
    found = await cited(said(passage, quote, "It is so."))
    assert (found.text, found.citations) == ("", ())
    assert "no single passage is known for the quote" in found.dropped[0]
    marked = await cited(said(1, PAYS, "The rent is 900 euros."), said(passage, quote, "So."))
    assert marked.text == f"The rent is 900 euros. [1] So. {UNCITED}"


async def test_a_statement_may_rest_on_several_quotes_in_its_own_words(cited):
    found = await cited(joined("One may leave, and pays.", (1, PAYS), (2, "three months")))
    assert [c.quote[:6] for c in found.citations] == ["The te", "Either"]


async def test_a_check_drops_what_is_contradicted_and_marks_what_is_unclear(cited):
    judge = Judge(Dogs=Verdict.CONTRADICTED, Cats=Verdict.UNCLEAR)
    found = await cited(
        said(1, PAYS, "Dogs pay nothing."),
        said(1, "Rent falls due on the third day.", "Cats may pay late."),
        said(2, "Notice is given in writing.", "It takes a letter."),
        check=judge,
    )
    assert "Dogs" not in found.text
    assert "contradict" in found.dropped[0]
    assert [c.meaning for c in found.citations] == [Verdict.UNCLEAR, Verdict.SUPPORTED]
    assert [it.statement for it in judge.asked][:2] == ["Dogs pay nothing.", "Cats may pay late."]


async def test_a_copy_of_its_quote_is_not_judged(cited):
    judge = Judge(The=Verdict.CONTRADICTED)
    found = await cited(said(1, PAYS, PAYS.rstrip(".")), check=judge)
    assert found.citations
    assert judge.asked == []


async def test_a_number_that_no_quote_has_marks_the_statement(cited):
    found = await cited(said(1, PAYS, "The rent is 950 euros a month."))
    [citation] = found.citations
    assert citation.meaning is Verdict.UNCLEAR


async def test_a_computed_number_is_computed_again(cited):
    yearly = {"operation": "product", "numbers": ["900", "3"]}
    both = ((1, PAYS), (2, "notice of three months"))
    right = joined("That is 2,700 euros.", *both, calculations=[yearly])
    wrong = joined("That is 2,800 euros.", *both, calculations=[yearly])
    assert {c.how for c in (await cited(right)).citations} == {COMPUTED}
    assert {c.meaning for c in (await cited(wrong)).citations} == {Verdict.UNCLEAR}


@pytest.mark.parametrize(
    ("short", "kept"), [("900 euros", True), ("950 euros", False), ("a lot of money", True)]
)
async def test_the_numbers_of_a_short_answer_must_be_cited(cited, short, kept):
    found = await cited(said(1, PAYS, "The rent is 900 euros a month."), short=short)
    assert found.short == (short if kept else "")
    assert bool(found.dropped) is not kept


async def test_a_short_answer_may_be_computed_as_a_statement_without_a_place_says(cited):
    yearly = {"operation": "product", "numbers": ["900", "3"]}
    lost = joined("That is 2,700 euros.", (1, "no such words"), calculations=[yearly])
    both = joined("The rent is 900 euros, the notice three months.", (1, PAYS), (2, "three months"))
    assert (await cited(both, lost, short="2,700 euros")).short == "2,700 euros"


async def test_a_short_answer_that_what_is_cited_contradicts_is_left_out(cited):
    judge = Judge(Nothing=Verdict.CONTRADICTED)
    found = await cited(said(1, PAYS, PAYS), short="Nothing", check=judge)
    assert (bool(found.citations), found.short) == (True, "")
    assert isinstance(judge.asked[0], Claim)


async def test_a_row_of_a_table_is_judged_and_cited_under_its_head(make_run):
    rows = "\n".join(f"| Line {n} | {n},100 | {n},500 |" for n in range(1, 40))
    table = make(f"# Fees\n\nIn thousands\n\n| Item | 2023 | 2022 |\n| --- | --- | --- |\n{rows}\n")
    at = table.text.index("| Line 31")
    piece = table.passage(Span("d", at, table.text.index("| Line 33")))
    judge = Judge()
    async with InMemorySources([table]) as sources:
        run, _ = make_run(sources)
        run.check = judge
        statement = said(1, "| Line 31 | 31,100 | 31,500 |", "Line 31 was 31,100 in 2023.")
        found = await cite("What was line 31?", [statement], {1: piece}, run, short="31,100 (2023)")
    [citation] = found.citations
    assert "2023" in citation.head
    assert citation.meaning is Verdict.SUPPORTED
    assert found.short == "31,100 (2023)"
    assert "Item | 2023 | 2022" in judge.asked[0].quotes[0].text
    assert table.slice(citation.span) == citation.quote


async def test_marks_the_model_wrote_itself_are_removed(cited):
    found = await cited(said(1, PAYS, "The rent is 900 euros [4]. See [2019] UKSC 5."))
    assert found.text == "The rent is 900 euros. See [2019] UKSC 5. [1]"


async def test_statements_of_an_earlier_step_are_those_with_places(make_run):
    async with InMemorySources([LEASE]) as sources:
        run, _ = make_run(sources)
        statements = [said(1, PAYS, "950 euros."), said(1, "nowhere", "Lost.")]
        kept = await locate_statements(QUESTION, statements, [RENT], run)
    assert [(it.sentence, it.places[0].meaning) for it in kept] == [("950 euros.", Verdict.UNCLEAR)]
    noted = [each.line() for _, each in run.trace.events]
    assert not any("950" in line for line in noted)  # nothing is said of the numbers of a note
    assert any("nowhere" in line for line in noted)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            said,
            st.integers(-1, 4),
            st.one_of(st.text(max_size=30), st.sampled_from([PAYS, "three months", "the third"])),
            st.text(max_size=40),
        ),
        max_size=4,
    )
)
async def test_whatever_a_model_says_quotes_are_slices(replies):
    from colligate.core.run import Run
    from colligate.models.metering import Meter

    async with InMemorySources([LEASE]) as sources:
        run = Run(sources, {}, Meter())
        found = await cite(QUESTION, replies, {1: RENT, 2: NOTICE}, run)
    for citation in found.citations:
        assert LEASE.slice(citation.span) == citation.quote
        assert all(0 <= a < b <= len(found.text) for a, b in citation.answer_spans)


def test_a_joined_statement_may_have_its_only_quote_beside_it():
    one = ComputedStatement.model_validate({"passage": 2, "quote": "one", "sentence": "It is one."})
    assert [(quote.passage, quote.quote) for quote in one.quotes] == [(2, "one")]


async def test_a_long_quote_of_several_passages_is_of_the_first_and_a_short_one_of_none(make_run):
    twins = [make(TEXT, "Lease", name) for name in ("one", "two")]
    shown = {n: d.passage(Span(d.id, RENT.span.start, RENT.span.end)) for n, d in enumerate(twins)}
    async with InMemorySources(twins) as sources:
        run, _ = make_run(sources)
        for quote, ids in ((PAYS, ["one"]), ("900 euros", [])):
            found = await cite(QUESTION, [said(7, quote, "It is 900 euros.")], shown, run)
            assert [each.span.document_id for each in found.citations] == ids


async def test_words_of_several_passages_are_those_beside_the_other_quotes(make_run):
    text = "# Sales\n\nIn thousands.\n\nSales: 5.\n\n# Costs\n\nIn thousands.\n\nCosts: 7.\n"
    document = make(text, "Report", "a")
    middle = text.index("# Costs")
    spans = Span("a", 0, middle - 2), Span("a", middle, len(text) - 1)
    async with InMemorySources([document]) as sources:
        run, _ = make_run(sources)
        shown = dict(enumerate(map(document.passage, spans), 1))
        both = joined("Costs were 7 thousand.", (0, "Costs: 7."), (0, "In thousands."))
        found = await cite("What were the costs?", [both], shown, run)
        alone = await cite("In what?", [joined("Thousands.", (0, "In thousands."))], shown, run)
    starts = [each.span.start for each in found.citations]
    assert starts == [text.index("Costs: 7."), text.rindex("In thousands.")]
    assert not alone.citations
