"""A strategy as a solver of Inspect, run by Inspect's own `eval`."""

import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

from colligate import Library
from colligate.testing import ScriptedModel
from support.embedders import WordEmbedder
from support.models import NOT_FOUND, statement_reply

pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")

SAID = "Otters eat crabs."


def reply(call: Any) -> str:
    if call.schema is None:
        return "What do otters eat?"
    return NOT_FOUND if "horses" in call.prompt else statement_reply(SAID, SAID, "crabs")


@pytest.fixture
def evaluate(tmp_path: Path) -> Any:
    """`evaluate(*inputs, **options)` returns the samples of the log of an evaluation."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log
    from inspect_ai.scorer import exact

    from colligate.integrations.inspect import colligate_solver

    (tmp_path / "otter.md").write_text(f"# Otters\n\n{SAID}\n")
    model = ScriptedModel(reply)

    def run(*inputs: Any, **options: Any) -> Any:
        samples = [Sample(input=each, target="crabs") for each in inputs]
        with Library(tmp_path / "library", embedder=WordEmbedder(), model=model) as library:
            library.add(tmp_path / "otter.md")
            solver = colligate_solver(library, strategy="retrieve-read", **options)
            task = Task(dataset=samples, solver=solver, scorer=exact())
            logs = str(tmp_path / "logs")
            # Inspect leaves streams of its own open.
            with warnings.catch_warnings(action="ignore", category=ResourceWarning):
                (log,) = eval(task, model="none/none", log_dir=logs, display="none")
                gc.collect()
            (document,) = library.documents()
            assert log.status == "success", log.error
            return read_eval_log(log.location).samples, library.document(document.id)

    return run


def test_the_log_has_the_answer_with_the_exact_place_of_each_citation(evaluate):
    (sample,), document = evaluate("What do otters eat?")
    (content,) = sample.output.message.content
    assert content.text == f"{SAID} [1]"
    (citation,) = content.citations
    assert (citation.cited_text, citation.title) == (SAID, "Otters")
    assert citation.internal == {"document": document.id}
    assert document.text[citation.range.start_index : citation.range.end_index] == SAID
    assert sample.messages[-1].content == sample.output.message.content
    assert sample.output.metadata["colligate"]["found"]
    assert sample.output.usage.total_tokens > 0
    assert sample.scores["exact"].value == "I"


def test_a_scorer_of_texts_takes_the_short_answer(evaluate):
    (right, wrong), _ = evaluate("What do otters eat?", "What do horses eat?", short=True)
    assert (right.output.completion, right.scores["exact"].value) == ("crabs", "C")
    assert wrong.scores["exact"].value == "I"
    assert not wrong.output.metadata["colligate"]["found"]


def test_earlier_messages_are_the_conversation(evaluate):
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser

    talk = [ChatMessageUser(content="Where do otters live?"), ChatMessageAssistant(content="Here.")]
    (sample,), _ = evaluate([*talk, ChatMessageUser(content="And what do they eat?")])
    assert sample.output.metadata["colligate"]["question"] == "What do otters eat?"
