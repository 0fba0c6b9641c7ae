"""Which model suits a machine: the largest that fits and is not too slow."""

import pytest

from colligate.core.events import Noted, Trace
from colligate.errors import WeightsUnavailable
from colligate.models.advice import Machine, compare, suggest
from colligate.session import Session

GB = 10**9


@pytest.mark.parametrize(
    ("machine", "best", "build"),
    [
        (Machine(2, 25 * GB), "bundled", ""),
        (Machine(16, 4 * GB), "bundled", ""),
        (Machine(16, 0), "bundled", ""),
        (Machine(4, 8 * GB), "qwen3-4b", ""),
        (Machine(8, 17 * GB), "qwen3-4b", ""),
        (Machine(40, 64 * GB), "qwen3-8b", ""),
        (Machine(8, 17 * GB, 17 * GB, "metal"), "qwen3-8b", ""),
        (Machine(4, 17 * GB, 8 * GB, "cuda"), "qwen3-4b", " with COLLIGATE_LLAMA=cuda"),
        (Machine(2, 17 * GB, 24 * GB, "vulkan"), "qwen3-8b", " with COLLIGATE_LLAMA=vulkan"),
        (Machine(4, 17 * GB, 1 * GB, "cuda"), "qwen3-4b", ""),
    ],
)
def test_the_largest_that_suits(monkeypatch, machine, best, build):
    monkeypatch.delenv("COLLIGATE_LLAMA", raising=False)
    line = compare(machine)
    assert line.startswith(f"{best}{build} suits this machine ({machine.cores} cores, ")
    assert "bundled (1.1 GB, " in line
    suggested = suggest(machine)
    assert suggested.endswith(f", Apache-2.0){build}") == (best != "bundled")
    assert (f"--model {best} (" in suggested) == (best != "bundled")


async def test_it_is_said_until_the_bundled_model_is_here(monkeypatch, tmp_path):
    monkeypatch.setattr("colligate.session.find_machine", lambda: Machine(40, 64 * GB))
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLLIGATE_INDEX_URL", "http://127.0.0.1:9")
    said: list[str] = []
    trace = Trace([lambda event: said.append(event.text) if isinstance(event, Noted) else None])
    async with Session() as session:
        for here in (None, {"model": tmp_path}):
            monkeypatch.setattr("colligate.session.find_weights", lambda name, here=here: here)
            with pytest.raises(WeightsUnavailable):
                await session.open_models(trace)
    [line] = [text for text in said if "larger" in text]
    assert line.endswith("--model qwen3-8b (5.0 GB, fast speed, Apache-2.0)")
