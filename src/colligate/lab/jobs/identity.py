"""The identity of results: models, prompts, data and machine, recorded and compared.

A folder of results is resumed only with what it was begun with (`check_same`).
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import inspect
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from colligate.core.parameters import list_parameters
from colligate.errors import UsageError, WeightsUnavailable
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.base import memory_bytes
from colligate.models.download import hash_file
from colligate.models.llama.libraries import LIBRARY, VERSION, find_libraries
from colligate.models.names import find_weights_of, redact_name, split_adapter, split_name
from colligate.models.weights import PINNED, find_recorded, get_pinned

PROMPTS = "prompts"
"""The key of an identity that holds `prompt_digests`."""

ADAPTER = "adapter"
"""The record of an adapter is named by this word and the adapter's name."""

_SHARED = ("core/", "readers/")  # prompts of these modules take part in every run
_NAMED = 3  # differences of one kind that an error lists
_LONGEST = 60  # characters of a value that an error quotes
_DIGEST = 64  # characters of a SHA-256, which mean nothing to a person


# Resuming: compare an identity with that of the folder.
def check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raise UsageError, with the differences, if a folder was begun with another identity."""
    was, is_now = dict(before), json.loads(json.dumps(now))
    prompts = [each.pop(PROMPTS, {}) for each in (was, is_now)]
    if wrong := [*list_differences(was, is_now), *prompt_differences(*prompts)]:
        raise resume_error(folder, wrong)


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Say how each value differs from what it was."""
    first, second = (dict(flatten(each)) for each in (before, now))
    for name in dict.fromkeys((*first, *second)):
        was, is_now = first.get(name), second.get(name)
        if was == is_now:
            continue
        if all(isinstance(each, str) and len(each) == _DIGEST for each in (was, is_now)):
            yield f"{name} has changed"
        else:
            yield f"{name} was {_quote(was)} and is {_quote(is_now)}"


def resume_error(folder: Path, differences: Sequence[str]) -> UsageError:
    """Return the error that names why a folder cannot be resumed."""
    hint = "use what it was begun with, or name another --out"
    return UsageError(f"cannot resume {folder}", "; ".join(differences), hint)


def prompt_differences(
    before: Mapping[str, str], now: Mapping[str, str], *, partial: bool = False
) -> list[str]:
    """Say how prompts differ from those of before, if `partial` of those that both have."""
    shared = [{name for name in each if name.startswith(_SHARED)} for each in (before, now)]
    if shared[0] != shared[1]:
        return [
            "it was begun with another version of colligate, whose prompts cannot be compared "
            "with this version's"
        ]
    names = [name for name in {**before, **now} if not partial or (name in before and name in now)]
    changed = [name for name in names if before.get(name) != now.get(name)]
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    return [f"the prompts of {', '.join(changed[:_NAMED])}{more} have changed"] if changed else []


def flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, each with the path to it: "models: teacher: name"."""
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from flatten(inner, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}", inner


def _quote(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# Models: a name and what tells its weights apart from others.
@dataclass(frozen=True)
class ModelRecord:
    """A model that took part; `digest` is of its file, or a hub's commit, "" on a server."""

    name: str
    digest: str = ""


async def model_records(
    models: Mapping[Role, ChatModel], embedder: Embedder | None, reranker: Reranker | None
) -> dict[str, ModelRecord]:
    """Return the record of each model by role, and of embedder and reranker."""
    named: dict[str, Any] = {role.value: model for role, model in models.items()}
    named |= {"embedder": embedder, "reranker": reranker}
    records = {}
    for what, model in named.items():
        if model is not None:
            digest = await asyncio.to_thread(weights_digest, model.name)
            records[what] = ModelRecord(redact_name(model.name), digest)
    return records


def adapter_records(strategies: Iterable[object]) -> dict[str, ModelRecord]:
    """Return the record of each adapter that the strategies are configured with. Blocks."""
    names = (
        getattr(strategy, parameter.name)
        for strategy in strategies
        for parameter in list_parameters(type(strategy))
        if parameter.name.endswith("_adapter")
    )
    return {
        f"{ADAPTER} {name}": ModelRecord(name, weights_digest(f"hf:{name}"))
        for name in names
        if name
    }


_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.onnx")


def weights_digest(name: str) -> str:
    """Return the SHA-256 of the weights behind a name, or a hub's commit. Blocks.

    Of several files it is the SHA-256 of their digests in the order of their names; an adapter's
    follows its base's after a "+". It is empty if a server holds the weights.
    """
    base, adapter = split_adapter(name)
    if adapter is not None:
        return f"{weights_digest(base)}+{_digest_at(adapter)}"
    kind, rest = split_name(base)
    weights = find_weights_of(base) or ""
    if (weights in PINNED or find_recorded(weights)) and not (rest and Path(rest).exists()):
        return get_pinned(weights).files["model"].sha256
    return _digest_at(rest) if kind in ("gguf", "hf", "st", "cross-encoder", "onnx") else ""


def _digest_at(place: str) -> str:
    path = Path(place).expanduser()
    if path.is_file():
        return hash_file(path)
    if path.is_dir():
        files = sorted(file for pattern in _WEIGHTS for file in path.glob(pattern))
        return _combine_digests(map(hash_file, files)) if files else ""
    return _hub_commit(place)


def _hub_commit(name: str) -> str:
    """Return the commit of the local copy of a hub's repository; empty without one."""
    from huggingface_hub import try_to_load_from_cache  # takes long to import

    try:
        file = try_to_load_from_cache(name, "config.json")
    except ValueError:  # not the name of a repository
        return ""
    return Path(file).parent.name if isinstance(file, str) else ""


def path_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's files with their names below it. Blocks.

    Hidden files of a folder do not count: no strategy reads them, and systems write their own.
    """
    if path.is_file():
        return hash_file(path)
    names = (file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file())
    seen = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return _combine_digests(f"{name.as_posix()} {hash_file(path / name)}" for name in seen)


def _combine_digests(texts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for text in texts:
        whole.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return whole.hexdigest()


# Prompts: every text in the modules that write them.
_EXPORTS = "__init__.py"  # names alone, unless a class is defined in it


def prompt_digests(kinds: Iterable[type]) -> dict[str, str]:
    """Return a digest of every string literal, by module, of the modules that hold prompts.

    These are the modules of `colligate.core` and `colligate.readers`, and those of the classes
    given: all files of a method's folder, otherwise one file. Docstrings, comments and code do
    not count.
    """
    files = []
    for name in _SHARED:
        package = Path(str(resources.files(f"colligate.{name.rstrip('/')}")))
        files += [file for file in sorted(package.glob("*.py")) if file.name != _EXPORTS]
    for kind in kinds:
        try:
            source = Path(inspect.getsourcefile(kind) or "")
        except (OSError, TypeError):  # a class defined in a session has no source file
            continue
        folder = source.parent
        is_method = hasattr(kind, "answer") and (folder / _EXPORTS).is_file()
        if is_method and folder.name not in ("strategies", "baselines"):
            files += [file for file in sorted(folder.glob("*.py")) if file.name != _EXPORTS]
        files.append(source)
    return {
        f"{file.parent.name}/{file.name}": _texts_digest(file.read_text("utf-8"))
        for file in files
        if file.is_file()
    }


def _texts_digest(source: str) -> str:
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return _combine_digests(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    )


# The machine, and the versions on it.

# Packages whose version can change an answer.
_PACKAGES = (
    *("colligate", "numpy", "onnxruntime", "tokenizers", "py_rust_stemmers"),
    *("torch", "transformers", "peft", "llguidance", "sentence-transformers"),
    *("accelerate", "datasets", "flash-attn", "trl"),
    *("ir-measures", "rouge-score", "rouge"),
)
_SECONDS = 10  # for a program that describes the machine


def hardware() -> dict[str, Any]:
    """Return processor, cores, memory and graphics cards, as far as they are known. Blocks."""
    memory = memory_bytes()
    gpus = _output_of("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": None if memory is None else round(memory / 1e9, 1),
        "gpus": [line.strip() for line in gpus.splitlines() if line.strip()],
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, and of the packages and libraries here that take part."""
    found = {"python": platform.python_version()}
    with suppress(WeightsUnavailable):  # none fits this machine
        if find_libraries() is not None:
            found[LIBRARY] = VERSION
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def commit() -> str:
    """Return the commit of our working copy, "+" if files differ; "" without one. Blocks."""
    source = Path(__file__).parents[2]
    head = _output_of("git", "-C", str(source), "rev-parse", "HEAD")
    # An installed copy may lie in another project's repository.
    if not head or _output_of("git", "-C", str(source), "ls-files", "--", "__init__.py") == "":
        return ""
    changed = _output_of("git", "-C", str(source), "status", "--porcelain", "--", ".")
    return head + ("+" if changed else "")


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _output_of(*command: str) -> str:
    """Return what a program prints; empty if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
