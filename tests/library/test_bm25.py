"""Text in any script is found by its words, whatever the language of the query."""

import pytest

from colligate.library import SearchMode
from colligate.library.bm25 import encode_document, encode_query, split_words

# A sentence hidden in a document of its language, and queries that must find it.
PLANTED = {
    "zh": ("紫藤花在北京的春天盛开，游客纷纷前往观赏。", ["紫藤", "北京春天", "观赏"]),
    "ja": ("東京タワーの高さは三百三十三メートルです。", ["東京", "タワー", "メートル"]),
    "ko": ("서울의 오래된 도서관은 한강 근처에 있습니다.", ["도서관", "서울", "한강"]),
    "th": ("ห้องสมุดเก่าแก่ตั้งอยู่ริมแม่น้ำเจ้าพระยา", ["ห้องสมุด", "แม่น้ำ"]),
    "ar": ("تقع المكتبة القديمة قرب محطة القطار.", ["مكتبة", "المكتبة القديمة", "مَحَطّة"]),
    "tr": ("İSTANBUL'un ışıklı köprüsü KIŞ boyunca açıktır.", ["istanbul", "IŞIKLI", "kış"]),
    "fr": ("L’élève étudiait à l’école près du château.", ["élève", "eleve", "école", "CHATEAU"]),
    "ru": ("Старая библиотека находится за рекой, у ёлки.", ["библиотеки", "река", "елка"]),
    "de": ("Die Straßenbahn hält vor der großen Bücherei.", ["strassenbahn", "Bücherei", "gross"]),
    "hi": ("बड़ा पुस्तकालय नदी के किनारे है।", ["पुस्तकालय", "नदी"]),
    "el": ("Η παλιά βιβλιοθήκη βρίσκεται δίπλα στο ποτάμι.", ["βιβλιοθήκη", "ποτάμι"]),
    "en": ("The old libraries stand beside the river.", ["library", "RIVERS"]),
}  # fmt: skip


async def test_planted_sentences_are_found_in_every_script(library, write):
    for language, (sentence, _) in PLANTED.items():
        text = f"# {language}\n\n{sentence}\n"
        folder = write(f"{language}.md", text).parent
    await library.add(folder)
    missed = []
    for language, (sentence, queries) in PLANTED.items():
        for query in queries:
            hits = await library.search(query, k=1, mode=SearchMode.SPARSE)
            if not hits or sentence not in hits[0].passage.text:
                missed.append((language, query))
        hits = await library.search(queries[0], k=3)
        if not any(sentence in hit.passage.text for hit in hits):
            missed.append((language, "hybrid"))
    assert missed == []


async def test_a_document_of_unknown_language_is_found(library, write):
    await library.add(write("notes.txt", "Zyx qwv."))
    assert [info.language for info in await library.documents()] == ["und"]
    assert await library.search("zyx", k=1, mode=SearchMode.SPARSE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.5 % of 1,000", ["3.5", "of", "1,000"]),
        ("don't", ["don", "t"]),
        ("snake_case GPL-2.0", ["snake_case", "GPL", "2.0"]),
        ("ｆｕｌｌ ﬁnance", ["full", "finance"]),
        ("水", ["水"]),
        ("北京abc", ["北", "北京", "京", "abc"]),
        ("タワー", ["タワ", "ワー"]),
        ("नदी के", ["नदी", "के"]),
        ("Kündigungs\u00adfrist wo\u2060rd Auf\u200clage", ["Kündigungsfrist", "word", "Auflage"]),
        ("क्\u200dष", ["क्ष"]),
        ("کتاب\u200cها", ["کتاب", "ها"]),
        ("?!…", []),
    ],
)
def test_words(text, expected):
    assert list(split_words(text)) == expected


def test_stop_words_of_the_language_weigh_nothing():
    assert not encode_query("the of and", ["en"])
    assert encode_query("the of and", ["de"])
    assert encode_query("the of and", ["en", "de"]).ids == encode_query("the of and", ["de"]).ids


async def test_a_document_in_another_language_that_quotes_stop_words_is_not_found(library, write):
    castle = write("castle.md", "# Castle\n\nThe castle is open to all members of the town.\n")
    letter = "Die Bank schreibt ihren Kunden. Unser Leitsatz lautet: what is the best of the best?"
    await library.add([castle, write("brief.md", f"# Brief\n\n{letter}\n")])
    assert {info.language for info in await library.documents()} == {"de", "en"}

    async def find(query):
        hits = await library.search(query, k=2, mode=SearchMode.SPARSE)
        return [hit.passage.title for hit in hits]

    assert await find("What is the cost of the castle?") == ["Castle"]
    assert await find("Was schreibt die Bank ihren Kunden?") == ["Brief"]
    assert await find("what is the") == ["Brief"]  # nothing else is asked for


def test_words_in_capitals_are_names_and_no_stop_words():
    languages = ["de", "en"]

    def found(word, query):
        return set(encode_document(word, "de").ids) <= set(encode_query(query, languages).ids)

    for word in ("WHO", "IT"):
        assert found(word, "What did the WHO recommend about IT?")
        assert not found(word, "WHAT DID THE WHO RECOMMEND ABOUT IT?")
    assert not found("what", "What did the WHO recommend about IT?")


def test_words_that_may_be_of_another_language_are_searched():
    languages = ["de", "en"]
    for query in ("war", "man of war", "die hard"):
        assert set(encode_query(query, languages).ids) >= set(encode_query(query, ["en"]).ids)


def test_a_repeated_word_weighs_more_but_less_than_twice():
    once, twice = (encode_document(text, "en").weights[0] for text in ("otter", "otter otter"))
    assert once < twice < 2 * once
