import re
from dataclasses import replace

import pytest

from colligate.core.events import Measured, Noted, Retrieved
from colligate.core.parameters import set_parameters
from colligate.documents.tokens import estimate_tokens
from colligate.errors import MissingCapability, ServerFailed, UsageError
from colligate.lab.training.longrefiner import write_skeleton
from colligate.library.in_memory import InMemorySources
from colligate.models import LabelOdds
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.longrefiner.method import Selected, Weighed
from colligate.strategies.longrefiner.structuring import Structured
from support.documents import make
from support.prompts import bodies, task_of
from support.runs import document, events

FILL = ("The mill stands by the river and turns its wheel through the year. " * 8).strip()
TEXT = f"""# The Mill

The mill grinds corn for the town.

## History

{FILL}

The mill was built in 1788 by the Harper brothers.

## Machines

{FILL}

The great wheel is of oak and weighs nine tons.

## Visitors

{FILL}

Children pay two coins to see the wheel.
"""
MILL = document("mill", TEXT)
QUESTION = "Who built the mill?"


def sparse(**fields):
    return LongRefiner(**({"mode": "sparse", "documents": None} | fields))


def choose(*titles: str):
    """A worker that chooses these titles, and writes no skeleton."""
    return lambda call: str(list(titles))


def odds(global_: float):
    def label(messages, labels, forced):
        assert forced == "["
        return LabelOdds({"Local": 1 - global_, "Global": global_}, mass=1.0)

    return label


async def refine(make_run, refiner, replies=None, documents=(MILL,), store=None, **options):
    options.setdefault("labels", odds(0.0))
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, replies or choose(), **options)
        run.store = store or run.store
        return await refiner.refine(QUESTION, run), run, model


@pytest.mark.parametrize("budget", [0, 1, 7, 30, 60, 200, 400, 10_000])
async def test_the_budget_is_never_exceeded(make_run, budget):
    refined, run, model = await refine(make_run, sparse(budget=budget))
    assert refined.tokens == await model.count_tokens(refined.text) <= budget
    assert bool(refined.passages) == (budget >= 30), "no paragraph fits less"
    assert any("the best paragraph has more" in each for each in run.warnings) == (budget < 30)
    (selected,) = events(run, Selected)
    assert (selected.tokens, selected.budget) == (refined.tokens, budget)


async def test_a_chosen_title_weighs_as_much_as_the_question_is_broad(make_run):
    kept = {}
    for scope in (0.0, 1.0):
        refiner = sparse(budget=170, least_words=5)
        refined, run, _ = await refine(make_run, refiner, choose("Machines"), labels=odds(scope))
        assert refined.scope == scope
        (weighed,) = events(run, Weighed)
        assert weighed.selected == ("Machines",)
        kept[scope] = {node.title for node in weighed.nodes if node.kept and node.title}
    assert "Machines" in kept[1.0]
    assert "Machines" not in kept[0.0]


@pytest.mark.parametrize(
    ("label", "scope", "note"),
    [
        ("[Global]", 1.0, "it names the whole document"),
        ("[Local]", 0.0, "it names one place"),
        ("neither", 0.5, "it names neither"),
    ],
)
async def test_without_label_odds_the_model_is_asked_for_the_label(make_run, label, scope, note):
    def say(call):
        return label if call.max_tokens < 20 else "['Machines']"

    refined, run, _ = await refine(make_run, sparse(), say, labels=None)
    assert refined.scope == scope
    assert any(note in event.text for event in events(run, Noted))


async def test_a_server_that_cannot_be_forced_is_asked_for_the_label(make_run):
    def label(messages, labels, forced):
        raise MissingCapability("it cannot begin a reply")

    say = lambda call: "[Global]" if call.max_tokens < 20 else "[]"  # noqa: E731
    refined, _, _ = await refine(make_run, sparse(), say, labels=label)
    assert refined.scope == 1.0


async def test_ablations(make_run):
    refined, run, model = await refine(make_run, sparse(no_global=True))
    assert refined.scope is None
    assert model.calls == []
    assert not events(run, Measured)

    refined, run, _ = await refine(make_run, sparse(no_query_analysis=True), choose("Machines"))
    assert refined.scope == 1.0
    assert not events(run, Measured)

    _, run, _ = await refine(make_run, sparse(structuring="chunks"))
    assert events(run, Structured)[0].basis == "chunks"
    (weighed,) = events(run, Weighed)
    assert {n.level for n in weighed.nodes} == {"section", "paragraph"}


async def test_structuring_is_metered_apart_from_what_a_question_costs(make_run):
    _, run, _ = await refine(make_run, sparse(), write([]), documents=[BOOK])
    usage = run.meter.report(seconds=100.0)
    assert usage.calls == 2
    assert usage.offline["calls"] == 1
    assert 0 < usage.offline["input_tokens"] < usage.input_tokens
    assert 0 < usage.offline["seconds"] < 100
    _, run, _ = await refine(make_run, sparse(), choose("Machines"))
    assert run.meter.report().offline["calls"] == 0


CHAPTERS = [
    [f"Chapter {c}, part {p}: the {w} mill of the town was built in the year {1700 + 10 * c + p} "
     f"by people whose names nobody wrote down, and it ground {w} corn for a long time after." * 2
     for p, w in enumerate(("old", "new", "red"))]
    for c in range(4)
]  # fmt: skip
BOOK = make("\n\n".join(part for chapter in CHAPTERS for part in chapter), "A plain text")


def structures(call):
    return task_of(call.messages) == "longrefiner.structuring_instruction"


def write(calls, fails_at=None):
    """A worker that writes perfect skeletons, as if the chapters had headings."""

    def say(call):
        if not structures(call):
            return "['Chapter 2']"
        if len(calls) == fails_at:
            raise ServerFailed("it fell over")
        calls.append(call.prompt)
        shown = re.search(r"<document>\n(.*)\n</document>", call.prompt, re.DOTALL)[1]
        headed = "\n\n".join(
            f"## Chapter {number}\n\n" + "\n\n".join(part for part in chapter if part in shown)
            for number, chapter in enumerate(CHAPTERS)
        )
        return write_skeleton(make(f"# T\n\n{headed}"))

    return say


async def test_a_text_without_headings_is_structured_by_the_model_once(make_run):
    calls, refiner = [], sparse(budget=120, least_words=5)
    options = {"documents": [BOOK], "labels": odds(1.0)}
    refined, run, _ = await refine(make_run, refiner, write(calls), **options)
    same, again, _ = await refine(make_run, refiner, write(calls), store=run.store, **options)
    (event,) = events(run, Structured)
    assert (event.basis, event.kept, event.lost) == ("model", False, ())
    assert event.coverage > 0.99
    assert events(again, Structured)[0].kept
    assert events(again, Structured)[0].counts == event.counts
    assert len(calls) == 1
    assert same.text == refined.text
    assert all("Chapter 2" in p.text for p in refined.passages)
    assert "## Chapter" not in refined.text  # the model's title is not text of the document


async def test_a_structure_that_covers_little_is_not_used_and_reported(make_run):
    skeleton = "<section: A>Chapter 0, part 0: the old"
    _, run, _ = await refine(make_run, sparse(), [skeleton], documents=[BOOK])
    (event,) = events(run, Structured)
    assert event.basis == "chunks"
    assert event.coverage < 0.5
    tokens = {"structured_tokens": BOOK.text, "skeleton_tokens": skeleton}
    assert event.counts == {name: estimate_tokens(text) for name, text in tokens.items()}
    assert any("plain chunks are used" in warning for warning in run.warnings)


async def test_a_long_text_is_structured_in_parts_and_resumes_where_it_was(make_run):
    calls, refiner = [], sparse(structuring_tokens=300, least_words=5)
    async with InMemorySources([BOOK]) as sources:
        run, _ = make_run(sources, write(calls, fails_at=2), labels=odds(0.0))
        with pytest.raises(ServerFailed):
            await refiner.refine(QUESTION, run)
    assert len(calls) == 2
    _, again, _ = await refine(make_run, refiner, write(calls), documents=[BOOK], store=run.store)
    assert len(calls) == len(set(calls)) > 3
    assert events(again, Structured)[0].coverage > 0.99


async def test_the_algorithm_of_the_paper_step_by_step(make_run, reply):
    """R_q, structure, both scores, nodes until the budget, the text's order, one reading."""

    def say(call):
        if task_of(call.messages) != "reader":
            return "['History']"
        number = next(i for i, text in enumerate(bodies(call.prompt), 1) if "Harper" in text)
        return reply((number, "built in 1788 by the Harper brothers", "They built it in 1788."))

    class Scores:
        """A reranker: 1 for who built it, .5 for the wheel, else 0."""

        name = "scores"

        async def score(self, query, texts):
            return [1.0 * ("Harper" in text) + 0.5 * ("nine tons" in text) for text in texts]

    lake = document("lake", "# Lake\n\nA lake with a mill.\n")
    async with InMemorySources([lake, MILL]) as sources:
        run, model = make_run(sources, say, labels=odds(0.5), reranker=Scores())
        strategy = LongRefiner(budget=180, documents=1, mode="sparse")
        answer = await strategy.answer(QUESTION, run)
    tasks = [task_of(call.messages) for call in model.calls]
    assert tasks == ["longrefiner.selection_instruction", "reader"]
    (weighed,) = events(run, Weighed)
    assert (weighed.document, weighed.scope, weighed.selected) == ("mill", 0.5, ("History",))
    (history,) = (node for node in weighed.nodes if node.title == "History")
    below = [n for n in weighed.nodes if n.level == "paragraph" and history.span.contains(n.span)]
    assert [(n.local_score, n.global_score, n.score) for n in (history, *below)] == [
        (0.5, 1.0, 0.5 + 0.5 * 1.0),  # LS: the mean of its paragraphs
        (0.0, 0.5, 0.5 * 0.5),  # GS: shared among them
        (1.0, 0.5, 1.0 + 0.5 * 0.5),
    ]
    assert history.kept
    order = sorted(e.span for e in answer.evidence)
    assert [e.span for e in answer.evidence] == order  # the text's, not that of the scores
    assert sum(len(text.split()) for text in bodies(model.calls[-1].prompt)) < 180
    assert answer.citations[0].quote == "The mill was built in 1788 by the Harper brothers."
    assert "two coins" not in model.calls[-1].prompt


async def test_the_papers_settings_structure_every_document_by_the_model(make_run, minilm):
    strategy = set_parameters(LongRefiner, ["preset=paper"])
    assert (strategy.budget, strategy.least_words, strategy.documents) == (2048, 100, 8)

    def say(call):
        return write_skeleton(long) if structures(call) else "['History']"

    long = document("mill", TEXT.replace(FILL, f"{FILL} {FILL} {FILL}"))
    async with InMemorySources([long], minilm) as sources:
        run, _ = make_run(sources, say, labels=odds(1.0), embedder=minilm)
        refined = await strategy.refine(QUESTION, run)
    assert events(run, Structured)[0].basis == "model"
    (search, *_) = events(run, Retrieved)
    assert search.how == "dense"
    assert refined.passages
    words = [len(n.span) for n in events(run, Weighed)[0].nodes if n.level == "paragraph"]
    assert max(words) > 1500  # no paragraph is cut


SMALL = {"budget": 40, "least_words": 5, "no_global": True}


@pytest.mark.parametrize("scored_by", ["bm25", "embedder", "search", "reranker", "auto"])
async def test_who_scores_paragraphs_does_not_change_the_documents(make_run, minilm, scored_by):
    class Backwards:
        name, language = "backwards", "de"  # "auto" leaves it out: the documents are English

        async def score(self, query, texts):
            return [float("two coins" in text) for text in texts]

    others = [document(f"a{i}", "# Lake\n\nA lake with fish.\n") for i in range(3)]
    mill = replace(MILL, language="en")
    async with InMemorySources([*others, mill], minilm) as sources:
        run, _ = make_run(sources, choose(), embedder=minilm, reranker=Backwards())
        refined = await sparse(documents=1, scored_by=scored_by, **SMALL).refine(QUESTION, run)
    assert [each.document for each in events(run, Weighed)] == ["mill"]
    assert ("two coins" in refined.text) == (scored_by == "reranker")
    assert ("Harper" in refined.text) == (scored_by != "reranker")


@pytest.mark.parametrize(("weight", "kept"), [(0.01, "Harper"), (100.0, "two coins")])
async def test_a_reranker_may_count_beside_the_search(make_run, weight, kept):
    class Beside:
        name, beside_search = "beside", weight

        async def score(self, query, texts):
            return [float("two coins" in text) for text in texts]

    refined, _, _ = await refine(make_run, sparse(**SMALL), reranker=Beside())
    assert kept in refined.text


async def test_scores_by_a_reranker_need_one(make_run):
    with pytest.raises(UsageError, match="no reranker"):
        await refine(make_run, sparse(scored_by="reranker"))
