"""The rules that tell whether a sentence says the opposite of a claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.citing import Statement, cite
from colligate.core.meaning import Meaning, check_meaning, check_short_answer, compare_words
from support.runs import document

MERGER = "Bolt Energy announced in 2019 that it planned to acquire Norrfors Paper for $4 billion."
RENT = "The tenant must pay the rent before the third day, but some tenants may pay it later."
FILM = "Night Ferry was directed by Ida Moen and written by Carl Lund in 2004."
COURT = "The court did not cancel the contract, which is the largest in the county."
TOWNS = "Brenwick is the capital, and the largest city is Aldton."


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("The court did cancel the contract, which is the largest in the county.", COURT),
        ("The court did not cancel the contract, which is the smallest in the county.", COURT),
        ("The court did not cancel the contract, which is the second largest there.", COURT),
        ("The tenant must pay the rent after the third day.", RENT),
        ("The tenant may pay the rent before the third day.", RENT),
        ("The tenant must pay the rent before the third day, but all tenants may pay later.", RENT),
        ("Night Ferry was directed by Carl Lund and written by Ida Moen in 2004.", FILM),
        ("Night Ferry directed Ida Moen in 2004.", FILM),
        ("Aldton is the capital, and the largest city is Brenwick.", TOWNS),
        ("Bolt Energy announced that it planned to acquire Norrfors Paper for $4 million.", MERGER),
        ("Norrfors Paper announced that it planned to acquire Bolt Energy in 2019.", MERGER),
        ("Ida Moen won the prize.", "Ida Moen probably won the prize in Oslo."),
        ("He scored 300 goals in 187 games.", "He scored 187 goals in 300 games."),
        ("Norvik acquired Dorne.", "Dorne acquired Norvik."),
        ("Norvik Foods acquired Dorne Ltd.", "Dorne Ltd has acquired Norvik Foods, a mill."),
        ("The tenant pays the landlord 90 euros.", "The landlord pays the tenant 90 euros."),
        ("Lund died in Oslo and rests in Bergen.", "Lund died in Bergen and rests in Oslo."),
        ("The mill opened before the zoo.", "The zoo opened before the mill."),
        ("Bolt bought Acme.", "Acme took over Bolt."),
        ("Norvik purchased Dorne in 2004.", "In 2004 Dorne bought Norvik."),
        ("Selm beat Brenwick.", "Brenwick defeated Selm."),
        ("The merger closed in May.", "The merger is expected to close in May."),
        ("The mill closed on 3 May.", "The mill may close on May 3."),
        ("The zoo opened.", "The zoo is expected to open in 2024."),
        ("A tax was introduced.", "A tax was proposed to be introduced."),
        ("The plan was adopted in 2019.", "The plan was proposed in 2019."),
        ("The board approved the merger.", "The board discussed the merger."),
        ("Norvik acquired Dorne in 2004.", "Norvik agreed to acquire Dorne in 2004."),
        ("He said that more films would follow.", "He said that he hoped more films would follow."),
        ("It is certain that Lund was the owner.", "Lund is believed to have been the owner."),
        ("The deed waives the patent rights.", "a. No patent or design rights are waived."),
        ("The tenant may sublet the flat.", "No tenant may sublet a flat."),
        ("It sold 4 mills in 2021.", "It sold 3 and 4 mills in 2021 and 2020, respectively."),
        ("Notice of 30 months must be given.", "Notice of 30 days must be given."),
        ("The tower is 41 feet high.", "The tower is 41 metres high."),
        ("The mill was sold for $40 million.", "The mill was sold for €40 million."),
        ("The mill costs 40 dollars.", "The mill costs 40 euros."),
        ("Either party may assign it.", "Neither party may assign it."),
        ("The contract is void.", "The plaintiff argues that the contract is void."),
        ("The licence is exclusive.", "The licence is non-exclusive."),
        ("The notes are secured obligations.", "The notes are unsecured obligations."),
        ("The lease ends on May 31, 2025.", "The lease ends on March 31, 2025."),
        ("The year ended on 30 November.", "The year ended on 30 December."),
        (
            "Its sales were $12 million in 2022.",
            "They were $10 million in 2022 and $12 million in 2023.",
        ),
        ("Prices rose by 12% in Oslo.", "Prices rose to 12% in Oslo."),
        ("The rent is 100 euros per year.", "The rent is 100 euros per month."),
        ("Ada Moen was the CEO of Norr.", "Ada Moen was the CFO of Norr."),
        ("Notice of up to 30 days is needed.", "Notice of at least 30 days is needed."),
        ("She pays if the tenant moves.", "She pays unless the tenant moves."),
        ("The spread is 12 percent.", "The spread is 12 basis points."),
        ("She is entitled to leave.", "She is not entitled to leave unless she asks for it."),
        (
            "The firm may pay dividends.",
            "The firm may not pay dividends unless the firm is solvent.",
        ),
    ],
)
def test_what_turns_the_meaning_round_is_found(claim, source):
    assert compare_words(claim, source) is Meaning.CONTRADICTS


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("The contract, the largest in the county, was not cancelled.", COURT),
        ("No contract in the county is larger than the one that the court upheld.", COURT),
        ("Rent is due before the third day.", RENT),
        ("The tower is 135 feet high.", "The tower is 41 metres (135 feet) high."),
        ("Apartment number 5 was sold.", "Apartment No. 5 was sold."),
        ("The mill was sold for $44 million.", "The mill was sold for €40 million ($44 million)."),
        ("Carl Lund wrote Night Ferry, and Ida Moen directed it.", FILM),
        ("Ida Moen directed Night Ferry in 2004.", FILM),
        ("The largest city is Aldton, while the capital is Brenwick.", TOWNS),
        ("In 2019 Bolt Energy said that it wanted to buy Norrfors Paper.", MERGER),
        ("Aldton joined before Brenwick left.", "Brenwick left after Aldton joined."),
        ("A has fewer members than B.", "B has more members than A."),
        ("B was acquired by A.", "A acquired B."),
        ("It never opened before 1990.", "It first opened in 1990."),
        ("Norvik merged with Dorne.", "Dorne merged with Norvik."),
        ("Ada Moen is the sister of Bo Lund.", "Bo Lund is the sister of Ada Moen."),
        ("Oslo is the capital of Norway.", "Norway's capital is Oslo."),
        ("Anna rents a flat to Bert.", "Bert rents a flat from Anna."),
        ("The zoo opened after the mill.", "The mill opened before the zoo."),
        ("A mill and a zoo are in Selm.", "A zoo and a mill are in Selm."),
        ("Bolt made the game and Norr sold it.", "The game was made by Bolt and sold by Norr."),
        ("It is not able to fly.", "It is unable to fly."),
        ("He wanted to leave in May.", "In May he wanted to leave the town."),
        ("Bolt bought Acme.", "Acme was taken over by Bolt."),
        ("Acme bought Bolt from Norr.", "Norr sold Bolt to Acme."),
        ("Selm beat Brenwick.", "Brenwick was defeated by Selm."),
        ("The merger is to close in May.", "The merger is expected to close in May."),
        ("The zoo opened in 2024.", "The zoo was expected to open in 2023 but opened in 2024."),
        ("The tenant pays the costs incurred.", "The tenant pays costs which may be incurred."),
        ("It cost about 4 million.", "It cost approximately 4 million."),
        ("The anticipated loss is small.", "The expected loss is small."),
        ("The deed waives copyright.", "No trademark rights are waived."),
        ("The tenant may sublet the flat.", "No tenant may sublet a flat unless asked to."),
        ("The tenant may sublet the flat.", "No more than two tenants may sublet the flat."),
        ("It sold 3 mills, up from 4, in 2020.", "In 2021 and 2020 it sold 4 and 3, respectively."),
        (
            "He may sublet only with the owner's consent.",
            "He shall not sublet without the owner's consent.",
        ),
        ("It is amended only in writing.", "It may not be amended except in writing."),
        ("The option is open from 1 May.", "The option is not open prior to 1 May."),
        ("No share is sold without the board.", "Shares are sold only with the board."),
        ("The figures were not audited.", "The figures were unaudited."),
        ("Norr has not paid dividends.", "Norr has never paid dividends, nor will it."),
        (
            "Sales were $12 million in 2023.",
            "They were $10 million in 2022 and $12 million in 2023.",
        ),
        ("The age is 21 since 1986.", "A law of 1984 raised the age from 18 and 19 to 21 by 1986."),
        (
            "It was 21 by 1986.",
            "In 1984 a law told them to raise the age to 21 by 1986 or lose 10%.",
        ),
        ("She was elected in May.", "In May she was elected, and again in June."),
        ("Credit is given in the USA.", "In the USA credit is given, but not in the UAE."),
        ("The salary is 50 euros per year.", "The salary is 50 euros per annum."),
        ("He argued that the tax hurt trade.", "He argues that the tax hurt trade."),
        ("Kraft made a bid of $143 million.", "Unilever rejected Kraft's bid of $143 million."),
        ("If no notice is given, it continues.", "It continues unless notice is given."),
        ("It is renewed if neither gives notice.", "It is renewed unless one gives notice."),
        ("It was shown from 2005 to 2014.", "It was shown from 19 May 2005 to 31 May 2014."),
        ("The dividend is $2 a share per year.", "The annual dividend is $2 per share."),
        ("Lease 0; Lease 1; Lease 2; Lease 3", "Lease 0; Lease 1; Lease 2; and 2 more end then."),
        ("Yes.", COURT),
        ("", COURT),
        ("COURT", ""),
        (
            "Cameron was succeeded by May in 2016.",
            "Cameron was succeeded by Theresa May in July 2016.",
        ),
        (
            "Mercury and May wrote the song in 1975.",
            "Freddie Mercury and Brian May wrote the song in 1975.",
        ),
        (
            "The agreement of 5 May 2020 binds both parties.",
            "This AGREEMENT dated 5 MAY 2020 binds both parties.",
        ),
        (
            "The plant opened.",
            "The plant, which was expected to open in 2019, began operating in June 2019.",
        ),
        (
            "The house was bought by Ann Lee in 1990.",
            "The house, bought in 1990 when Ann Lee moved to the town, has ten rooms.",
        ),
    ],
)
def test_other_words_for_the_same_are_left_alone(claim, source):
    assert compare_words(claim, source) is not Meaning.CONTRADICTS


def test_words_of_the_source_are_supported_unless_it_is_unsure_of_them():
    assert compare_words("Brenwick is the capital", TOWNS) is Meaning.SUPPORTS
    unsure = "It is alleged that Brenwick is the capital."
    assert compare_words("Brenwick is the capital.", unsure) is not Meaning.SUPPORTS
    both = "Unsigned forms are rejected; the form must be signed."
    assert compare_words("The form must be signed.", both) is Meaning.SUPPORTS
    if_so = "The fee is repaid if the course is cancelled."
    assert compare_words("The fee is repaid.", if_so) is not Meaning.SUPPORTS


words = st.lists(
    st.sampled_from("the not no all Ada Bo was by acquired 3 4 million before than may".split()),
    max_size=9,
).map(" ".join)


@given(words | st.text(), words | st.text())
def test_any_two_texts_can_be_compared(claim, source):
    assert compare_words(claim, source) in Meaning
    if source.strip(" ."):
        assert compare_words(source, source) is not Meaning.CONTRADICTS


class Denying:
    """A verifier that denies everything."""

    name, limit, most_added = "denying", 0.9, 1

    def score(self, claim, title, source):
        return 0.0, 1.0, 0.0


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("Ida Moen and Carl Lund made Night Ferry in 2004.", Meaning.CONTRADICTS),
        ("Ida Moen and Carl Lund made the famous Night Ferry in snowy Oslo.", Meaning.UNCLEAR),
        ("Night Ferry was directed by Ida Moen", Meaning.SUPPORTS),
        ("Ferry, 2004.", Meaning.UNCLEAR),
    ],
)
def test_a_verifier_is_asked_about_sentences_that_add_hardly_anything(claim, verdict):
    assert check_meaning(claim, "Night Ferry", FILM, Denying()) is verdict
    if verdict is Meaning.CONTRADICTS:
        assert check_meaning(claim, "Night Ferry", FILM) is Meaning.UNCLEAR


@pytest.mark.parametrize(
    ("question", "source", "meaning"),
    [
        ("Does the deed waive patent rights?", "It does not waive patent rights.", "contradicts"),
        ("Does the deed waive patent rights?", "The deed waives patent rights.", "supports"),
        ("Does it not waive patent rights?", "It does not waive patent rights.", "unclear"),
        ("May tenants keep pets?", "Tenants may keep pets, but not dogs.", "unclear"),
        ("May tenants keep pets?", "The rent is due on Monday.", "unclear"),
        ("Did the zoo open in 1921?", "The zoo did not open until 1921.", "unclear"),
        ("Did the zoo open in 1920?", "The zoo did not open until 1921.", "contradicts"),
        ("Is the licence exclusive?", "The licence is non-exclusive.", "contradicts"),
        ("May it be amended in writing?", "It may not be amended except in writing.", "unclear"),
        ("May it be ended after June?", "It may not be ended before June.", "unclear"),
        ("Is a bag of 10 kg allowed?", "A bag of not more than 10 kg is allowed.", "unclear"),
    ],
)
def test_yes_is_read_as_what_the_question_asks(question, source, meaning):
    assert check_short_answer("Yes", question, source) == meaning
    assert check_short_answer("Yes, it does.", question, source) == meaning


def test_an_answer_does_not_say_yes_beside_a_statement_that_denies_it():
    question = "Does the deed waive patent rights?"
    text = "The deed does not waive patent rights. It waives copyright."
    made = document("deed", text)
    passages = [made.passage(made.span(0, len(text)))]
    said = Statement(passage=1, quote=text[:38], sentence=text[:38])
    cited = cite(question, [said], passages, {made.id: made}, short="Yes")
    assert (cited.text, cited.short) == ("The deed does not waive patent rights. [1]", "No")
    assert any("“Yes” is replaced by “No”" in each for each in cited.dropped)


def test_a_verifier_is_asked_about_a_short_answer_that_is_a_clause():
    text = "Night Ferry, the first film of Ida Moen, was made with Carl Lund in 2004."
    made = document("film", text)
    passages = [made.passage(made.span(0, len(text)))]
    asked = []

    class Asked(Denying):
        def score(self, claim, title, source):
            asked.append((claim, title, source))
            return 0.0, float(claim in shorts), 0.0

    def read(short, verifier=None):
        statement = Statement(passage=1, quote=text, sentence="Ida Moen made a film in 2004.")
        found = cite("Who?", [statement], passages, {made.id: made}, short=short, verifier=verifier)
        assert found.citations
        return found.short

    shorts = ("Carl Lund was with Ida Moen", "Ida Moen", "2004", "Lund in 2004")
    assert all(read(short) == short for short in shorts)
    assert [read(short, Asked()) for short in shorts] == ["", *shorts[1:]]
    assert {claim for claim, _, _ in asked} == {shorts[0], "Ida Moen made a film in 2004."}
    assert (shorts[0], made.title, text) in asked


def test_a_verifier_is_asked_about_the_sentence_of_a_short_answer():
    text = "The fee for the spring course is repaid if the course is cancelled."
    made = document("fee", text)
    passages = [made.passage(made.span(0, len(text)))]
    question, short = (
        "What about the fee for the course?",
        "The fee for the spring course is repaid",
    )
    found = cite(question, [], passages, {made.id: made}, short=short)
    assert found.short == short
    found = cite(question, [], passages, {made.id: made}, short=short, verifier=Denying())
    assert (found.short, found.citations) == ("", ())
    assert "say the opposite" in " ".join(found.dropped)
