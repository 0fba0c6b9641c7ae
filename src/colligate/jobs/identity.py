"""What a run ran on: hardware, versions, and the commit of a working copy."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Those whose version can change an answer.
_PACKAGES = (
    *("colligate", "numpy", "scipy", "onnxruntime", "tokenizers", "qdrant-edge-py", "xllamacpp"),
    *("torch", "transformers", "peft", "llguidance", "sentence-transformers"),
    *("ir-measures", "rouge-score", "rouge"),
)
_SECONDS = 10


def hardware() -> dict[str, Any]:
    """Processor, cores, memory and graphics cards, as far as the system says. Blocks."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "gpus": _gpus(),
    }


def versions() -> dict[str, str]:
    """Python's version, and those of the packages that take part where they are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def commit() -> str:
    """The commit of colligate's working copy, with "+" where files differ; empty elsewhere."""
    source = Path(__file__).parents[1]
    head = _said("git", "-C", str(source), "rev-parse", "HEAD")
    # An installed copy may lie in somebody else's repository.
    if not head or _said("git", "-C", str(source), "ls-files", "--", "__init__.py") == "":
        return ""
    changed = _said("git", "-C", str(source), "status", "--porcelain", "--", ".")
    return head + ("+" if changed else "")


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


def _gpus() -> list[str]:
    listed = _said("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    return [line.strip() for line in listed.splitlines() if line.strip()]


def _said(*command: str) -> str:
    """What a program prints; empty where there is no such program, or it fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
