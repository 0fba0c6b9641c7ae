"""Exactly as many items are kept as a window or a budget holds, and what is left out is said."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate.core.budget import FOR_THE_ANSWER
from colligate.core.events import Pruned
from colligate.core.fit import Room, fit_window, split_by_tokens
from colligate.lab.baselines.shared import fit_budget
from colligate.library.in_memory import InMemorySources
from colligate.models import Message, Role
from support.documents import make
from support.runs import events

DOCUMENT = make("\n\n".join(f"Paragraph {n} has {'many ' * n}words." for n in range(8)), "Book")
PASSAGES = [DOCUMENT.passage(node.span) for node in DOCUMENT.tree.leaves]


def prompt(kept):
    return [Message("user", "\n".join(each.text for each in kept))]


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("limit", ["context_tokens", "max_tokens"])
async def test_as_many_are_kept_as_fit_together_with_the_reply(make_run, count, limit):
    _, model = make_run(None)
    size = await model.count_prompt(prompt(PASSAGES[:count])) + 20
    for more, kept in ((0, count), (-1, max(1, count - 1))):
        run, _ = make_run(None, **{limit: size + more})
        room = Room(20, last=limit == "max_tokens")
        assert await fit_window(PASSAGES, prompt, run, room) == PASSAGES[:kept]
        if kept == len(PASSAGES):
            assert run.warnings == ()
        else:
            what = "the window of scripted" if limit == "context_tokens" else "the token budget"
            (warning,) = run.warnings
            assert warning.startswith(f"{8 - kept} of 8 passages do not fit ")
            assert what in warning
            (pruned,) = events(run, Pruned)
            assert pruned.spans == tuple(each.span for each in PASSAGES[kept:])


async def test_a_budget_holds_the_first_passages_with_their_titles(make_run):
    async with InMemorySources([DOCUMENT]) as sources:
        run, model = make_run(sources)
        sizes = [await model.count_tokens(f"{p.full_title}\n{p.text}") for p in PASSAGES]
        assert await fit_budget(PASSAGES, sum(sizes[:3]), run) == PASSAGES[:3]
        assert await fit_budget(PASSAGES, sum(sizes[:3]) - 1, run) == PASSAGES[:2]
        (cut,) = await fit_budget(PASSAGES[7:], sizes[7] - 3, run)
        assert PASSAGES[7].text.startswith(cut.text)
        assert await model.count_tokens(f"{cut.full_title}\n{cut.text}") == sizes[7] - 3
        assert await fit_budget(PASSAGES, 0, run) == []


@pytest.mark.parametrize("limit", [None, 100, 4 * FOR_THE_ANSWER])
async def test_half_of_a_small_budget_is_reserved(make_run, limit):
    run, _ = make_run(None, max_tokens=limit)
    with run.tokens.reserve_reading():
        kept = None if limit is None else max(limit // 2, limit - FOR_THE_ANSWER)
        assert run.tokens.left == kept
        assert await run.room(Role.READER, prompt([]), 0, last=True) == (kept and kept - 4)


@given(st.lists(st.integers(0, 900), min_size=1, max_size=60), st.integers(1, 1500))
@example([50, 50, 1], 100)
def test_runs_keep_the_order_and_the_budget(tokens, budget):
    runs = split_by_tokens(tokens, budget)
    assert [at for run in runs for at in run] == list(range(len(tokens)))
    assert all(len(run) == 1 or sum(tokens[i] for i in run) <= budget for run in runs)
    for one, other in pairwise(runs):  # no run could have been longer
        assert sum(tokens[i] for i in one) + tokens[other[0]] > budget
