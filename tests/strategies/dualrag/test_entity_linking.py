from colligate.strategies.dualrag.knowledge import ELSE, link_names


def linked(asked, known):
    return [(link.name, link.new) for link in link_names(asked, known)]


def test_the_same_characters_alone_are_the_same_entity():
    assert linked(["Lyon", "lyon"], ["Lyon"]) == [("Lyon", False), ("lyon", True)]


def test_names_of_one_reply_are_linked_with_each_other():
    assert linked(["Nice", "Nice"], []) == [("Nice", True), ("Nice", False)]


def test_else_is_linked_with_nothing_and_nothing_with_it():
    assert linked(["Else", "else"], [ELSE, "or else"]) == [(ELSE, True), (ELSE, True)]
    assert linked(["somebody else"], [ELSE]) == [("somebody else", True)]
