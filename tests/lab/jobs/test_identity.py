"""What results are made with: weights, servers, prompts, files."""

from __future__ import annotations

from pathlib import Path

from colligate.lab.jobs.identity import (
    path_digest,
    prompt_differences,
    prompt_digests,
    weights_digest,
)
from colligate.models.weights import PINNED
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.full_context import FullContext


def test_pinned_weights_are_known_by_their_digest_and_files_by_theirs(tmp_path: Path) -> None:
    pinned = PINNED["smollm2-135m"].files["model"].sha256
    assert weights_digest("gguf:smollm2-135m") == pinned
    assert weights_digest("hf:smollm2-135m") == pinned
    assert len(weights_digest("bundled")) == 64
    (tmp_path / "a.gguf").write_bytes(b"weights")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"lora")
    base = weights_digest(f"gguf:{tmp_path}/a.gguf")
    assert len(base) == 64
    with_adapter = weights_digest(f"hf:{tmp_path}/a.gguf+{adapter}")
    assert with_adapter.startswith(f"{base}+")
    assert weights_digest("openai:gpt@http://localhost/v1") == ""


def test_prompts_are_those_of_core_and_of_the_strategies() -> None:
    digests = prompt_digests([DuQUAD, FullContext])

    assert {
        "core/prompts.py",
        "readers/quoting.py",
        "duquad/prompts.py",
        "strategies/full_context.py",
    } <= set(digests)
    assert "strategies/direct.py" not in digests
    assert not any(name.endswith("__init__.py") for name in digests)  # names, not prompts
    assert digests == prompt_digests([DuQUAD, FullContext])


def test_prompts_differ_by_their_texts_and_not_by_who_takes_part() -> None:
    before = {"core/a.py": "1", "x/m.py": "2", "y/m.py": "3"}
    partial = {"core/a.py": "1", "x/m.py": "2", "z/m.py": "4"}
    assert prompt_differences(before, partial, partial=True) == []
    [said] = prompt_differences(before, {**before, "x/m.py": "9"}, partial=True)
    assert "x/m.py have" in said


def test_a_folder_has_the_digest_of_its_files_and_their_names_but_not_of_hidden_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.md").write_text("one", "utf-8")
    before = path_digest(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"")
    assert path_digest(tmp_path) == before
    (tmp_path / "a.md").rename(tmp_path / "b.md")
    assert path_digest(tmp_path) != before
