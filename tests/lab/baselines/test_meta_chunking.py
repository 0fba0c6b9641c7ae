from hypothesis import given
from hypothesis import strategies as st

from colligate.documents.tokens import token_spans
from colligate.errors import ServerFailed
from colligate.lab.baselines.meta_chunking import (
    MetaChunking,
    cut_runs,
    find_minima,
    merge_chunks,
)
from colligate.models import LabelOdds
from support.documents import make
from support.prompts import bodies

QUESTION = "Where do otters sleep?"
SENTENCES = (
    "Otters live by rivers.",
    "Otters sleep afloat.",
    "They hold hands.",
    "Bridges carry roads.",
    "Bridges rust.",
    "Paint helps them.",
)
TEXT = " ".join(SENTENCES)
SURPRISE = (5.0, 4.0, 1.0, 6.0, 5.0, 3.0)  # least where the subject is done: after “hands”


def otters(text=TEXT):
    return make(text, "Otters", "otters")


def likelihood(prefix, text):
    values = []
    for _, end in token_spans(text):
        place = (prefix + text)[: len(prefix) + end].count(". ")
        values.append(-SURPRISE[place])
    return values


async def test_a_chunk_ends_where_the_model_is_surprised_least(ask, reply):
    said = reply((1, "Otters sleep afloat.", "Otters sleep afloat."))
    answer, _, model = await ask(
        MetaChunking(words=10), QUESTION, [otters()], said, likelihood=likelihood
    )
    assert bodies(model.calls[0].prompt) == [" ".join(SENTENCES[:3]), " ".join(SENTENCES[3:])]
    assert answer.citations[0].quote == "Otters sleep afloat."


async def test_chunks_that_were_paid_for_are_read_though_the_reranker_fails(ask):
    class Failing:
        name = "failing"

        async def score(self, query, texts):
            raise ServerFailed("down")

    _, run, model = await ask(
        MetaChunking(words=10), QUESTION, [otters()], likelihood=likelihood, reranker=Failing()
    )
    assert bodies(model.calls[0].prompt) == [" ".join(SENTENCES[:3]), " ".join(SENTENCES[3:])]
    assert any("order of the search" in each for each in run.warnings)


async def test_the_margin_of_two_answers_says_what_belongs_together(ask):
    def labels(messages, names, forced):
        assert (list(names), forced) == (["1", "2"], "")
        new = "Bridges carry" in messages[-1].content.split("next sentence")[1]
        keep = 0.1 if new else 0.9
        return LabelOdds({"1": 1 - keep, "2": keep}, 1.0)

    _, _, model = await ask(MetaChunking(how="msp", words=10), QUESTION, [otters()], labels=labels)
    assert bodies(model.calls[0].prompt) == [" ".join(SENTENCES[:3]), " ".join(SENTENCES[3:])]


async def test_from_the_sixth_margin_on_the_last_five_set_the_bar(ask):
    def always(messages, names, forced):
        return LabelOdds({"1": 0.25, "2": 0.75}, 0.8)

    text = " ".join(f"Otter number {n} swims." for n in range(8))
    _, _, model = await ask(
        MetaChunking(how="msp", words=1, by="bm25"), QUESTION, [otters(text)], labels=always
    )
    counts = [body.count("swims") for body in bodies(model.calls[0].prompt)]
    assert sorted(counts) == [1, 1, 6]


def test_a_shallow_minimum_is_none_under_a_threshold():
    assert find_minima([3.0, 2.8, 3.1], 0.5) == []
    assert find_minima([3.0, 2.8, 3.4], 0.5) == [1]
    assert find_minima([3.0, 2.8, 2.8], 0.5) == []


@given(st.integers(0, 30), st.data())
def test_runs_and_merged_cover_every_sentence_once(count, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, 29))))
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    most = data.draw(st.integers(1, 120))
    chunks = merge_chunks(cut_runs(count, cuts), sizes, most)
    assert [i for start, end in chunks for i in range(start, end)] == list(range(count))
    whole = set(cut_runs(count, cuts))
    assert all(sum(sizes[start:end]) <= most or (start, end) in whole for start, end in chunks)
