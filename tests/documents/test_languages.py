import pytest

from colligate.documents.languages import detect_language
from support.documents import write_and_read

TEXTS = {
    "en": "The city council decided yesterday to build a new school near the station.",
    "fr": "Le conseil municipal a décidé hier de construire une nouvelle école près de la gare.",
    "de": "Der Stadtrat hat gestern beschlossen, eine neue Schule am Bahnhof zu bauen.",
    "tr": "Belediye meclisi dün istasyonun yakınında yeni bir okul inşa etmeye karar verdi.",
    "ar": "قرر مجلس المدينة أمس بناء مدرسة جديدة بالقرب من المحطة.",
    "zh": "市议会昨天决定在车站附近建一所新学校。",
    "ja": "市議会は昨日、駅の近くに新しい学校を建てることを決めた。",
    "ko": "시의회는 어제 역 근처에 새 학교를 짓기로 결정했다.",
    "ru": "Городской совет вчера решил построить новую школу возле вокзала.",
    "uk": "Міська рада вчора вирішила побудувати нову школу біля вокзалу.",
    "el": "Το δημοτικό συμβούλιο αποφάσισε χθες να χτίσει ένα νέο σχολείο.",
    "he": "מועצת העיר החליטה אתמול לבנות בית ספר חדש ליד התחנה.",
    "th": "สภาเมืองตัดสินใจเมื่อวานนี้ที่จะสร้างโรงเรียนใหม่ใกล้สถานี",
    "hi": "नगर परिषद ने कल स्टेशन के पास एक नया स्कूल बनाने का फैसला किया।",
}


@pytest.mark.parametrize("code", TEXTS)
def test_a_sentence_tells_its_language(code):
    assert detect_language(TEXTS[code]) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "und") for text in ("", "   ", "42", "Hello", "| 1 | 2 |\n|---|---|", "x = f(y)")),
        # Marks, addresses and names do not count; a long text is told by samples of all of it.
        (f"# {TEXTS['fr']}\n\n" + "| --- | 123 | https://example.org/the/and/of |\n" * 30, "fr"),
        ("我们使用 Python 和 SQLite 编写了这个检索程序，运行速度很快。", "zh"),
        ("A short English preface.\n\n" + TEXTS["de"] * 2000, "de"),
    ],
)
def test_other_texts(text, code):
    assert detect_language(text) == code


@pytest.mark.parametrize("code", ["zh", "ar"])
@pytest.mark.parametrize("suffix", [".txt", ".md", ".html", ".wiki"])
def test_reading_names_the_language_and_keeps_the_script(tmp_path, code, suffix):
    content = f"<p>{TEXTS[code]}</p>" if suffix == ".html" else TEXTS[code]
    document = write_and_read(tmp_path / f"a{suffix}", content)
    assert document.language == code
    assert document.text.strip() == TEXTS[code]
