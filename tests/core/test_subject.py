"""An answer is left out if nothing that was read has a name of what was asked."""

import pytest

from colligate import Engine
from colligate.core.subject import find_names, mentions
from colligate.testing import ScriptedModel
from support.models import statement_reply

SAID = "The river rises in the mountains of Bolivia."


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Where is the source of the Kraai River?", [["Kraai"]]),
        ("What does the Artistic License allow?", [["Artistic"]]),
        ("Who wrote Rudyard Kipling's poems in New York?", [["Rudyard", "Kipling"], ["York"]]),
        ("Which album did Ratata and Pak Nam-gi make in March?", [["Ratata"], ["Pak", "Nam-gi"]]),
        ("Is the EU or the CEO of IBM named, and what is it?", []),
        ("what does netflix pay", []),
        ("WHAT DOES NETFLIX PAY?", []),
        ("What Does The Tenant Pay?", []),
        ("Wann endet der Vertrag mit Meier?", []),
        ("Netflix, what does it pay?", []),
        ("", []),
        ("What is the monthly rent? Quote the sentence.", []),
        ("Read the lease of the mill. Tell me when it ends.", []),
        ("Please read this: What does Netflix pay?", [["Netflix"]]),
        ("How much is the rent in Euros?", []),
        ("Hi Claude, what is the rent?", []),
        ("What did Mr. Lind pay to Dr. Holt?", [["Lind"], ["Holt"]]),
    ],
)
def test_which_names_a_question_has(question, names):
    assert find_names(question) == names


@pytest.mark.parametrize(
    ("text", "name", "has"),
    [
        ("A star, Betelgeuse.", ["Betelguese"], True),
        ("Kipling wrote it.", ["Rudyard", "Kipling"], True),
        ("Mapy Cortes sang.", ["Mapy", "Cortés"], True),
        ("The Tambopata River", ["Kraai"], False),
        ("a charatatan", ["Ratata"], False),
    ],
)
def test_what_mentions_a_name(text, name, has):
    assert mentions(text, [name]) is has
    assert mentions(text, [["Elsewhere"], name]) is has


@pytest.fixture
def ask(tmp_path):
    """`ask(question, "a.md"=text, ...)` asks documents; the model always quotes SAID."""

    async def asked(question, strategy="retrieve-read", **texts):
        folder = tmp_path / "rivers"
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.md").write_text(text)
        model = ScriptedModel(lambda call: statement_reply(SAID, SAID, "Bolivia"))
        async with Engine(model=model, embedder="static", library=tmp_path / "l") as engine:
            return await engine.ask(question, [folder], strategy=strategy)

    return asked


@pytest.mark.parametrize("strategy", ["retrieve-read", "full-context", "auto"])
async def test_an_answer_about_another_thing_is_left_out_and_says_why(ask, strategy):
    answer = await ask(
        "Where does the Kraai River rise?",
        strategy,
        tambopata=f"# Tambopata River\n\n{SAID}\n",
        fish="# Fish\n\nFish swim in rivers of the mountains.\n",
    )
    assert (answer.found, answer.short, answer.citations) == (False, None, ())
    assert answer.text == "Not in these documents."
    assert answer.evidence
    assert any("mentions “Kraai”" in warning for warning in answer.warnings)


@pytest.mark.parametrize(
    "texts",
    [
        {"a": f"# Rivers\n\nThe Kraai is short. {SAID}", "b": "# Fish\n\nFish swim."},
        {"a": f"# A river\n\n{SAID}", "b": "# Kraai\n\nIt rises in the mountains too."},
        {"kraai": f"# A river\n\n{SAID}", "b": "# Fish\n\nFish swim."},
        {"a": f"# A river\n\n{SAID}"},
        {
            "a": f"# Fluss\n\n{SAID}\n\nDer Fluss entspringt in den Bergen und ist nicht lang. Er "
            "wird von vielen kleinen Bächen gespeist, die im Frühjahr viel Wasser führen.",
            "b": "# Fish\n\nFish swim.",
        },
    ],
    ids=["cited", "read beside", "file name", "only document", "other language"],
)
async def test_an_answer_stays_if_the_documents_may_be_about_what_was_asked(ask, texts):
    answer = await ask("Where does the Kraai River rise?", **texts)
    assert answer.short == "Bolivia"
    assert not answer.warnings
