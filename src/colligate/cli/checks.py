"""What `colligate doctor` looks at, one check after another."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colligate.cli.running import run
from colligate.errors import (
    ColligateError,
    EndpointUnreachable,
    WeightsUnavailable,
)

if TYPE_CHECKING:
    from colligate.models import Capability

# What is compiled may be installed and still not run here.
_COMPILED = (
    *("numpy", "onnxruntime", "tokenizers", "xllamacpp", "qdrant_edge"),
    *("kreuzberg", "liteparse", "pypdfium2"),
)
_LOCAL = ("torch", "transformers", "sentence_transformers")
_SECONDS = 20.0
_SPARE_BYTES = 200_000_000


@dataclass(frozen=True)
class Check:
    """One thing that `ask` needs (`needed`) or can use: whether it is there, and the mend."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    needed: bool = True

    def to_json(self) -> dict[str, Any]:
        """The check for programs."""
        return asdict(self)


def checks(model: str | None, embedder: str, library: Path | None) -> Iterator[Check]:
    """All checks, each made when it is asked for."""
    yield _python()
    yield _packages()
    yield _extras()
    yield from _model(model)
    yield _embedder(embedder)
    yield _library(embedder, library)
    yield _space(model, embedder)


def _failed(name: str, error: ColligateError, mend: str = "") -> Check:
    found = f"{error.what}: {error.why}" if error.why else error.what
    return Check(name, False, found, error.mend or mend)


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.platform(terse=True)}"
    return Check("python", sys.version_info >= (3, 11), found, "install Python 3.11 or later")


def _packages() -> Check:
    broken = []
    for name in _COMPILED:
        try:
            import_module(name)
        except ImportError as error:
            broken.append(f"{name} ({error})")
    found = f"cannot load {', '.join(broken)}" if broken else f"colligate {_version('colligate')}"
    return Check("packages", not broken, found, "pip install --force-reinstall colligate")


def _extras() -> Check:
    missing = [name for name in _LOCAL if find_spec(name) is None]
    found = f"without {', '.join(missing)}" if missing else "installed"
    mend = "for models through torch: pip install 'colligate[local]'"
    return Check("extra 'local'", not missing, found, mend, needed=False)


def _model(named: str | None) -> Iterator[Check]:
    try:
        name, why = model_taken(named)
    except ColligateError as error:
        yield _failed("model", error, "name one with --model, or set COLLIGATE_MODEL")
        return
    yield Check("model", True, f"{name} ({why})")
    if weights := weights_of(name):
        yield (check := _weights("model weights", weights))
        if not check.ok:
            return
    try:
        has = run(_capabilities(name, ask=True))
    except ColligateError as error:
        yield _failed("model answers", error)
    else:
        yield Check("model answers", True, f"it offers {', '.join(sorted(has))}")


def model_taken(named: str | None) -> tuple[str, str]:
    """The model that `ask` would take, and why.

    Raises:
        ModelError: if the server that was set does not say which models it has.
    """
    from colligate.models.names import default_model

    return (named, "--model") if named else default_model()


def capabilities(name: str) -> frozenset[Capability]:
    """What a model offers, without asking it anything; nothing is fetched.

    Raises:
        UnknownModel, ModelError: if it cannot be opened here.
    """
    weights = weights_of(name)
    if weights is not None and not (check := _weights(name, weights)).ok:
        raise WeightsUnavailable(f"{name} cannot run yet", "its weights are not here", check.mend)
    return run(_capabilities(name, ask=False))


async def _capabilities(name: str, *, ask: bool) -> frozenset[Capability]:
    from colligate.models.names import open_model
    from colligate.models.openai_chat import OpenAIChat

    model = open_model(name)
    try:
        if ask and isinstance(model, OpenAIChat):
            # A call of one token: whether the server is there, takes the key, has the model.
            async with asyncio.timeout(_SECONDS):
                return await model.probe()
        return model.capabilities
    except TimeoutError:
        why = f"no answer within {_SECONDS:g} seconds"
        raise EndpointUnreachable(f"cannot ask {name}", why, "is the server busy?") from None
    finally:
        await model.aclose()


def weights_of(name: str) -> str | None:
    """The pinned weights behind the name of a model or embedder, None if it has none."""
    from colligate.models.weights import BUNDLED, PINNED

    behind = {"bundled": BUNDLED, "minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
    weights = behind.get(name, name.removeprefix("gguf:"))
    return weights if weights in PINNED else None


def _weights(name: str, weights: str) -> Check:
    from colligate.models.weights import PINNED, find

    files = find(weights)
    size = f"{PINNED[weights].size / 1e6:,.0f} MB"
    found = f"{weights} in {next(iter(files.values())).parent}" if files else f"{weights}, {size}"
    return Check(name, files is not None, found, f"colligate models pull {weights}")


def _embedder(name: str) -> Check:
    if weights := weights_of(name):
        return _weights("embedder", weights)
    from colligate.models.names import open_embedder

    try:
        run(open_embedder(name).aclose())
    except ColligateError as error:
        return _failed("embedder", error)
    return Check("embedder", True, name)


def _library(embedder: str, folder: Path | None) -> Check:
    from colligate.library.library import Library

    async def look() -> str:
        async with Library(folder, embedder=embedder) as library:
            count = len(await library.documents())
            if library.path.exists():
                await _take_lock(library.path)
                return f"{library.path}, {count:,} documents"
            nearest = next(p for p in library.path.absolute().parents if p.exists())
            if not os.access(nearest, os.W_OK):
                raise ColligateError(f"{library.path} cannot be made", f"{nearest} is read-only")
            return f"{library.path}, not made yet"

    try:
        return Check("library", True, run(look()))
    except ColligateError as error:
        return _failed("library", error, "name another folder with --library")


async def _take_lock(folder: Path) -> None:
    from colligate.library.lock import LibraryLock

    lock = LibraryLock(folder)
    await lock.acquire()
    lock.release()


def _space(model: str | None, embedder: str) -> Check:
    from colligate.models.weights import PINNED, find, home

    wanted = [weights_of(name) for name in (model or "bundled", embedder)]
    missing = sum(PINNED[name].size for name in wanted if name and find(name) is None)
    place = home()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    needed = missing + _SPARE_BYTES
    found = f"{free / 1e9:,.1f} GB free in {place}"
    mend = f"free {(needed - free) / 1e6:,.0f} MB, or set COLLIGATE_HOME elsewhere"
    return Check("disk space", free >= needed, found, mend)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
