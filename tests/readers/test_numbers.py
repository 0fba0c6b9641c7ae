import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.readers.numbers import Calculation, Operation, find_missing_values

HELD = [
    ("about $122.6 million", "(in thousands)\nRevenue 122,641"),
    ("$1.03 billion", "($ in millions) Flexibles\nEurope 1,030 — 1,030"),
    ("about 41,000 airplanes", "41,170 airplanes"),
    ("half a billion dollars", "$512 million"),
    ("$3.5 billion", "$3.5 to $4.0 billion"),
    ("175 billion", "GPT-3 (175B)"),
    ("half of the shares", "fifty percent"),
    ("a third of the tasks", "30.6% of the tasks"),
    ("3% of it", "3 to 15 percent"),
    ("5 percent", "Change (%)\nEurope 5"),
    ("1.5 km", "1,500 metres"),
    ("8.3 square kilometres", "828 hectares"),
    ("98.6 °F", "37 °C"),
    ("three months", "90 days"),
    ("two decades", "the next 20 years"),
    ("€5m", "5 million euros"),
    ("1 March 2024", "2024-03-01"),
    ("3 January 2024", "01.03.2024"),
    ("in 2024", "March 1st, 2024"),
    ("December 31, 2021", "December 31, 2022 and 2021"),
    ("in June 2020", "on 5 June; year 2020"),
    ("February 2019", "February 2020 and 2019"),
    ("the 1950s", "1955"),
    ("the 1800s", "the nineteenth century"),
    ("until 1935", "1934-35"),
    ("twelve", "12"),
    ("the third", "the 3rd"),
    ("1,234.56", "1.234,56"),
    ("196", "a loss of (196)"),
    ("one of them, the two, the first, thousands of people", "none"),
    ("Qwen2.5-7B", "the model Qwen2.5 7B"),
    ("COVID-19", "Covid 19"),
    ("9 percent", r"less than $9 \%$ error"),
]

MISSING = [
    ("$401 million", "$401 thousand"),
    ("828 square miles", "828 hectares (3.2 square miles)"),
    ("thirty percent", "thirty times"),
    ("€5", "$5"),
    ("100", "98"),
    ("1 March 2024", "2 March 2024"),
    ("May 20, 2022", "June 22, 2022, and May 20, 2024"),
    ("July 2019", "in 2019"),
    ("2 July 2019", "in 2019"),  # its middle
    ("16 May 2019", "May 2019, of 2019"),
    ("one year", "two years"),
    ("GPT-4", "GPT-3"),
    ("v1.2.3", "v1.2.4"),
]


@pytest.mark.parametrize(("statement", "source"), HELD)
def test_a_number_is_held_by_value(statement, source):
    assert find_missing_values(statement, [source]) == []


@pytest.mark.parametrize(("statement", "source"), MISSING)
def test_another_number_is_missing(statement, source):
    [missing] = find_missing_values(f"It is {statement}.", [f"It was {source}."])
    assert missing in statement


@pytest.mark.parametrize(
    ("language", "statement", "source"),
    [
        ("de", "1,5 Mio. Euro", "1.500.000 EUR"),
        ("de", "1. März 2024", "01.03.2024"),
        ("de", "zwölf von 1.850", "12 von 1850"),
        ("fr", "1er mars 2024", "2024-03-01"),
        ("fr", "1 234 567 euros", "1.234.567 €"),
        ("es", "1 de marzo de 2024", "01/03/2024"),
        ("es", "cinco millones", "5.000.000"),
        ("es", "50 por ciento", "50%"),
        ("it", "1 marzo 2024", "2024-03-01"),
        ("de-AT", "5 Mrd. Euro", "€5bn"),
        ("xx", "twelve and 5 km", "twelve times 5,000 m"),
    ],
)
def test_other_languages(language, statement, source):
    assert find_missing_values(statement, [source], language=language) == []


def test_missing_numbers_are_returned_as_written_in_their_order():
    statement = "In 2019, about $5.1 million, or 7%, went to twelve towns; 7% to others."
    assert find_missing_values(statement, ["Of 2018"]) == ["2019", "$5.1 million", "7%", "twelve"]


def test_numbers_of_the_question_are_not_missing():
    assert find_missing_values("Two of 17 in 1970.", ["Two"], given="How many in 1970?") == ["17"]


def test_a_unit_line_may_be_in_another_source():
    head, row = "REVENUES (Dollars in millions) 2023 2022", "Converse 2,427 2,346"
    assert find_missing_values("Converse had $2.35 billion in 2022.", [head, row]) == []
    assert find_missing_values("It had $2.35 billion in 2022.", [row]) == ["$2.35 billion", "2022"]


CALCULATIONS = [
    ("$3.7 million", "$1.0 million, was $4.7 million", "difference", "$4.7 million|$1.0 million"),
    ("1.15 million", "909 thousand and 237 thousand", "sum", "909 thousand|237 thousand"),
    ("nearly two years", "June 30, 2022; May 20, 2024", "difference", "June 30, 2022|May 20, 2024"),
    ("26 years", "1901 and 1927", "difference", "1927|1901"),
    ("13 times", "LLaMA-13B and GPT-3 (175B)", "ratio", "175B|13B"),
    ("54%", "17,500 of 32,500", "ratio", "17,500|32,500"),
    ("29%", "Jordan Brand 6,589 5,122", "percent_change", "5,122|6,589"),
    ("$3.1 billion", "(in millions) 6,463 3,382", "difference", "6,463|3,382"),
    ("0.5 km", "300 m and 200 m", "sum", "300 m|200 m"),
    ("an average of 5", "4 and 6", "average", "4|6"),
    ("24", "4 by 6", "product", "4|6"),
    ("three countries", "France, Spain and Italy", "count", "France|Spain|Italy"),
]
WRONG = [
    ("$3.8 million", "$1.0 million, $4.7 million", "difference", "$4.7 million|$1.0 million"),
    ("5", "2", "sum", "2|3"),  # an operand that no source holds
    ("5", "2 dollars and 3 euros", "sum", "2 dollars|3 euros"),
    ("5", "0 by 0", "ratio", "0|0"),
    ("three countries", "France and Spain", "count", "France|Spain|Italy"),
]


@pytest.mark.parametrize(("statement", "source", "operation", "numbers"), [*CALCULATIONS, *WRONG])
def test_the_result_of_a_right_calculation_is_held(statement, source, operation, numbers):
    calculation = Calculation(Operation(operation), tuple(numbers.split("|")))
    wrong = (statement, source, operation, numbers) in WRONG
    assert find_missing_values(statement, [source]) != []
    assert bool(find_missing_values(statement, [source], calculations=[calculation])) is wrong


@pytest.mark.parametrize(
    "text", ["'10000", "1" * 1_000_000, "1,234" * 20_000, "twelve " * 20_000, "(" * 100_000]
)
def test_long_texts_are_read(text):
    assert find_missing_values(f"{text} x", [f"{text} y"]) == []


PIECES = (
    "one two half third thirds quarter century thousand millions twelve twenty-first 5 12 1,234.5 "
    "1.850 2024 01.03.2024 31.02.2023 March May 1st of 13:00 1 pm % percent km m in B K ½ 2½ '67 "
    "1934-35 ( ) - – . , \\ \\$ {~} $ € US$ COVID-19 v1.2 mc2 000 °C USD 0.0 ² ٣ ３ 99/99/99 Mio. o"
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from([*PIECES.split(), "\n"]), max_size=12).map(" ".join),
    st.lists(st.sampled_from(PIECES.split()), max_size=8).map("".join),
)
CALLED = st.builds(Calculation, st.sampled_from(Operation), st.lists(TEXTS, max_size=3).map(tuple))
LANGUAGES = st.sampled_from(["en", "de", "fr", "es", "it", "pl", "zh-Hant", "", "x" * 9])


@settings(deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=2), st.lists(CALLED, max_size=2), LANGUAGES)
def test_no_text_fails_and_each_holds_itself(text, sources, calculations, language):
    missing = find_missing_values(text, sources, calculations=calculations, language=language)
    assert all(each in text for each in missing)
    assert find_missing_values(text, [*sources, f"a {text} b"], language=language) == []
    assert find_missing_values(text, sources, given=text, language=language) == []


@settings(deadline=None)
@given(st.integers(1001, 10**9), st.integers(0, 10**6))
def test_a_number_is_held_where_it_rounds_to_what_is_stated(number, other):
    assert find_missing_values(f"It is {number / 1e6:.2f} million.", [f"It is {number:,}."]) == []
    if not number * 0.99 - 10_000 <= other <= number * 1.01 + 10_000:
        assert find_missing_values(f"It is {number / 1e6:.2f} million.", [f"It is {other:,} m."])
