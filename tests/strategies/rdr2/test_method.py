import json
import re

import pytest

from colligate.core.parameters import set_parameters
from colligate.documents import Hit
from colligate.errors import UsageError
from colligate.lab.bench.metrics.evidence import PASSAGES
from colligate.lab.bench.outcome import observe
from colligate.lab.bench.question import Question, QuestionReading
from colligate.library.in_memory import InMemorySources
from colligate.strategies.rdr2 import RDR2
from colligate.strategies.rdr2.router import Routed
from support.prompts import bodies, task_of, titles
from support.runs import document, events

PARK = """# Six Flags

Six Flags is a park near Dallas.

## History

In 2003 the park opened the Superman tower.

The park was sold in 1969.

## Rides

There are forty rides.

### Records

The Texas SkyScreamer is 400 feet high and the tallest ride of the park.

### Water

Only the river ride is wet.

## Prices

Children pay nine dollars.
"""
# -1 Six Flags, 0 Introduction, 2 History, 5 Rides, 7 Records, 9 Water, 11 Prices
LAKE = """# Lake

The lake lies beside the park.

## Fish

Carp and pike are its fish.
"""
QUESTION = "When did the park open the Superman tower?"
DOCUMENTS = {"park": document("park", PARK), "lake": document("lake", LAKE)}


@pytest.fixture
async def sources():
    async with InMemorySources(DOCUMENTS.values()) as opened:
        yield opened


def hit(words: str, of=DOCUMENTS["park"]) -> Hit:
    """A passage of these words."""
    start = of.text.index(words)
    return Hit(of.passage(of.span(start, start + len(words))), 1.0)


TOWER, SOLD, RECORD = hit("Superman tower"), hit("sold in 1969"), hit("SkyScreamer")
PRICE, FISH = hit("Children pay"), hit("Carp and pike", DOCUMENTS["lake"])


def follow(*rules):
    """A router that says the lines whose words it is shown; a reader that quotes its passage."""

    def say(call):
        if task_of(call.messages) == "reader":
            quote = bodies(call.prompt)[0].splitlines()[-1]
            rows = [{"passage": 1, "quote": quote, "sentence": quote}]
            return json.dumps({"statements": rows, "short_answer": "", "found": True})
        body = re.search(r"<document>\n(.*)\n</document>", call.prompt, re.DOTALL)[1]
        nodes = [line.strip().split(": ", 1) for line in body.splitlines()]
        said = [
            f"[{tag}] {next(i for i, text in nodes if words in text)}: {words}"
            for tag, words in rules
            if any(words in text for _, text in nodes)
        ]
        return "\n".join(said) or "Cannot answer"

    return say


def refuse(call):
    return "Cannot answer"


async def route(sources, make_run, say, *hits, question=QUESTION, **fields):
    """The routings of these passages, the `Routed` events, and the model."""
    options = {"context_tokens": fields.pop("context_tokens")} if "context_tokens" in fields else {}
    run, model = make_run(sources, say, **options)
    routings = await RDR2(**fields).route(question, run, hits or (TOWER,))
    return routings, events(run, Routed), model


def opened(routing) -> list[str]:
    """The headings that were expanded, in order."""
    ordered = sorted(routing.expanded, key=routing.expanded.__getitem__)
    return [routing.tree.nodes[node].text.strip("=") for node in ordered]


def decisions(run) -> list[tuple]:
    """What the router saw and said: document, round, heading, nodes, actions."""
    return [
        (e.document, e.round, e.expanded, e.highlighted, [(a.tag.value, a.node) for a in e.actions])
        for e in events(run, Routed)
    ]


async def test_the_algorithm_of_the_paper_step_by_step(sources, make_run):
    """Retrieve, S_0 of the chunk, FIFO of the headings named, one p_d, one reading."""
    answers = ("ANSWER", "In 2003 the park opened"), ("ANSWER", "The Texas SkyScreamer")
    says = follow(("EXPAND", "==Prices=="), ("EXPAND", "===Records==="), *answers)
    run, model = make_run(sources, says)
    answer = await RDR2(k=1, mode="sparse").answer(QUESTION, run)
    assert decisions(run) == [
        ("park", 0, None, (3, 4), [("expand", 11), ("expand", 7), ("answer", 3)]),
        ("park", 1, 11, (12,), [("expand", 7)]),
        ("park", 2, 7, (8,), [("expand", 11), ("answer", 8)]),
    ]
    tasks = [task_of(call.messages) for call in model.calls]
    assert tasks == [*["rdr2.router_instruction"] * 3, "reader"]
    assert bodies(model.calls[-1].prompt) == [
        "## History\n\nIn 2003 the park opened the Superman tower.\n## Rides\n### Records\n\n"
        "The Texas SkyScreamer is 400 feet high and the tallest ride of the park."
    ]
    assert titles(model.calls[-1].prompt) == ["Six Flags"]
    assert answer.found
    assert answer.citations[0].section == ("Six Flags", "Rides", "Records")
    text = DOCUMENTS["park"].text
    assert [text[e.span.start :][:12] for e in answer.evidence] == ["In 2003 the ", "The Texas Sk"]
    assert ["as found" in e.reason for e in answer.evidence] == [True, False]


async def test_the_papers_settings_search_by_meaning_and_skip_ten_sections(make_run, minilm):
    strategy = set_parameters(RDR2, ["preset=paper"])
    assert (strategy.mode, strategy.pool, strategy.k) == ("dense", 5, 5)
    page = document("park", f"{PARK}\n## References\n\nThe Superman tower, 2003.\n")
    async with InMemorySources([page], minilm, chunker="words:20") as sources:
        run, model = make_run(sources, follow(("ANSWER", "In 2003 the park")), embedder=minilm)
        answer = await strategy.answer(QUESTION, run)
    assert all("References" not in call.prompt for call in model.calls)
    assert len(bodies(model.calls[-1].prompt)) == 1
    assert answer.citations[0].quote == "In 2003 the park opened the Superman tower."


async def test_headings_are_expanded_in_the_order_of_discovery(sources, make_run):
    replies = ["[EXPAND] 11\n[EXPAND] 0", "[EXPAND] 5", "Cannot answer", "Cannot answer"]
    (routing,), _, _ = await route(sources, make_run, replies)
    assert opened(routing) == ["Prices", "Introduction", "Rides"]


@pytest.mark.parametrize("expansions", [0, 1, 2])
async def test_expansions_are_counted_per_document(sources, make_run, expansions):
    names = ("Introduction", "Rides", "Prices", "Fish")
    say = follow(*(("EXPAND", f"=={name}==") for name in names))
    fish = hit("The lake lies", DOCUMENTS["lake"])
    _, routed, _ = await route(sources, make_run, say, TOWER, fish, expansions=expansions)
    for name, headings in (("park", 3), ("lake", 1)):
        rounds = [event.round for event in routed if event.document == name]
        assert rounds == list(range(min(expansions, headings) + 1))


async def test_a_small_window_gets_a_small_subtree(make_run):
    paragraphs = "\n\n".join(f"Paragraph {i} says something of the park." * 5 for i in range(100))
    park = document("park", f"# Six Flags\n\n## History\n\nThe Superman tower.\n\n{paragraphs}\n")
    async with InMemorySources([park]) as sources:
        run, model = make_run(sources, refuse, context_tokens=1600)
        await RDR2(reply_tokens=300).route(QUESTION, run, [hit("Superman", park)])
    assert "The Superman tower." in model.calls[0].prompt
    assert "Paragraph 90" not in model.calls[0].prompt
    assert any("holds only a part of 'Six Flags'" in warning for warning in run.warnings)


async def test_a_block_longer_than_the_window_is_shown_from_its_beginning(make_run):
    rows = "\n".join(f"| The Superman ride {i} | {i} metres |" for i in range(400))
    park = document("park", f"# Six Flags\n\n## Rides\n\n| Ride | Height |\n|---|---|\n{rows}\n")
    async with InMemorySources([park]) as sources:
        run, model = make_run(sources, ["[ANSWER] 1"], context_tokens=1600)
        found = [hit("| The Superman ride 3 |", park)]
        (routing,) = await RDR2(reply_tokens=300).route(QUESTION, run, found)
    assert "==Rides==" in model.calls[0].prompt
    assert "ride 3 | 3 metres" in model.calls[0].prompt
    assert "…\n</document>" in model.calls[0].prompt
    assert routing.answers


async def test_without_structure_or_content_less_is_shown(sources, make_run):
    _, (event,), _ = await route(sources, make_run, refuse, no_structure=True)
    assert "==Rides==" not in event.shown
    _, (event,), _ = await route(sources, make_run, refuse, no_content=True)
    assert "In 2003" not in event.shown
    assert "==Rides==" in event.shown


async def test_without_refusals_a_refused_subtree_is_accepted(sources, make_run):
    (routing,), _, _ = await route(sources, make_run, refuse, no_refuse=True)
    assert [p.text for p in routing.tree.extract_passages(routing.answers)] == [
        "In 2003 the park opened the Superman tower."
    ]


async def test_without_expansions_nothing_more_is_shown(sources, make_run):
    _, routed, _ = await route(sources, make_run, ["[EXPAND] 5: ==Rides=="], no_expand=True)
    assert len(routed) == 1


async def test_without_similarity_a_block_is_drawn_for_each_passage(make_run):
    twin = document("twin", PARK)

    async def draw(question, *found):
        _, routed, _ = await route(
            sources, make_run, refuse, *found, question=question, no_similarity=True
        )
        return [event.highlighted for event in routed]

    async with InMemorySources([*DOCUMENTS.values(), twin]) as sources:
        drawn = {question: await draw(question, TOWER) for question in map(str, range(40))}
        blocks = {1, 3, 4, 6, 8, 10, 12}
        assert {group for (group,) in drawn.values()} == {(block,) for block in blocks}
        for question, groups in drawn.items():
            assert await draw(question, PRICE) == groups  # whatever was found
        assert drawn != {question: await draw(question, hit("sold", twin)) for question in drawn}
        both = [await draw(str(n), TOWER, PRICE) for n in range(10)]
        assert max(map(len, both)) == 2  # one for each passage; equal subtrees are shown once


async def observed(strategy, sources, make_run, say):
    """The outcome that the bench keeps of an answer."""
    run, _ = make_run(sources, say)
    answer = await strategy.answer(QUESTION, run)
    return await observe(run, run.meter.report(), answer)


EIGHT = document(
    "page",
    "# Page\n\n"
    + "\n\n".join(f"## Part {n}\n\nThe park opened answer {n} here." for n in range(8)),
)


async def test_a_page_routed_to_eight_sections_is_one_passage_of_the_paper(make_run):
    """P-EM and its kin are taken of one passage a document, with title and headings."""

    def say(call):
        if task_of(call.messages) == "reader":
            return follow()(call)
        shown = re.search(r"<document>\n(.*)\n</document>", call.prompt, re.DOTALL)[1]
        answers = re.findall(r"(\d+): The park opened answer", shown)
        headings = re.findall(r"(\d+): ==Part", shown)
        return "\n".join([f"[ANSWER] {i}" for i in answers] + [f"[EXPAND] {i}" for i in headings])

    async with InMemorySources([EIGHT]) as sources:
        strategy = RDR2(k=1, mode="sparse", expansions=8)
        outcome = await observed(strategy, sources, make_run, say)
    (passage,) = outcome.passages
    assert passage.splitlines()[:3] == ["Page", "==Part 0==", "The park opened answer 0 here."]
    assert len(outcome.evidence) == 8
    readings = tuple(QuestionReading(f"{n}?", (f"answer {n}",)) for n in range(8))
    measures = PASSAGES.compute(Question("q", QUESTION, readings=readings), outcome)
    words = len(passage.split())
    assert measures == {"p_em": 1.0, "p_hit": 1.0, "p_score": 0.2, "p_len": words / 5}


async def test_without_the_router_each_chunk_is_a_passage(make_run):
    async with InMemorySources([DOCUMENTS["park"]], chunker="words:20") as sources:
        run, model = make_run(sources, follow())
        answer = await RDR2(k=2, mode="sparse", no_router=True).answer(QUESTION, run)
        outcome = await observe(run, run.meter.report(), answer)
    assert len(model.calls) == 1
    assert len(bodies(model.calls[0].prompt)) == len(outcome.passages) == 2
    assert all(text.startswith("Six Flags\n") for text in outcome.passages)


async def test_a_router_may_enclose_its_lines(sources, make_run):
    reply = "<answer>\n3: In 2003 the park\n</answer>\n<expand>\n5: ==Rides==\n</expand>"
    run, model = make_run(sources, lambda call: reply)
    (routing,) = await RDR2(expansions=1, reply="enclosed").route(QUESTION, run, [TOWER])
    assert "</answer>" in model.calls[0].prompt
    assert list(routing.answers) == [3]
    assert opened(routing) == ["Rides"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[router", "cannot read the prompts"),
        ("[[rooter]]\nrole = 'user'\ncontent = 'x'", "did you mean router"),
        ("[[router]]\nrole = 'user'\ncontent = '{question}'", "{document} is missing"),
        ("[[router]]\nrole = 'judge'\ncontent = ''", "router.1.role"),
        ("router = 'x'", "router"),
        ("set = ['introduction=false']", "set: rdr2 has no such prompt"),
    ],
)
def test_a_file_of_prompts_that_does_not_fit_is_wrong_usage(tmp_path, text, message):
    file = tmp_path / "router.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        RDR2(prompts=str(file))
    with pytest.raises(UsageError, match="No such file"):
        RDR2(prompts=str(tmp_path / "none.toml"))
