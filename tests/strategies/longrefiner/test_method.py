import json
import re
from dataclasses import replace

import pytest

from colligate.core.events import Asked, Measured, Noted
from colligate.core.parameters import set_parameters
from colligate.documents.tokens import estimate_tokens
from colligate.errors import MissingCapability, ServerFailed, UsageError
from colligate.library import InMemorySources
from colligate.models import Capability, LabelOdds
from colligate.strategies.longrefiner import LongRefiner, Refiner
from colligate.strategies.longrefiner.events import Selected, Structured, Weighed
from colligate.strategies.longrefiner.skeleton import write_skeleton
from support.documents import make
from support.prompts import passages_in, task_of
from support.runs import document, judge_by_words

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
    return Refiner(mode="sparse", **fields)


def choose(*titles: str):
    """A worker that chooses these titles, and writes no skeleton."""
    return lambda call: str(list(titles))


def odds(global_: float):
    def label(messages, labels, forced):
        assert forced == "["
        return LabelOdds({"Local": 1 - global_, "Global": global_}, mass=1.0)

    return label


def events(run, kind):
    return [event for _, event in run.trace.events if isinstance(event, kind)]


async def refine(make_run, refiner, replies=None, documents=(MILL,), store=None, **options):
    named = {key: options.pop(key) for key in ("passages", "ids") if key in options}
    if "ids" in named:
        named["documents"] = named.pop("ids")
    options.setdefault("labels", odds(0.0))
    async with InMemorySources(documents) as sources:
        run, model = make_run(sources, replies or choose(), **options)
        run.store = store or run.store
        return await refiner.refine(QUESTION, run, **named), run, model


@pytest.mark.parametrize("budget", [0, 1, 7, 30, 60, 200, 400, 10_000])
async def test_the_budget_is_never_exceeded(make_run, budget):
    refined, run, model = await refine(make_run, sparse(budget=budget))
    assert refined.tokens == await model.count_tokens(refined.text) <= budget
    assert bool(refined.passages) == (budget > 0)
    (selected,) = events(run, Selected)
    assert (selected.tokens, selected.budget) == (refined.tokens, budget)


async def test_everything_kept_is_a_slice_of_its_document_in_its_order(make_run):
    refined, _, _ = await refine(make_run, sparse(budget=400))
    places = [p.span for p in refined.passages]
    assert places == sorted(places)
    for passage in refined.passages:
        assert passage.text == TEXT[passage.span.start : passage.span.end]
        assert passage.text in refined.text
    assert refined.text.startswith("# The Mill\n\n")


async def test_a_small_budget_keeps_what_answers(make_run):
    refined, _, _ = await refine(make_run, sparse(budget=34, least_words=5))
    assert "built in 1788 by the Harper brothers" in refined.text
    assert "## History" in refined.text
    assert "nine tons" not in refined.text


async def test_a_document_that_fits_is_kept_whole(make_run):
    refined, _, _ = await refine(make_run, sparse(budget=100_000))
    assert refined.tokens == pytest.approx(estimate_tokens(TEXT), rel=0.05)
    for words in ("grinds corn", "1788", "nine tons", "two coins"):
        assert words in refined.text


async def test_the_same_twice(make_run):
    one, _, _ = await refine(make_run, sparse(budget=300), choose("Machines"))
    two, _, _ = await refine(make_run, sparse(budget=300), choose("Machines"))
    assert one == two


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


async def test_every_node_has_its_scores_in_the_trace(make_run):
    _, run, _ = await refine(make_run, sparse(budget=200), choose("History"), labels=odds(0.5))
    (event,) = events(run, Weighed)
    nodes = event.to_json()["nodes"]
    assert {n["level"] for n in nodes} == {"abstract", "section", "paragraph"}
    for node in nodes:
        assert node["score"] == pytest.approx(node["local_score"] + 0.5 * node["global_score"])
        assert 0 <= node["local_score"] <= 1
    assert [n["global_score"] for n in nodes if n["title"] == "History"] == [1]
    assert {n["kept"] for n in nodes} == {True, False}
    assert events(run, Structured)[0].basis == "headings"


async def test_passages_bound_what_may_be_kept(make_run):
    at = TEXT.index("## Visitors")
    passage = MILL.passage(MILL.span(at, len(TEXT)))
    refined, _, _ = await refine(make_run, sparse(budget=5000), passages=[passage])
    assert refined.passages
    assert all(p.span.start >= at for p in refined.passages)


async def test_documents_may_be_named_and_come_in_that_order(make_run):
    others = [document(name, TEXT.replace("Mill", f"{name} Mill")) for name in ("other", "third")]
    refined, _, _ = await refine(
        make_run, sparse(budget=4000), documents=[MILL, *others], ids=["third", "mill"]
    )
    assert list(dict.fromkeys(p.document_id for p in refined.passages)) == ["third", "mill"]


@pytest.mark.parametrize(
    ("documents", "kept"),
    [
        ([], ""),
        ([make("")], ""),
        ([make("Harper built it.")], "Harper built it."),
    ],
)
async def test_a_text_of_one_paragraph_at_most_is_not_worth_a_call(make_run, documents, kept):
    refined, run, model = await refine(make_run, sparse(), documents=documents)
    assert refined.text.removeprefix("# d\n\n") == kept
    assert bool(refined.passages) == bool(refined.tokens) == bool(kept)
    assert model.calls == []
    assert not events(run, Measured)


async def test_a_reranker_scores_every_leaf(make_run):
    class Wheel:
        name = "wheel"

        async def score(self, query, texts):
            return [10.0 if "nine tons" in text else -3.0 for text in texts]

        async def aclose(self):
            pass

    refined, run, _ = await refine(make_run, sparse(budget=34, least_words=5), reranker=Wheel())
    assert "nine tons" in refined.text
    assert run.meter.report().scoring_passes > 4
    Wheel.language = "de"
    english = (replace(MILL, language="en"),)
    _, run, _ = await refine(make_run, sparse(), documents=english, reranker=Wheel())
    assert "wheel" not in {call.model for call in run.meter.calls}


async def test_a_reranker_that_fails_after_a_paid_call_leaves_the_scores_of_the_search(make_run):
    class Failing:
        name = "failing"

        async def score(self, query, texts):
            raise ServerFailed("the reranker is down")

    wanted, _, _ = await refine(make_run, sparse(budget=60))
    refined, run, _ = await refine(make_run, sparse(budget=60), reranker=Failing())
    assert refined.text == wanted.text != ""
    assert any("the reranker is down" in warning for warning in run.warnings)


@pytest.mark.parametrize("field", ["budget", "outline_tokens", "documents", "least_words"])
def test_a_number_that_means_nothing_is_wrong_usage(field):
    with pytest.raises(UsageError, match=f"{field} is -1"):
        LongRefiner(**{field: -1})
    with pytest.raises(UsageError, match="most_words is 150"):
        Refiner(least_words=200)


async def test_an_adapter_needs_a_model_that_takes_one(make_run):
    with pytest.raises(MissingCapability, match="takes no adapter"):
        await refine(make_run, sparse(selection_adapter="here"))


# Query analysis


@pytest.mark.parametrize(
    ("label", "scope", "note"),
    [
        ("[Global]", 1.0, "it says that the answer is in the whole document"),
        ("[Local]", 0.0, "it says that the answer is in one place"),
        ("neither", 0.5, "does not say whether"),
    ],
)
async def test_without_label_odds_the_model_is_asked_for_the_label(make_run, label, scope, note):
    def say(call):
        return label if call.max_tokens < 20 else "['Machines']"

    refined, run, _ = await refine(make_run, sparse(), say, labels=None)
    assert refined.scope == scope
    assert any(note in event.text for event in events(run, Noted))


async def test_a_server_that_cannot_be_forced_is_asked_for_the_bare_label(make_run):
    def label(messages, labels, forced):
        if forced:
            raise MissingCapability("it cannot begin a reply")
        return LabelOdds({"Local": 0.25, "Global": 0.75}, mass=1.0)

    refined, _, _ = await refine(make_run, sparse(), labels=label)
    assert refined.scope == 0.75


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


# Titles by odds, and prompts of a user's file


def labelled(table, scope=0.9):
    """Odds of titles by name, of what is missing none; and of the two scopes."""

    def label(messages, labels, forced):
        named = {"Local": 1 - scope, "Global": scope} if "Local" in labels else table
        return LabelOdds({each: named.get(each, 0.0) for each in labels}, mass=1.0)

    return label


@pytest.mark.parametrize(
    ("table", "selected"),
    [
        ({"Machines": 0.6, "History": 0.3, "none": 0.1}, ("History", "Machines")),
        ({"Machines": 0.6, "History": 0.1, "none": 0.3}, ("Machines",)),
        ({"Machines": 0.4, "none": 0.6}, ()),
        ({"abstract": 0.95, "History": 0.05}, ("abstract",)),
    ],
)
async def test_titles_may_be_chosen_by_their_odds(make_run, table, selected):
    able = (Capability.CHAT, Capability.STRUCTURED, Capability.LABELS)
    _, run, model = await refine(
        make_run, sparse(titles="odds"), labels=labelled(table), capabilities=able
    )
    (weighed,) = events(run, Weighed)
    assert weighed.selected == selected
    assert not model.calls


async def test_without_odds_the_worker_writes_its_list_of_titles(make_run):
    refiner = sparse(titles="odds")
    _, run, _ = await refine(make_run, refiner, choose("History"), labels=None)
    assert events(run, Weighed)[0].selected == ("History",)
    assert any("no label odds" in warning for warning in run.warnings)


OWN = """
set = ["structuring=model", "budget=77"]

[[scope]]
role = "system"
content = "Analyse it."
[[scope]]
role = "user"
content = "<{question}>"

[[structuring]]
role = "user"
content = "Cut this: {text}"

[[selection]]
role = "user"
content = "{abstract} | {outline} | {question}"
"""


async def test_all_three_models_are_asked_by_the_prompts_of_a_users_file(make_run, tmp_path):
    (tmp_path / "prompts.toml").write_text(OWN)
    scoped = []

    def label(messages, labels, forced):
        scoped.append((forced, messages))
        return LabelOdds({"Local": 0.2, "Global": 0.8}, mass=1.0)

    def say(call):
        cut = call.messages[-1].content.startswith("Cut this: ")
        return write_skeleton(MILL) if cut else "['Machines']"

    strategy = set_parameters(Refiner, [f"prompts={tmp_path / 'prompts.toml'}", "mode=sparse"])
    refined, run, model = await refine(make_run, strategy, say, labels=label)
    ((forced, (system, user)),) = scoped
    assert (forced, system.content, user.content) == ("[", "Analyse it.", f"<{QUESTION}>")
    structured, chosen = (call.messages[-1].content for call in model.calls)
    assert structured.startswith("Cut this: The mill grinds corn")
    assert structured.endswith("Children pay two coins to see the wheel.")
    assert chosen == f"The mill grinds corn for the town. | {OUTLINE} | {QUESTION}"
    assert events(run, Structured)[0].basis == "model"
    assert events(run, Weighed)[0].selected == ("Machines",)
    assert refined.budget == 77


async def test_a_prompt_of_ones_own_is_never_replaced_by_ours(make_run, tmp_path):
    """A server that cannot begin a reply is asked for the label itself, by the same prompt."""
    (tmp_path / "prompts.toml").write_text(OWN.replace("structuring=model", "structuring=auto"))

    def label(messages, labels, forced):
        raise MissingCapability("it cannot begin a reply")

    def say(call):
        return "[Global]" if call.messages[0].content == "Analyse it." else "['Machines']"

    strategy = sparse(prompts=str(tmp_path / "prompts.toml"))
    refined, _, _ = await refine(make_run, strategy, say, labels=label)
    assert refined.scope == 1.0


OUTLINE = "Title: The Mill\nSection1: History\nSection2: Machines\nSection3: Visitors"


async def test_structuring_is_metered_apart_from_what_a_question_costs(make_run):
    _, run, _ = await refine(make_run, sparse(), write([]), documents=[BOOK])
    usage = run.meter.report(seconds=100.0)
    assert usage.calls == 2
    assert usage.offline["calls"] == 1
    assert 0 < usage.offline["input_tokens"] < usage.input_tokens
    assert 0 < usage.offline["seconds"] < 100
    _, run, _ = await refine(make_run, sparse(), choose("Machines"))
    assert run.meter.report().offline["calls"] == 0


# Structure from the model

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
    assert len(calls) == 1
    assert same.text == refined.text
    assert all("Chapter 2" in p.text for p in refined.passages)
    assert "## Chapter" not in refined.text  # the model's title is not text of the document


async def test_a_skeleton_may_not_be_longer_than_its_text(make_run):
    _, _, model = await refine(make_run, sparse(), write([]), documents=[BOOK])
    (call,) = filter(structures, model.calls)
    assert call.max_tokens <= estimate_tokens(BOOK.text) + 128


async def test_a_text_of_two_paragraphs_is_not_worth_a_call(make_run):
    for words, calls in ((300, 0), (900, 1)):
        text = " ".join(f"The mill stands there {i}." for i in range(words // 5))
        _, _, model = await refine(make_run, sparse(), write([]), documents=[document("m", text)])
        assert len([*filter(structures, model.calls)]) == calls


async def test_a_structure_that_covers_little_is_not_used_and_reported(make_run):
    skeleton = "<section: A>Chapter 0, part 0: the old"
    _, run, _ = await refine(make_run, sparse(), [skeleton], documents=[BOOK])
    (event,) = events(run, Structured)
    assert event.basis == "chunks"
    assert event.coverage < 0.5
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


async def test_own_headings_can_be_ignored_and_a_model_too(make_run):
    _, _, model = await refine(make_run, sparse(structuring="model"), choose("History"))
    assert any(structures(call) for call in model.calls)
    _, run, model = await refine(make_run, sparse(structuring="headings"), documents=[BOOK])
    assert events(run, Structured)[0].basis == "chunks"
    assert not any(structures(call) for call in model.calls)


# The strategy


async def test_longrefiner_reads_what_was_refined_and_cites_it(make_run):
    def say(call):
        if task_of(call.messages) != "reader":
            return "[]"
        number = re.search(r'<passage number="(\d+)"[^>]*>\n(?:(?!</passage).)*Harper', call.prompt,
                           re.DOTALL)[1]  # fmt: skip
        quote = "built in 1788 by the Harper brothers"
        rows = [{"passage": int(number), "quote": quote, "sentence": "They built it in 1788."}]
        return json.dumps({"statements": rows, "short_answer": "Harper", "found": True})

    async with InMemorySources([MILL, document("other", "# Other\n\nA lake.\n")]) as sources:
        run, _ = make_run(sources, say, labels=odds(0.1))
        answer = await LongRefiner(budget=30, least_words=5, mode="sparse").answer(QUESTION, run)
    assert answer.found
    assert answer.citations[0].quote == "The mill was built in 1788 by the Harper brothers."
    scores = [e.score for e in answer.evidence]
    assert scores == sorted(scores, reverse=True)
    assert "two coins" not in events(run, Asked)[-1].messages[-1].content
    assert Capability.LABELS in LongRefiner.needs.optional


async def test_a_part_of_a_table_is_read_below_its_head(make_run, reply):
    rows = "\n".join(f"| Station {i:03} | {i * 7} | {i * 11} |" for i in range(500))
    rows = rows.replace("Station 333", "Quokka Halt")
    head = "| Station | Passengers 2022 | Passengers 2023 |\n| --- | --- | --- |"
    text = f"# Rail\n\n## Figures\n\n{head}\n{rows}\n"
    async with InMemorySources([document("rail", text)]) as sources:
        run, model = make_run(sources, [reply()], labels=odds(0.0))
        strategy = LongRefiner(mode="sparse", reading="together", on_nothing="nothing")
        await strategy.answer("Passengers of Quokka Halt in the second year?", run)
    prompt = model.calls[-1].prompt
    assert "| Quokka Halt | 2331 | 3663 |" in prompt
    assert "Station | Passengers 2022 | Passengers 2023" in prompt


async def test_a_small_reader_reads_the_surest_part_alone(make_run):
    labels = judge_by_words({"Harper": 0.9, "nine tons": 0.2})
    async with InMemorySources([MILL]) as sources:
        run, model = make_run(sources, ["the Harper brothers"], name="a-1.5b", labels=labels)
        refiner = LongRefiner(budget=300, least_words=5, mode="sparse", no_global=True)
        answer = await refiner.answer(QUESTION, run)
    assert answer.short == "the Harper brothers"
    assert [c.quote for c in answer.citations] == [
        "The mill was built in 1788 by the Harper brothers."
    ]
    assert len(model.calls) == 1
    assert "nine tons" not in model.calls[0].prompt


@pytest.mark.parametrize(("on_nothing", "found"), [("passages", True), ("nothing", False)])
async def test_a_model_that_fails_leaves_what_a_search_finds(make_run, reply, on_nothing, found):
    def say(call):
        if task_of(call.messages) != "reader":
            return ServerFailed("it fell over")
        number = next(n for n, text in passages_in(call.prompt).items() if "Harper" in text)
        return reply((number, "built in 1788 by the Harper brothers", "They built it in 1788."))

    strategy = LongRefiner(mode="sparse", on_nothing=on_nothing)
    async with InMemorySources([MILL]) as sources:
        run, _ = make_run(sources, say, labels=odds(0.1))
        if not found:
            with pytest.raises(ServerFailed):
                await strategy.answer(QUESTION, run)
            return
        answer = await strategy.answer(QUESTION, run)
    assert answer.found
    assert any("it fell over" in warning for warning in run.warnings)


async def test_a_last_search_that_fails_is_a_refusal_with_a_warning(make_run, reply, monkeypatch):
    search, calls = InMemorySources.search, []

    async def fails_at_last(self, query, **options):
        calls.append(query)
        if len(calls) > 2:
            raise ServerFailed("the embedder is down")
        return await search(self, query, **options)

    monkeypatch.setattr(InMemorySources, "search", fails_at_last)
    async with InMemorySources([MILL]) as sources:
        run, _ = make_run(sources, lambda call: reply(found=False), labels=odds(0.1))
        answer = await LongRefiner(mode="sparse", no_global=True).answer(QUESTION, run)
    assert not answer.found
    assert any("the embedder is down" in warning for warning in run.warnings)


async def test_parts_that_do_not_answer_are_followed_by_the_passages_of_the_search(make_run, reply):
    def say(call):
        if task_of(call.messages) != "reader":
            return "['Machines']"
        there = [n for n, text in passages_in(call.prompt).items() if "Harper" in text]
        quote = "built in 1788 by the Harper brothers"
        return reply((there[0], quote, "They built it in 1788.")) if there else reply(found=False)

    fields = {"budget": 25, "least_words": 5, "mode": "sparse"}
    for on_nothing in ("nothing", "passages"):
        async with InMemorySources([MILL]) as sources:
            run, _ = make_run(sources, say, labels=odds(1.0))
            answer = await LongRefiner(**fields, on_nothing=on_nothing).answer("The wheel?", run)
        assert answer.found == (on_nothing == "passages")


@pytest.mark.parametrize(
    ("count", "refined"),
    [
        (1, ["mill"]),
        (2, ["mill", "a1"]),
        (8, ["mill", "a1", "a0", "a2", "a3"]),  # the rest, in which nothing is found, last
    ],
)
async def test_the_best_documents_alone_are_refined(make_run, reply, count, refined):
    others = [document(f"a{i}", f"# Other {i}\n\nA lake with fish.\n") for i in range(4)]
    others[1] = document("a1", "# Other 1\n\nA lake with fish, and a mill far away.\n")
    async with InMemorySources([*others, MILL]) as sources:
        run, _ = make_run(sources, lambda call: reply(found=False), labels=odds(0.0))
        await LongRefiner(documents=count, mode="sparse").answer(QUESTION, run)
    assert [e.document for e in events(run, Weighed)] == refined
