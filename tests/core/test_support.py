import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.support import (
    NEAR,
    complete_name,
    find_supporting_sentences,
    has_all_numbers,
    pair_respectively,
    split_content_words,
    support,
)
from colligate.documents import Span
from support.documents import make

SOURCE = "If you cure the violation prior to 30 days after your receipt of the notice, it stands."


def test_a_claim_in_other_words_of_the_source_is_supported():
    question = "How long is there to cure a violation?"
    assert support("There are thirty days to cure a violation.", SOURCE, question).enough()


@pytest.mark.parametrize(
    "claim",
    [
        "There are 60 days to cure a violation.",  # a changed number
        "Linus Torvalds wrote the kernel.",  # from memory
        "A violator pays a fine to the court in Geneva.",
    ],
)
def test_a_claim_the_source_does_not_make_is_not_supported(claim):
    assert not support(claim, SOURCE, "How long is there?").enough()


def test_the_questions_own_words_prove_nothing():
    question = "What is the capital of France?"
    found = support("The capital of France is Paris.", "France has a capital.", question)
    assert not found.enough()
    assert found.missing == ("pari",)


def test_words_quoted_from_anywhere_do_not_support_a_whole_claim():
    claim = "The licence forbids using the name of the university for any purpose."
    assert not support(claim, "All rights reserved.", "What does the licence forbid?").enough()


def test_across_languages_the_numbers_must_stand():
    assert has_all_numbers("There are 30 days.", "Le délai est de 30 jours.")
    assert not has_all_numbers("There are 60 days.", "Le délai est de 30 jours.")


def test_supporting_sentences_are_the_best_one_then_the_best_two_in_a_row():
    text = "Cats sleep. The fee is five euros. It falls due in May at noon. Dogs bark."
    document = make(text, "A", "a")
    claim = "The fee of five euros falls due at noon."
    spans = find_supporting_sentences(claim, document, Span("a", 0, len(text)))
    assert [document.slice(s) for s in spans] == [
        "The fee is five euros.",
        "The fee is five euros. It falls due in May at noon.",
    ]
    assert list(find_supporting_sentences("zebra", document, Span("a", 0, len(text)))) == []


def test_near_asks_for_more_of_the_claim_than_a_quote_does():
    found = support("The name of the university may not be used for any purpose.", "a purpose")
    assert not found.enough(NEAR)


# Content words


def test_function_words_are_left_out_and_endings_joined():
    assert split_content_words("The licences are terminated") == split_content_words(
        "licence terminates"
    )


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("forty-five days", "45 days"),
        ("twenty one days", "21 days"),
        ("two hundred days", "200 days"),
    ],
)
def test_a_number_of_two_words_is_one_number(words, digits):
    assert split_content_words(words) == split_content_words(digits)
    assert not support("Notice takes five days.", f"Notice takes {words}.").enough()


@pytest.mark.parametrize("words", ["one of the oldest", "no one", "the other one", "which one"])
def test_one_in_the_place_of_a_noun_is_no_number(words):
    assert "1" not in split_content_words(words)
    assert "1" in split_content_words("one year")


def test_a_word_with_vowel_signs_is_one_word():
    assert split_content_words("भारत में தமிழ்") == ["भारत", "में", "தமிழ்"]


def test_numbers_read_alike_in_words_and_digits():
    assert split_content_words("thirty days") == split_content_words("30 days")
    assert split_content_words("1,234.5 tonnes")[0] == "1234.5"


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("3.5", "3,5"),
        ("0.5", ".5"),
        ("2.5", "2½"),
        ("0.125", "0,125"),
        ("1250", "1'250"),
        ("1250", "1’250"),
        ("1850.50", "1.850,50"),
        ("1234567", "1.234.567"),
        ("4.5%", "4.50%"),
        ("$2,490", "$2,490.00"),
        ("3.5%", "3.500%"),
        ("1,850 euros", "1.850 Euro"),
        ("1.850 Euro", "1850 euros"),
        ("1.850 Euro", "1,850 euros"),
        ("3 Monate", "drei Monate"),
        ("12 months", "zwölf Monate"),
        ("two months", "dos meses"),
        ("3 meses", "tres meses"),
        ("4 mois", "quatre mois"),
        ("Die Stadt hat 1850 Einwohner.", "Die Stadt hat 1.850 Einwohner."),
        ("50 m²", "50 m2"),
        ("50 m2", "50 m²"),
        ("50 m²", "50 square metres"),
        ("E = mc2", "E = mc²"),
        ("E = mc²", "E = mc2"),
    ],
)
def test_a_number_is_found_in_other_notations(claim, source):
    assert has_all_numbers(claim, source)


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("35", "3,5"),
        ("5%", ".5%"),
        ("21", "2½"),
        ("2 rooms", "50 m²"),
        ("2 rooms", "50 m2"),
        ("50 m³", "50 m²"),
        ("50 m3", "50 m2"),
        ("The ratio is 1234.", "The ratio is 1.234."),
        ("It costs $1,234.", "It costs $1.234."),
        ("3875%", "3.875%"),
        ("1250 mg", "1.250 mg"),
        ("1250 million", "1.250 million"),
        ("1.85 euros", "1850 Euro"),
        ("Section 3.1", "Section 3.10"),
        ("sechs Monate", "drei Monate"),
        ("seis meses", "tres meses"),
        ("six mois", "trois mois"),
        ("3", "très important"),
        ("11", "once a year, by an elf"),
        ("2", "dos contratos"),
        ("1", "un contrato, ein Vertrag, une maison"),
    ],
)
def test_another_number_is_not_found(claim, source):
    assert not has_all_numbers(claim, source)


@pytest.mark.parametrize("dash", ["-", "–", " – ", "—"])
def test_a_span_of_years_reads_alike_with_any_dash(dash):
    assert split_content_words(f"1887{dash}1891") == ["1887", "1891"]


def test_each_chinese_character_is_a_word():
    assert split_content_words("违反者") == ["违", "反", "者"]


def test_accents_of_latin_letters_do_not_count_and_scripts_are_kept_apart():
    assert split_content_words("Lumière") == split_content_words("Lumiere")
    assert split_content_words("май") != split_content_words("маи")
    assert split_content_words("Лицензия") == ["лицензия"]


def test_a_verb_that_ends_in_y_has_one_stem():
    assert split_content_words("play plays played playing") == ["play"] * 4
    assert split_content_words("company companies") == ["compan"] * 2


@pytest.mark.parametrize(
    ("short", "sentence", "full"),
    [
        ("Murray", "It was written by Mitch Murray in 1962.", "Mitch Murray"),
        ("Mitch", "Mitch Murray wrote it.", "Mitch Murray"),
        ("Harris", "It stars Rhys Darby, Neil Patrick Harris, and others.", "Neil Patrick Harris"),
        ("Murray", "Yesterday Murray said so.", "Murray"),
        ("Murray", "He left. Murray stayed.", "Murray"),
        ("Mill", "Ada Miller met Otto Mill.", "Otto Mill"),
        ("Otto Lind", "Dr. Otto Lind came.", "Otto Lind"),
        ("seven", "Only Seven Sisters stayed.", "seven"),
    ],
)
def test_a_name_of_one_word_is_completed(short, sentence, full):
    assert complete_name(short, sentence) == full


CAST = "Luke Evans and Dan Stevens were to play Gaston and the Beast respectively, said Disney."
SALES = (
    "Net sales in fiscal 2018 , 2017 and 2016 were $15.7, $15.6 and $16.6 billion, respectively."
)
SPENT = (
    "It paid $0.3 million and $0.2 million, respectively, in the years to March 31, 2022 and 2021."
)


@pytest.mark.parametrize(
    ("short", "question", "sentence", "paired"),
    [
        ("Luke Evans", "Who played the beast?", CAST, "Dan Stevens"),
        ("Gaston", "Whom did Dan Stevens play?", CAST, "the Beast"),
        ("Dan Stevens", "Who played the beast?", CAST, "Dan Stevens"),
        ("Luke Evans", "Who played LeFou?", CAST, "Luke Evans"),
        ("Luke Evans", "Who played Gaston and the beast?", CAST, "Luke Evans"),
        ("$15.7 billion", "What were the net sales of 2016?", SALES, "$16.6 billion"),
        ("$15.6", "What were the net sales of 2017?", SALES, "$15.6"),
        ("$0.3 million", "What did it pay in 2021?", SPENT, "$0.2 million"),
        ("$0.2 million", "How much less than in 2022 did it pay?", SPENT, "$0.2 million"),
        ("30 days", "How long?", "It has 30 days.", "30 days"),
        ("", "Who played the beast?", CAST, ""),
    ],
)
def test_an_answer_is_what_respectively_pairs_with_the_question(short, question, sentence, paired):
    assert pair_respectively(short, question, sentence) == paired


@given(
    st.lists(st.sampled_from(["A", "B", "$1", "2", "March", "2020", "and", ",", "respectively"]))
)
def test_what_respectively_gives_is_in_the_sentence(words):
    sentence = " ".join(words).replace(" ,", ",")
    for short, question in (("A", "B 2020"), ("2020", "A"), ("$1", "2 A")):
        found = pair_respectively(short, question, sentence)
        assert found == short or found in sentence
