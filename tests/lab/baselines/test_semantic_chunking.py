from colligate.lab.baselines.semantic_chunking import SemanticChunking
from support.documents import make
from support.prompts import bodies

QUESTION = "Do bridges rust?"
TEXT = """# Notes

## Otters

Otters live by rivers. Otters sleep afloat. Otters eat fish. Otters hold hands.

## Bridges

Bridges carry roads. Bridges rust. Bridges need paint. Bridges sway.
"""


def notes(text=TEXT):
    return make(text, "Notes", "notes")


async def test_structure_cuts_at_headings_and_the_best_chunk_comes_first(ask, reply):
    said = reply((1, "Bridges rust.", "Bridges rust."))
    answer, _, model = await ask(SemanticChunking(), QUESTION, [notes()], said)
    first, *others = bodies(model.calls[0].prompt)
    assert "Bridges carry roads." in first
    assert "Otters" not in first
    assert any("Otters live by rivers." in other for other in others)
    assert answer.citations[0].quote == "Bridges rust."
