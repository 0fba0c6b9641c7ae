"""Which local model to take on this machine: by its memory, cores and graphics card.

The speed is a class by rule, not measured: on a card or Apple silicon `fast`, else by the cores for
each billion weights, which set how long a prompt takes: from 4 `fast`, from 1 `fair`, below `slow`.
A model fits where its file takes at most a third of the memory; the window takes as much again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from colligate.concurrency import physical_cores
from colligate.models.base import memory_bytes
from colligate.models.llama.libraries import BUILDS
from colligate.models.names import OWN_NAMES
from colligate.models.weights import PINNED, Pinned, find_platform

# Billions of weights, and the speeds at which the model is recommended.
_MODELS = {
    "bundled": (1.5, ("slow", "fair", "fast")),
    "qwen3-4b": (4.0, ("fair", "fast")),
    "qwen3-8b": (8.2, ("fast",)),
}


@dataclass(frozen=True)
class Machine:
    """Cores, bytes of memory (0: unknown), those of the card, and the build that uses the card."""

    cores: int
    memory: int
    card_memory: int = 0
    card: str = ""

    def __str__(self) -> str:
        memory = f"{self.memory / 1e9:.0f} GB of memory" if self.memory else "memory unknown"
        card = f"{self.card} card with {self.card_memory / 1e9:.0f} GB" if self.card else "no card"
        return f"{self.cores} cores, {memory}, {card}"

    def uses_card(self, model: str) -> bool:
        return _find(model).size <= self.card_memory / 3

    def rate(self, model: str) -> str:
        """Return the speed of a model here; empty if it does not fit."""
        size, (billions, _) = _find(model).size, _MODELS[model]
        if self.uses_card(model):
            return "fast"
        if size > self.memory / 3 and model != "bundled":
            return ""
        cores = self.cores / billions
        return "fast" if cores >= 4 else "fair" if cores >= 1 else "slow"

    def recommend(self) -> str:
        """Return the largest model that fits and is not too slow."""
        return [model for model, (_, speeds) in _MODELS.items() if self.rate(model) in speeds][-1]


@cache
def find_machine() -> Machine:
    """Return what this machine has; a card counts if there is a build of llama.cpp for it."""
    memory, platform = memory_bytes() or 0, find_platform()
    if platform == "mac-arm64":
        return Machine(physical_cores(), memory, memory, "metal")
    cards = [card for card in ("cuda", "vulkan") if f"{platform}-{card}" in BUILDS]
    found = 0
    with suppress(OSError, ValueError, LookupError, subprocess.SubprocessError):
        if command := shutil.which("nvidia-smi"):
            asked = [command, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
            said = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True)
            found = int(said.stdout.split()[0]) << 20
        elif amd := next(Path("/sys/class/drm").glob("card*/device/mem_info_vram_total"), None):
            found, cards = int(amd.read_text()), cards[-1:]
    if not found or not cards or os.environ.get("COLLIGATE_LLAMA") == "cpu":
        return Machine(physical_cores(), memory)
    return Machine(physical_cores(), memory, found, cards[0])


def compare(machine: Machine) -> str:
    """Return a line that says which model to take, and how each would run."""
    best = machine.recommend()
    rated = [f"{model} ({_describe(model, machine)})" for model in _MODELS]
    suits = f"{best}{_needs_build(best, machine)} suits this machine ({machine})"
    return f"{suits}: {', '.join(rated)}"


def suggest(machine: Machine) -> str:
    """Return a line that names a larger model than the bundled one; empty if none suits."""
    best = machine.recommend()
    if best == "bundled":
        return ""
    about = f"({_describe(best, machine)}, {_find(best).licence}){_needs_build(best, machine)}"
    return f"this machine can run a larger model: --model {best} {about}"


def _find(model: str) -> Pinned:
    return PINNED[OWN_NAMES.get(model, model)]


def _describe(model: str, machine: Machine) -> str:
    speed = f"{machine.rate(model)} speed" if machine.rate(model) else "may not fit"
    return f"{_find(model).size / 1e9:.1f} GB, {speed}"


def _needs_build(model: str, machine: Machine) -> str:
    """Return what makes llama.cpp use the card, if nothing does yet."""
    if machine.card == "metal" or os.environ.get("COLLIGATE_LLAMA") or not machine.uses_card(model):
        return ""
    return f" with COLLIGATE_LLAMA={machine.card}"
