import json
import re

import pytest

from colligate.core.events import Asked, Measured, Noted
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.documents.tokens import estimate_tokens
from colligate.errors import MissingCapability, ServerFailed, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode
from colligate.models import Capability, LabelOdds
from colligate.strategies.longrefiner.events import Selected, Structured, Weighed
from colligate.strategies.longrefiner.method import LongRefiner, Refiner
from colligate.strategies.longrefiner.structuring import skeleton

FILL = "The mill stands by the river and turns its wheel through the year. " * 8
FILL = FILL.strip()
MILL = f"""# The Mill

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
QUESTION = "Who built the mill?"


def document(name: str, text: str) -> Document:
    title = text.splitlines()[0].lstrip("# ")
    return Document(name, title, text, markdown_tree(text, name), language="en")


def plain(text: str, name: str = "plain") -> Document:
    """A text without a heading."""
    return Document(name, "A plain text", text, markdown_tree(text, name), language="en")


@pytest.fixture
def mill():
    return document("mill", MILL)


def sparse(**fields):
    return Refiner(mode=SearchMode.SPARSE, **fields)


def titles(*named: str):
    """A worker that chooses these titles, and writes no skeleton."""
    return lambda call: str(list(named))


def odds(global_: float):
    def label(messages, labels, forced):
        assert forced == "["
        return LabelOdds({"Local": 1 - global_, "Global": global_}, mass=1.0)

    return label


def events(run, kind):
    return [event for _, event in run.trace.events if isinstance(event, kind)]


async def refine(documents, make_run, refiner, replies=None, question=QUESTION, **options):
    options.setdefault("labels", odds(0.0))
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, replies or titles(), **options)
        return await refiner.refine(question, run), run, model


@pytest.mark.parametrize("budget", [0, 1, 7, 30, 60, 200, 400, 10_000])
async def test_the_budget_is_never_exceeded(mill, make_run, budget):
    refined, run, model = await refine([mill], make_run, sparse(budget=budget))
    assert refined.tokens == await model.count_tokens(refined.text) <= budget
    assert bool(refined.passages) == (budget > 0)
    (selected,) = events(run, Selected)
    assert (selected.tokens, selected.budget) == (refined.tokens, budget)


async def test_everything_kept_is_a_slice_of_its_document_and_stands_in_its_order(mill, make_run):
    refined, _, _ = await refine([mill], make_run, sparse(budget=400))
    places = [p.span for p in refined.passages]
    assert places == sorted(places)
    for passage in refined.passages:
        assert passage.text == MILL[passage.span.start : passage.span.end]
        assert passage.text in refined.text
    assert refined.text.startswith("# The Mill\n\n")


async def test_a_small_budget_keeps_what_answers(mill, make_run):
    refined, _, _ = await refine([mill], make_run, sparse(budget=34, least_words=5))
    assert "built in 1788 by the Harper brothers" in refined.text
    assert "## History" in refined.text
    assert "nine tons" not in refined.text


async def test_a_document_that_fits_is_kept_whole(mill, make_run):
    refined, _, _ = await refine([mill], make_run, sparse(budget=100_000))
    assert refined.tokens == pytest.approx(estimate_tokens(MILL), rel=0.05)
    for words in ("grinds corn", "1788", "nine tons", "two coins"):
        assert words in refined.text


async def test_the_same_twice(mill, make_run):
    one, _, _ = await refine([mill], make_run, sparse(budget=300), titles("Machines"))
    two, _, _ = await refine([mill], make_run, sparse(budget=300), titles("Machines"))
    assert one == two


async def test_a_chosen_title_weighs_as_much_as_the_question_is_broad(mill, make_run):
    whole = {}
    for scope in (0.0, 1.0):
        refined, run, _ = await refine(
            [mill],
            make_run,
            sparse(budget=170, least_words=5),
            titles("Machines"),
            labels=odds(scope),
        )
        assert refined.scope == scope
        (weighed,) = events(run, Weighed)
        assert weighed.selected == ("Machines",)
        whole[scope] = {node.title for node in weighed.nodes if node.kept and node.title}
    assert "Machines" in whole[1.0]
    assert "Machines" not in whole[0.0]


async def test_every_node_has_its_scores_in_the_trace(mill, make_run):
    _, run, _ = await refine(
        [mill], make_run, sparse(budget=200), titles("History"), labels=odds(0.5)
    )
    (event,) = events(run, Weighed)
    nodes = event.to_json()["nodes"]
    assert {n["level"] for n in nodes} == {"abstract", "section", "paragraph"}
    for node in nodes:
        assert node["score"] == pytest.approx(node["local_score"] + 0.5 * node["global_score"])
        assert 0 <= node["local_score"] <= 1
    history = next(n for n in nodes if n["title"] == "History")
    assert history["global_score"] == 1
    assert any(n["kept"] for n in nodes)
    assert not all(n["kept"] for n in nodes)
    assert events(run, Structured)[0].basis == "headings"


async def test_passages_bound_what_may_be_kept(mill, make_run):
    async with InMemorySources([mill]) as sources:
        run, _ = make_run(sources, titles(), labels=odds(0.0))
        at = MILL.index("## Visitors")
        passage = mill.passage(mill.span(at, len(MILL)))
        refined = await sparse(budget=5000).refine(QUESTION, run, passages=[passage])
    assert refined.passages
    assert all(p.span.start >= at for p in refined.passages)


async def test_documents_may_be_named_and_come_in_that_order(mill, make_run):
    other = document("other", MILL.replace("Mill", "Other Mill"))
    third = document("third", MILL.replace("Mill", "Third Mill"))
    async with InMemorySources([mill, other, third]) as sources:
        run, _ = make_run(sources, titles(), labels=odds(0.0))
        refined = await sparse(budget=4000).refine(QUESTION, run, documents=["third", "mill"])
    assert list(dict.fromkeys(p.document_id for p in refined.passages)) == ["third", "mill"]


async def test_nothing_in_view_is_nothing_kept(make_run):
    refined, _, model = await refine([], make_run, sparse())
    assert (refined.text, refined.passages, refined.tokens) == ("", (), 0)
    assert model.calls == []
    refined, _, model = await refine([plain("")], make_run, sparse())
    assert refined.passages == ()
    assert model.calls == []


async def test_a_short_text_is_not_worth_a_call(make_run):
    refined, run, model = await refine([plain("The mill was built by Harper.")], make_run, sparse())
    assert refined.text.endswith("The mill was built by Harper.")
    assert model.calls == []
    assert not events(run, Measured)


async def test_a_reranker_scores_every_leaf(mill, make_run):
    class Wheel:
        name = "wheel"

        async def score(self, query, texts):
            self.seen = len(texts)
            return [10.0 if "nine tons" in text else -3.0 for text in texts]

        async def aclose(self):
            pass

    refined, run, _ = await refine(
        [mill], make_run, sparse(budget=34, least_words=5), reranker=Wheel()
    )
    assert "nine tons" in refined.text
    assert run.meter.report().scoring_passes > 4


def test_paragraphs_that_cannot_be_are_wrong_usage():
    with pytest.raises(UsageError, match="most_words is 150: it must be 200 or more"):
        Refiner(least_words=200)


@pytest.mark.parametrize("field", ["budget", "outline_tokens", "documents", "least_words"])
def test_a_number_that_means_nothing_is_wrong_usage(field):
    with pytest.raises(UsageError, match=f"{field} is -1: it must be [01] or more"):
        LongRefiner(**{field: -1})


async def test_an_adapter_needs_a_model_that_takes_one(mill, make_run):
    with pytest.raises(MissingCapability, match="takes no adapter"):
        await refine([mill], make_run, sparse(selection_adapter="here"))


# What the question asks for


async def test_without_label_odds_the_model_is_asked_in_words(mill, make_run):
    def say(call):
        return "[Global]" if call.max_tokens < 20 else "['Machines']"

    refined, run, _ = await refine([mill], make_run, sparse(), say, labels=None)
    assert refined.scope == 1.0
    assert any("gives no label odds" in event.text for event in events(run, Noted))


async def test_a_model_that_names_neither_label_weighs_both_the_same(mill, make_run):
    refined, run, _ = await refine([mill], make_run, sparse(), labels=None)
    assert refined.scope == 0.5
    assert any("R_q is 0.5" in event.text for event in events(run, Noted))


async def test_a_server_that_cannot_be_forced_is_asked_for_the_bare_label(mill, make_run):
    def label(messages, labels, forced):
        if forced:
            raise MissingCapability("it cannot begin a reply")
        return LabelOdds({"Local": 0.25, "Global": 0.75}, mass=1.0)

    refined, _, _ = await refine([mill], make_run, sparse(), labels=label)
    assert refined.scope == 0.75


async def test_ablations(mill, make_run):
    refined, run, model = await refine([mill], make_run, sparse(no_global=True))
    assert refined.scope is None
    assert model.calls == []
    assert not events(run, Measured)

    refined, run, _ = await refine(
        [mill], make_run, sparse(no_query_analysis=True), titles("Machines")
    )
    assert refined.scope == 1.0
    assert not events(run, Measured)

    _, run, _ = await refine([mill], make_run, sparse(structuring="chunks"))
    (event,) = events(run, Structured)
    assert event.basis == "chunks"
    (weighed,) = events(run, Weighed)
    assert {n.level for n in weighed.nodes} == {"section", "paragraph"}


# Structure from the model

CHAPTERS = [
    [f"Chapter {c}, part {p}: the {w} mill of the town was built in the year {1700 + 10 * c + p} "
     f"by people whose names nobody wrote down, and it ground {w} corn for a long time after." * 2
     for p, w in enumerate(("old", "new", "red"))]
    for c in range(4)
]  # fmt: skip
BOOK = "\n\n".join(paragraph for chapter in CHAPTERS for paragraph in chapter)


def structured_book(text: str) -> str:
    """A perfect skeleton: what the same text with headings would have."""
    with_headings = "\n\n".join(
        f"## Chapter {number}\n\n" + "\n\n".join(p for p in chapter if p in text)
        for number, chapter in enumerate(CHAPTERS)
    )
    return skeleton(document("x", "# A plain text\n\n" + with_headings))


def writer(calls):
    def say(call):
        if "Skeleton:" in call.prompt:
            calls.append(call)
            text = re.search(r"<document>\n(.*)\n</document>", call.prompt, re.DOTALL)[1]
            return structured_book(text)
        return "['Chapter 2']"

    return say


async def test_a_text_without_headings_is_structured_by_the_model_once(make_run):
    calls = []
    async with InMemorySources([plain(BOOK)]) as sources:
        run, _ = make_run(sources, writer(calls), labels=odds(1.0))
        refined = await sparse(budget=120, least_words=5).refine("mill", run)
        again, _ = make_run(sources, writer(calls), labels=odds(1.0))
        again.store = run.store
        same = await sparse(budget=120, least_words=5).refine("mill", again)
    (event,) = events(run, Structured)
    assert (event.basis, event.kept, event.lost) == ("model", False, ())
    assert event.coverage > 0.99
    assert events(again, Structured)[0].kept
    assert len(calls) == 1
    assert same.text == refined.text
    assert all("Chapter 2" in p.text for p in refined.passages)
    assert "## Chapter" not in refined.text  # a title of the model's is no text of the document


async def test_a_structure_that_covers_little_is_not_used_and_said(make_run):
    _, run, _ = await refine(
        [plain(BOOK)], make_run, sparse(), lambda call: "<section: A>Chapter 0, part 0: the old"
    )
    (event,) = events(run, Structured)
    assert event.basis == "chunks"
    assert event.coverage < 0.5
    assert any("plain chunks are used" in warning for warning in run.warnings)


async def test_a_long_text_is_structured_in_parts_and_goes_on_where_it_was(make_run):
    calls = []

    def dies_at_third(call):
        if len(calls) == 2 and "Skeleton:" in call.prompt:
            raise ServerFailed("it fell over")
        return writer(calls)(call)

    refiner = sparse(structuring_tokens=300, least_words=5)
    async with InMemorySources([plain(BOOK)]) as sources:
        run, _ = make_run(sources, dies_at_third, labels=odds(0.0))
        with pytest.raises(ServerFailed):
            await refiner.refine("mill", run)
        assert len(calls) == 2
        again, _ = make_run(sources, writer(calls), labels=odds(0.0))
        again.store = run.store
        await refiner.refine("mill", again)
    asked = ["".join(m.content for m in call.messages) for call in calls]
    assert len(asked) == len(set(asked)) > 3
    assert events(again, Structured)[0].coverage > 0.99


async def test_own_headings_can_be_set_aside(mill, make_run):
    calls = []

    def say(call):
        calls.append(call.prompt)
        return "['History']"

    _, run, _ = await refine([mill], make_run, sparse(structuring="model"), say)
    assert any("Skeleton:" in prompt for prompt in calls)
    _, run, model = await refine([plain(BOOK)], make_run, sparse(structuring="headings"))
    assert events(run, Structured)[0].basis == "chunks"
    assert not any("Skeleton:" in call.prompt for call in model.calls)


# The strategy


async def test_longrefiner_reads_what_was_refined_and_cites_it(mill, make_run):
    def say(call):
        if "<passage " not in call.prompt:
            return "[]"
        number = re.search(r'<passage number="(\d+)"[^>]*>\n(?:(?!</passage).)*Harper', call.prompt,
                           re.DOTALL)[1]  # fmt: skip
        rows = [
            {
                "passage": int(number),
                "quote": "built in 1788 by the Harper brothers",
                "sentence": "The Harper brothers built it in 1788.",
            }
        ]
        return json.dumps({"statements": rows, "short_answer": "Harper", "found": True})

    async with InMemorySources([mill, document("other", "# Other\n\nA lake.\n")]) as sources:
        run, _ = make_run(sources, say, labels=odds(0.1))
        answer = await LongRefiner(budget=30, least_words=5, mode="sparse").answer(QUESTION, run)
    assert answer.found
    assert answer.citations[0].quote == "The mill was built in 1788 by the Harper brothers."
    scores = [e.score for e in answer.evidence]
    assert scores == sorted(scores, reverse=True)
    assert "two coins" not in events(run, Asked)[-1].messages[-1].content
    assert Capability.LABELS in LongRefiner.needs.optional


async def test_the_best_documents_alone_are_refined(mill, make_run, reply):
    others = [document(f"o{i}", f"# Other {i}\n\nA lake with fish.\n") for i in range(5)]
    async with InMemorySources([*others, mill]) as sources:
        run, _ = make_run(sources, lambda call: reply(found=False), labels=odds(0.0))
        await LongRefiner(documents=1, mode="sparse").answer(QUESTION, run)
        assert [e.document for e in events(run, Weighed)] == ["mill"]
        run, _ = make_run(sources, lambda call: reply(found=False), labels=odds(0.0))
        await LongRefiner(documents=8, mode="sparse").answer(QUESTION, run)
    # As few as these are all refined, those that nothing was found in last.
    assert [e.document for e in events(run, Weighed)] == ["mill", *(f"o{i}" for i in range(5))]
