from colligate.core.support import split_content_words


def test_function_words_are_left_out_and_endings_joined():
    assert split_content_words("The licences are terminated") == split_content_words(
        "licence terminates"
    )


def test_numbers_read_alike_in_words_and_digits():
    assert split_content_words("thirty days") == split_content_words("30 days")
    assert split_content_words("1,234.5 tonnes")[0] == "1234.5"


def test_each_chinese_character_is_a_word():
    assert split_content_words("违反者") == ["违", "反", "者"]


def test_accents_and_scripts_are_kept_apart():
    assert split_content_words("résumé") != split_content_words("resume")
    assert split_content_words("Лицензия") == ["лицензия"]
