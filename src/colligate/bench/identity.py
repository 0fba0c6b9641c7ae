"""What tells models, prompts and files of data apart from others of the same name."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from colligate.bench.provenance import ADAPTER, ModelRecord
from colligate.core.parameters import list_parameters
from colligate.errors import ColligateError
from colligate.models.names import redact_name, split_adapter, split_name
from colligate.models.weights import BUNDLED, PINNED

_BEHIND = {"bundled": BUNDLED, "minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
# What a server says anew each time it is asked.
_VOLATILE = frozenset({"created", "permission"})
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.onnx")


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


@runtime_checkable
class _Served(Protocol):
    async def listed(self) -> dict[str, Any]: ...


async def server_says(model: object) -> dict[str, Any]:
    """What the server of a model says of it; empty for a model in process, or without a list."""
    if not isinstance(model, _Served):
        return {}
    try:
        said = await model.listed()
    except ColligateError:  # not every server lists its models
        return {}
    return {key: value for key, value in said.items() if key not in _VOLATILE}


def model_record(model: _HasName, said: Mapping[str, Any]) -> ModelRecord:
    """The record of a model, embedder or reranker; weights in files are read. Blocks."""
    return ModelRecord(
        redact_name(model.name), "" if said else weights_digest(model.name), dict(said)
    )


def adapter_records(strategies: Iterable[object]) -> dict[str, ModelRecord]:
    """The record of each adapter that strategies were set up with. Blocks."""
    named = (
        getattr(strategy, parameter.name)
        for strategy in strategies
        for parameter in list_parameters(type(strategy))
        if parameter.name.endswith("_adapter")
    )
    return {
        f"{ADAPTER} {name}": ModelRecord(name, weights_digest(f"hf:{name}"))
        for name in named
        if name
    }


def weights_digest(name: str) -> str:
    """The SHA-256 of the weights behind a name, or a hub's commit; empty where a server has them.

    Of several files it is that of their digests in the order of their names; an adapter's stands
    behind its base's, after a "+".
    """
    base, adapter = split_adapter(name)
    if adapter is not None:
        return f"{weights_digest(base)}+{_of_place(adapter)}"
    kind, rest = split_name(base)
    pinned = _BEHIND.get(base, rest if kind in ("gguf", "hf") and rest in PINNED else base)
    if pinned in PINNED and not (rest and Path(rest).exists()):
        return PINNED[pinned].files["model"].sha256
    return _of_place(rest) if kind in ("gguf", "hf", "st", "cross-encoder") else ""


def _of_place(place: str) -> str:
    path = Path(place).expanduser()
    if path.is_file():
        return file_digest(path)
    if path.is_dir():
        files = sorted(file for pattern in _WEIGHTS for file in path.glob(pattern))
        return _combined(map(file_digest, files)) if files else ""
    return _hub_commit(place)


def _hub_commit(name: str) -> str:
    """The commit of what is here of a hub's repository."""
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        return ""
    try:
        file = hub.try_to_load_from_cache(name, "config.json")
    except ValueError:  # it is no name of a repository
        return ""
    return Path(file).parent.name if isinstance(file, str) else ""


def file_digest(file: Path) -> str:
    """The SHA-256 of a file. Blocks."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def path_digest(path: Path) -> str:
    """The SHA-256 of a file, or of a folder's files with their names below it. Blocks.

    Hidden files of a folder do not count: nobody asks them, and systems leave theirs everywhere.
    """
    if path.is_file():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    below = [(file.relative_to(path), file) for file in files]
    seen = [(name, file) for name, file in below if not any(p.startswith(".") for p in name.parts)]
    return _combined(f"{name.as_posix()} {file_digest(file)}" for name, file in seen)


def prompt_digests(strategies: Iterable[type]) -> dict[str, str]:
    """Return a digest of every string literal, by module, of the modules that hold prompts.

    These are the modules of `colligate.core` and those of each strategy: all files of its folder,
    or its file among the baselines. Docstrings, comments and code do not count.
    """
    found = {}
    for file in sorted(resources.files("colligate.core").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".py"):
            found[f"core/{file.name}"] = _texts_digest(file.read_text("utf-8"))
    for kind in strategies:
        module = inspect.getmodule(kind)
        if module is None:
            continue
        try:
            source = Path(inspect.getsourcefile(module) or "")
            folder = source.parent
            own = hasattr(kind, "answer") and (folder / "__init__.py").is_file()
            own = own and folder.name != "baselines"
            for file in sorted(folder.glob("*.py")) if own else [source]:
                name = f"{folder.name}/{file.name}"
                found[name] = _texts_digest(file.read_text("utf-8"))
        except (OSError, TypeError):  # a class made in a session has no source
            continue
    return found


def _texts_digest(source: str) -> str:
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
    return _combined(texts)


def _combined(texts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for text in texts:
        whole.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return whole.hexdigest()
