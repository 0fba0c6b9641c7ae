"""A small model on a real Ray cluster of one machine."""

import asyncio

import psutil
import pytest

from colligate.errors import ModelError, UnknownModel
from colligate.models import Capability, Message
from colligate.models.base import ChatRequest
from colligate.models.names import open_model

pytest.importorskip("ray")

from colligate.scale.ray_model import RayCluster

pytestmark = pytest.mark.real

NAME = "gguf:smollm2-135m"


@pytest.fixture
def cluster():
    """A cluster that models share: they keep a connection that the program has."""
    opened = RayCluster()
    yield opened
    opened.close()


def ask(what):
    return ChatRequest([Message("user", f"What is {what}? One sentence.")], max_tokens=40)


def list_copies():
    return [each for each in psutil.process_iter(["cmdline"]) if "ray::_Copy" in str(each.info)]


async def test_calls_are_spread_and_one_whose_worker_is_killed_is_made_again(cluster):
    here = open_model(NAME)
    there = open_model(f"ray:{NAME}", options={"copies": 2, "context_tokens": 2048})
    assert there.capabilities == here.capabilities >= {Capability.LABELS, Capability.LIKELIHOOD}
    assert await there.count_tokens("a heron") == await here.count_tokens("a heron")
    requests = [ask(what) for what in ("a heron", "an otter", "a badger", "a river")]
    expected = [(await here.chat(request)).text for request in requests]

    async def chat(request):
        pieces = []
        completion = await there.chat(request, pieces.append)
        assert "".join(pieces) == completion.text
        return completion.text

    assert await asyncio.gather(*map(chat, requests)) == expected
    copies = list_copies()
    assert len(copies) == 2
    answers = asyncio.gather(*map(chat, requests))
    await asyncio.sleep(0)  # the calls are on their way
    copies[0].kill()
    assert await answers == expected

    pairs = [("A heron is", " a bird"), ("A heron is", " a stone")]
    for one, other in zip(
        await there.likelihoods(pairs), await here.likelihoods(pairs), strict=True
    ):
        assert one == pytest.approx(other, abs=0.05)
    labels = await there.labels(requests[0].messages, ["yes", "no"])
    assert sum(labels.odds.values()) == pytest.approx(1)
    paid = await there.attention("A heron wades. An otter swims.", [(0, 14), (15, 30)])
    assert all(each > 0 for each in paid)
    for each in (there, here):
        await each.aclose()
    # Ray ends them a little later.
    _, alive = psutil.wait_procs(list_copies(), timeout=30)
    assert not alive


def test_errors_are_one_line():
    with pytest.raises(ModelError, match=r"cannot use Ray at 127\.0\.0\.1:9") as raised:
        open_model(f"ray:{NAME}", options={"address": "127.0.0.1:9"})
    assert "\n" not in str(raised.value)
    with pytest.raises(UnknownModel, match="no model 'ray:openai:x'"):
        open_model("ray:openai:x")
