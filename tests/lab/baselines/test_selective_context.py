import pytest

from colligate.documents.tokens import token_spans
from colligate.lab.baselines.selective_context import SelectiveContext
from support.documents import make_all
from support.prompts import bodies

QUESTION = "Who signed?"
TEXT = "It was noon on a day of rain. Anna Keller signed the treaty in the old hall."
GUESSED = ("It", "was", "on", "a", "of", "the", "in", ".")


def likelihood(prefix, text):
    pieces = [text[start:end] for start, end in token_spans(text)]
    return [-0.1 if piece in GUESSED else -9.0 for piece in pieces]


async def shown(ask, texts=(TEXT,), **parameters):
    _, _, model = await ask(
        SelectiveContext(**parameters),
        QUESTION,
        make_all({str(n): text for n, text in enumerate(texts)}),
        likelihood=likelihood,
    )
    return bodies(model.calls[0].prompt)


@pytest.mark.parametrize("level", ["token", "word"])
async def test_what_could_be_guessed_is_left_out(level, ask):
    (body,) = await shown(ask, level=level, reduce=0.6)
    assert body == "noon day rain Anna Keller signed treaty old hall"


async def test_each_sentence_is_scored_from_its_own_beginning(ask):
    pairs = []

    def note(prefix, text):
        pairs.append((prefix, text))
        return likelihood(prefix, text)

    await ask(SelectiveContext(), QUESTION, make_all({"a": TEXT}), likelihood=note)
    assert pairs == [
        ("", "It was noon on a day of rain."),
        ("", "Anna Keller signed the treaty in the old hall."),
    ]
