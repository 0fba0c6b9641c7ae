import numpy as np

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
PLAIN = " ".join(line for line in TEXT.splitlines() if line and not line.startswith("#"))


def notes(text=TEXT):
    return make(text, "Notes", "notes")


class BySubject:
    """Otters lie one way, bridges the other."""

    async def embed(self, texts, kind="passage"):
        counts = [[text.lower().count("otter"), text.lower().count("bridge")] for text in texts]
        rows = np.array(counts, np.float32) + 1e-3
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def test_structure_cuts_at_headings_and_the_best_chunk_comes_first(ask, reply):
    said = reply((1, "Bridges rust.", "Bridges rust."))
    answer, _, model = await ask(SemanticChunking(), QUESTION, [notes()], said)
    first, *others = bodies(model.calls[0].prompt)
    assert "Bridges carry roads." in first
    assert "Otters" not in first
    assert any("Otters live by rivers." in other for other in others)
    assert answer.citations[0].quote == "Bridges rust."


async def test_meaning_cuts_where_the_subject_changes(ask):
    _, _, model = await ask(
        SemanticChunking(how="meaning", percentile=80),
        QUESTION,
        [notes(PLAIN)],
        embedder=BySubject(),
    )
    first, *_ = bodies(model.calls[0].prompt)
    assert first.startswith("Bridges")
    assert "Otters" not in first
    joined = " ".join(sorted(bodies(model.calls[0].prompt), key=PLAIN.index))
    assert joined == PLAIN
