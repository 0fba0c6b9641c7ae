import asyncio

import pytest

from colligate import Answer, Engine, Library, ask
from colligate.documents import Hit
from colligate.errors import BudgetExceeded, MissingPath, NoDocuments, UnknownDocument, UsageError
from colligate.testing import ScriptedModel
from support.brain import Reader
from support.documents import make_all
from support.models import statement_reply

QUESTION = "Where do bicycles stand?"
REPLY = statement_reply("Bicycles stand in the yard", "Bicycles stand in the yard.", "in the yard")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "rules.md").write_text("# Rules\n\nBicycles stand in the yard, never in the hall.\n")
    return folder


@pytest.fixture
def engine(tmp_path):
    model = ScriptedModel(lambda call: REPLY)
    return {"model": model, "embedder": "static", "library": tmp_path / "library"}


def test_a_question_over_a_folder_inside_a_running_loop(folder, engine):
    answer = ask(QUESTION, str(folder), **engine)
    assert answer.text == "Bicycles stand in the yard. [1]"
    assert answer.citations[0].quote == "Bicycles stand in the yard, never in the hall."
    usage = answer.usage
    assert (usage.calls, usage.retrieval_rounds, usage.cost_usd) == (1, 1, 0.0)


def test_a_library_in_three_lines(folder, engine):
    path = engine.pop("library")
    with Library(path, **engine) as library:
        library.add(folder)
        (info,) = library.documents()
        document = library.document(info.id)
        (hit,) = library.search("bicycles", k=1)
        assert document.slice(hit.passage.span) == hit.passage.text
        library.remove(info.id)
        assert list(library.documents()) == []
    with pytest.raises(TypeError, match="timout"):
        ask(QUESTION, folder, library=path, timout=3, **engine)


async def test_files_that_fail_are_named_with_each_answer(folder, engine):
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    paths = [folder, folder / "absent.md"]
    async with Engine(**engine) as opened:
        first = await opened.ask(QUESTION, paths)
        second = await opened.ask(QUESTION, paths)
    for answer in (first, second):
        assert answer.found
        absent, broken = [line for line in answer.warnings if "left out" in line]
        assert ("absent.md" in absent, "broken.pdf" in broken) == (True, True)


@pytest.mark.parametrize("named", [True, False])
async def test_a_language_unknown_to_the_embedder_is_said_at_first_search(folder, engine, named):
    text = "# Hausordnung\n\nFahrräder stehen im Hof und niemals im Flur des Hauses.\n"
    (folder / "regeln.md").write_text(text)
    notes = []
    async with Engine(**engine) as opened:
        await opened.ask(QUESTION, [folder], strategy="full-context", on_event=notes.append)
        assert not any("documents in" in note.line() for note in notes)
        for _ in range(2):
            await opened.ask(QUESTION, [folder] if named else [], on_event=notes.append)
    (said,) = [note.line() for note in notes if "documents in" in note.line()]
    assert said.startswith("documents in de: the embedder static was trained on English")


async def test_only_documents_that_meet_the_conditions_are_asked(folder, engine):
    (folder / "old.md").write_text("# Old rules\n\n1 May 1999\n\nBicycles stand in the hall.\n")
    (folder / "new.md").write_text("# New rules\n\n1 May 2024\n\nBicycles stand in the yard.\n")

    async def ask_where(*where):
        answer = ask(QUESTION, [folder], where=where, **engine)
        return {each.span.document_id.split("-")[0] for each in answer.evidence}

    assert await ask_where("date>=2024") == await ask_where("date=2024-05") == {"new"}
    assert await ask_where("date<=1999") == {"old"}
    assert await ask_where("title~rules", "file!=rules.md") == {"old", "new"}
    with pytest.raises(NoDocuments, match="2 have a date"):
        await ask_where("date>2024")
    with pytest.raises(UsageError, match="is not a condition"):
        await ask_where("after 2024")


def test_when_nothing_can_be_read_the_error_says_why(tmp_path, engine):
    with pytest.raises(NoDocuments, match="is empty"):
        ask(QUESTION, **engine)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoDocuments):
        ask(QUESTION, [tmp_path / "empty"], **engine)
    engine["model"] = "nonsense"  # the path is checked before a model is opened
    with pytest.raises(MissingPath, match=r"absent\.md"):
        ask(QUESTION, [tmp_path / "absent.md"], **engine)


async def test_only_the_documents_named_are_read(folder, engine, tmp_path):
    (folder / "hall.md").write_text("# Hall\n\nBicycles stand in the hall.\n")
    async with Engine(**engine) as opened:
        _, rules = sorted((await opened.add([folder])).document_ids)
        for read in ({"documents": [rules]}, {"paths": folder / "rules.md"}):
            answer = await opened.ask(QUESTION, **read)
            assert {evidence.span.document_id for evidence in answer.evidence} == {rules}
        with pytest.raises(UnknownDocument):
            await opened.ask(QUESTION, documents=["nothing"])
        with pytest.raises(NoDocuments):
            await opened.ask(QUESTION, documents=[])
        with pytest.raises(UsageError):
            await opened.ask(QUESTION, [folder], documents=[rules])


async def test_engines_over_two_libraries_share_their_models(folder, engine, tmp_path, monkeypatch):
    class Counted(ScriptedModel):
        closed = 0

        async def aclose(self):
            self.closed += 1

    model = Counted(lambda _: REPLY)
    monkeypatch.setattr("colligate.session.open_model", lambda *_, **__: model)
    first = Engine(**{**engine, "model": "openai:x@http://127.0.0.1:9/v1"})
    second = first.with_library(tmp_path / "other")
    for each in (first, second):
        assert list(await each.open_models()) == ["reader"]
    await first.add([folder])
    with pytest.raises(NoDocuments):
        await second.ask(QUESTION)
    await second.aclose()
    assert model.closed == 0
    assert (await first.ask(QUESTION)).found
    await first.aclose()
    assert model.closed == 1


class Sheds:
    """A retriever with a corpus of its own."""

    name, outside = "sheds", True

    async def retrieve(self, query, run, *, k, documents=None):
        found = make_all({"shed": "The shed has 30 hooks for bicycles.\n"})
        for each in found:
            run.adopt(each)
        return [Hit(each.passage(each.span(0, len(each))), 1.0) for each in found]


@pytest.mark.parametrize(
    "strategy", ["auto", "decompose", "dualrag", "duquad", "longrefiner", "retrieve-read"]
)
async def test_a_retriever_with_a_corpus_of_its_own_needs_no_documents(engine, strategy):
    asked = "How many hooks for bicycles has the shed?"
    async with Engine(**engine | {"model": Reader()}, reranker="none", retriever=Sheds()) as opened:
        answer = await opened.ask(asked, strategy=strategy)
    assert [each.quote for each in answer.citations] == ["The shed has 30 hooks for bicycles."]


async def test_agents_need_documents_in_view(engine):
    async with Engine(**engine, reranker="none", retriever=Sheds()) as opened:
        answer = await opened.ask(QUESTION, strategy="spd-rag")
    assert not answer.found
    assert any("no document in view" in warning for warning in answer.warnings)


async def test_time_is_bounded(folder, engine):
    class Slow(ScriptedModel):
        async def chat(self, request, on_token=None):
            await asyncio.Event().wait()

    engine["model"] = Slow()
    with pytest.raises(BudgetExceeded, match="within"):
        ask(QUESTION, [folder], timeout=3.0, **engine)


class Sure:
    """A reader that answers with a probability, and keeps the risk of each question."""

    name = "sure"

    def __init__(self, probability):
        self.probability, self.risks = probability, []

    async def read(self, question, shown, run, task):
        self.risks.append(run.risk)
        return Answer(question, "", "In the yard.", found=True, probability=self.probability)


@pytest.mark.parametrize("probability", [None, 0.9])
@pytest.mark.parametrize(
    ("given", "setting", "risk"),
    [
        (None, "", None),
        (None, "eager", 0.4),
        ("careful", "eager", 0.1),
        ("balanced", "", 0.2),
        ("0.05", "", 0.05),
        (0.3, "bold", 0.3),
    ],
)
def test_the_risk_reaches_a_reader(folder, engine, monkeypatch, probability, given, setting, risk):
    monkeypatch.setenv("COLLIGATE_RISK", setting)
    reader = Sure(probability)
    answer = ask(QUESTION, [folder], risk=given, reader=reader, **engine)
    assert set(reader.risks) == {risk}
    unknown = "no probability is known for this answer, so --risk says nothing about it"
    assert (unknown in answer.warnings) == (probability is None and risk is not None)


@pytest.mark.parametrize("risk", ["bold", "", "20", 0, 1.0, -0.1, "nan", "inf", True])
def test_what_is_no_risk_is_refused_before_anything_is_read(engine, risk):
    with pytest.raises(UsageError, match=f"no risk '{risk}': it is the share of .* 0.1, or one of"):
        ask(QUESTION, ["absent.md"], risk=risk, **engine)


async def test_many_questions_at_once_do_not_mix(folder, engine):
    async with Engine(**engine) as opened:
        await opened.add([folder])
        questions = [f"{QUESTION} ({n})" for n in range(12)]
        answers = await asyncio.gather(*(opened.ask(q) for q in questions))
    assert [a.question for a in answers] == questions
    assert {a.usage.calls for a in answers} == {1}
