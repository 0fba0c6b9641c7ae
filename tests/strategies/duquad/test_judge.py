from colligate.strategies.duquad.prompts import judge_instruction, render_debate

LOGS = [("global", "I say 900 [DOC 7]."), ("local", "I say 800 [DOC 2].")]


def test_scores_stand_before_the_debate():
    notes = render_debate({7: 0.85, 2: 0.4}, LOGS)
    order = ["DocScore", "Passage 7: 0.85", "Passage 2: 0.40", "I say 900", "I say 800"]
    places = [notes.index(words) for words in order]
    assert places == sorted(places)
    assert '<log agent="global">\nI say 900 [DOC 7].\n</log>' in notes


def test_without_scores_nothing_is_said_of_reliability():
    assert "DocScore" not in render_debate({}, LOGS)
    assert "DocScore" not in judge_instruction(scored=False)
    assert "DocScore" in judge_instruction(scored=True)
